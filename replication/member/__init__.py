"""What a broker has only in a cluster of several: the link to the controller, forwarding, doubts about leaders.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["cluster_member", "controller_link"]
