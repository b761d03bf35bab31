"""Replicas: partitions and their roles, ISR, high watermark, purgatories, controller orders.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "alter_partition",
    "delayed",
    "events",
    "fetch_data",
    "fetch_session",
    "isr",
    "local_listener",
    "lookup",
    "manager",
    "partition",
    "purgatory",
    "status",
]
