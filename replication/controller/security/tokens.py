"""Delegation tokens (KIP-48, KIP-373): they are created, renewed, expired, and swept when they are over.

Answers to org.apache.kafka.controller.DelegationTokenControlManager. A token is a record `token/<id>` with the fields
of Kafka's DelegationTokenRecord; brokers get it like a dynamic configuration. Its HMAC is in neither. Whether a client
may ask at all is for the brokers to say (kwire/apis/parts/tokens.py).
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode

from kwire.protocol.errors import ErrorCode
from kwire.replication.config.tokens import (
    check_interval_ms,
    expiry_time_ms,
    max_lifetime_ms,
    token_secret,
)
from kwire.replication.controller.refusals import Refusals
from kwire.replication.core.delegation_tokens import Token, hmac_of, texts_of
from kwire.replication.core.metadata import TOKEN_RESOURCE
from kwire.replication.core.principals import USER_TYPE, principal_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from kwire.protocol.schemas.tokens import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
        RenewDelegationTokenRequest,
        RenewDelegationTokenResponse,
    )
    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext

_KIND = "token/"
_SWEEP = "delegation-tokens"
_LONGEST = 2**63 - 1


class TokenControl:
    """Handles CreateDelegationToken, RenewDelegationToken and ExpireDelegationToken."""

    def __init__(
        self,
        context: ControllerContext,
        changelog: ChangeLog,
        orders: Orders,
        random: Random,
        step_or_resign: Callable[[Callable[[], None]], None],
    ) -> None:
        """`random`: of the ids, which are no secrets."""
        self._context = context
        self._changelog = changelog
        self._orders = orders
        self._random = random
        self._step_or_resign = step_or_resign
        self._secret = token_secret(context.config)

    # --- requests

    def create(
        self, request: CreateDelegationTokenRequest, version: int
    ) -> CreateDelegationTokenResponse:
        """Handle CreateDelegationToken v0-3; before v3 a client's tokens are its own."""
        from kwire.protocol.schemas.tokens import CreateDelegationTokenResponse

        if request.owner_principal_name and request.owner_principal_type is None:
            code = int(ErrorCode.UNKNOWN_SERVER_ERROR)  # as in Kafka, whose KafkaPrincipal throws
            return Refusals.create_delegation_token(request, version, code, None)
        requester = self._requester
        owner = principal_of(request.owner_principal_type, request.owner_principal_name, requester)
        response = CreateDelegationTokenResponse()
        response.principal_type, _, response.principal_name = owner.partition(":")
        if version >= 3:
            kind, _, name = requester.partition(":")
            response.token_requester_principal_type = kind
            response.token_requester_principal_name = name
        if self._secret is None:
            response.error_code = int(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
            return response
        if any(each.principal_type != USER_TYPE for each in request.renewers):
            response.error_code = int(ErrorCode.INVALID_PRINCIPAL_TYPE)
            return response
        config, now_ms = self._context.config, self._now_ms
        lifetime_ms = max_lifetime_ms(config)
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        max_ms = _sum(now_ms, lifetime_ms)
        expires_ms = min(max_ms, _sum(now_ms, expiry_time_ms(config)))
        renewers = tuple(
            f"{each.principal_type}:{each.principal_name}" for each in request.renewers
        )
        token = Token(self._new_id(), owner, requester, renewers, now_ms, max_ms, expires_ms)
        self._commit(token.token_id, token)
        response.issue_timestamp_ms, response.max_timestamp_ms = now_ms, max_ms
        response.expiry_timestamp_ms = expires_ms
        response.token_id = token.token_id
        response.hmac = hmac_of(self._secret, token.token_id)
        return response

    def renew(
        self, request: RenewDelegationTokenRequest, version: int
    ) -> RenewDelegationTokenResponse:
        """Handle RenewDelegationToken v0-2."""
        from kwire.protocol.schemas.tokens import RenewDelegationTokenResponse

        code, token = self._found(request.hmac)
        if token is None:
            return RenewDelegationTokenResponse(error_code=int(code))
        now_ms = self._now_ms
        if token.is_over(now_ms):
            code = ErrorCode.DELEGATION_TOKEN_EXPIRED
        elif not token.may_be_renewed_by(self._requester):
            code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        if code:
            return RenewDelegationTokenResponse(error_code=int(code))
        period_ms = expiry_time_ms(self._context.config)
        if request.renew_period_ms > 0:
            period_ms = min(period_ms, request.renew_period_ms)
        return RenewDelegationTokenResponse(expiry_timestamp_ms=self._prolong(token, period_ms))

    def expire(
        self, request: ExpireDelegationTokenRequest, version: int
    ) -> ExpireDelegationTokenResponse:
        """Handle ExpireDelegationToken v0-2. A negative period deletes the token, also one that is over."""
        from kwire.protocol.schemas.tokens import ExpireDelegationTokenResponse

        code, token = self._found(request.hmac)
        if token is None:
            return ExpireDelegationTokenResponse(error_code=int(code))
        now_ms, period_ms = self._now_ms, request.expiry_time_period_ms
        if not token.may_be_renewed_by(self._requester):
            code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        elif period_ms < 0:
            self._commit(token.token_id, None)
            return ExpireDelegationTokenResponse(expiry_timestamp_ms=now_ms)
        elif token.is_over(now_ms):
            code = ErrorCode.DELEGATION_TOKEN_EXPIRED
        else:
            expires_ms = self._prolong(token, period_ms)
            return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
        return ExpireDelegationTokenResponse(error_code=int(code))

    def texts_of(self, token_id: str) -> dict[str, str]:
        """A token as brokers get it; nothing: no such token."""
        return texts_of(self._context.state.security.get(_KIND + token_id))

    # --- time

    def start(self) -> None:
        """Let the brokers know all tokens; look for those that are over from time to time, if there can be any."""
        for token in self._tokens():
            self._send(token.token_id)
        if self._secret is not None:
            self._schedule()

    def _schedule(self) -> None:
        timers = self._context.timers
        if timers is not None:
            due_ms = self._context.now_ms + check_interval_ms(self._context.config)
            timers.schedule(_SWEEP, due_ms, self._sweep)

    def _sweep(self) -> None:
        if self._context.active:
            self._step_or_resign(self._delete_expired)
            self._schedule()

    def _delete_expired(self) -> None:
        now_ms = self._now_ms
        over = [token.token_id for token in self._tokens() if token.is_over(now_ms)]
        if over:
            self._changelog.commit([(_KIND + each, None) for each in over])
            for each in over:
                self._send(each)

    # --- parts

    @property
    def _requester(self) -> str:
        """The principal of the client that asks; users are the only ones who come in."""
        client = self._context.client
        return f"{USER_TYPE}:{'ANONYMOUS' if client is None else client[0]}"

    @property
    def _now_ms(self) -> int:
        clock = self._context.clock
        return 0 if clock is None else clock.wall_ms

    def _tokens(self) -> Iterator[Token]:
        for key, value in self._context.state.security.items():
            if key.startswith(_KIND):
                yield Token.from_value(key[len(_KIND) :], value)

    def _found(self, given: bytes) -> tuple[ErrorCode, Token | None]:
        """The token of an HMAC, or why it is refused. All are compared, in constant time: a guess learns nothing."""
        if self._secret is None:
            return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, None
        found = None
        for token in self._tokens():
            if hmac.compare_digest(hmac_of(self._secret, token.token_id), bytes(given)):
                found = token
        none = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        return (none, None) if found is None else (ErrorCode.NONE, found)

    def _new_id(self) -> str:
        """As Kafka's Uuid.randomUuid: without a leading dash, which command lines take for an option."""
        while True:
            found = urlsafe_b64encode(self._random.randbytes(16))[:22].decode()
            if not found.startswith("-"):
                return found

    def _prolong(self, token: Token, period_ms: int) -> int:
        """Let a token expire after the period, or at the end of its life if that is sooner; returns when."""
        expires_ms = min(token.max_ms, _sum(self._now_ms, period_ms))
        self._commit(token.token_id, token._replace(expires_ms=expires_ms))
        return expires_ms

    def _commit(self, token_id: str, token: Token | None) -> None:
        self._changelog.commit([(_KIND + token_id, None if token is None else token.to_value())])
        self._send(token_id)

    def _send(self, token_id: str) -> None:
        self._orders.config_changed(TOKEN_RESOURCE, token_id, self.texts_of(token_id))


def _sum(now_ms: int, duration_ms: int) -> int:
    """A point of time that the wire has room for."""
    return min(now_ms + duration_ms, _LONGEST)
