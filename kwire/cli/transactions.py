"""`kwire transactions`: the transactional ids of any Kafka."""

from __future__ import annotations

import click

from kwire.cli.common import Commands, example, json_option
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
    """List the transactional ids with their transactions; show one, or fence its producer."""
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
