"""Shards of coordinators: state machines that live in the log of a partition of an internal topic.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "context",
    "kind",
    "result",
    "runtime",
]
