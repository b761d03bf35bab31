"""What runs the brokers behind `kwire.Cluster`: this process, child processes, containers, or somebody else.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "base",
    "containers",
    "launched",
    "loop_thread",
    "network",
    "options",
    "outside",
    "views",
    "waiting",
]
