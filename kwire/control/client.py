"""A blocking HTTP client of the control API, for `kwire ctl` and clusters in containers."""

from __future__ import annotations

import http.client
import json
import os
from urllib.parse import unquote, urlsplit

from kwire.control import TOKEN
from kwire.control.errors import ControlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SECONDS = 60.0


def call(
    url: str, method: str, path: str, body: dict[str, Any] | None = None, seconds: float = SECONDS
) -> Any:
    """Send one request; return the JSON value of the answer. ControlError."""
    given = urlsplit(url if "://" in url else f"http://{url}")
    try:
        host, port = given.hostname, given.port
        token = unquote(given.password or "") or os.environ.get(TOKEN, "").strip()
    except ValueError:
        host, port, token = None, None, ""
    if given.scheme != "http" or not host or not port:
        raise ControlError(0, f"expected http://HOST:PORT of the control API, not {hidden(url)}")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise ControlError(
            0, f"the control API at {host}:{port} does not answer: {reason}"
        ) from None
    finally:
        connection.close()
    try:
        found = json.loads(text)
    except ValueError:
        raise ControlError(response.status, f"{hidden(url)} is no control API of kwire") from None
    if response.status != 200:
        raise ControlError.from_json(response.status, found)
    return found


def hidden(url: str) -> str:
    """A URL without its token, for messages."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
