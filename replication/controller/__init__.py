"""The controller: brokers, topics, partitions, elections, reassignments, its journal. Knows nothing of replicas.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "answers",
    "channels",
    "claim",
    "configs",
    "controller",
    "journal",
    "producer_ids",
    "state",
    "topics",
]
