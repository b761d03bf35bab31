"""Connections as the core sees them: one request at a time each, frames in, answers out in order.

Answers to org.apache.kafka.common.requests.{RequestContext,RequestHeader} and the muting of SocketServer.Processor:
- a connection's next request starts when its last one is answered; frames that come meanwhile wait here (a driver that
  looks at `Session.busy` leaves them in its read buffer instead, where they cost no copy);
- an ApiVersions request of an unknown version is answered as version 0 with UNSUPPORTED_VERSION and the versions of
  ApiVersions itself (KIP-511), its body unread; any other unknown API or version ends the connection;
- malformed bytes end the connection that sent them and nothing else.
Left out until there is security: SASL states (`Session.principal` is the place), throttling.

Invariants: a handler never runs inside another request's handler (an answer given there makes the next frame runnable,
it runs when the step is nearly over); no request is answered twice; a closed session is sent nothing.
"""

from __future__ import annotations

from collections import deque

from kwire.apis import BY_KEY
from kwire.apis.context import NO_RESPONSE, PARKED, RequestContext
from kwire.protocol.api import encode_response, parse_request_header, request_class
from kwire.protocol.errors import ErrorCode, MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.apis import Api, Handler
    from kwire.apis.context import Services
    from kwire.apis.controller_plane import ControllerServices
    from kwire.protocol.language.schema import Message
    from kwire.recent import RecentRequests
    from kwire.replication.core.outbox import Buffer, Outbox

API_VERSIONS = 18
MAX_WAITING_BYTES = 1 << 20
"""Frames that wait in a session for an earlier answer; beyond it (and one frame at least) the connection is closed."""


class Session:
    """One connection. Handlers see it as `ctx.session` (apis/context.py)."""

    __slots__ = (
        "client_software_name",
        "client_software_version",
        "closed",
        "connection",
        "in_flight",
        "listener_name",
        "peer_host",
        "principal",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, connection: int, listener_name: str, peer_host: str) -> None:
        self.connection = connection
        self.listener_name = listener_name
        self.peer_host = peer_host
        self.principal = "User:ANONYMOUS"
        self.client_software_name = "unknown"  # Kafka's ClientInformation.EMPTY
        self.client_software_version = "unknown"
        self.in_flight: RequestContext | None = None
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.closed = False

    @property
    def busy(self) -> bool:
        """A request is unanswered: another frame would have to wait."""
        return self.in_flight is not None

    def identify(self, name: str, version: str) -> None:
        """What the client said of itself in ApiVersions 3 and later (KIP-511)."""
        self.client_software_name = name
        self.client_software_version = version


class _Route:
    """Where requests of one API in one version go; looked up per request, made once."""

    __slots__ = ("decode", "handler")

    def __init__(
        self, decode: Callable[[Buffer, int, int], tuple[Any, int]], handler: Handler
    ) -> None:
        self.decode = decode
        self.handler = handler


