"""Backends of `kwire.Cluster`: nodes in this process, child processes, containers or an external cluster.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "base",
    "contents",
    "description",
    "launched",
    "loop_thread",
    "loop_thread_network",
    "network",
    "options",
    "outside",
    "reset",
    "running",
    "standalone",
    "upkeep",
    "views",
    "waiting",
]
