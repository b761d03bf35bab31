"""What tests of delegation tokens share: a broker that has them, requests, and a log-in by one of them."""

from __future__ import annotations

from base64 import b64encode
from random import Random
from typing import Any

from login_kit import Client, Guarded

from kwire.protocol.schemas.tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.security.scram import ScramClient

SECRET = "a key that nobody learns"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
KEYS = {"delegation_token_secret_key": SECRET}


class ByToken(ScramClient):
    """A client that shows a token, as ScramSaslClient with tokenauth=true."""

    def __init__(
        self, mechanism: str, token_id: str, hmac: bytes, extension: str = "tokenauth=true"
    ) -> None:
        super().__init__(mechanism, token_id, b64encode(hmac).decode(), Random(5))
        self._bare += f",{extension}"


def with_tokens(store: MemoryLogStore | None = None, **keys: str) -> Guarded:
    return Guarded(store, **{**KEYS, **keys})


def passed(broker: Guarded, milliseconds: int) -> None:
    """Let time pass, also on the wall."""
    broker.clock.wall_ms += milliseconds
    broker.later(milliseconds)


def user(broker: Guarded, name: str = "alice") -> Client:
    client = broker.client()
    assert client.plain(name, {"alice": "secret", "bob": "b:o,b="}[name]).error_code == 0
    return client


def created(client: Client, version: int = 3, **fields: Any) -> Any:
    """The answer to CreateDelegationToken. `renewers`, `owner`: names of users."""
    renewers = [
        CreatableRenewers(principal_type="User", principal_name=each)
        for each in fields.pop("renewers", ())
    ]
    owner = fields.pop("owner", None)
    if owner is not None:
        fields |= {"owner_principal_type": "User", "owner_principal_name": owner}
    fields = {"max_lifetime_ms": -1, **fields}
    return client.ask(CreateDelegationTokenRequest(renewers=renewers, **fields), version)


def renewed(client: Client, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    """Error code and expiry."""
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    answer = client.ask(request, 2)
    return answer.error_code, answer.expiry_timestamp_ms


def expired(client: Client, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    """Error code and expiry."""
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    answer = client.ask(request, 2)
    return answer.error_code, answer.expiry_timestamp_ms


def described(client: Client, owners: list[str] | None = None, version: int = 3) -> Any:
    named = owners and [
        DescribeDelegationTokenOwner(principal_type="User", principal_name=each) for each in owners
    ]
    return client.ask(DescribeDelegationTokenRequest(owners=[] if owners == [] else named), version)


def log_in(client: Client, exchange: ByToken) -> Any:
    """The last response of a log-in; None: it waits for its delay."""
    assert client.handshake(exchange.mechanism).error_code == 0
    token: bytes | None = exchange.first()
    response = None
    while token is not None:
        response = client.authenticate(token)
        if response is None or response.error_code:
            return response
        token = exchange.evaluate(response.auth_bytes)
    return response
