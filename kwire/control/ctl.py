"""`kwire ctl`: starts, stops and lists the nodes of a running `kwire up`, by its control API."""

from __future__ import annotations

import json

from kwire.control.client import call
from kwire.control.errors import ControlError
from kwire.server.errors import NodeError, SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ADDRESS_VARIABLE = "KWIRE_CONTROL"


def control_url(given: str | None, ready_file: str | None) -> str:
    """The URL of the control API: `given`, or read from the file of `kwire up --ready-file`."""
    if given is not None:
        return given
    if ready_file is None:
        raise SettingsError(
            f"--control URL, --ready-file FILE or the variable {ADDRESS_VARIABLE} is needed;"
            " `kwire up --brokers N` prints control=URL when it is ready"
        )
    try:
        with open(ready_file, encoding="utf-8") as file:
            url = json.load(file)["control"]
    except OSError as error:
        raise NodeError(f"{ready_file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise NodeError(f"{ready_file} is no ready file of kwire up") from None
    if url is None:
        raise NodeError(
            f"{ready_file}: this kwire up has no control API: start it with --control-port"
        )
    return str(url)


def change_node(url: str, kind: str, node_id: int, verb: str) -> str:
    """Start, stop, kill, pause or resume (`verb`) a node; return a line about its new state.

    `kind`: "broker" or "controller"."""
    path = f"/v1/{kind}s/{node_id}/{verb}"
    return _call(url, "POST", path, lambda found: _line(kind, found))


def status(url: str) -> str:
    """A line for each node: kind, id, address, state."""
    return _call(url, "GET", "/v1/cluster", lambda found: "\n".join(node_lines(found)))


def node_lines(found: Any) -> list[str]:
    """The lines of `status`, from the answer of /v1/cluster."""
    lines = [_line("controller", each) for each in found["controllers"]]
    return lines + [_line("broker", each) for each in found["brokers"]]


def _line(kind: str, node: dict[str, Any]) -> str:
    state = "paused" if node["paused"] else "running" if node["running"] else "down"
    return f"{kind} {node['id']} {node['address']} {state}{' active' if node.get('active') else ''}"


def _call(url: str, method: str, path: str, to_text: Callable[[Any], str]) -> str:
    try:
        return to_text(call(url, method, path))
    except ControlError as error:
        raise NodeError(str(error)) from None
    except (KeyError, TypeError):  # some other server's JSON
        raise NodeError(f"{url} is no control API of kwire") from None
