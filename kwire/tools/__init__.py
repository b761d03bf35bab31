"""The work of commands: clusters that run, topics, groups and records of any Kafka, files.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "clusters",
    "dump_log",
    "groups",
    "kafka",
    "records",
    "show_config",
    "top",
    "topics",
    "transactions",
]
