"""A request context without a connection: it keeps what the handler answers, and tells now from later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kwire.apis.context import RequestContext
from kwire.protocol.api import RequestHeader

PARKED = "parked: not answered yet"
NO_RESPONSE = "ended without a response"


class RecordedContext(RequestContext):
    """One request. `later` gets a reply that comes after the handler has returned, `closed` the reasons of closes."""

    def __init__(
        self,
        version: int,
        session: Any,
        services: Any,
        *,
        key: int = 0,
        client_id: str | None = "client",
        later: list[Any] | None = None,
        closed: list[str] | None = None,
    ) -> None:
        super().__init__(RequestHeader(key, version, 7, client_id, 0), session, services)
        self.outcome: Any = PARKED
        self.returned = False
        self.later = [] if later is None else later
        self.closed = [] if closed is None else closed

    def handled_by(self, handler: Callable[[Any, Any], None], request: Any) -> Any:
        """The response if the handler replies before it returns; else PARKED or NO_RESPONSE."""
        handler(self, request)
        self.returned = True
        return self.outcome

    def reply(self, response: Any) -> None:
        assert not self.answered, "a request is answered once"
        self.answered = True
        self.on_disconnect = None
        if self.returned:
            self.later.append(response)
        else:
            self.outcome = response

    def end_without_response(self) -> None:
        assert not self.answered, "a request is answered once"
        self.answered = True
        self.outcome = NO_RESPONSE

    def close(self, reason: str) -> None:
        self.closed.append(reason)
