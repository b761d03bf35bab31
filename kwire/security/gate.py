"""The connections of SASL listeners until they are authenticated: kept apart from the others.

Answers to org.apache.kafka.common.network.{KafkaChannel,Selector} as far as they deal with
authentication: failures are answered after connection.failed.authentication.delay.ms, a session ends
connections.max.reauth.ms after its log-in unless the client logs in again (KIP-368).

A session is in the gate, or in the broker's `Sessions`, or in its leftovers. What serves requests of
authenticated clients knows nothing of log-ins: neither a request nor a broker without SASL pays for them. A
session whose time is over comes back to the gate, where only SaslHandshake is taken.
"""

from __future__ import annotations

from kwire.protocol.api import ApiKey, RequestHeader, parse_request_header, request_class
from kwire.protocol.errors import MalformedMessage
from kwire.replication.core.metadata import SCRAM_RESOURCE
from kwire.replication.core.scram_credentials import Credential, new_salt
from kwire.security.login import COMPLETE, HANDSHAKE, Login
from kwire.security.mechanism import OAUTHBEARER, PLAIN, PlainServer
from kwire.security.scram import ScramServer
from kwire.session import API_VERSIONS, Request, Session, Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from kwire.apis.context import RequestContext, Services
    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.sasl import SaslHandshakeRequest
    from kwire.security.client import Credentials
    from kwire.security.delegation import DelegationTokens
    from kwire.security.login import Outcome
    from kwire.security.mechanism import Exchange
    from kwire.security.oauth import Token
    from kwire.security.settings import ListenerSettings

_MIN_INTERVAL_MS = 1000
"""Between the beginnings of two log-ins again (KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS)."""


class _Identity:
    """Who has logged in on a connection. `expires_ms`: on the clock, None: never. `by_token`: a delegation token."""

    __slots__ = ("began_ms", "by_token", "expires_ms", "mechanism", "user")

    def __init__(self, exchange: Exchange, expires_ms: int | None, began_ms: int) -> None:
        assert exchange.user is not None
        self.mechanism = exchange.mechanism
        self.user = exchange.user
        self.by_token = exchange.by_token
        self.expires_ms = expires_ms
        self.began_ms = began_ms


class _VersionsRequest(Request):
    """ApiVersions before a log-in: a SaslHandshake is next if it is answered without an error."""

    __slots__ = ("error_code",)
    error_code: int

    def reply(self, response: Message) -> None:
        self.error_code = response.error_code  # type: ignore[attr-defined]  # of an ApiVersionsResponse
        super().reply(response)


