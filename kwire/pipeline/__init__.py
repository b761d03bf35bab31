"""Logs and event logs as tables: read in parallel by Spark, or by PyArrow alone, without a broker.

Everything here but event_lines.py needs numpy and PyArrow (`kwire[spark]`); PySpark is needed by source.py and
events.py alone. Nothing of a broker imports this room.
"""
