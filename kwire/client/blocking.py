"""The client over a blocking socket: for the image's command line tools.

A connection to each broker is made at the first request to it and kept.
"""

from __future__ import annotations

import socket
import time

from kwire.client.admin import Admin, Ask, Pause
from kwire.client.connection import Connection, NoResponseError, NotReachedError
from kwire.protocol.errors import KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from kwire.client.admin import Steps
    from kwire.client.connection import Address, Exchange, Ranges
    from kwire.client.tls import Trust
    from kwire.security.client import Credentials

    T = TypeVar("T")

_READ_BYTES = 1 << 18


class Client(Admin):
    """`client.run(client.create_topic(…))`"""

    def __init__(
        self,
        addresses: Callable[[], Sequence[Address]],
        seconds: float,
        client_id: str,
        credentials: Credentials | None = None,
        trust: Trust | None = None,
    ) -> None:
        """`credentials`: to log in by, where that is asked for. `trust`: of brokers that speak TLS."""
        super().__init__(addresses, seconds)
        self._trust = trust
        self._credentials = credentials
        self._client_id = client_id
        self._connections: dict[Address, tuple[socket.socket, Connection]] = {}

    def run(self, steps: Steps[T]) -> T:
        """The result of an operation."""
        outcome: Any = None
        try:
            while True:
                outcome = self._take(steps.send(outcome))
        except StopIteration as done:
            result: T = done.value
            return result

    def _take(self, step: Ask | Pause) -> Any:
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        try:
            return self._ask(step)
        except NoResponseError as error:
            return error

    def connect(self, address: Address) -> None:
        """Make a connection that later requests take. NotReachedError."""
        if address not in self._connections:
            connected = _connect(address, self._seconds)
            if self._trust is not None:
                connected = self._trust.wrapped(connected, *address)
            self._connections[address] = connected, self._new_connection()

    def _new_connection(self) -> Connection:
        return Connection(self._client_id, credentials=self._credentials)

    def ranges(self, address: Address) -> Ranges:
        """The versions of APIs that a broker serves, which was asked something before."""
        ranges = self._connections[address][1].ranges
        assert ranges is not None
        return ranges

    def close(self) -> None:
        """Close all connections."""
        while self._connections:
            self._connections.popitem()[1][0].close()

    def _ask(self, step: Ask) -> Any:
        self.connect(step.address)
        connected, connection = self._connections[step.address]
        connected.settimeout(step.seconds)
        try:
            return _carry(connection.ask(step.request), connected)
        except (NoResponseError, KafkaError):  # also: the log-in has failed
            self._connections.pop(step.address)[0].close()
            raise


def _carry(exchange: Exchange, connected: socket.socket) -> Any:
    """Move an exchange on over a socket, and return its result."""
    received: bytes | None = None
    try:
        while True:
            data = exchange.send(received)
            received = None
            if data is None:
                received = connected.recv(_READ_BYTES)
            else:
                connected.sendall(data)
    except StopIteration as done:
        return done.value
    except NoResponseError:
        raise
    except OSError as error:
        raise NoResponseError(str(error)) from None


def _connect(address: Address, seconds: float) -> socket.socket:
    host, port = address
    try:
        return socket.create_connection(address, seconds, all_errors=True)
    except socket.gaierror as error:
        text = f"{host}:{port} cannot be resolved: {error.strerror}"
        raise NotReachedError(text, refused=False) from None
    except ExceptionGroup as group:  # one for each of the host's addresses
        errors = group.exceptions
        first = next((e for e in errors if isinstance(e, ConnectionRefusedError)), errors[0])
        assert isinstance(first, OSError)
        reason = first.strerror or str(first)
        raise NotReachedError(f"cannot connect to {host}:{port}: {reason}", refused=True) from None
