"""The client's half of a Kafka connection without I/O: requests to bytes, bytes to responses.

Answers to org.apache.kafka.clients.NetworkClient with one request in flight, and to ApiVersions
negotiation (KIP-35). `Connection.ask` is a generator that a face (`streams`, `blocking`) moves on:
it yields bytes, which the face sends, or None, for which the face sends back into the generator
what it has read, b"" at the end of the stream.

A connection with credentials logs in before its first request (`kwire.security.client`).

TLS is around it: `over_tls` is a generator of the same kind.

Left out: several requests in flight.

Invariants: a response counts only with the request's correlation id; a response's length is checked
before memory is taken for it; whatever is wrong with what a broker sends is NoResponseError.
"""

from __future__ import annotations

from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from ssl import SSLContext
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.security.client import Credentials

    Address = tuple[str, int]
    Exchange = Generator[bytes | None, bytes | None, Any]
    """Bytes to send, or None: read. Its result is the response; Any: the class goes with the
    request's."""
    Ranges = Mapping[int, tuple[int, int]]
    """The lowest and the highest version of each API that a broker serves."""

MAX_RESPONSE_BYTES = 128 << 20

NEWEST = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 6,
    ApiKey.FIND_COORDINATOR: 3,  # from 4 on the request has other fields
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 4,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 5,  # from 6 on the request has other fields
    ApiKey.DESCRIBE_ACLS: 3,
    ApiKey.CREATE_ACLS: 3,
    ApiKey.DELETE_ACLS: 3,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 1,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 3,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
}
"""The newest version of each API that is written here; a broker may serve older ones only."""


class NoResponseError(ConnectionError):
    """A broker was not reached, did not answer, or not with a response: the text says which."""


class NotReachedError(NoResponseError):
    """No connection can be made, nothing was sent; `refused`: the host is there, or may come."""

    def __init__(self, text: str, *, refused: bool) -> None:
        super().__init__(text)
        self.refused = refused


class Connection:
    """One connection to one broker."""

    def __init__(
        self,
        client_id: str,
        ranges: Ranges | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`ranges`: what the broker serves; None: it is asked before the first request. `credentials`: to log in by;
        None: the listener does not ask for it."""
        self.ranges = ranges
        self._credentials = credentials
        self._client_id = client_id
        self._correlation_id = 0
        self._received = bytearray()

    def ask(self, request: Message, version: int | None = None) -> Exchange:
        """The response to a request. `version`: this one; None: the newest that both sides have.

        NoResponseError; KafkaError (UNSUPPORTED_VERSION) when the two have none in common, or when the log-in fails."""
        key = api.key_of(request)
        if self._credentials is not None:
            credentials, self._credentials = self._credentials, None
            yield from self._log_in(credentials)
        if version is None:
            if self.ranges is None:
                yield from self._ask_ranges()
            version = self._version(key)
        return (yield from self._exchange(key, version, request))

    def _ask_ranges(self) -> Exchange:
        from kwire.protocol.schemas.api_versions import ApiVersionsRequest

        # Version 0 is answered by every broker and has the same response header in all versions.
        response = yield from self._exchange(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        check(response.error_code, None)
        self.ranges = {
            each.api_key: (each.min_version, each.max_version) for each in response.api_keys
        }

    def _log_in(self, credentials: Credentials) -> Exchange:
        from kwire.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
        from kwire.security.mechanism import SaslFailure

        name = credentials.mechanism
        request = SaslHandshakeRequest(mechanism=name)
        response = yield from self._exchange(ApiKey.SASL_HANDSHAKE, 1, request)
        if response.error_code:
            known = ", ".join(response.mechanisms) or "no log-in here"
            check(response.error_code, f"the broker has no {name}, but {known}")
        exchange = credentials.new_exchange()
        token: bytes | None = exchange.first()
        while token is not None:
            asked = SaslAuthenticateRequest(auth_bytes=token)
            response = yield from self._exchange(ApiKey.SASL_AUTHENTICATE, 1, asked)
            check(response.error_code, response.error_message)
            try:
                token = exchange.evaluate(response.auth_bytes)
            except SaslFailure as failure:
                raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(failure)) from None

    def _version(self, key: ApiKey) -> int:
        assert self.ranges is not None
        lowest, highest = self.ranges.get(key, (0, -1))
        version = min(NEWEST[key], highest)
        if version < lowest:
            served = f"versions {lowest} to {highest}" if highest >= 0 else "no version"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"the broker serves {served} of {key.api_name}"
            )
        return version

    def _exchange(self, key: ApiKey, version: int, request: Message) -> Exchange:
        self._correlation_id += 1
        parts = api.encode_request(key, version, self._correlation_id, self._client_id, request)
        yield b"".join(parts)
        yield from self._receive(4)
        size = int.from_bytes(self._received[:4], "big")
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise NoResponseError(_other_server(bytes(self._received[:4]), size))
        yield from self._receive(4 + size)
        frame = bytes(self._received[4 : 4 + size])
        del self._received[: 4 + size]
        try:
            correlation_id, response = api.parse_response(key, version, frame)
        except MalformedMessage as error:
            raise NoResponseError(str(error)) from None
        if correlation_id != self._correlation_id:
            raise NoResponseError(f"an answer to request {correlation_id}, which was not sent")
        return response

    def _receive(self, size: int) -> Exchange:
        """Return when so many bytes are in `_received`."""
        while len(self._received) < size:
            data = yield None
            if not data:
                raise NoResponseError("the broker closed the connection")
            self._received += data


def over_tls(exchange: Exchange, context: SSLContext, host: str) -> Exchange:
    """An exchange over TLS, as bytes that a face sends and receives. NoResponseError."""
    from kwire.security.tls_stream import ROOM_BYTES, TlsError, TlsStream

    tls = TlsStream(context, host)
    room = memoryview(bytearray(ROOM_BYTES))
    try:
        tls.shake()
        while not tls.is_open:
            yield tls.outgoing()
            data = yield None
            if not data:
                raise NoResponseError("the broker closed the connection in the TLS handshake")
            tls.take(data)
            tls.shake()
        plain: bytes | None = None
        while True:
            asked = exchange.send(plain)
            plain = None
            if asked is not None:
                tls.write([asked])
                yield tls.outgoing()
                continue
            while not (count := tls.read_into(room)) and not tls.is_ended:
                data = yield None
                if not data:
                    break
                tls.take(data)
            plain = bytes(room[:count])
    except StopIteration as done:
        return done.value
    except TlsError as error:
        raise NoResponseError(str(error)) from None


def _other_server(head: bytes, size: int) -> str:
    """What the first bytes of an answer say that are no length of a response."""
    if head == b"HTTP":
        return "this is an HTTP server, no Kafka broker"
    if head[:2] in (b"\x15\x03", b"\x16\x03"):  # an alert or a handshake record of TLS
        return "this port speaks TLS; --ca FILE says whom to trust"
    text = head.decode("ascii", "replace")
    if text.isprintable() and head.isascii():
        return f"this is no Kafka broker: its answer begins with {text!r}"
    return f"an answer of {size} bytes"


def parse_address(text: str) -> Address:
    """HOST:PORT, an IPv6 host in brackets. ValueError."""
    host, _, port = text.strip().rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"{text!r} is no HOST:PORT")
    return host.strip("[]"), int(port)


def check(code: int, message: str | None) -> None:
    """KafkaError unless a response's error code is 0."""
    if code:
        try:
            error = ErrorCode(code)
        except ValueError:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"error {code}: {message}") from None
        raise KafkaError(error, message)
