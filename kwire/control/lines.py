"""The control API of a supervised node process, over its stdin and stdout.

A line is a request, {"method": …, "path": …, "body": {…}}, or its answer, {"status": …, "body":
{…}}; both are JSON.
"""

from __future__ import annotations

import json

from kwire.control.errors import ControlError
from kwire.control.live.answers import Coming

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.control.node_api import NodeControl


def answer_line(control: NodeControl, line: str) -> str:
    """Answer one line of stdin. Malformed lines too get an answer: the supervisor waits for it."""
    from kwire.control.routes import ask_nodes

    try:
        method, path, body = _request(line)
        found = ask_nodes(control, method, path, body)
        if isinstance(found, Coming):
            raise ControlError(409, f"{method} {path}: over HTTP only")
        answer = {"status": 200, "body": found}
    except ControlError as error:
        answer = {"status": error.status, "body": error.to_json()}
    return json.dumps(answer)


def request_line(method: str, path: str, body: dict[str, Any] | None) -> str:
    return json.dumps({"method": method, "path": path, "body": body or {}})


def answer_of(line: str) -> Any:
    """The body of an answer. ControlError if it is an error."""
    found = json.loads(line)
    if found["status"] != 200:
        raise ControlError.from_json(found["status"], found["body"])
    return found["body"]


def _request(line: str) -> tuple[str, str, dict[str, Any]]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise ControlError(400, "the line is no JSON") from None
    keys = {"method": str, "path": str, "body": dict}
    if not isinstance(found, dict) or any(
        not isinstance(found.get(key), kind) for key, kind in keys.items()
    ):
        raise ControlError(400, 'expected {"method": …, "path": …, "body": {…}}')
    return found["method"], found["path"], found["body"]
