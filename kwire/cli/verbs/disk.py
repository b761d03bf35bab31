"""`kwire ctl disk`: lets the disks of a running cluster's nodes fail, be full or be slow."""

from __future__ import annotations

import click

from kwire.cli.common import Commands, example, json_option
from kwire.cli.common import node_id as _id
from kwire.cli.control import ask_control, control_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@click.group(cls=Commands, epilog=example("kwire ctl disk fail 1 append --topic orders --times 1"))
@control_options
def disk() -> None:
    """Let the disk of a broker or controller fail, be full or be slow."""


def _options(function: Callable[..., None]) -> Callable[..., None]:
    """What files a fault is about."""
    options = (
        click.option("--topic", metavar="NAME", help="Only files of this topic."),
        click.option("--partition", type=_id, help="Only files of this partition of it."),
        click.option("--directory", metavar="DIR", help="Only this log directory: path, or name."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@disk.command("fail", epilog=example("kwire ctl disk fail 1 append --topic orders --times 1"))
@click.argument("node_id", metavar="ID", type=_id)
@click.argument("operation")
@_options
@click.option("--times", type=int, help="The first ones only.")
@click.option("--error", metavar="NAME", help="EIO, or ENOSPC, EROFS, EACCES, EDQUOT.")
@control_options
def fail(node_id: int, **given: Any) -> None:
    """Let an operation fail; print the fault's id.

    OPERATION: append, read, fsync, write (of a checkpoint), create, truncate, delete."""
    _set(node_id, "fail", given)


@disk.command("full", epilog=example("kwire ctl disk full 1"))
@click.argument("node_id", metavar="ID", type=_id)
@click.option("--directory", metavar="DIR", help="Only this log directory: path, or name.")
@control_options
def full(node_id: int, **given: Any) -> None:
    """Let the disk be full (ENOSPC): reading goes on; print the fault's id."""
    _set(node_id, "full", given)


@disk.command("slow", epilog=example("kwire ctl disk slow 1 200 --operation append"))
@click.argument("node_id", metavar="ID", type=_id)
@click.argument("milliseconds", type=float)
@click.option("--operation", metavar="NAME", help="append, read or fsync; all of them without.")
@_options
@control_options
def slow(node_id: int, **given: Any) -> None:
    """Let appends, reads and flushes take so much longer; print the fault's id."""
    _set(node_id, "slow", given)


@disk.command("list")
@json_option
@control_options
def show(as_json: bool) -> None:
    """List the faults of disks that are set, with how many operations each has hit."""
    from kwire.control.ctl import disks_text

    _ask("GET", "/v1/disks", None, None if as_json else disks_text)


@disk.command("heal", epilog=example("kwire ctl disk heal 1"))
@click.argument("ids", metavar="[ID…]", nargs=-1, type=_id)
@control_options
def heal(ids: tuple[int, ...]) -> None:
    """Remove the faults of the disks of these nodes, or of all; print what they have hit.

    A log directory that is offline stays so until its broker restarts, as in Kafka."""
    from kwire.control.ctl import disks_text

    if not ids:
        _ask("DELETE", "/v1/disks", None, disks_text)
    for node_id in ids:
        _ask("DELETE", f"/v1/nodes/{node_id}/disk", None, disks_text)


@disk.command("rm", epilog=example("kwire ctl disk rm disk-1"))
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
@control_options
def remove(ids: tuple[str, ...]) -> None:
    """Remove faults of disks; print what they have hit."""
    from urllib.parse import quote

    from kwire.control.ctl import disks_text

    for fault_id in ids:
        path = f"/v1/disks/{quote(fault_id, safe='')}"
        _ask("DELETE", path, None, lambda found: disks_text({"faults": [found]}))


def _set(node_id: int, act: str, given: dict[str, Any]) -> None:
    body = {name: value for name, value in given.items() if value is not None}
    _ask("POST", f"/v1/nodes/{node_id}/disk/{act}", body, lambda found: str(found["id"]))


def _ask(
    method: str,
    path: str,
    body: dict[str, Any] | None,
    to_text: Callable[[Any], str] | None,
) -> None:
    from kwire.control.ctl import ask

    ask_control("ctl", lambda url: ask(url, method, path, body, to_text))
