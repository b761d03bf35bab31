"""Client connections in the core: parse frames, dispatch one request at a time, reply in order.

Answers to org.apache.kafka.common.requests.{RequestContext,RequestHeader} and the muting of
SocketServer.Processor:
- a connection's next request starts when the previous one is answered; frames that arrive before
  wait here (a driver that checks `Session.busy` leaves them in its read buffer instead, where they
  cost no copy);
- an ApiVersions request of an unknown version is answered as version 0 with UNSUPPORTED_VERSION and
  the versions of ApiVersions itself (KIP-511), its body unread; any other unknown API or version
  closes the connection;
- malformed bytes end the connection that sent them and nothing else.
Connections that are to log in are in a gate of their own (`security/gate.py`); `quotas/requests.py` throttles.

Invariants: a handler never runs inside another request's handler (a reply given there makes the
connection's next frame runnable; it runs at the end of the step); no request is answered twice;
nothing is sent to a closed session.
"""

from __future__ import annotations

from collections import deque

from kwire.apis import BY_KEY
from kwire.apis.context import RequestContext
from kwire.protocol.api import ApiKey, encode_response, parse_request_header, request_class
from kwire.protocol.errors import ErrorCode, MalformedMessage
from kwire.replication.core.types import ANONYMOUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.apis import Api, Handler
    from kwire.apis.context import Services
    from kwire.apis.controller_plane import ControllerServices
    from kwire.faults.table import FaultTable
    from kwire.leftovers import Leftovers
    from kwire.protocol.api import RequestHeader
    from kwire.protocol.language.schema import Message
    from kwire.quotas.requests import Throttling
    from kwire.recent import RecentRequests
    from kwire.replication.core.outbox import Outbox
    from kwire.replication.core.work import Steps
    from kwire.security.gate import Gate

API_VERSIONS = int(ApiKey.API_VERSIONS)  # a plain number: looked at for every request
LARGE_FRAME_BYTES = 16 * 1024
"""Requests in larger frames are decoded in parts, and handled so if `apis/parts/chunks.py` cuts them."""
_LARGE_BYTES: dict[int, int] = {
    ApiKey.PRODUCE: 512 * 1024,  # most of its bytes are records
    ApiKey.CREATE_TOPICS: 512,  # some tens of topics, each of which takes a millisecond
    ApiKey.CREATE_PARTITIONS: 512,
    ApiKey.DELETE_TOPICS: 1024,
    ApiKey.DESCRIBE_CONFIGS: 512,
    ApiKey.ALTER_CONFIGS: 4096,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 4096,
}
UNKNOWN_SOFTWARE = "unknown"  # Kafka's ClientInformation.EMPTY
MAX_WAITING_BYTES = 1 << 20
"""Bytes of frames that may wait in a session for an earlier reply; one frame may always wait.
With more the connection is closed."""


class Session:
    """One connection. Handlers see it as `ctx.session` (apis/context.py)."""

    __slots__ = (
        *("client_id", "client_software_name", "client_software_version", "closed", "connection"),
        *("group_id", "in_flight", "keeps_frame", "last_api", "listener_name", "peer_host"),
        *("principal", "sessions", "waiting", "waiting_bytes"),
    )

    def __init__(
        self, sessions: Sessions, connection: int, listener_name: str, peer_host: str
    ) -> None:
        self.sessions = sessions
        self.connection = connection
        self.listener_name = listener_name
        self.peer_host = peer_host
        self.principal = ANONYMOUS
        self.client_software_name = UNKNOWN_SOFTWARE
        self.client_software_version = UNKNOWN_SOFTWARE
        self.client_id: str | None = None
        """As of the last request whose handler says so (ApiVersions, Metadata, …); None: none yet."""
        self.group_id: str | None = None
        """The group that was joined, or committed for, here."""
        self.last_api: tuple[int, int] | None = None
        """Key and version of the last answered request, if requests are kept (`recent`)."""
        self.in_flight: Request | None = None
        self.keeps_frame = False
        """The driver must keep the frame that it has just passed in until the next reply."""
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.closed = False

    @property
    def busy(self) -> bool:
        """A request is unanswered: another frame would have to wait."""
        return self.in_flight is not None

    def identify(self, name: str, version: str) -> None:
        """Set the client software's name and version, sent in ApiVersions 3 and later (KIP-511)."""
        self.client_software_name = name
        self.client_software_version = version


