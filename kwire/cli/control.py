"""The control API that a command asks: named by an option, else that of the running cluster."""

from __future__ import annotations

import os

import click

from kwire.cli.common import file_path, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_VARIABLE = "KWIRE_CONTROL"


def control_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a control API; `ask_control` reads them."""
    for option in (
        _option(
            "--port",
            type=click.IntRange(1, 65535),
            help="Port of the kwire up to ask, if several run.",
        ),
        _option(
            "--ready-file",
            metavar="FILE",
            type=file_path,
            help="File written by kwire up --ready-file.",
        ),
        _option(
            "--control",
            metavar="URL",
            help="Address of the control API, as in the ready line.  [env var: KWIRE_CONTROL;"
            " default: that of the running kwire up]",
        ),
    ):
        function = option(function)
    return function


def _option(name: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(name, expose_value=False, is_eager=True, callback=_remember, **more)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:  # an option of the command wins over one of its group
        context.find_root().meta[f"kwire.control.{parameter.name}"] = value


def ask_control(command: str, work: Callable[[str], str]) -> None:
    """Print the text that `work` makes of the URL of the control API, and exit."""
    given = click.get_current_context().find_root().meta

    def ask() -> int:
        print(
            work(
                _url(*(given.get(f"kwire.control.{n}") for n in ("control", "ready_file", "port")))
            )
        )
        return 0

    run(command, ask)


def _url(control: str | None, ready_file: str | None, port: int | None) -> str:
    from kwire.control.ctl import url_in
    from kwire.launch.running import choose
    from kwire.server.errors import NodeError

    if control is not None:
        return control
    if ready_file is not None:
        return url_in(ready_file)
    if port is None and os.environ.get(_VARIABLE):
        return os.environ[_VARIABLE]
    running = choose(port, f"--port PORT, --control URL or {_VARIABLE}")
    if running is None:
        raise NodeError(
            f"no kwire up is running: start one, or name a control API by --control URL or {_VARIABLE}"
        )
    if running.control is None:
        raise NodeError(f"{running} has no control API: a container needs KWIRE_BROKERS=1")
    return running.control
