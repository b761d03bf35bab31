"""`kwire`: the group of all commands, and the one line that stands for each mistake.

Exit status of every command: 0 done, 1 failed at run time, 2 a bad option or configuration; both with
one clear line.
"""

from __future__ import annotations

import sys

import click

from kwire import __version__
from kwire.cli.common import Commands, example, fail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SECTIONS = {
    "Clusters": {
        "up": "kwire.cli.up:up",
        "down": "kwire.cli.running:down",
        "wait": "kwire.cli.running:wait",
        "status": "kwire.cli.running:status",
        "node": "kwire.cli.node:node",
        "ctl": "kwire.cli.ctl:ctl",
        "requests": "kwire.cli.watch:requests",
        "report": "kwire.cli.report:report",
    },
    "Any Kafka": {
        "topics": "kwire.cli.kafka:topics",
        "partitions": "kwire.cli.kafka:partitions",
        "groups": "kwire.cli.kafka:groups",
        "transactions": "kwire.cli.transactions:transactions",
        "produce": "kwire.cli.kafka:produce",
        "consume": "kwire.cli.kafka:consume",
        "top": "kwire.cli.watch:top",
        "load": "kwire.cli.load:load",
    },
    "Files and more": {
        "config": "kwire.cli.files:config",
        "dump-log": "kwire.cli.files:dump_log",
        "audit": "kwire.cli.audit:audit",
        "sim": "kwire.cli.sim:sim",
        "completion": "kwire.cli.completion:completion",
    },
}
"""Where each command is defined, by section of the help."""
_PLACES = {name: place for section in SECTIONS.values() for name, place in section.items()}


class _AllCommands(Commands):
    """The commands, each imported when it is used: a start of `kwire up` loads no other's options."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in _PLACES:
            self.add_command(_load(_PLACES[cmd_name]), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] not in _PLACES:  # click proposes names from `commands`
            for name in _PLACES:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _PLACES))
        for title, places in SECTIONS.items():
            commands = {f"{name:<{width}}": _load(place) for name, place in places.items()}
            self.write_section(formatter, title, commands)


def _load(place: str) -> click.Command:
    from importlib import import_module

    module, _, name = place.partition(":")
    found = getattr(import_module(module), name)
    assert isinstance(found, click.Command)
    return found


@click.group(
    cls=_AllCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=example("kwire up --topic orders:3"),
)
@click.version_option(__version__, "--version", message="kwire %(version)s")
def cli() -> None:
    """A Kafka-wire-compatible test broker with real logs and groups."""


def plain(text: str) -> str:
    """A complaint of click's about a number, in plain words: it speaks of valid integer ranges."""
    import re

    found = re.search(r"(\S+) is not in the range (?:(\S+?)<=?)?x(?:<=?(\S+?)|>=?(\S+?))?\.$", text)
    if found is not None:
        given, least, most, from_ = found.groups()
        least = least or from_
        allowed = f"from {least} to {most}" if least and most else f"of {least} or more"
        return f"{text[: found.start()]}expected a number {allowed}, not {given}"
    found = re.search(r"'([^']*)' is not a valid (integer|float)(?: range)?\.$", text)
    if found is not None:
        number = "whole number" if found[2] == "integer" else "number"
        return f"{text[: found.start()]}expected a {number}, not {found[1]!r}"
    return text


def main() -> None:
    """Entry point: click's own complaints become one line, too."""
    try:
        cli.main(standalone_mode=False, prog_name="kwire")
    except click.exceptions.NoArgsIsHelpError as error:
        fail(2, error.format_message())
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "kwire"
        fail(2, f"{path}: {plain(error.format_message())} (try '{path} --help')")
    except click.ClickException as error:
        fail(1, f"kwire: {error.format_message()}")
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
