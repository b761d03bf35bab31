"""The `kwire` command. Options and help live here; what they do lives elsewhere and is imported when asked for.

Exit status of every command: 0 done, 1 failed at run time, 2 a bad option or configuration; both with one clear line.
"""

from __future__ import annotations

import os
import sys

import click

from kwire import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from kwire.control.routes import Handler
    from kwire.launch.supervisor import Supervisor

_LOG_LEVELS = ("debug", "info", "warning", "error")
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
_log_level_option = click.option(
    "--log-level",
    type=click.Choice(_LOG_LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="What goes to stderr.",
)
_log_json_option = click.option("--log-json", is_flag=True, help="Log lines as JSON.")


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
@click.option(
    "--brokers",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Brokers to start: node ids and ports count up from the first's.",
)
@click.option(
    "--controllers",
    metavar="N",
    type=click.IntRange(1, 9),
    default=1,
    show_default=True,
    help="Controllers of several brokers: one is active, the others take over from it.",
)
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0 lets the kernel choose.  [default: 9092]"
)
@click.option(
    "--advertise",
    metavar="HOST",
    callback=_host,
    help="Host that clients are told to connect to.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Where logs live, DIR,DIR for several; a temporary directory when not given.",
)
@click.option(
    "--isolation",
    type=click.Choice(["thread", "process"]),
    default="thread",
    show_default=True,
    help="Several brokers: all in one process, or each in a process of its own.",
)
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
@click.option(
    "--as-version", metavar="RELEASE", help="Serve what this release of Kafka serves: 3.9, 2.8, …"
)
@click.option(
    "--control-port",
    type=click.IntRange(0, 65535),
    help="Port of the HTTP control API of several brokers, on 127.0.0.1.  [default: the kernel's choice]",
)
@click.option(
    "--recent-requests",
    is_flag=True,
    help="Each of several brokers keeps its clients' last 20 requests, for the control API.",
)
@click.option(
    "--ready-file", metavar="PATH", type=_path, help="Write the ready line as JSON to this file."
)
@click.option(
    "--first-id",
    metavar="ID",
    type=click.IntRange(0, 2**31 - 1),
    help="Node id of the first broker.  [default: 1]",
)
@_log_level_option
@_log_json_option
def up(**options: object) -> None:
    """Start a cluster in the foreground; Ctrl-C stops it cleanly.

    Prints one line when it is ready: "ready bootstrap=127.0.0.1:9092", all brokers with commas between;
    of several, also "control=http://127.0.0.1:41234", for `kwire ctl` and docs/control.md.
    """
    from kwire.launch.settings import UpSettings
    from kwire.launch.up import run_up

    def make_control(supervisor: Supervisor) -> Handler:
        from kwire.aio import Cluster
        from kwire.control.routes import cluster_handler

        return cluster_handler(Cluster.of(supervisor, recent_requests=settings.recent_requests))

    settings = UpSettings(make_control=make_control, **options)  # type: ignore[arg-type]  # the options above
    status = run_up(settings)
    # Nothing is left to be cleaned up that the kernel does not clean up faster.
    sys.exit(status)


def _controller(
    text: str,
) -> tuple[int, str, int]:
    """ID@HOST:PORT."""
    node_id, at, address = text.partition("@")
    host, colon, port = address.rpartition(":")
    numbers = [item for item in (node_id, port) if item.isascii() and item.isdigit()]
    if not (at and colon and host) or len(numbers) < 2 or int(port) > 65535:
        raise click.BadParameter(f"expected ID@HOST:PORT, not {text!r}")
    return int(node_id), host.strip("[]"), int(port)


def _controllers(
    _context: click.Context, _parameter: click.Parameter, items: tuple[str, ...]
) -> tuple[tuple[int, str, int], ...]:
    """Each ID@HOST:PORT, several with commas between."""
    return tuple(_controller(text.strip()) for item in items for text in item.split(","))


@cli.command(
    epilog=_example(
        "kwire node --id 2 --roles broker --listener PLAINTEXT://127.0.0.1:9093 --controller 1000@127.0.0.1:9090"
    )
)
@click.option(
    "--id",
    "node_id",
    metavar="ID",
    type=click.IntRange(0, 2**31 - 1),
    required=True,
    help="Node id; the controller's is no broker's.",
)
@click.option(
    "--roles",
    "role",
    type=click.Choice(["broker", "controller"]),
    required=True,
    help="What it is.",
)
@click.option(
    "--listener",
    "listeners",
    metavar="NAME://HOST:PORT",
    multiple=True,
    help="Where to listen; repeatable.  [default: PLAINTEXT://127.0.0.1:0]",
)
@click.option(
    "--controller",
    "controllers",
    metavar="ID@HOST:PORT",
    multiple=True,
    callback=_controllers,
    help="The controller, needed for a broker; repeatable: those that may take over from it.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="For a controller: others have the same --data-dir, one is active, this one if none is.",
)
@click.option(
    "--broker-epoch",
    metavar="EPOCH",
    type=click.IntRange(0),
    help="Under a foreign controller, where somebody else has registered the broker.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Where its logs live; DIR,DIR for several.  [default: log.dirs]",
)
@click.option("--cluster-id", metavar="ID", help="The cluster's id; else the controller's word.")
@click.option(
    "--brokers",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    help="The cluster's size, which some defaults depend on.",
)
@_config_option
@_override_option
@click.option("--as-version", metavar="RELEASE", help="Serve what this release of Kafka serves.")
@click.option("--temporary", is_flag=True, help="The data need not survive a power cut: no fsync.")
@click.option("--again", is_flag=True, hidden=True)
@click.option("--network", multiple=True, hidden=True)
@click.option("--recent-requests", is_flag=True, hidden=True)
@click.option("--supervised", is_flag=True, hidden=True)
@_log_level_option
@_log_json_option
def node(supervised: bool, log_level: str, log_json: bool, **options: object) -> None:
    """Run one node of a cluster: a broker, or the controller.

    Prints one line when it is ready: "ready id=2 roles=broker listeners=PLAINTEXT://127.0.0.1:9093 bootstrap=…".
    """
    from kwire.launch.node_command import node_settings, run_node

    sys.exit(run_node(lambda: node_settings(**options), log_level, log_json, supervised))  # type: ignore[arg-type]  # the options above


@cli.command(
    epilog="\b\nExamples:\n  kwire ctl --control http://127.0.0.1:41234 broker start 2\n"
    "  kwire ctl --ready-file ready.json controller kill 1000\n  kwire ctl status"
)
@click.option(
    "--control",
    metavar="URL",
    envvar="KWIRE_CONTROL",
    help="Where the control API is, as the ready line tells.  [env var: KWIRE_CONTROL]",
)
@click.option(
    "--ready-file", metavar="FILE", type=_path, help="What kwire up --ready-file has written."
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
            click.echo(work.turn(url, kind, node_id, verb))
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
