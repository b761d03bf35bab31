"""The `kwire` command. Options and help live here; what they do lives elsewhere and is imported when asked for.

Exit status of every command: 0 done, 1 failed at run time, 2 a bad option or configuration; both with one clear line.
"""

from __future__ import annotations

import os
import sys

import click

from kwire import __version__
from kwire.launch.options import FLAG, NUMBER, PAIRS, RULES, VOTERS, parse_rule, parse_voter
from kwire.launch.spec import ClusterSpec, NodeSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from kwire.control.routes import Handler
    from kwire.launch.options import Option, Voter
    from kwire.launch.supervisor import Supervisor
    from kwire.server.link_rules import LinkRule

    Decorator = Callable[[Callable[..., None]], Callable[..., None]]

_MAX_PARTITIONS = 10_000
_BROKEN_PIPE = 141  # as a shell says of a command that SIGPIPE has ended

_path = click.Path(dir_okay=False)
_config_option = click.option(
    "--config",
    "config_path",
    metavar="FILE",
    type=_path,
    help="Kafka's server.properties to read first.",
)


def _key_value(
    _context: click.Context, _parameter: click.Parameter, items: tuple[str, ...]
) -> dict[str, str]:
    values = {}
    for item in items:
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"expected key=value, not {item!r}")
        values[key.strip()] = value
    return values


_override_option = click.option(
    "-c",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_key_value,
    help="One configuration key of Kafka's; repeatable.",
)


def _host(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    """A host without a port."""
    if text is None:
        return None
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if not host or host.count(":") == 1 or any(letter in host for letter in "[]/, "):
        raise click.BadParameter(
            f"expected a host, not {text!r}; another port than the one that is bound:"
            " -c advertised.listeners=PLAINTEXT://HOST:PORT"
        )
    return host


def _topics(
    _context: click.Context, _parameter: click.Parameter, items: tuple[str, ...]
) -> list[tuple[str, int, int]]:
    """NAME[:PARTITIONS[:REPLICATION]]; -1 where a number is left out."""
    topics = []
    for item in items:
        name, *numbers = item.split(":")
        counts = [int(number) for number in numbers if number.isascii() and number.isdigit()]
        if not name or len(numbers) > 2 or len(counts) < len(numbers) or 0 in counts:
            raise click.BadParameter(f"expected NAME[:PARTITIONS[:REPLICATION]], not {item!r}")
        if counts and counts[0] > _MAX_PARTITIONS:
            raise click.BadParameter(f"{item!r}: at most {_MAX_PARTITIONS} partitions")
        topics.append((name, *[*counts, -1, -1][:2]))
    return topics  # type: ignore[return-value]  # three items each


def _voters(
    _context: click.Context, _parameter: click.Parameter, items: tuple[str, ...]
) -> tuple[Voter, ...]:
    """Each ID@HOST:PORT, several with commas between."""
    try:
        return tuple(parse_voter(text.strip()) for item in items for text in item.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _rules(
    _context: click.Context, _parameter: click.Parameter, items: tuple[str, ...]
) -> tuple[LinkRule, ...]:
    """Each "cut NODE" or "delay NODE MILLISECONDS"."""
    try:
        return tuple(map(parse_rule, items))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


_CALLBACKS: dict[str, Callable[..., Any]] = {PAIRS: _key_value, RULES: _rules, VOTERS: _voters}
"""How the values of an option are parsed that may be repeated."""


def _option(name: str, field: Option, help: str) -> Decorator:
    """The option of a spec's field."""
    more: dict[str, Any] = {
        "metavar": field.metavar,
        "required": field.required,
        "help": help,
        "hidden": not help,
        "show_default": field.shows_default,
    }
    if field.kind == FLAG:
        return click.option(field.flag, name, is_flag=True, **more)
    if field.kind in _CALLBACKS:
        callback = _CALLBACKS[field.kind]
        return click.option(field.flag, name, multiple=True, callback=callback, **more)
    if isinstance(field.default, str | int) and not field.required:
        more["default"] = field.default
    if field.kind == NUMBER:
        more["type"] = click.IntRange(field.least, field.most)
    elif field.choices:
        more["type"] = click.Choice(field.choices, case_sensitive=not field.ignores_case)
    return click.option(field.flag, name, **more)


def _options(
    spec: type[NodeSpec | ClusterSpec],
    first: str = "",
    until: str = "",
    *,
    of_up: bool = False,
) -> Decorator:
    """The options of a spec's fields, in their order: those from `first` to before `until`. "":
    all."""
    names = list(spec.fields)
    between = names[names.index(first) if first else 0 : names.index(until) if until else None]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for name in reversed(between):
            field = spec.fields[name]
            if not of_up and field.flag:
                function = _option(name, field, field.help)(function)
            elif field.up_help:
                function = _option(name, field, field.up_help)(function)
        return function

    return decorate


def _example(text: str) -> str:
    return f"\b\nExample:\n  {text}"


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_example("kwire up --topic orders:3"),
)
@click.version_option(__version__, "--version", message="kwire %(version)s")
def cli() -> None:
    """A Kafka-wire-compatible test broker with real logs and groups."""


@cli.command(epilog=_example("kwire up --port 9092 --topic orders:3 -c log.retention.ms=60000"))
@_options(ClusterSpec, until="isolation", of_up=True)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0 lets the kernel choose.  [default: 9092]"
)
@click.option(
    "--advertise",
    metavar="HOST",
    callback=_host,
    help="Host name that is advertised to clients.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Where logs live, DIR,DIR for several; a temporary directory when not given.",
)
@_options(ClusterSpec, "isolation", of_up=True)
@_config_option
@_override_option
@click.option(
    "--topic",
    "topics",
    metavar="NAME[:PARTITIONS[:REPLICATION]]",
    multiple=True,
    callback=_topics,
    help="Topic to create unless it exists; repeatable.",
)
@_options(NodeSpec, until="recent_requests", of_up=True)
@click.option(
    "--control-port",
    type=click.IntRange(0, 65535),
    help="Port of the HTTP control API of several brokers, on 127.0.0.1.  [default: the kernel's choice]",
)
@_options(NodeSpec, "recent_requests", "log_level", of_up=True)
@click.option(
    "--ready-file", metavar="PATH", type=_path, help="Write the ready line as JSON to this file."
)
@click.option(
    "--first-id",
    metavar="ID",
    type=click.IntRange(0, 2**31 - 1),
    help="Node id of the first broker.  [default: 1]",
)
@_options(NodeSpec, "log_level", of_up=True)
def up(
    topics: list[tuple[str, int, int]],
    ready_file: str | None,
    control_port: int | None,
    **options: Any,
) -> None:
    """Start a cluster in the foreground; Ctrl-C stops it cleanly.

    Prints one line when it is ready: "ready bootstrap=127.0.0.1:9092", all brokers with commas between;
    of several, also "control=http://127.0.0.1:41234", for `kwire ctl` and docs/control.md.
    """
    from kwire.launch.configuration import cluster_spec
    from kwire.launch.up import Surroundings, run_up
    from kwire.server import logs

    def make_control(supervisor: Supervisor) -> Handler:
        from kwire.aio import Cluster
        from kwire.control.routes import cluster_handler

        return cluster_handler(Cluster.of(supervisor))

    logs.configure(options["log_level"], options["log_json"])
    surroundings = Surroundings(
        topics=topics, ready_file=ready_file, control_port=control_port, make_control=make_control
    )
    status = run_up(lambda: cluster_spec(**options), surroundings)
    # Nothing is left to be cleaned up that the kernel does not clean up faster.
    sys.exit(status)


