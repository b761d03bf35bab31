"""The log-in of one connection: frames in, outcomes out. No socket, no clock.

Answers to org.apache.kafka.common.security.authenticator.SaslServerAuthenticator. Before a client is
authenticated only ApiVersions (once, and first), SaslHandshake and tokens are served: tokens in
SaslAuthenticate after SaslHandshake v1, as bare frames after v0 (KIP-43). Anything else ends the
connection. A log-in may be a second one of its connection (KIP-368): it begins with SaslHandshake, and
keeps mechanism and user.
"""

from __future__ import annotations

from enum import Enum

from kwire.protocol.api import ApiKey, parse_request_header, request_class
from kwire.protocol.errors import ErrorCode, MalformedMessage
from kwire.protocol.schemas.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from kwire.security.mechanism import SaslFailure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from kwire.protocol.api import RequestHeader
    from kwire.protocol.language.schema import Message
    from kwire.security.mechanism import Exchange

_VERSIONS, _HANDSHAKE, _AUTHENTICATE = (
    int(key) for key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
)

_HIGHEST_VERSIONS = 4
"""Of ApiVersions: the response to a later version has no such error."""


class State(Enum):
    """What a log-in waits for."""

    HANDSHAKE_OR_VERSIONS = "a SaslHandshake, or ApiVersions first"
    HANDSHAKE = "a SaslHandshake"
    TOKEN = "a token of the mechanism"
    BAD_MECHANISM = "nothing: a second log-in with another mechanism"
    COMPLETE = "nothing: the client is authenticated"
    FAILED = "nothing: the connection is to be closed"


HANDSHAKE_OR_VERSIONS, HANDSHAKE, TOKEN, BAD_MECHANISM, COMPLETE, FAILED = State
VALID_PREVIOUS_STATES: dict[State, tuple[State, ...]] = {
    HANDSHAKE_OR_VERSIONS: (),
    HANDSHAKE: (HANDSHAKE_OR_VERSIONS,),
    TOKEN: (HANDSHAKE_OR_VERSIONS, HANDSHAKE),
    BAD_MECHANISM: (HANDSHAKE,),
    COMPLETE: (TOKEN,),
    FAILED: (HANDSHAKE_OR_VERSIONS, HANDSHAKE, TOKEN, BAD_MECHANISM),
}


class Outcome:
    """What one frame leads to: a response, a bare token, or the end of the connection.

    `header`: of the request, None for a bare token. `asks_versions`: the request is ApiVersions, which the
    caller answers. `failure`: why the connection is to be closed, after the response if there is one; `at_once`:
    without the delay that Kafka makes for those who guess."""

    __slots__ = ("asks_versions", "at_once", "failure", "header", "response", "token")

    def __init__(
        self,
        header: RequestHeader | None = None,
        response: Message | None = None,
        *,
        token: bytes | None = None,
        asks_versions: bool = False,
        failure: str | None = None,
        at_once: bool = False,
    ) -> None:
        self.header = header
        self.response = response
        self.token = token
        self.asks_versions = asks_versions
        self.failure = failure
        self.at_once = at_once


