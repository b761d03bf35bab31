"""The principal inside a forwarded request."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BOOLEAN,
    STRING,
    Message,
    field,
)


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """A principal as type and name."""

    type: str = field(STRING)
    name: str = field(STRING)
    token_authenticated: bool = field(BOOLEAN)
