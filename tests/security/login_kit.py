"""A broker without sockets whose listener SASL asks for a log-in, and a client in bytes."""

from __future__ import annotations

from random import Random
from typing import Any

from kwire.broker import Broker
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kwire.recent import RecentRequests
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Close, Log, Outbox, Reply
from kwire.security.gate import Gate
from kwire.security.settings import listener_settings

LISTENER = "SASL"
KEYS = {
    "node.id": "1",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "kwire.users": "alice:secret\nbob:b:o,b=",
}


class Guarded:
    """Broker 1, standalone, with a listener that asks for a log-in, and one that does not (PLAIN)."""

    def __init__(self, store: MemoryLogStore | None = None, **keys: str) -> None:
        self.clock = Clock(now_ms=10_000_000, wall_ms=1_700_000_000_000)
        self.outbox = Outbox(self.clock)
        values = {**KEYS, **{key.replace("_", "."): value for key, value in keys.items()}}
        self.config = BrokerConfig(values)
        self.store = store or MemoryLogStore()
        self.core = Broker(self.config, self.store, self.clock, self.outbox, Random(1))
        sessions = self.core.sessions
        sessions.recent = RecentRequests(self.clock, self.core.services.metadata)
        listeners = {LISTENER: listener_settings(self.config, LISTENER)}
        self.gate = Gate(sessions, listeners, Random(2))
        self.admitted: list[int] = []
        self.logged: list[str] = []
        self.gate.on_admitted = self.admitted.append
        sessions.gate = self.gate
        self.core.start([Endpoint(LISTENER, "h", 1, 2), Endpoint("PLAIN", "h", 2)])
        self.outbox.drain()
        self.connections = 0

    def client(self, listener: str = LISTENER) -> Client:
        self.connections += 1
        return Client(self, self.connections, listener)

    def later(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.core.tick()


class Client:
    """One connection to it."""

    def __init__(self, broker: Guarded, connection: int, listener: str) -> None:
        self.broker = broker
        self.connection = connection
        self.session = broker.core.connection_opened(connection, listener, "10.0.0.1")
        self.closed: str | None = None
        self._asked: list[tuple[int, int]] = []

    def send(self, frame: bytes) -> list[bytes]:
        """What comes back to a frame, each without its length."""
        self.broker.core.receive_frame(self.connection, frame)
        return self.received()

    def received(self) -> list[bytes]:
        found = []
        for effect in self.broker.outbox.drain():
            if isinstance(effect, Reply) and effect.connection == self.connection:
                data = b"".join(map(bytes, effect.parts))
                assert int.from_bytes(data[:4], "big") == len(data) - 4
                found.append(data[4:])
            elif isinstance(effect, Close) and effect.connection == self.connection:
                self.closed = effect.reason
            elif isinstance(effect, Log):
                self.broker.logged.append(effect.text)
        return found

    def post(self, request: Any, version: int) -> None:
        """Send a request, without a look at what comes back."""
        key = api.key_of(request)
        self._asked.append((key, version))
        self.broker.core.receive_frame(self.connection, frame_of(request, version))

    def ask(self, request: Any, version: int) -> Any:
        """The response; None: there is none yet, or never."""
        self.post(request, version)
        return self.answer()

    def answer(self) -> Any:
        """The response to the oldest request without one."""
        found = self.received()
        if not found:
            return None
        (data,) = found
        key, version = self._asked.pop(0)
        return api.parse_response(ApiKey(key), version, data)[1]

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    def plain(self, user: str = "alice", password: str = "secret") -> Any:
        """The last response of a log-in by PLAIN."""
        assert self.handshake("PLAIN").error_code == 0
        return self.authenticate(f"\0{user}\0{password}".encode())

    def metadata(self) -> Any:
        return self.ask(MetadataRequest(topics=[]), 9)

    def versions(self, version: int = 3) -> Any:
        request = ApiVersionsRequest(client_software_name="me", client_software_version="1")
        return self.ask(request, version)


def frame_of(request: Any, version: int, correlation: int = 7) -> bytes:
    """A request without its length."""
    return b"".join(
        map(bytes, api.encode_request(api.key_of(request), version, correlation, "me", request))
    )[4:]
