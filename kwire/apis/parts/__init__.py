"""Requests with many elements, handled some of them at a time (replication/core/work.py)."""
