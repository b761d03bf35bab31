"""The control API of clusters and nodes: one table of routes, served over HTTP and stdin lines.

Also `kwire ctl` and the status that SIGUSR1 logs.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "client",
    "ctl",
    "errors",
    "known",
    "lines",
    "node_api",
    "route",
    "routes",
    "socket",
    "status",
    "token",
]

TOKEN = "KWIRE_CONTROL_TOKEN"
"""The variable with the token that requests show (`token.py`): here, as every start reads it."""
