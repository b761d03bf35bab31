"""What every room of replication uses: time, effects, the storage port, what a broker knows of its cluster.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "clock",
    "events",
    "log_config",
    "log_store",
    "metadata",
    "outbox",
    "peers",
    "topic_names",
    "types",
]
