"""One partition's log: segments, indexes, loading and recovery, leader epochs, producer state, truncation.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["checkpoints", "indexes", "loader", "log", "producer_state", "segment", "truncation"]
