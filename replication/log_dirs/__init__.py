"""All logs of a broker: its log directories, their checkpoints and failures, retention, compaction.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["cleaner", "copying", "directory", "manager"]