class Gate(Sessions):
    """The sessions that are not authenticated, or not any more."""

    __slots__ = (
        "_identities",
        "_logins",
        "_node",
        "_own",
        "_present",
        "_random",
        "_tokens",
        "listeners",
        "on_admitted",
    )

    def __init__(
        self,
        present: Sessions,
        listeners: Mapping[str, ListenerSettings],
        random: Random,
    ) -> None:
        """`present`: the node's other sessions. `listeners`: those that ask for a log-in. `random`: of nonces."""
        services: Services = present.services  # type: ignore[assignment]  # a controller's have what is needed, too
        super().__init__(services, present.outbox, present.ranges)
        self._present = present
        self._node = services
        services.gate = self
        self._random = random
        self._own: dict[Credentials, Credential] = {}
        """Of the nodes themselves, until the journal has theirs."""
        self._tokens: DelegationTokens | None = None
        self.recent = present.recent
        self.listeners = listeners
        self._logins: dict[int, Login] = {}
        self._identities: dict[int, _Identity] = {}
        self.on_admitted: Callable[[int], None] = lambda _connection: None
        """Called with a connection that has logged in for the first time."""

    def open(self, connection: int, listener_name: str, peer_host: str) -> Session:
        session = super().open(connection, listener_name, peer_host)
        self._logins[connection] = self._new_login(session, None)
        return session

    def _new_login(self, session: Session, identity: _Identity | None) -> Login:
        settings = self.listeners[session.listener_name]
        previous = None if identity is None else (identity.mechanism, identity.user)
        return Login(
            settings.mechanisms, lambda mechanism: self._exchange(settings, mechanism), previous
        )

    def _exchange(self, settings: ListenerSettings, mechanism: str) -> Exchange:
        if mechanism == PLAIN:
            return PlainServer(settings.plain_users)
        if mechanism == OAUTHBEARER:
            return self._token_exchange(settings)
        return ScramServer(
            mechanism,
            lambda user: self._credential(settings, mechanism, user),
            self._random,
            lambda token_id: self._delegation_token(mechanism, token_id),
        )

    def _delegation_token(
        self, mechanism: str, token_id: str
    ) -> tuple[Credential, str, int] | None:
        if self._tokens is None:
            from kwire.security.delegation import DelegationTokens

            node = self._node
            self._tokens = DelegationTokens(
                node.config, lambda kind, name: node.metadata.config(kind, name), self._random
            )
        return self._tokens.of(mechanism, token_id)

    def is_by_token(self, connection: int) -> bool:
        """Whether a client has logged in by a delegation token."""
        identity = self._identities.get(connection)
        return identity is not None and identity.by_token

    def _token_exchange(self, settings: ListenerSettings) -> Exchange:
        from kwire.security.oauth import OAuthServer

        tokens, clock = settings.tokens, self._node.clock
        assert tokens is not None

        def validated(text: str) -> Token:
            # In real time: its issuer's clock is not advanced by tests.
            return tokens.validated(text, clock.wall_ms - clock.offset_ms, clock.real_ms)

        return OAuthServer(validated)

    def _credential(
        self, settings: ListenerSettings, mechanism: str, user: str
    ) -> Credential | None:
        text = self._node.metadata.config(SCRAM_RESOURCE, user).get(mechanism)
        if text is not None:
            return Credential.from_text(text)
        own = settings.own
        if own is None or (own.mechanism, own.user) != (mechanism, user):
            return None
        if own not in self._own:
            salt = new_salt(self._random)
            self._own[own] = Credential.of_password(mechanism, own.password, salt)
        return self._own[own]

    # --- frames

    def _handle(self, session: Session, frame: memoryview | bytes) -> None:
        login = self._logins.get(session.connection)
        if login is None:  # its time is over: only a log-in again is taken
            self._take_after_end(session, frame)
            return
        settings = self.listeners[session.listener_name]
        if len(frame) > settings.max_receive_bytes:
            reason = f"{len(frame)} bytes before its log-in; sasl.server.max.receive.size="
            self._fail(session, f"{reason}{settings.max_receive_bytes}")
            return
        outcome = login.take(frame)
        if outcome.asks_versions:
            assert outcome.header is not None
            self._serve_versions(session, login, outcome.header, frame)
        else:
            self._carry(session, login, outcome)

    def _carry(
        self, session: Session, login: Login, outcome: Outcome, asked: RequestContext | None = None
    ) -> None:
        """Answer as the log-in says. `asked`: the request, if it came by the table of APIs."""
        request = asked
        if request is None and outcome.header is not None:
            request = session.in_flight = Request(outcome.header, session, self._node)
        if outcome.failure is not None:
            self._refuse_login(session, request, outcome)
            return
        if login.state is COMPLETE:
            lifetime_ms = self._admit(session, login)
            if outcome.response is not None:
                outcome.response.session_lifetime_ms = lifetime_ms  # type: ignore[attr-defined]  # SaslAuthenticate
        if request is not None:
            assert outcome.response is not None
            request.reply(outcome.response)
        elif outcome.token is not None:
            size = len(outcome.token).to_bytes(4, "big")
            self.outbox.reply(session.connection, [size + outcome.token])

    def _serve_versions(
        self, session: Session, login: Login, header: RequestHeader, frame: memoryview | bytes
    ) -> None:
        version = header.api_version
        lowest, highest = self.ranges[API_VERSIONS]
        if not lowest <= version <= highest:
            self._refuse(session, API_VERSIONS, version, header.correlation_id)
            return
        try:
            message, _ = request_class(API_VERSIONS).decoders[version](frame, header.body_position)
        except MalformedMessage as error:
            self.close(session, f"malformed request: {error}")
            return
        request = _VersionsRequest(header, session, self._node)
        session.in_flight = request
        self._apis[API_VERSIONS].handler(request, message)
        if not request.error_code:
            login.versions_answered()

    # --- ends of a log-in

    def _admit(self, session: Session, login: Login) -> int:
        """Let an authenticated client in. Returns the session's life time in ms, 0: unlimited."""
        exchange = login.exchange
        assert exchange is not None and exchange.user is not None
        connection, now_ms = session.connection, self._node.clock.now_ms
        lifetime_ms = self.listeners[session.listener_name].lifetime_ms(exchange.mechanism)
        has_end = lifetime_ms > 0
        if exchange.expires_ms is not None:  # of a token, which may be over by the allowed skew
            wall_ms = self._node.clock.wall_ms
            if exchange.mechanism == OAUTHBEARER:
                wall_ms -= self._node.clock.offset_ms  # its issuer's clock is not advanced by tests
            left_ms = max(0, exchange.expires_ms - wall_ms)
            lifetime_ms = min(left_ms, lifetime_ms) if has_end else left_ms
            has_end = True
        before = self._identities.get(connection)
        self._identities[connection] = _Identity(
            exchange,
            now_ms + lifetime_ms if has_end else None,
            before.began_ms if before else now_ms - _MIN_INTERVAL_MS,
        )
        session.principal = f"User:{exchange.user}"
        self._logins.pop(connection, None)
        self.by_connection.pop(connection, None)
        session.sessions = self._present
        self._present.by_connection[connection] = session
        if has_end:
            self._node.timers.schedule_real(
                ("session", connection), now_ms + lifetime_ms, lambda: self._expire(session)
            )
        if before is None:
            self.on_admitted(connection)
        return lifetime_ms

    def _take_back(self, session: Session) -> None:
        if self._present.by_connection.pop(session.connection, None) is not None:
            session.sessions = self
            self.by_connection[session.connection] = session

    def _expire(self, session: Session) -> None:
        """The session's time is over: what is at work is still answered, as in Kafka."""
        self._take_back(session)
        if session.sessions is not self:  # it is older than a reset, and cannot log in again
            session.sessions.close(session, "its time is over")

    def _take_after_end(self, session: Session, frame: memoryview | bytes) -> None:
        try:
            header = parse_request_header(frame)
            if header.api_key != ApiKey.SASL_HANDSHAKE:
                raise MalformedMessage("no log-in")
        except MalformedMessage:
            identity = self._identities[session.connection]
            mechanism = identity.mechanism
            limit = self.listeners[session.listener_name].lifetime_ms(mechanism)
            within = f"within connections.max.reauth.ms={limit}"
            if mechanism == OAUTHBEARER or identity.by_token:
                within = "before its token had expired" + (f", or {within}" if limit else "")
            self.close(session, f"no log-in again {within}")
            return
        identity = self._identities[session.connection]
        identity.began_ms = self._node.clock.now_ms
        self._logins[session.connection] = self._new_login(session, identity)
        self._handle(session, frame)

    def handshake(self, ctx: RequestContext, request: SaslHandshakeRequest) -> bool:
        """Begin another log-in of an authenticated client. False: its session has no end, or it has just logged in."""
        session: Session = ctx.session  # type: ignore[assignment]  # the protocol of handlers
        identity = self._identities.get(session.connection)
        now_ms = self._node.clock.now_ms
        if identity is None or identity.expires_ms is None:
            return False
        if now_ms - identity.began_ms < _MIN_INTERVAL_MS:
            return False
        identity.began_ms = now_ms
        login = self._logins[session.connection] = self._new_login(session, identity)
        assert login.state is HANDSHAKE
        self._take_back(session)
        header = RequestHeader(ctx.api_key, ctx.api_version, ctx.correlation_id, ctx.client_id, 0)
        self._carry(session, login, login.handshake(header, request), ctx)
        return True

    def _refuse_login(
        self, session: Session, request: RequestContext | None, outcome: Outcome
    ) -> None:
        """Answer a failed log-in and close its connection, both after Kafka's delay; until then it is mute."""
        reason = f"authentication failed: {outcome.failure}"
        delay_ms = self.listeners[session.listener_name].failure_delay_ms
        if outcome.at_once or delay_ms <= 0:
            self._end(session, request, outcome, reason)
            return
        if request is None:
            header = RequestHeader(int(ApiKey.SASL_AUTHENTICATE), 0, 0, session.client_id, 0)
            request = session.in_flight = Request(header, session, self._node)
        key = "login", session.connection
        timers = self._node.timers
        timers.schedule_real(
            key,
            self._node.clock.now_ms + delay_ms,
            lambda: self._end(session, request, outcome, reason),
        )
        request.on_disconnect = lambda: timers.cancel(key)

    def _end(
        self, session: Session, request: RequestContext | None, outcome: Outcome, reason: str
    ) -> None:
        if session.closed:
            return
        if request is not None and outcome.response is not None:
            request.reply(outcome.response)
        self.close(session, reason)

    def _fail(self, session: Session, reason: str) -> None:
        self.close(session, f"authentication failed: {reason}")

    # --- ends of a connection

    def connection_closed(self, connection: int) -> None:
        super().connection_closed(connection)
        self.forget(connection)

    def forget(self, connection: int) -> None:
        """Forget a connection that is closed."""
        self._logins.pop(connection, None)
        if self._identities.pop(connection, None) is not None:
            self._node.timers.cancel(("session", connection))

    def close(self, session: Session, reason: str) -> None:
        super().close(session, reason)
        self.forget(session.connection)


def open_gate(
    sessions: Sessions,
    listeners: Mapping[str, ListenerSettings],
    on_admitted: Callable[[int], None],
) -> None:
    """Let the clients of these listeners log in. `on_admitted`: as of a Gate."""
    from random import SystemRandom

    gate = Gate(sessions, listeners, SystemRandom())
    gate.on_admitted = on_admitted
    sessions.gate = gate
