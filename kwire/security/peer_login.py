"""A node's own log-in at another node: frames in, frames out. No socket, no clock.

Corresponds to org.apache.kafka.common.security.authenticator.SaslClientAuthenticator. The first log-in of a
connection and those that come again (KIP-368) are the same: SaslHandshake, then tokens in SaslAuthenticate. Left
out: ApiVersions before the first, as nodes of a cluster do not negotiate.

Invariants: no text of a `PeerLoginError` has a secret; the other node has to prove that it knows the password, where
the mechanism has that (SCRAM).
"""

from __future__ import annotations

from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode, MalformedMessage
from kwire.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kwire.security.mechanism import SaslFailure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.security.client import Credentials

FIRST_CORRELATION = 0x7FFFFFFF - 7
"""From here on the ids are those of log-ins (SaslClientAuthenticator.MIN_RESERVED_CORRELATION_ID)."""
_LAST_CORRELATION = 0x7FFFFFFF
_HANDSHAKE_VERSION = _AUTHENTICATE_VERSION = 1


class PeerLoginError(Exception):
    """The other node has refused the log-in, or is not whom it should be. The text is for the log."""


class PeerLogin:
    """One log-in. `first()` is sent, then what `take` returns for each answer, until that is None.

    `correlation`: of the request that is not answered yet. `lifetime_ms`: of the session, 0: without end."""

    def __init__(self, credentials: Credentials, client_id: str) -> None:
        self.correlation = FIRST_CORRELATION
        self.lifetime_ms = 0
        self._credentials = credentials
        self._client_id = client_id
        self._exchange = credentials.new_exchange()
        self._is_chosen = False  # the other node has taken the mechanism

    def first(self) -> bytes:
        """The first request, with its length."""
        request = SaslHandshakeRequest(mechanism=self._credentials.mechanism)
        return self._request(ApiKey.SASL_HANDSHAKE, _HANDSHAKE_VERSION, request)

    def take(self, frame: memoryview | bytes) -> bytes | None:
        """The next request for an answer, which has no length; None: the log-in is complete. PeerLoginError."""
        try:
            if self._is_chosen:
                return self._take_token(frame)
            return self._take_handshake(frame)
        except MalformedMessage as error:
            raise PeerLoginError(f"a malformed answer to a log-in: {error}") from None

    def _take_handshake(self, frame: memoryview | bytes) -> bytes:
        answer = self._parsed(ApiKey.SASL_HANDSHAKE, _HANDSHAKE_VERSION, frame)
        name = self._credentials.mechanism
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            known = ", ".join(each[:40] for each in answer.mechanisms[:10])
            raise PeerLoginError(f"it has no mechanism {name}, but {known or 'none'}")
        if answer.error_code:
            raise PeerLoginError(f"SaslHandshake is answered with {_name(answer.error_code)}")
        self._is_chosen = True
        return self._token(self._exchange.first())

    def _take_token(self, frame: memoryview | bytes) -> bytes | None:
        answer = self._parsed(ApiKey.SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, frame)
        name = f"user {self._credentials.user!r}"
        if answer.error_code:
            said = answer.error_message or _name(answer.error_code)
            raise PeerLoginError(f"it refuses {name}: {said[:200]}")
        try:
            token = self._exchange.evaluate(bytes(answer.auth_bytes))
        except SaslFailure as failure:
            raise PeerLoginError(str(failure)) from None
        if token is None:
            self.lifetime_ms = max(0, answer.session_lifetime_ms)
            return None
        return self._token(token)

    def _token(self, token: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=token)
        return self._request(ApiKey.SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, request)

    def _request(self, key: ApiKey, version: int, request: Message) -> bytes:
        self.correlation += 1
        assert self.correlation <= _LAST_CORRELATION
        return b"".join(
            map(bytes, api.encode_request(key, version, self.correlation, self._client_id, request))
        )

    def _parsed(self, key: ApiKey, version: int, frame: memoryview | bytes) -> Any:
        correlation, answer = api.parse_response(key, version, frame)
        if correlation != self.correlation:
            raise PeerLoginError("an answer to what was not asked, in a log-in")
        return answer


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
