"""The administrator: single requests, without retries."""

from __future__ import annotations

from typing import Any

from kwire.sim.clients.base import Client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.protocol.language.schema import Message


class Administrator(Client):
    """Sends single admin requests to a given or random broker, without retries."""

    def request(
        self,
        key: int,
        version: int,
        request: Message,
        on_response: Callable[[Any], None],
        broker: int | None = None,
    ) -> None:
        node = self.random.choice(self.brokers) if broker is None else broker
        self.ask(node, f"admin{len(self.sent)}", key, request, on_response, version)
