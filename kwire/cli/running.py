"""`kwire status`, `kwire down`, `kwire wait`: the running `kwire up`s of this user."""

from __future__ import annotations

import click

from kwire.cli.common import example, fail, json_option, run

_seconds = click.FloatRange(0, 86400)


@click.command(epilog=example("kwire status --json"))
@json_option
def status(as_json: bool) -> None:
    """Show what runs: addresses, nodes and their states, age, data and log.

    Exit status 1: no kwire up of this user is running."""
    from kwire.tools import clusters

    run("status", lambda: clusters.status(as_json=as_json))


@click.command(epilog=example("kwire down 9092"))
@click.argument("number", metavar="[PORT|PID]", required=False, type=click.IntRange(1))
@click.option("--all", "all_of_them", is_flag=True, help="Stop all of this user.")
@click.option(
    "--timeout", type=_seconds, default=30, show_default=True, help="Seconds for a clean stop."
)
def down(number: int | None, all_of_them: bool, timeout: float) -> None:
    """Stop a running `kwire up` cleanly, wherever it was started.

    PORT is one of its brokers' or its control API's. Returns when the process has ended."""
    from kwire.tools import clusters

    if all_of_them and number is not None:
        fail(2, "kwire down: give a port or pid, or --all, not both")
    run("down", lambda: clusters.down(number, all_of_them=all_of_them, seconds=timeout))


@click.command(epilog=example("kwire up & kwire wait --timeout 10"))
@click.argument("number", metavar="[PORT|PID]", required=False, type=click.IntRange(1))
@click.option(
    "--bootstrap",
    metavar="HOST:PORT[,…]",
    help="Wait for an answer of any Kafka at these addresses instead, a container's for example.",
)
@click.option("--timeout", type=_seconds, default=30, show_default=True, help="Seconds to wait.")
def wait(number: int | None, bootstrap: str | None, timeout: float) -> None:
    """Wait until a `kwire up` is ready and print its ready line."""
    from kwire.tools import clusters

    if bootstrap is not None and number is not None:
        fail(2, "kwire wait: give a port or pid, or --bootstrap, not both")
    run("wait", lambda: clusters.wait(number, bootstrap, timeout))
