"""The base of all rooms of replication: time, effects, events, the storage port, the metadata cache.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "acls",
    "broker_epochs",
    "clock",
    "delegation_tokens",
    "events",
    "log_config",
    "log_store",
    "memory_log_store",
    "metadata",
    "mutations",
    "outbox",
    "peers",
    "principals",
    "quotas",
    "rates",
    "scram_credentials",
    "topic_names",
    "types",
    "work",
]
