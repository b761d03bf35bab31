"""`kwire top` and `kwire requests`: what goes on in a running cluster."""

from __future__ import annotations

import click

from kwire.cli.common import example, json_option, known
from kwire.cli.control import ask_control, control_options
from kwire.cli.kafka import cluster_options, on_target


@click.command(epilog=example("kwire top --once"))
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between two screens.",
)
@click.option("--once", is_flag=True, help="Print one screen and end.")
@cluster_options
def top(interval: float, once: bool) -> None:
    """Watch a cluster: nodes, records a second, partitions out of sync, lags, requests.

    Until Ctrl-C. Without a terminal the screens follow one another as plain text."""
    from kwire.tools.top import top as watch

    on_target("top", lambda target: watch(target, interval, once=once))


@click.command(epilog=example("kwire requests --api Fetch --client rdkafka"))
@click.option(
    "--api", metavar="NAME", callback=known("API"), help="Of this API only, Fetch for example."
)
@click.option("--client", "client_id", metavar="ID", help="Of this client id only.")
@click.option("--broker", type=click.IntRange(0), help="At this broker only.")
@control_options
@json_option
def requests(api: str | None, client_id: str | None, broker: int | None, as_json: bool) -> None:
    """List the last requests of clients, for which `kwire up` needs --recent-requests."""
    from kwire.control import ctl as work

    to_text = work.requests_text(api=api, client_id=client_id, broker=broker, as_json=as_json)
    ask_control("requests", lambda url: work.ask(url, "GET", "/v1/requests", None, to_text))
