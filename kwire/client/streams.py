"""The client over asyncio streams: for `kwire.aio.Cluster`, and for nodes that await each other.

A connection serves one request: requests are rare, and brokers come and go.
"""

from __future__ import annotations

import asyncio

from kwire.client.admin import CONNECTION_SECONDS, Admin, Ask, Pause
from kwire.client.connection import NEWEST, Connection, NoResponseError, NotReachedError, over_tls
from kwire.protocol.api import key_of
from kwire.recent import ADMINISTRATION_CLIENT_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from kwire.client.admin import Steps
    from kwire.client.connection import Address, Exchange, Ranges
    from kwire.protocol.language.schema import Message
    from kwire.security.client import Access

    T = TypeVar("T")

_READ_BYTES = 1 << 16


class Client(Admin):
    """`await client.run(client.create_topic(…))`"""

    def __init__(
        self, addresses: Callable[[], Sequence[Address]], *, negotiates: bool = True
    ) -> None:
        """`negotiates`: False for brokers of this very kwire, which serve what is `NEWEST` here."""
        super().__init__(addresses)
        self._negotiates = negotiates
        self.access: Access | None = None
        """TLS and log-in, where they are asked for."""
        self.routes: dict[Address, Address] = {}
        """Where to find what is advertised, if that is for others only."""
        self._ranges: dict[Address, Ranges] = {}

    async def run(self, steps: Steps[T]) -> T:
        """The result of an operation."""
        outcome: Any = None
        try:
            while True:
                outcome = await self._take(steps.send(outcome))
        except StopIteration as done:
            result: T = done.value
            return result

    async def _take(self, step: Ask | Pause) -> Any:
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        try:
            return await self._ask(step)
        except NoResponseError as error:
            return error

    async def _ask(self, step: Ask) -> Any:
        if not self._negotiates:
            version = NEWEST[key_of(step.request)]
            return await ask(
                step.address,
                step.request,
                version=version,
                seconds=step.seconds,
                access=self.access,
            )
        access, ranges = self.access, self._ranges.pop(step.address, None)
        credentials = None if access is None else access.credentials
        connection = Connection(ADMINISTRATION_CLIENT_ID, ranges, credentials)
        exchange = connection.ask(step.request)
        address = self.routes.get(step.address, step.address)
        response = await _carry(exchange, address, step.seconds, access)
        # After an error they are asked for again: another broker may have come to the address.
        assert connection.ranges is not None
        self._ranges[step.address] = connection.ranges
        return response


async def ask(
    address: Address,
    request: Message,
    *,
    version: int | None = None,
    seconds: float = CONNECTION_SECONDS,
    access: Access | None = None,
) -> Any:
    """The response to one request, as `Connection.ask` has it. `access`: TLS and log-in, where they are asked for.
    NoResponseError, KafkaError."""
    credentials = None if access is None else access.credentials
    connection = Connection(ADMINISTRATION_CLIENT_ID, credentials=credentials)
    exchange = connection.ask(request, version)
    return await _carry(exchange, address, seconds, access)


async def _carry(
    exchange: Exchange, address: Address, seconds: float, access: Access | None
) -> Any:
    """Move an exchange on over a connection of its own, and return its result."""
    if access is not None and access.context is not None:
        exchange = over_tls(exchange, access.context, address[0])
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await _connect(address)
            try:
                received: bytes | None = None
                while True:
                    data = exchange.send(received)
                    received = None
                    if data is None:
                        received = await reader.read(_READ_BYTES)
                    else:
                        writer.write(data)
            except StopIteration as done:
                return done.value
            finally:
                writer.close()
    except NoResponseError:
        raise
    except OSError as error:  # TimeoutError is one
        raise NoResponseError(str(error) or "no answer") from None


async def _connect(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_connection(*address)
    except TimeoutError:
        raise
    except OSError as error:
        raise NotReachedError(str(error), refused=True) from None