class Sessions:
    """All connections of a broker, and the way of a request from frame to outbox."""

    __slots__ = (
        "_apis",
        "_outbox",
        "_ranges",
        "_routes",
        "_runnable",
        "_services",
        "by_connection",
        "recent",
    )

    def __init__(
        self,
        services: Services | ControllerServices,
        outbox: Outbox,
        ranges: dict[int, tuple[int, int]],
        apis: dict[int, Api] = BY_KEY,
    ) -> None:
        """`ranges`: key → (min, max) of what is accepted. `apis`: who handles it; a broker's table by default."""
        self._apis = apis
        self._services = services
        self._outbox = outbox
        self._ranges = ranges
        self._routes: dict[int, _Route] = {}  # api_key << 16 | api_version
        self._runnable: list[Session] = []
        self.recent: RecentRequests | None = None  # for tests that fail: who asked for what
        self.by_connection: dict[int, Session] = {}

    def opened(self, connection: int, listener_name: str, peer_host: str) -> Session:
        assert connection not in self.by_connection, "connection ids are used once"
        session = self.by_connection[connection] = Session(connection, listener_name, peer_host)
        return session

    def receive_frame(self, connection: int, frame: memoryview | bytes) -> None:
        """A whole frame without its length. A view is read within the step only."""
        session = self.by_connection.get(connection)
        if session is None:
            return
        if session.in_flight is not None:
            self._hold(session, frame)
            return
        self._handle(session, frame)
        if self._runnable:
            self.run_waiting()

    def run_waiting(self) -> None:
        """Runs what waited for answers that this step gave. The last act of every step."""
        runnable = self._runnable
        while runnable:
            session = runnable.pop(0)
            while session.waiting and session.in_flight is None and not session.closed:
                frame = session.waiting.popleft()
                session.waiting_bytes -= len(frame)
                self._handle(session, frame)

    def closed(self, connection: int) -> None:
        """The connection is gone; what its request waits for is dropped."""
        session = self.by_connection.pop(connection, None)
        if session is not None:
            self._forget(session)

    def close(self, session: Session, reason: str) -> None:
        """Ends a connection from this side, after what was replied before."""
        if self.by_connection.pop(session.connection, None) is not None:
            self._forget(session)
            self._outbox.close(session.connection, reason)
            if self.recent is not None:
                self.recent.closed(session, reason)

    def _forget(self, session: Session) -> None:
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
            route = self._routes.get(api_key << 16 | api_version) or self._route(
                api_key, api_version
            )
            if route is None:
                self._refuse(session, api_key, api_version, header.correlation_id)
                return
            request, _ = route.decode(frame, header.body_position, api_version)
            context = session.in_flight = RequestContext(
                api_key,
                api_version,
                header.correlation_id,
                header.client_id,
                session,
                self._services,  # type: ignore[arg-type]  # a controller's handlers know theirs
                self._respond,
                self._close_context,
            )
            response = route.handler(context, request)
        except MalformedMessage as error:
            self.close(session, f"malformed request: {error}")
            return
        if response is PARKED:
            return
        if response is NO_RESPONSE:
            session.in_flight = None
            if self.recent is not None:
                self.recent.answered(context, None)
        else:
            assert not context.answered, "a handler returns its response or calls reply, not both"
            context.answered = True
            self._respond(context, response)  # type: ignore[arg-type]  # the markers are handled above

    def _respond(self, context: RequestContext, response: Message) -> None:
        """`RequestContext.reply`, and the end of every request answered at once."""
        session: Session = context.session  # type: ignore[assignment]  # made above
        if session.closed:
            return
        parts = encode_response(
            context.api_key, context.api_version, context.correlation_id, response
        )
        self._outbox.reply(session.connection, parts)
        session.in_flight = None
        if self.recent is not None:
            self.recent.answered(context, response)
        if session.waiting:
            self._runnable.append(session)

    def _close_context(self, context: RequestContext, reason: str) -> None:
        self.close(context.session, reason)  # type: ignore[arg-type]  # made above

    def _route(self, api_key: int, api_version: int) -> _Route | None:
        """Makes the route of an API and version; None when it is not served."""
        lowest, highest = self._ranges.get(api_key, (0, -1))
        if not lowest <= api_version <= highest:
            return None
        route = _Route(request_class(api_key).decode_from, self._apis[api_key].handler)
        self._routes[api_key << 16 | api_version] = route
        return route

    def _refuse(
        self, session: Session, api_key: int, api_version: int, correlation_id: int
    ) -> None:
        if api_key != API_VERSIONS:
            name = self._apis[api_key].name if api_key in self._apis else "API"
            self.close(session, f"{name} (key {api_key}) version {api_version} is not supported")
            return
        from kwire.protocol.schemas.api_versions import ApiVersion, ApiVersionsResponse

        lowest, highest = self._ranges[API_VERSIONS]
        own = ApiVersion(api_key=API_VERSIONS, min_version=lowest, max_version=highest)
        response = ApiVersionsResponse(
            error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[own]
        )
        parts = encode_response(API_VERSIONS, 0, correlation_id, response)
        self._outbox.reply(session.connection, parts)
