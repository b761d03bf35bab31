"""`kwire audit`: what happened to the records."""

from __future__ import annotations

from pathlib import Path

import click

from kwire.cli.common import fail, key_value, run

_EXAMPLES = (
    "\b\nExamples:\n  kwire audit ledger --logs data --events up.log\n"
    "  kwire audit ledger --bootstrap localhost:9092 --out results"
)


@click.command(epilog=_EXAMPLES)
@click.argument("ledger", type=click.Path(path_type=Path), required=False)
@click.option(
    "--logs",
    metavar="DIR",
    multiple=True,
    help="Brokers' log directories, or patterns of them; repeatable. Else the topics are read of the cluster.",
)
@click.option(
    "--bootstrap", metavar="HOST:PORT", help="The cluster to read; without it, the ledger's."
)
@click.option(
    "--events",
    metavar="FILE",
    multiple=True,
    help="What kwire up --log-json wrote, to explain findings; repeatable.",
)
@click.option(
    "--topic", "topics", metavar="NAME", multiple=True, help="Of the ledger's topics; repeatable."
)
@click.option(
    "--compacted",
    metavar="NAME",
    multiple=True,
    help="A topic that is compacted, where log directories do not say so; repeatable.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="The load goes on: judge and rewrite the page until it has ended, then audit the whole.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("audit"),
    show_default=True,
    help="Where tables go.",
)
@click.option("--master", metavar="URL", help="Spark's master; without it, this machine.")
@click.option(
    "--conf",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_value,
    help="One key of Spark's configuration; repeatable.",
)
def audit(
    ledger: Path | None,
    logs: tuple[str, ...],
    bootstrap: str | None,
    events: tuple[str, ...],
    topics: tuple[str, ...],
    compacted: tuple[str, ...],
    follow: bool,
    out: Path,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Compare a ledger of kwire load with the topics: what was lost, doubled, reordered, seen too early.

    With --logs the replicas are compared, too; without a LEDGER, only they.

    With --follow the cluster is read while it runs, and --logs, if given, for the whole at the end.

    Exit status: 0 nothing found, 1 something found, 2 bad input. An audit that was interrupted goes on when the same
    command is given again. Needs kwire[spark] and a Java 17."""
    from kwire.audit.command import BAD_INPUT, command
    from kwire.audit.runs import Request
    from kwire.errors import KwireError

    if logs and bootstrap and not follow:
        fail(BAD_INPUT, "kwire audit: give --logs or --bootstrap, not both")
    if ledger is None and not logs:
        fail(BAD_INPUT, "kwire audit: give a LEDGER, or --logs to compare replicas alone")

    whose = None if ledger is None else str(ledger.absolute())
    request = Request(whose, _absolute(logs), bootstrap, topics, compacted, _absolute(events))
    try:
        run("audit", lambda: command(request, out.absolute(), master, conf, goes_on=follow))
    except KwireError as error:
        fail(BAD_INPUT, f"kwire audit: {error}")


def _absolute(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(Path(path).expanduser().absolute()) for path in paths)
