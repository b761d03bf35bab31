"""Snapshots of clusters on the disk: the directories of their nodes, saved, listed and put back.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["restoring", "saved", "starting", "tree"]
