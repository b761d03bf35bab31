"""Starts nodes from specs: `kwire up`, `kwire node`, and the supervisor of a cluster.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "aside",
    "configuration",
    "detach",
    "handles",
    "health",
    "initial_topics",
    "joining",
    "node_command",
    "node_runner",
    "options",
    "process",
    "properties",
    "running",
    "shape",
    "spec",
    "supervisor",
    "up",
]
