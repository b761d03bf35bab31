"""The controller: brokers, topics, partitions, elections, reassignments, its journal. Knows nothing of replicas.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "channels",
    "claim",
    "configs",
    "controller",
    "journal",
    "producer_ids",
    "state",
    "table",
]
