"""Parts of requests: many elements, some of them at a time (replication/core/work.py); patterns of names."""
