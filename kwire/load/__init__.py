"""`kwire load`: a bounded load by stock clients, and the ledger of what was sent and seen.

Everything here needs PyArrow, the generator also a Kafka client (`kwire[load]` has them), each imported when it is
used. Nothing of a broker imports this room.
"""
