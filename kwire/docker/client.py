"""The Kafka client of the image's tools: bootstrap servers, errors in one line."""

from __future__ import annotations

import sys
import time

from kwire.client import blocking
from kwire.client.admin import NoBrokerError
from kwire.client.connection import NoResponseError, NotReachedError, parse_address
from kwire.client.connection import check as check_code
from kwire.protocol.errors import KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from kwire.client.admin import Admin, Steps
    from kwire.client.connection import Address
    from kwire.client.tls import Trust
    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.metadata import MetadataResponse
    from kwire.security.client import Credentials

    T = TypeVar("T")

TIMEOUT_MS = 30_000
"""How long a tool waits for a response, and the time-out in its requests."""
_SECONDS = TIMEOUT_MS / 1000
_CONNECT_PAUSE_SECONDS = 0.1


class ToolError(Exception):
    """One line for the user."""


def check(code: int, message: str | None = None) -> None:
    """ToolError with Kafka's message unless the code is 0."""
    try:
        check_code(code, message)
    except KafkaError as error:
        raise ToolError(str(error)) from None


class Client:
    """A connection to a cluster by its bootstrap servers. ToolError for all failures."""

    def __init__(
        self,
        bootstrap_servers: str,
        wait_seconds: float = 0.0,
        tool: str = "",
        credentials: Credentials | None = None,
        trust: Trust | None = None,
    ) -> None:
        """ToolError when no server can be reached within `wait_seconds`. `tool`: its name, for the
        line on stderr while it waits. `credentials`, `trust`: a log-in and TLS (access.py)."""
        self._bootstrap: Address = ("", 0)
        self._client = blocking.Client(
            lambda: [self._bootstrap], _SECONDS, "kwire-tools", credentials, trust
        )
        self._bootstrap = self._reached(bootstrap_servers.split(","), wait_seconds, tool)

    def _reached(self, servers: list[str], wait_seconds: float, tool: str) -> Address:
        """The first server that can be reached."""
        deadline = time.monotonic() + wait_seconds
        said = False
        while True:
            reason: NotReachedError | None = None
            for server in servers:
                try:
                    address = parse_address(server)
                    self._client.connect(address)
                    return address
                except ValueError as error:
                    raise ToolError(str(error)) from None
                except NotReachedError as error:
                    if reason is None or not reason.refused:
                        reason = error
                except NoResponseError as error:  # the handshake of TLS has failed
                    raise ToolError(str(error)) from None
            assert reason is not None
            if not reason.refused or time.monotonic() >= deadline:
                raise ToolError(str(reason))
            if not said:
                sys.stderr.write(f"{tool}: {reason}; trying for {wait_seconds:.0f} s\n")
                said = True
            time.sleep(_CONNECT_PAUSE_SECONDS)

    # Any: the response class goes with the request's.
    def ask(self, request: Message, at: Address | None = None) -> Any:
        """Send a request to the bootstrap server, or to another broker; return the response."""
        if at is None:
            return self._run(self._client.ask_any(request))
        return self._run(self._client.ask_at(at, request))

    def run(self, operation: Callable[[Admin], Steps[T]]) -> T:
        """The result of an operation on the cluster: a function of kwire.client."""
        return self._run(operation(self._client))

    def metadata(self, topics: list[str] | None) -> MetadataResponse:
        """Metadata of the brokers and of these topics (None: all)."""
        found: MetadataResponse = self._run(self._client.metadata(topics))
        return found

    def brokers(self) -> list[Address]:
        """The address of each broker."""
        return list(self._client.brokers_in(self.metadata([])).values())

    def leaders(self, topic: str, create: bool = False) -> dict[int, Address]:
        """The address of each partition's leader."""
        return self._run(self._client.leaders(topic, _SECONDS, create=create))

    def coordinator(self, group: str) -> Address:
        """The address of a group's coordinator."""
        return self._run(self._client.coordinator(group, _SECONDS))

    def offset(self, topic: str, partition: int, timestamp: int, leader: Address) -> int:
        """The offset at a timestamp, EARLIEST or LATEST."""
        return self._run(self._client.offset(leader, topic, partition, timestamp))

    def api_ranges(self) -> dict[int, tuple[int, int]]:
        """The lowest and the highest version of each API that the bootstrap server serves."""
        return dict(self._client.ranges(self._bootstrap))

    def _run(self, steps: Steps[T]) -> T:
        try:
            return self._client.run(steps)
        except KafkaError as error:
            raise ToolError(str(error)) from None
        except NoBrokerError as error:
            reason = error.reasons[-1]
            prefix = "" if isinstance(reason, NotReachedError) else f"{error.api}: "
            raise ToolError(f"{prefix}{reason}") from None
