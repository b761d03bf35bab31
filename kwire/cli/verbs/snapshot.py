"""`kwire ctl snapshot`: save all that a cluster holds, and go back to it."""

from __future__ import annotations

import click

from kwire.cli.common import Commands, example, folder_path, json_option
from kwire.cli.control import ask_control, control_options


@click.group(
    cls=Commands,
    epilog="\b\nExamples:\n  kwire ctl snapshot save base\n  kwire ctl snapshot restore base",
)
@control_options
def snapshot() -> None:
    """Save what the cluster holds, and go back to it."""


@snapshot.command(epilog=example("kwire ctl snapshot save base --to fixtures/base"))
@click.argument("name", required=False)
@click.option(
    "--to",
    "target",
    metavar="DIR",
    type=folder_path,
    help="Copy it to this directory, too, for kwire up --snapshot.",
)
@json_option
@control_options
def save(name: str | None, target: str | None, as_json: bool) -> None:
    """Save a snapshot; print its name, size and directory.

    It is kept in the data directory of the cluster, and ends with a temporary one. An earlier snapshot of that
    name is replaced. Without NAME it is snapshot-1, and so on."""
    from kwire.control import ctl as work

    ask_control("ctl", lambda url: work.save_snapshot(url, name, target, as_json=as_json))


@snapshot.command(epilog=example("kwire ctl snapshot restore base"))
@click.argument("name")
@control_options
def restore(name: str) -> None:
    """Go back to a snapshot: all nodes start again, at their addresses, with its data."""
    from kwire.control import ctl as work

    path = work.snapshot_path(name, "/restore")
    ask_control("ctl", lambda url: work.ask(url, "POST", path, {}, lambda _: f"restored {name}"))


@snapshot.command("list", epilog=example("kwire ctl snapshot list"))
@json_option
@control_options
def show(as_json: bool) -> None:
    """List the snapshots in the data directory of the cluster."""
    from kwire.control import ctl as work

    to_text = None if as_json else work.snapshots_text
    ask_control("ctl", lambda url: work.ask(url, "GET", "/v1/snapshots", None, to_text))


@snapshot.command("rm", epilog=example("kwire ctl snapshot rm base"))
@click.argument("names", metavar="NAME…", nargs=-1, required=True)
@control_options
def remove(names: tuple[str, ...]) -> None:
    """Delete snapshots."""
    from kwire.control import ctl as work

    def each(url: str) -> str:
        for name in names:
            work.ask(url, "DELETE", work.snapshot_path(name), None, str)
        return "\n".join(f"deleted {name}" for name in names)

    ask_control("ctl", each)