@cli.command(
    epilog=_example(
        "kwire node --id 2 --roles broker --listener PLAINTEXT://127.0.0.1:9093 --controller 1000@127.0.0.1:9090"
    )
)
@_options(NodeSpec, until="controllers")
@click.option(
    "--listener",
    "listeners",
    metavar="NAME://HOST:PORT",
    multiple=True,
    help="Where to listen; repeatable.  [default: PLAINTEXT://127.0.0.1:0]",
)
@_options(NodeSpec, "controllers", until="values")
@_config_option
@_options(NodeSpec, "values", until="log_level")
@click.option("--supervised", is_flag=True, hidden=True)
@_options(NodeSpec, "log_level")
def node(supervised: bool, **options: Any) -> None:
    """Run one node of a cluster: a broker, or the controller.

    Prints one line when it is ready: "ready id=2 roles=broker listeners=PLAINTEXT://127.0.0.1:9093 bootstrap=…".
    """
    from kwire.launch.node_command import run_node

    sys.exit(run_node(options, supervised=supervised))


@cli.command(
    epilog="\b\nExamples:\n  kwire ctl --control http://127.0.0.1:41234 broker start 2\n"
    "  kwire ctl --ready-file ready.json controller kill 1000\n  kwire ctl status"
)
@click.option(
    "--control",
    metavar="URL",
    envvar="KWIRE_CONTROL",
    help="Address of the control API, as in the ready line.  [env var: KWIRE_CONTROL]",
)
@click.option(
    "--ready-file", metavar="FILE", type=_path, help="File written by kwire up --ready-file."
)
@click.argument("kind", type=click.Choice(["status", "broker", "controller"]))
@click.argument(
    "verb", required=False, type=click.Choice(["start", "stop", "kill", "pause", "resume"])
)
@click.argument("node_id", metavar="[ID]", required=False, type=click.IntRange(0, 2**31 - 1))
def ctl(
    control: str | None, ready_file: str | None, kind: str, verb: str | None, node_id: int | None
) -> None:
    """Ask a running `kwire up --brokers N` how its nodes are, or start, stop, kill, pause or resume one.

    A broker that somebody has killed is brought back by "broker start ID"."""
    from kwire.control import ctl as work

    if kind == "status" and verb is not None:
        _fail(2, f"kwire ctl: status has no {verb}")
    if kind != "status" and (verb is None or node_id is None):
        _fail(2, f"kwire ctl: expected {kind} start|stop|kill|pause|resume ID")

    def ask() -> int:
        url = work.control_url(control, ready_file)
        if verb is None or node_id is None:
            click.echo(work.status(url))
        else:
            click.echo(work.change_node(url, kind, node_id, verb))
        return 0

    _run("ctl", ask)


