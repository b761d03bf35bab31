"""What the commands share: KEY=VALUE options, examples in the help, failures as one line."""

from __future__ import annotations

import os
import sys

import click

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn

# As a shell says of a command that SIGINT or SIGPIPE has ended.
_INTERRUPTED, _BROKEN_PIPE = 130, 141

file_path = click.Path(dir_okay=False)
node_id = click.IntRange(0, 2**31 - 1)
folder_path = click.Path(file_okay=False)
config_option = click.option(
    "--config",
    "config_path",
    metavar="FILE",
    type=file_path,
    help="Kafka's server.properties to read first.",
)


def key_value(
    _context: click.Context, _parameter: click.Parameter, items: tuple[str, ...]
) -> dict[str, str]:
    """Parse a repeatable KEY=VALUE."""
    values = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"expected key=value, not {item!r}")
        values[key.strip()] = value
    return values


override_option = click.option(
    "-c",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_value,
    help="One configuration key of Kafka's; repeatable.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="As JSON.")


def known(kind: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A callback for an option that takes a name of this kind (`kwire.control.known`)."""

    def check(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
        if name is None:
            return None
        from kwire.control.known import known_name

        try:
            return known_name(kind, name)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return check


def example(text: str) -> str:
    """The epilog of a command's help."""
    return f"\b\nExample:\n  {text}"


def first_sentence(command: click.Command) -> str:
    """What a list of commands says of a command: the first sentence of its help, whole."""
    paragraph = " ".join((command.help or "").partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")


class Commands(click.Group):
    """A group whose help shows the summary of each command whole."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.write_section(formatter, "Commands", self.commands)

    def write_section(
        self, formatter: click.HelpFormatter, title: str, commands: Mapping[str, click.Command]
    ) -> None:
        """Write a section of the help."""
        rows = [(name, first_sentence(command)) for name, command in commands.items()]
        with formatter.section(title):
            formatter.write_dl(rows)


def run(command: str, action: Callable[[], int]) -> NoReturn:
    """Run a command that reads and prints, and exit with its status: failures are one line."""
    from kwire.server.errors import NodeError, SettingsError

    if sys.stdout is None:  # closed before Python started
        fail(1, f"kwire {command}: stdout is closed")
    try:
        status = action()
        sys.stdout.flush()
    except SettingsError as error:
        fail(2, f"kwire {command}: {error}")
    except NodeError as error:
        fail(1, f"kwire {command}: {error}")
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    except BrokenPipeError:  # `kwire … | head`: who reads has seen enough
        os._exit(_BROKEN_PIPE)
    except OSError as error:
        where = "stdout" if error.filename is None else error.filename
        fail(1, f"kwire {command}: {where}: {error.strerror}")
    sys.exit(status)


def fail(status: int, line: str) -> NoReturn:
    """Print a line on stderr and exit."""
    click.echo(line, err=True)
    sys.exit(status)
