"""The client over asyncio streams: for `kwire.aio.Cluster`, and for nodes that await each other.

A connection serves one request: requests are rare, and brokers come and go.
"""

from __future__ import annotations

import asyncio

from kwire.client.admin import CONNECTION_SECONDS, Admin, Ask, Pause
from kwire.client.connection import NEWEST, Connection, NoResponseError, NotReachedError
from kwire.protocol.api import key_of
from kwire.recent import ADMINISTRATION_CLIENT_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from kwire.client.admin import Steps
    from kwire.client.connection import Address, Exchange, Ranges
    from kwire.protocol.language.schema import Message
    from kwire.security.client import Credentials

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
        self.credentials: Credentials | None = None
        """To log in by, where that is asked for."""
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
                credentials=self.credentials,
            )
        connection = Connection(
            ADMINISTRATION_CLIENT_ID, self._ranges.pop(step.address, None), self.credentials
        )
        response = await _carry(connection.ask(step.request), step.address, step.seconds)
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
    credentials: Credentials | None = None,
) -> Any:
    """The response to one request, as `Connection.ask` has it. NoResponseError, KafkaError."""
    connection = Connection(ADMINISTRATION_CLIENT_ID, credentials=credentials)
    exchange = connection.ask(request, version)
    return await _carry(exchange, address, seconds)


async def _carry(exchange: Exchange, address: Address, seconds: float) -> Any:
    """Move an exchange on over a connection of its own, and return its result."""
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
