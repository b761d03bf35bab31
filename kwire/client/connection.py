"""One question to a node, for the supervisor: a connection, a request, its answer."""

from __future__ import annotations

import asyncio

from kwire.protocol import api
from kwire.recent import ADMINISTRATION_CLIENT_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.protocol.language.schema import Message

_MAX_ANSWER_BYTES = 64 << 20


async def ask(host: str, port: int, version: int, request: Message, seconds: float = 10.0) -> Any:
    """The response to a request. OSError, EOFError or TimeoutError when there is none; MalformedMessage."""
    name = type(request).__name__
    key = next(key for key in api.ApiKey if key.api_name + "Request" == name)
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.writelines(
                api.encode_request(key, version, 1, ADMINISTRATION_CLIENT_ID, request)
            )
            size = int.from_bytes(await reader.readexactly(4), "big")
            if not 4 <= size <= _MAX_ANSWER_BYTES:
                raise OSError(f"an answer of {size} bytes")
            frame = await reader.readexactly(size)
        finally:
            writer.close()
    return api.parse_response(key, version, frame)[1]
