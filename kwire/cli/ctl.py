"""`kwire ctl`: asks a running cluster, and changes its nodes, by the control API."""

from __future__ import annotations

import click

from kwire.cli.common import fail, file_path, run


@click.command(
    epilog="\b\nExamples:\n  kwire ctl --control http://127.0.0.1:41234 broker start 2\n"
    "  kwire ctl --ready-file ready.json controller kill 1000\n  kwire ctl status"
)
@click.option(
    "--control",
    metavar="URL",
    envvar="KWIRE_CONTROL",
    help="Address of the control API, as in the ready line.  [env var: KWIRE_CONTROL]",
)
@click.option(
    "--ready-file", metavar="FILE", type=file_path, help="File written by kwire up --ready-file."
)
@click.argument("kind", type=click.Choice(["status", "broker", "controller"]))
@click.argument(
    "verb", required=False, type=click.Choice(["start", "stop", "kill", "pause", "resume"])
)
@click.argument("node_id", metavar="[ID]", required=False, type=click.IntRange(0, 2**31 - 1))
def ctl(
    control: str | None, ready_file: str | None, kind: str, verb: str | None, node_id: int | None
) -> None:
    """Ask a running `kwire up` about its nodes, or start, stop, kill, pause or resume one.

    A broker that somebody has killed is brought back by "broker start ID"."""
    from kwire.control import ctl as work

    if kind == "status" and verb is not None:
        fail(2, f"kwire ctl: status has no {verb}")
    if kind != "status" and (verb is None or node_id is None):
        fail(2, f"kwire ctl: expected {kind} start|stop|kill|pause|resume ID")

    def ask() -> int:
        url = work.control_url(control, ready_file)
        if verb is None or node_id is None:
            click.echo(work.status(url))
        else:
            click.echo(work.change_node(url, kind, node_id, verb))
        return 0

    run("ctl", ask)
