"""Commands that look at something: running clusters, files, configuration.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["clusters", "dump_log", "show_config"]
