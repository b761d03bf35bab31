"""A client for the image's command line tools: blocking, one connection a broker, one request at a time.

Of a cluster of one broker only the bootstrap address is used: what that broker advertises is for those outside.
"""

from __future__ import annotations

import socket
import sys

from kwire.protocol import api
from kwire.protocol.errors import ErrorCode, MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.metadata import MetadataResponse

_MAX_ANSWER_BYTES = 128 << 20
METADATA_VERSION = 12
_CONNECT_PAUSE_SECONDS = 0.1


class ToolError(Exception):
    """One line for the user."""


class NotReached(ToolError):
    """Nobody listens there, yet."""


def check(code: int, message: str | None = None) -> None:
    """ToolError in Kafka's words unless the code is 0."""
    if code:
        try:
            name = ErrorCode(code).name
        except ValueError:
            name = f"error {code}"
        raise ToolError(f"{name}: {message}" if message else name)


class Connection:
    """One connection to one broker."""

    def __init__(self, host: str, port: int, timeout_seconds: float = 30.0) -> None:
        try:
            self._socket = socket.create_connection((host, port), timeout_seconds, all_errors=True)
        except socket.gaierror as error:
            raise ToolError(f"{host}:{port} cannot be resolved: {error.strerror}") from None
        except ExceptionGroup as group:  # one for each of the host's addresses
            errors = group.exceptions
            refused = [each for each in errors if isinstance(each, ConnectionRefusedError)]
            first = (refused or errors)[0]
            reason = getattr(first, "strerror", None) or str(first)
            raise NotReached(f"cannot connect to {host}:{port}: {reason}") from None
        self._stream = self._socket.makefile("rb")
        self._correlation = 0

    # Any: the response class goes with the request's.
    def ask(self, version: int, request: Message) -> Any:
        """The answer to a request."""
        name = type(request).__name__.removesuffix("Request")
        key = next(key for key in api.ApiKey if key.api_name == name)
        self._correlation += 1
        parts = api.encode_request(key, version, self._correlation, "kwire-tools", request)
        try:
            self._socket.sendall(b"".join(parts))
            size = int.from_bytes(self._stream.read(4), "big")
            frame = self._stream.read(size) if 4 <= size <= _MAX_ANSWER_BYTES else b""
            if not frame or len(frame) < size:
                raise ToolError(f"{name}: the broker closed the connection")
            return api.parse_response(key, version, frame)[1]
        except (OSError, MalformedMessage) as error:
            raise ToolError(f"{name}: {error}") from None

    def close(self) -> None:
        """Closes it."""
        self._stream.close()
        self._socket.close()


class Client:
    """A cluster by its bootstrap servers."""

    def __init__(self, bootstrap_servers: str, wait_seconds: float = 0.0, tool: str = "") -> None:
        """ToolError when no server of the list can be reached for so long; `tool` says on stderr that it waits."""
        import time

        self._brokers: dict[int, Connection] = {}
        deadline = time.monotonic() + wait_seconds
        said = False
        while True:
            try:
                self.bootstrap = self._connect(bootstrap_servers)
                return
            except NotReached as error:
                if time.monotonic() >= deadline:
                    raise
                if not said:
                    sys.stderr.write(f"{tool}: {error}; trying for {wait_seconds:.0f} s\n")
                    said = True
            time.sleep(_CONNECT_PAUSE_SECONDS)

    @staticmethod
    def _connect(servers: str) -> Connection:
        reason: ToolError | None = None
        for server in servers.split(","):
            host, _, port = server.strip().rpartition(":")
            if not host or not (port.isascii() and port.isdigit()):
                raise ToolError(f"{server!r} is no HOST:PORT")
            try:
                return Connection(host.strip("[]"), int(port))
            except ToolError as error:
                if not isinstance(reason, NotReached):
                    reason = error
        assert reason is not None
        raise reason

    def metadata(self, topics: list[str] | None, create: bool = False) -> MetadataResponse:
        """Brokers and these topics (None: all)."""
        from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic

        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        answer: MetadataResponse = self.bootstrap.ask(METADATA_VERSION, request)
        return answer

    def leaders(self, topic: str, create: bool = False) -> dict[int, Connection]:
        """A connection to each partition's leader. ToolError when there is no topic or no leader."""
        import time

        deadline = time.monotonic() + 30
        while True:
            answer = self.metadata([topic], create)
            found = answer.topics[0]
            if found.error_code == 0 and all(
                partition.leader_id >= 0 for partition in found.partitions
            ):
                break
            awaited = found.error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE) or (
                create and found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            if not awaited or time.monotonic() > deadline:
                check(found.error_code or ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic}")
            time.sleep(0.05)
        brokers = self._connections(answer)
        return {
            partition.partition_index: brokers[partition.leader_id]
            for partition in found.partitions
        }

    def brokers(self) -> dict[int, Connection]:
        """A connection to each broker."""
        return self._connections(self.metadata([]))

    def _connections(self, answer: MetadataResponse) -> dict[int, Connection]:
        alone = len(answer.brokers) == 1
        for broker in answer.brokers:
            if broker.node_id not in self._brokers:
                self._brokers[broker.node_id] = (
                    self.bootstrap if alone else Connection(broker.host, broker.port)
                )
        return self._brokers

    def coordinator(self, group: str) -> Connection:
        """A connection to a group's coordinator. ToolError."""
        import time

        from kwire.protocol.schemas.groups import FindCoordinatorRequest

        deadline = time.monotonic() + 30
        while True:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            found = self.bootstrap.ask(4, request).coordinators[0]
            if found.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                check(found.error_code, found.error_message)
                connection = self.brokers().get(found.node_id)
                if connection is not None:
                    return connection
            if time.monotonic() > deadline:
                raise ToolError(f"COORDINATOR_NOT_AVAILABLE: group {group}")
            time.sleep(0.1)
