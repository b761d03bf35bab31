"""The control API: HTTP and `kwire ctl`, questions to a cluster and to a node, status for people.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["client", "cluster_api", "ctl", "http", "inside", "node_api", "socket", "status"]
