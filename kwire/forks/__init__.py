"""Processes that are forked from one that has imported everything.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["forked", "template"]