class Request(RequestContext):
    """A request of one connection, in the session's `in_flight` until it is answered."""

    __slots__ = ()

    session: Session

    def reply(self, response: Message) -> None:
        """Encode the response into the outbox and make the connection's next frame runnable."""
        assert not self.answered, "a request is answered once"
        self.answered = True
        self.on_disconnect = None
        session = self.session
        if session.closed:
            return
        sessions = session.sessions
        parts = encode_response(self.api_key, self.api_version, self.correlation_id, response)
        sessions.outbox.reply(session.connection, parts)
        session.in_flight = None
        if sessions.recent is not None:
            sessions.recent.record(self, response)
        if session.waiting:
            sessions.runnable.append(session)

    def reply_in_parts(self, response: Message, *garbage: list[Any] | None) -> None:
        assert not self.answered, "a request is answered once"
        self.answered = True
        self.on_disconnect = None
        job = self.services.work.start(self._encode(response, garbage), self._work_failed)
        if job is not None:
            self.on_disconnect = job.cancel

    def _encode(self, response: Message, garbage: tuple[list[Any] | None, ...]) -> Steps:
        from kwire.protocol.language.parts import encode_in_parts

        session = self.session
        try:
            if not session.closed:
                parts = yield from encode_in_parts(response, self.api_version)
                session.sessions.outbox.reply(
                    session.connection,
                    encode_response(
                        self.api_key, self.api_version, self.correlation_id, response, parts
                    ),
                )
                self._end(response)
        finally:
            if session.sessions.recent is None:  # which keeps some responses
                self.services.work.free(*garbage)

    def end_without_response(self) -> None:
        assert not self.answered, "a request is answered once"
        self.answered = True
        self._end(None)
        if not (session := self.session).closed:
            session.sessions.outbox.ready(session.connection)

    def _end(self, response: Message | None) -> None:
        """Make the connection's next frame runnable."""
        self.on_disconnect = None
        session = self.session
        sessions = session.sessions
        session.in_flight = None
        if sessions.recent is not None:
            sessions.recent.record(self, response)
        if session.waiting:
            sessions.runnable.append(session)

    def close(self, reason: str) -> None:
        self.session.sessions.close(self.session, reason)


class _LargeRequest(Request):
    """A request that came in a large frame: what answers it may be large, too."""

    __slots__ = ()

    def reply(self, response: Message) -> None:
        self.reply_in_parts(response)


class _Route:
    """Decoders and handler of one API; made once a version, looked up for each request."""

    __slots__ = ("count", "decoders", "handler", "large_bytes")

    def __init__(self, key: int, message: type[Message], handler: Handler) -> None:
        self.count = 0  # requests so far
        self.decoders = message.decoders
        self.handler = handler
        self.large_bytes = _LARGE_BYTES.get(key, LARGE_FRAME_BYTES)


