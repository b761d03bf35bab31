"""Asks a control API (`kwire.control.cluster_api`, `kwire.control.node_api`); blocks.

`kwire ctl` uses it, and clusters in containers."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from typing import Any

SECONDS = 60.0


class ControlError(Exception):
    """Refused, or nobody answers (`status` 0); one line. `kafka_error`: Kafka's name, where there is one."""

    def __init__(self, message: str, status: int = 0, kafka_error: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kafka_error = kafka_error


def call(
    url: str, method: str, path: str, body: dict[str, Any] | None = None, seconds: float = SECONDS
) -> Any:
    """The answer to one request. ControlError."""
    given = urlsplit(url if "://" in url else f"http://{url}")
    try:
        host, port = given.hostname, given.port
    except ValueError:
        host, port = None, None
    if given.scheme != "http" or not host or not port:
        raise ControlError(f"expected http://HOST:PORT of the control API, not {url}")
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise ControlError(f"the control API at {host}:{port} does not answer: {reason}") from None
    finally:
        connection.close()
    try:
        found = json.loads(text)
    except ValueError:
        raise ControlError(f"{url} is no control API of kwire", response.status) from None
    if response.status != 200:
        message = str(found.get("message", text))
        raise ControlError(message, response.status, found.get("error"))
    return found
