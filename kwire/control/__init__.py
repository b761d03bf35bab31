"""The control API of clusters and of nodes: one table of routes, HTTP, stdin lines, `kwire ctl`, status for people.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "client",
    "ctl",
    "errors",
    "lines",
    "node_api",
    "route",
    "routes",
    "socket",
    "status",
]