@cli.command(epilog=_example("kwire config --unused --config server.properties"))
@_config_option
@_override_option
@click.option(
    "--unused",
    is_flag=True,
    help="Keys that Kafka knows and kwire does not act on: those given, else all.",
)
def config(config_path: str | None, overrides: dict[str, str], unused: bool) -> None:
    """Print the broker's configuration as kwire would use it."""
    from kwire.tools.show_config import show_config

    _run("config", lambda: show_config(config_path, overrides, unused))


@cli.command("dump-log", epilog=_example("kwire dump-log data/orders-0/00000000000000000000.log"))
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option("--records/--no-records", default=True, help="Print the records of each batch, too.")
def dump_log(files: tuple[str, ...], records: bool) -> None:
    """Print the batches and records of log segments (.log), and what is in the files beside them.

    Those are .index, .timeindex, .txnindex, .snapshot and the checkpoints."""
    from kwire.tools.dump_log import dump_file

    def dump() -> int:
        return max([dump_file(path, records) for path in files])

    _run("dump-log", dump)


@cli.command(epilog=_example("kwire sim --seeds 1-1000"))
@click.option("--seeds", default="1-100", show_default=True, help="7, 1-1000, or 3,5,10-12.")
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=4000,
    show_default=True,
    help="How many steps of nodes the faulty part of a run has.",
)
@click.option("--trace", is_flag=True, help="Print every message and every change of a partition.")
@click.option(
    "-c",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_key_value,
    help="One configuration key of every node; repeatable.",
)
def sim(seeds: str, steps: int, trace: bool, overrides: dict[str, str]) -> None:
    """Simulate clusters under faults, check replication's invariants.

    One line for each seed that fails, and how to replay it."""
    from time import perf_counter

    from kwire.sim.command import parse_seeds, run_seeds

    try:
        numbers = parse_seeds(seeds)
    except ValueError as error:
        _fail(2, f"kwire sim: {error}")
    failed = run_seeds(
        numbers,
        steps=steps,
        trace=trace,
        config=overrides,
        write=click.echo,
        now_seconds=perf_counter,
    )
    sys.exit(1 if failed else 0)


@cli.command(epilog=_example('eval "$(kwire completion bash)"'))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for a shell."""
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(cli, {}, "kwire", "_KWIRE_COMPLETE").source())


def _run(command: str, action: object) -> None:
    """Runs a command that reads files or configuration: its failures are one line."""
    from kwire.server.errors import NodeError, SettingsError

    assert callable(action)
    if sys.stdout is None:  # closed before Python started
        _fail(1, f"kwire {command}: stdout is closed")
    try:
        status = action()
        sys.stdout.flush()
    except SettingsError as error:
        _fail(2, f"kwire {command}: {error}")
    except NodeError as error:
        _fail(1, f"kwire {command}: {error}")
    except BrokenPipeError:  # `kwire … | head`: who reads has seen enough
        os._exit(_BROKEN_PIPE)
    except OSError as error:
        where = "stdout" if error.filename is None else error.filename
        _fail(1, f"kwire {command}: {where}: {error.strerror}")
    sys.exit(status)


def _fail(status: int, line: str) -> NoReturn:
    click.echo(line, err=True)
    sys.exit(status)


def main() -> None:
    """Entry point: click's own complaints become one line, too."""
    try:
        cli.main(standalone_mode=False, prog_name="kwire")
    except click.exceptions.NoArgsIsHelpError as error:
        _fail(2, error.format_message())
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "kwire"
        _fail(2, f"{path}: {error.format_message()} (try '{path} --help')")
    except click.ClickException as error:
        _fail(1, f"kwire: {error.format_message()}")
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
