"""Read-only commands: `kwire dump-log`, `kwire config`.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["dump_log", "show_config"]
