"""What happened to the records: Spark jobs that compare ledgers, topics and replicas, and name events as causes.

Everything here that computes needs PySpark 4 and PyArrow (`kwire[spark]`). Nothing of a broker imports this room.
"""
