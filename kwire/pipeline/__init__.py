"""Logs as tables: brokers' log directories read in parallel by Spark, or by PyArrow alone, without a broker.

Everything here needs numpy and PyArrow (`kwire[audit]`); PySpark is needed by source.py alone. Nothing of a broker
imports this room.
"""
