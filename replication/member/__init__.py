"""A broker's parts for clusters of several: controller link, forwarding, suspected leaders.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["cluster_member", "controller_link", "producer_ids"]