class Sessions:
    """All client connections of a node, and the dispatch of their requests to handlers."""

    __slots__ = (
        *("_apis", "_counts", "_routes", "by_connection", "faults", "gate", "leftovers", "outbox"),
        *("quotas", "ranges", "recent", "runnable", "services"),
    )

    def __init__(
        self,
        services: Services | ControllerServices,
        outbox: Outbox,
        ranges: dict[int, tuple[int, int]],
        apis: dict[int, Api] = BY_KEY,
    ) -> None:
        """`ranges`: API key → accepted (min, max) versions. `apis`: a broker's by default."""
        self._apis = apis
        self.services = services
        self.outbox = outbox
        self.ranges = ranges
        self._routes: dict[int, _Route] = {}  # api_key << 16 | api_version
        self._counts: dict[int, int] = {}  # requests on earlier routes
        self.runnable: list[Session] = []  # with frames that waited for a reply given in this step
        self.recent: RecentRequests | None = None  # for failure reports, if kept
        self.by_connection: dict[int, Session] = {}
        self.leftovers: Leftovers | None = None  # those older than a reset (leftovers.py)
        self.gate: Gate | None = None  # those that are to log in
        self.quotas: Throttling | None = None  # of clients, if there are or were any
        self.faults: FaultTable | None = None  # that tests have set, while there are any

    def open(self, connection: int, listener_name: str, peer_host: str) -> Session:
        if self.gate is not None and listener_name in self.gate.listeners:
            return self.gate.open(connection, listener_name, peer_host)
        assert connection not in self.by_connection, "connection ids are used once"
        session = Session(self, connection, listener_name, peer_host)
        self.by_connection[connection] = session
        return session

    def find(self, connection: int) -> Session | None:
        """The session of an open connection, also one that is older than a reset."""
        session = self.by_connection.get(connection)
        for others in (self.gate, self.leftovers):
            if session is None and others is not None:
                session = others.find(connection)
        return session

    def receive_frame(self, connection: int, frame: memoryview | bytes) -> None:
        """Handle a frame, without its length. A view is read within the step, or longer after `keeps_frame`."""
        session = self.by_connection.get(connection)
        if session is None:
            self._receive_elsewhere(connection, frame)
            return
        if session.in_flight is not None:
            self._hold(session, frame)
            return
        self._handle(session, frame)
        if self.runnable:
            self.run_waiting()

    def _receive_elsewhere(self, connection: int, frame: memoryview | bytes) -> None:
        if self.gate is not None and connection in self.gate.by_connection:
            self.gate.receive_frame(connection, frame)
        elif self.leftovers is not None:
            self.leftovers.receive_frame(connection, frame)

    def run_waiting(self) -> None:
        """Handle frames that waited for replies of this step. The last act of every step."""
        for others in (self.leftovers, self.gate):
            if others is not None:
                others.run_waiting()
        runnable = self.runnable
        while runnable:
            session = runnable.pop(0)
            while session.waiting and session.in_flight is None and not session.closed:
                frame = session.waiting.popleft()
                session.waiting_bytes -= len(frame)
                session.sessions._handle(session, frame)  # a log-in moves it from or to the gate

    def connection_closed(self, connection: int) -> None:
        """Drop the session of a closed connection and cancel its parked request."""
        session = self.by_connection.pop(connection, None)
        if session is not None:
            self._drop(session)
        elif self.leftovers is not None:
            self.leftovers.connection_closed(connection)
        if self.gate is not None:
            self.gate.connection_closed(connection)

    def close(self, session: Session, reason: str) -> None:
        """Close a connection from this side, after the replies already given."""
        if self.by_connection.pop(session.connection, None) is not None:
            self._drop(session)
            self.outbox.close(session.connection, reason)
            if self.recent is not None:
                self.recent.record_close(session, reason)

    def _drop(self, session: Session) -> None:
        session.closed = True
        session.waiting.clear()
        context, session.in_flight = session.in_flight, None
        if context is not None:
            context.disconnected()

    def _hold(self, session: Session, frame: memoryview | bytes) -> None:
        if session.waiting and session.waiting_bytes + len(frame) > MAX_WAITING_BYTES:
            self.close(session, f"more than {MAX_WAITING_BYTES} bytes wait for an earlier answer")
            return
        session.waiting.append(bytes(frame))
        session.waiting_bytes += len(frame)

    def _handle(self, session: Session, frame: memoryview | bytes) -> None:
        try:
            header = parse_request_header(frame)
            api_key, api_version = header.api_key, header.api_version
            route = self._routes.get(api_key << 16 | api_version) or self._make_route(
                api_key, api_version
            )
            if route is None:
                self._refuse(session, api_key, api_version, header.correlation_id)
                return
            route.count += 1
            if self.quotas is not None:
                self.quotas.handle(session, frame, header, route)
                return
            if len(frame) > route.large_bytes:
                self._handle_large(session, frame, header, route)
                return
            message, _ = route.decoders[api_version](frame, header.body_position)
            request = session.in_flight = Request(header, session, self.services)  # type: ignore[arg-type]  # a controller's handlers expect its services
            route.handler(request, message)
        except MalformedMessage as error:
            self.close(session, f"malformed request: {error}")

    def _handle_large(
        self, session: Session, frame: memoryview | bytes, header: RequestHeader, route: _Route
    ) -> None:
        """Handle a request whose arrays may be long: it is decoded, then freed, in parts."""
        request = session.in_flight = _LargeRequest(header, session, self.services)  # type: ignore[arg-type]  # as below
        request.run_in_parts(self._decode_and_handle(request, frame, header, route))

    def _decode_and_handle(
        self,
        request: Request,
        frame: memoryview | bytes,
        header: RequestHeader,
        route: _Route,
    ) -> Steps:
        from kwire.apis.parts.chunks import handle_in_parts
        from kwire.protocol.language.parts import decode_in_parts

        kind = request_class(header.api_key)
        try:
            message = yield from decode_in_parts(
                kind, frame, header.body_position, header.api_version
            )
            yield from handle_in_parts(request, message, route.handler)
        except MalformedMessage as error:
            self.close(request.session, f"malformed request: {error}")

    def _make_route(self, api_key: int, api_version: int) -> _Route | None:
        """Make the route of an API and version; None if it is not served."""
        lowest, highest = self.ranges.get(api_key, (0, -1))
        if not lowest <= api_version <= highest:
            return None
        handler, authority = self._apis[api_key].handler, self.services.authority
        handler = handler if authority is None else authority.guard(api_key, handler)
        route = _Route(api_key, request_class(api_key), handler)
        if self.faults is not None:
            self.faults.guard(route, api_key)
        self._routes[api_key << 16 | api_version] = route
        return route

    def forget_routes(self) -> None:
        """Make routes again when they are needed: what is on the way of a request has changed."""
        self._counts = self.request_counts()
        self._routes.clear()

    def request_counts(self) -> dict[int, int]:
        """The requests so far, by api_key << 16 | api_version."""
        found = dict(self._counts)
        for key, route in self._routes.items():
            found[key] = found.get(key, 0) + route.count
        return found

    def _refuse(
        self, session: Session, api_key: int, api_version: int, correlation_id: int
    ) -> None:
        if api_key != API_VERSIONS:
            name = self._apis[api_key].name if api_key in self._apis else "API"
            self.close(session, f"{name} (key {api_key}) version {api_version} is not supported")
            return
        from kwire.protocol.schemas.api_versions import ApiVersion, ApiVersionsResponse

        lowest, highest = self.ranges[API_VERSIONS]
        own = ApiVersion(api_key=API_VERSIONS, min_version=lowest, max_version=highest)
        response = ApiVersionsResponse(
            error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[own]
        )
        parts = encode_response(API_VERSIONS, 0, correlation_id, response)
        self.outbox.reply(session.connection, parts)
