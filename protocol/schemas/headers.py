"""What stands before every body.

In request header version 2 `client_id` keeps the old form: an int16 length, never compact."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    INT16,
    INT32,
    STRING,
    Message,
    field,
)


class RequestHeaderData(Message, versions="0-2", flexible="2+"):
    """Before a request's body. Version 0 belongs to ControlledShutdown version 0 alone."""

    request_api_key: int = field(INT16)
    request_api_version: int = field(INT16)
    correlation_id: int = field(INT32)
    client_id: str | None = field(STRING, "1+", nullable="0+", ignorable=True, compact=False)


class ResponseHeaderData(Message, versions="0-1", flexible="1+"):
    """Before a response's body."""

    correlation_id: int = field(INT32)
