"""`kwire load`: a bounded load by stock clients, and the ledger of what was sent and seen."""

from __future__ import annotations

from pathlib import Path

import click

from kwire.cli.common import fail, key_value
from kwire.cli.kafka import cluster_options, on_target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.tools.kafka import Target


@click.command(
    epilog="\b\nExamples:\n  kwire load --records 100000 --ledger ledger\n"
    "  kwire load --mode transactional --abort-every 10 --readers 1 --seconds 60 --rate 500"
)
@click.option("--topic", default="load", show_default=True, help="Made if it does not exist.")
@click.option(
    "--client",
    metavar="NAME",
    default="confluent-kafka",
    show_default=True,
    help="confluent-kafka or kafka-python.",
)
@click.option(
    "--mode",
    metavar="MODE",
    default="plain",
    show_default=True,
    help="plain, idempotent or transactional.",
)
@click.option("--acks", metavar="0|1|all", default="", help="[default: all]")
@click.option("--records", type=click.IntRange(1), help="End after so many, of all producers.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="End after so long.  [default: 10, without --records]",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    help="Records a second, of all producers; else as fast as they can.",
)
@click.option(
    "--size",
    type=click.IntRange(0, 100_000_000),
    default=180,
    show_default=True,
    help="Bytes of a value.",
)
@click.option(
    "--keys",
    type=click.IntRange(0, 1_000_000),
    default=100,
    show_default=True,
    help="How many different ones; 0: no keys.",
)
@click.option(
    "--producers", type=click.IntRange(1, 100), default=1, show_default=True, help="How many."
)
@click.option(
    "--readers",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    help="How many; each reads the whole topic, from its end at the start on.",
)
@click.option(
    "--isolation",
    metavar="LEVEL",
    default="",
    help="Of the readers: read_committed or read_uncommitted."
    "  [default: read_committed with transactions]",
)
@click.option(
    "--transaction-records",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Records of a transaction.",
)
@click.option(
    "--abort-every",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Abort every Nth transaction of each producer.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=30,
    show_default=True,
    help="Seconds for which a client tries to deliver a record.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Of the topic, if it is made.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    help="Of the topic, if it is made.  [default: 3, or as many as there are brokers]",
)
@click.option(
    "-c",
    "topic_config",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_value,
    help="One configuration key of the topic, if it is made; repeatable.",
)
@click.option(
    "--ledger",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Where the ledger is written: a directory that is empty or new.  [default: ledger-…]",
)
@cluster_options
def load(ledger: Path | None, **options: Any) -> None:
    """Write and read records with a stock client; keep a ledger of each one's fate.

    Ends after --records or --seconds; Ctrl-C ends it early, with a whole ledger. Status 0: every record was
    acknowledged, every transaction ended, every reader reached the end; 1: not so; 2: it could not begin."""
    from kwire.errors import ConfigurationError

    def work(target: Target) -> int:
        from kwire.load.command import run_load
        from kwire.load.plan import Plan

        bootstrap = ",".join(f"{host}:{port}" for host, port in target.addresses)
        try:
            return run_load(Plan(**options), bootstrap, ledger)
        except ConfigurationError as error:
            hint = "; no kwire up is running: start one, or name a --bootstrap"
            is_absent = target.guessed and "no broker answers" in str(error)
            fail(2, f"kwire load: {error}{hint if is_absent else ''}")

    on_target("load", work)