class Login:
    """One log-in. `exchange`: the mechanism's, once it is chosen; it has the user when `state` is COMPLETE."""

    def __init__(
        self,
        mechanisms: Sequence[str],
        new_exchange: Callable[[str], Exchange],
        previous: tuple[str, str] | None = None,
    ) -> None:
        """`mechanisms`: that are enabled. `previous`: mechanism and user of the log-in before."""
        self.state = HANDSHAKE_OR_VERSIONS
        self.exchange: Exchange | None = None
        self._mechanisms = mechanisms
        self._new_exchange = new_exchange
        self._previous = previous
        self._has_headers = False
        if previous is not None:
            self._move(HANDSHAKE)

    def _move(self, state: State) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.state.name} -> {state.name}"
        self.state = state

    def take(self, frame: memoryview | bytes) -> Outcome:
        """Take the next frame. After an outcome with a failure no other may follow."""
        if self.state is BAD_MECHANISM:
            return self._fail("a second log-in cannot have another mechanism")
        if self.state is TOKEN:
            return self._take_token(frame) if self._has_headers else self._take_bare(bytes(frame))
        assert self.state in (HANDSHAKE_OR_VERSIONS, HANDSHAKE), self.state
        try:
            header = parse_request_header(frame)
            if header.api_key == _VERSIONS:
                if self.state is HANDSHAKE:
                    return self._fail("a second ApiVersions before its log-in", at_once=True)
                return Outcome(header, asks_versions=True)
            if header.api_key != _HANDSHAKE:
                name = ApiKey(header.api_key).api_name
                return self._fail(f"{name} before its log-in", header)
            return self.handshake(header, _body(header, frame))
        except MalformedMessage as error:
            return self._fail(f"malformed request before its log-in: {error}")

    def versions_answered(self) -> None:
        """Note that ApiVersions was answered without an error: SaslHandshake comes next."""
        self._move(HANDSHAKE)

    def handshake(self, header: RequestHeader, request: Any) -> Outcome:
        """SaslHandshake: the mechanism."""
        mechanism = request.mechanism
        self._has_headers = header.api_version >= 1
        response = SaslHandshakeResponse(mechanisms=list(self._mechanisms))
        if mechanism not in self._mechanisms:
            response.error_code = int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            known = ", ".join(self._mechanisms)
            return self._fail(
                f"mechanism {mechanism[:40]!r} is not one of {known}", header, response
            )
        if self._previous is not None and self._previous[0] != mechanism:
            self._move(BAD_MECHANISM)
        else:
            self.exchange = self._new_exchange(mechanism)
            self._move(TOKEN)
        return Outcome(header, response)

    def _take_token(self, frame: memoryview | bytes) -> Outcome:
        try:
            header = parse_request_header(frame)
            if header.api_key != _AUTHENTICATE:
                return self._refuse_other(header)
            request = _body(header, frame)
        except MalformedMessage as error:
            return self._fail(f"malformed request in its log-in: {error}", at_once=True)
        try:
            answer = self._evaluate(request.auth_bytes)
        except SaslFailure as failure:
            message = failure.message
            if message is None:
                assert self.exchange is not None
                word = "authentication" if self._previous is None else "re-authentication"
                message = f"Authentication failed during {word} due to invalid credentials with SASL mechanism"
                message += f" {self.exchange.mechanism}"
            response = SaslAuthenticateResponse(
                error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED), error_message=message
            )
            return self._fail(str(failure), header, response)
        response = SaslAuthenticateResponse(error_message="", auth_bytes=answer)
        return Outcome(header, response)

    def _refuse_other(self, header: RequestHeader) -> Outcome:
        """Another request than SaslAuthenticate: ILLEGAL_SASL_STATE, where its response has room for that."""
        name = ApiKey(header.api_key).api_name
        response: Any = None
        if header.api_key == _HANDSHAKE and header.api_version in (0, 1):
            response = SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE))
        elif header.api_key == _VERSIONS and 0 <= header.api_version <= _HIGHEST_VERSIONS:
            from kwire.protocol.schemas.api_versions import ApiVersionsResponse

            response = ApiVersionsResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE))
        refused = self.exchange and self.exchange.refused
        why = f", after this: {refused}" if refused else ""
        return self._fail(f"{name} in its log-in{why}", header, response)

    def _take_bare(self, token: bytes) -> Outcome:
        try:
            return Outcome(token=self._evaluate(token))
        except SaslFailure as failure:
            return self._fail(str(failure))

    def _evaluate(self, token: bytes) -> bytes:
        exchange = self.exchange
        assert exchange is not None
        answer = exchange.evaluate(token)
        if exchange.user is not None:
            if self._previous is not None and self._previous[1] != exchange.user:
                users = f"User.{self._previous[1]}: User.{exchange.user}"
                raise SaslFailure.said(
                    f"Cannot change principals during re-authentication from {users}"
                )
            self._move(COMPLETE)
        return answer or b""

    def _fail(
        self,
        why: str,
        header: RequestHeader | None = None,
        response: Message | None = None,
        *,
        at_once: bool = False,
    ) -> Outcome:
        self._move(FAILED)
        return Outcome(header, response, failure=why, at_once=at_once)


def _body(header: RequestHeader, frame: memoryview | bytes) -> Any:
    """The request. MalformedMessage, also for a version that does not exist."""
    decoders = request_class(header.api_key).decoders
    highest = 1 if header.api_key == _HANDSHAKE else 2
    if not 0 <= header.api_version <= highest:
        name = ApiKey(header.api_key).api_name
        raise MalformedMessage(f"{name} version {header.api_version} is not supported")
    message, _ = decoders[header.api_version](frame, header.body_position)
    return message
