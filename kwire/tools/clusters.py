"""`kwire status`, `kwire down`, `kwire wait`: the running clusters of this user, by the registry."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from kwire.launch.running import all_running, all_starting, choose, several
from kwire.server.errors import NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kwire.launch.running import Running

_POLL_SECONDS = 0.02
_ANSWER_SECONDS = 2.0
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def status(*, as_json: bool) -> int:
    """Print the running clusters and their nodes; 1 when none runs."""
    found = all_running()
    described = [(each, _nodes(each)) for each in found]
    if as_json:
        objects = [
            {**each.entry, "age_seconds": round(each.age_seconds, 3), "nodes": nodes}
            for each, nodes in described
        ]
        sys.stdout.write(json.dumps(objects, indent=1) + "\n")
    elif described:
        sys.stdout.write("\n".join(_text(each, nodes) for each, nodes in described))
    else:
        starting = [f"a {each}\n" for each in all_starting()]
        sys.stdout.write("".join(starting) or "no kwire up is running\n")
    return 0 if found else 1


def down(number: int | None, *, all_of_them: bool, seconds: float) -> int:
    """Stop the running cluster, the one of this port or pid, or all; a line for each."""
    chosen: Sequence[Running | None] = (
        all_running() + all_starting()
        if all_of_them
        else [choose(number, "kwire down PORT or PID, or take --all", starting=True)]
    )
    for each in chosen:
        if each is not None:
            each.stop(seconds)
            sys.stdout.write(f"stopped {each}\n")
    if not any(chosen):
        sys.stdout.write("no kwire up is running\n")
    return 0


def wait(number: int | None, bootstrap: str | None, seconds: float) -> int:
    """Return when a cluster is ready and print its ready line. NodeError after `seconds`;
    SettingsError when several are ready and `number` (a port or pid) is None.

    `bootstrap`: addresses of the cluster, which may be any Kafka, instead of the registry."""
    deadline = time.monotonic() + seconds
    if bootstrap is not None:
        return _wait_for_answer(bootstrap, deadline, seconds)
    while True:
        found = [each for each in all_running() if number in (None, each.pid, *each.ports)]
        if number is None and len(found) > 1:
            raise several(found, "kwire wait PORT")
        if found:
            control = "" if found[-1].control is None else f" control={found[-1].control}"
            sys.stdout.write(f"ready bootstrap={found[-1].bootstrap}{control}\n")
            return 0
        if time.monotonic() > deadline:
            which = "" if number is None else f" with port or pid {number}"
            raise NodeError(f"no kwire up{which} has become ready within {seconds:g} s")
        time.sleep(_POLL_SECONDS)


def _wait_for_answer(bootstrap: str, deadline: float, seconds: float) -> int:
    from kwire.client.admin import NoBrokerError
    from kwire.client.blocking import Client
    from kwire.client.connection import parse_address
    from kwire.server.errors import SettingsError

    try:
        addresses = [parse_address(text) for text in bootstrap.split(",")]
    except ValueError as error:
        raise SettingsError(f"--bootstrap: {error}") from None
    while True:
        left = max(_POLL_SECONDS, deadline - time.monotonic())
        client = Client(lambda: addresses, left, "kwire-wait")
        try:
            if client.run(client.metadata()).brokers:
                sys.stdout.write(f"ready bootstrap={bootstrap}\n")
                return 0
            reason = "no broker is registered"
        except NoBrokerError as error:
            reason = str(error)
        finally:
            client.close()
        if time.monotonic() > deadline:
            raise NodeError(f"not ready within {seconds:g} s: {reason}")
        time.sleep(_POLL_SECONDS)


def _nodes(running: Running) -> dict[str, Any] | None:
    """The controllers and brokers, by the control API; None without one, or without an answer."""
    if running.control is None:
        return None
    from kwire.control.client import call
    from kwire.control.errors import ControlError

    try:
        found: dict[str, Any] = call(running.control, "GET", "/v1/cluster", seconds=_ANSWER_SECONDS)
    except ControlError:
        return None
    return found


def _text(running: Running, nodes: dict[str, Any] | None) -> str:
    from kwire.control.ctl import node_lines

    entry = running.entry
    data = f"data in {entry['data_dir']}" + (" (temporary)" if entry["temporary"] else "")
    lines = [f"kwire up, pid {running.pid}, ready for {_age(running.age_seconds)}"]
    lines += [f"  bootstrap {running.bootstrap}", f"  {data}"]
    if running.control is not None:
        lines.append(f"  control {running.control}" + ("" if nodes else ", which does not answer"))
    if running.log is not None:
        lines.append(f"  log {running.log}")
    lines += [f"  {line}" for line in node_lines(nodes)] if nodes is not None else []
    return "\n".join([*lines, ""])


def _age(seconds: float) -> str:
    size, unit = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    return f"{int(seconds // size)} {unit}"
