"""The driver of a core: sockets, files, clock and logs of a node.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "access.jaas_file",
    "clock.advanced",
    "connection_log",
    "descriptors",
    "directory_lock",
    "disks.faulty",
    "disks.rules",
    "disks.slow",
    "errors",
    "event_history",
    "events",
    "file_log_store",
    "link_rules",
    "listeners",
    "log_dirs",
    "log_file",
    "logs",
    "node",
    "ports",
    "temporary",
    "tls.context",
    "tls.made",
]
