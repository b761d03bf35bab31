"""`kwire node`: one node of a cluster in its own process."""

from __future__ import annotations

import sys

import click

from kwire.cli.common import config_option, example
from kwire.cli.parameters import spec_options
from kwire.launch.spec import NodeSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _be_template(_context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """Fork nodes from this process, until its stdin ends, instead of being one."""
    if not wanted:
        return
    from kwire.forks.template import serve
    from kwire.launch.node_command import import_all

    import_all()
    sys.exit(serve(_run_supervised))


def _run_supervised(arguments: list[str]) -> int:
    try:
        node.main(["--supervised", *arguments], standalone_mode=False)
    except SystemExit as error:
        return int(error.code or 0)
    return 0


@click.command(
    epilog=example(
        "kwire node --id 2 --roles broker --listener PLAINTEXT://127.0.0.1:9093 --controller 1000@127.0.0.1:9090"
    )
)
@spec_options(NodeSpec, until="controllers")
@click.option(
    "--listener",
    "listeners",
    metavar="NAME://HOST:PORT",
    multiple=True,
    help="Where to listen; repeatable.  [default: PLAINTEXT://127.0.0.1:0]",
)
@spec_options(NodeSpec, "controllers", until="values")
@config_option
@spec_options(NodeSpec, "values", until="log_level")
@click.option("--supervised", is_flag=True, hidden=True)
@click.option(
    "--template",
    is_flag=True,
    hidden=True,
    is_eager=True,
    expose_value=False,
    callback=_be_template,
)
@spec_options(NodeSpec, "log_level")
def node(supervised: bool, **options: Any) -> None:
    """Run one node of a cluster: a broker, or the controller.

    Prints one line when it is ready: "ready id=2 roles=broker listeners=PLAINTEXT://127.0.0.1:9093 bootstrap=…".
    """
    from kwire.launch.node_command import run_node

    sys.exit(run_node(options, supervised=supervised))
