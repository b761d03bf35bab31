"""The controller: broker registry, topics, partitions, elections, reassignments and its journal.

It does not depend on the replica code.

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
