"""The `kwire` command: a module for each group of subcommands, imported when one of them is used.

Options and help live here; what a command does lives in lower rooms and is imported by the command.

`__all__` names the modules that other rooms may import.
"""

__all__ = ["main", "placeholders", "quick", "start"]
