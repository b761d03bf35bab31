"""`kwire transactions`: the transactional ids of any Kafka."""

from __future__ import annotations

import click

from kwire.cli.common import Commands, example, fail, json_option
from kwire.cli.kafka import ADMINISTRATION, cluster_options, on_cluster


@click.group(
    cls=Commands,
    invoke_without_command=True,
    epilog="\b\nExamples:\n  kwire transactions\n  kwire transactions describe payments-1",
)
@cluster_options
@json_option
@click.pass_context
def transactions(context: click.Context, as_json: bool) -> None:
    """List the transactional ids with their transactions; show one, fence its producer, end what hangs."""
    if context.invoked_subcommand is None:
        _print_all(as_json=as_json)


def _print_all(*, as_json: bool) -> None:
    from kwire.tools import transactions as work

    on_cluster(
        "transactions",
        lambda client: work.show_transactions(client, as_json=as_json),
        ADMINISTRATION,
    )


@transactions.command("list", epilog=example("kwire transactions list --json"))
@cluster_options
@json_option
@click.pass_context
def list_transactions(context: click.Context, as_json: bool) -> None:
    """List the transactional ids, as without a command."""
    assert context.parent is not None
    _print_all(as_json=as_json or context.parent.params["as_json"])


@transactions.command("describe", epilog=example("kwire transactions describe payments-1"))
@click.argument("transactional_id")
@cluster_options
@json_option
@click.pass_context
def describe(context: click.Context, transactional_id: str, as_json: bool) -> None:
    """Show a transactional id: state, producer, coordinator, and the partitions that it holds."""
    from kwire.tools import transactions as work

    assert context.parent is not None
    with_json = as_json or context.parent.params["as_json"]
    on_cluster(
        "transactions",
        lambda client: work.show_transaction(client, transactional_id, as_json=with_json),
        ADMINISTRATION,
    )


@transactions.command("fence", epilog=example("kwire transactions fence payments-1"))
@click.argument("transactional_id")
@cluster_options
def fence(transactional_id: str) -> None:
    """Abort the open transaction of a transactional id, and refuse what its producer sends from then on."""
    from kwire.tools import transactions as work

    on_cluster(
        "transactions fence", lambda client: work.fence(client, transactional_id), ADMINISTRATION
    )


# --- transactions that hang

_topic = click.option("--topic", metavar="TOPIC", help="The topic.")
_partition = click.option(
    "--partition", type=click.IntRange(0), metavar="N", help="One of its partitions."
)


@transactions.command(
    "find-hanging",
    epilog="\b\nExamples:\n  kwire transactions find-hanging\n"
    "  kwire transactions find-hanging --topic orders --max-transaction-timeout 1",
)
@_topic
@_partition
@click.option(
    "--broker-id", type=click.IntRange(0), metavar="ID", help="A broker: only its replicas."
)
@click.option(
    "--max-transaction-timeout",
    "minutes",
    type=float,
    metavar="MINUTES",
    help="Only where the last record is older.  [default: 15, transaction.max.timeout.ms of brokers]",
)
@cluster_options
@json_option
@click.pass_context
def find_hanging(
    context: click.Context,
    topic: str | None,
    partition: int | None,
    broker_id: int | None,
    minutes: float | None,
    as_json: bool,
) -> None:
    """List what is open in partitions and known to no coordinator. Without options all partitions are
    searched. Status 1: some hang."""
    from kwire.tools import transactions as work

    if partition is not None and topic is None:
        fail(2, "kwire transactions find-hanging: --partition needs --topic")
    assert context.parent is not None
    with_json = as_json or context.parent.params["as_json"]
    on_cluster(
        "transactions find-hanging",
        lambda client: work.show_hanging(
            client, topic, partition, broker_id, minutes, as_json=with_json
        ),
        ADMINISTRATION,
    )


@transactions.command(
    "abort",
    epilog="\b\nExamples:\n  kwire transactions abort --topic orders --partition 0 --start-offset 42\n"
    "  kwire transactions abort --topic orders --partition 0"
    " --producer-id 7 --producer-epoch 3 --coordinator-epoch 0",
)
@_topic
@_partition
@click.option(
    "--start-offset", type=click.IntRange(0), metavar="OFFSET", help="Of its first record."
)
@click.option("--producer-id", type=click.IntRange(0), metavar="ID", help="Whose it is.")
@click.option("--producer-epoch", type=click.IntRange(0, 32767), metavar="N", help="Its epoch.")
@click.option(
    "--coordinator-epoch",
    type=click.IntRange(-1),
    metavar="N",
    help="Of the last marker; -1: none was written for this producer.",
)
@cluster_options
def abort(
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a transaction that hangs in one partition: its leader writes the marker, no coordinator is asked.

    What a coordinator knows is ended by `kwire transactions fence`."""
    from kwire.tools import transactions as work

    name = "transactions abort"
    if topic is None or partition is None:
        fail(2, f"kwire {name}: --topic and --partition say where it is open")
    key = (topic, partition)
    whose = (producer_id, producer_epoch, coordinator_epoch)
    if start_offset is not None and whose == (None, None, None):
        on_cluster(name, lambda client: work.abort_at(client, key, start_offset), ADMINISTRATION)
        return
    if (
        start_offset is not None
        or producer_id is None
        or producer_epoch is None
        or coordinator_epoch is None
    ):
        fail(
            2,
            f"kwire {name}: the transaction is named by --start-offset,"
            " or by --producer-id, --producer-epoch and --coordinator-epoch",
        )
    on_cluster(
        name,
        lambda client: work.abort(client, key, producer_id, producer_epoch, coordinator_epoch),
        ADMINISTRATION,
    )
