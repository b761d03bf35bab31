"""Backends of `kwire.Cluster`: nodes in this process, child processes, containers or an external cluster.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "base",
    "clock.blocking",
    "clock.clock",
    "contents",
    "description",
    "faults.blocking",
    "faults.blocking_disks",
    "faults.disks",
    "faults.faults",
    "launched",
    "loop_thread",
    "loop_thread_network",
    "network",
    "options",
    "outside",
    "reset",
    "running",
    "snapshots.verbs",
    "standalone",
    "upkeep",
    "views",
    "waiting",
]
