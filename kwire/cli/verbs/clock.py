"""`kwire ctl clock`: advance, freeze and show the time of a running cluster."""

from __future__ import annotations

import click

from kwire.cli.common import Commands, example
from kwire.cli.control import ask_control, control_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@click.group(cls=Commands, epilog=example("kwire ctl clock advance 8d"))
@control_options
def clock() -> None:
    """Advance, freeze and show the time of all brokers and controllers."""


@clock.command(epilog=example("kwire ctl clock advance 1h30m"))
@click.argument("amount")
@control_options
def advance(amount: str) -> None:
    """Let time pass at once: 8d, 1h30m, 45s, 250ms; print the new time.

    Retention, time-outs of sessions, rebalances and transactions, and what else is due, happen in order."""
    from kwire.advance.amounts import parse

    try:
        milliseconds = parse(amount)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    _ask("POST", "", {"milliseconds": milliseconds})


@clock.command()
@control_options
def freeze() -> None:
    """Let time stand still; leases, heartbeats and waiting fetches go on."""
    _ask("POST", "/freeze")


@clock.command()
@control_options
def resume() -> None:
    """Let time go on after freeze."""
    _ask("POST", "/resume")


@clock.command()
@control_options
def now() -> None:
    """Print what time it is in the cluster."""
    _ask("GET", "")


def _ask(method: str, path: str, body: dict[str, Any] | None = None) -> None:
    from kwire.control.ctl import ask, clock_text

    ask_control("ctl", lambda url: ask(url, method, f"/v1/clock{path}", body, clock_text))
