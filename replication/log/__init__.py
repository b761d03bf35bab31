"""One partition's log: append, read, segments, recovery, leader epochs, producer state.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "checkpoints",
    "indexes",
    "leader_epochs",
    "loader",
    "log",
    "producer_state",
    "segment",
    "truncation",
    "validation",
    "verification",
]
