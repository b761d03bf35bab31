"""Delegation tokens (KIP-48)."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BYTES,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class CreatableRenewers(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class CreateDelegationTokenRequest(Message, versions="0-3", flexible="2+"):
    """Creates a delegation token (KIP-48)."""

    owner_principal_type: str | None = field(STRING, "3+", nullable="0+")
    owner_principal_name: str | None = field(STRING, "3+", nullable="0+")
    renewers: list[CreatableRenewers] = field(array(CreatableRenewers))
    max_lifetime_ms: int = field(INT64)


class CreateDelegationTokenResponse(Message, versions="0-3", flexible="2+"):
    """The token and its key."""

    error_code: int = field(INT16)
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, "3+")
    token_requester_principal_name: str = field(STRING, "3+")
    issue_timestamp_ms: int = field(INT64)
    expiry_timestamp_ms: int = field(INT64)
    max_timestamp_ms: int = field(INT64)
    token_id: str = field(STRING)
    hmac: bytes = field(BYTES)
    throttle_time_ms: int = field(INT32)


class RenewDelegationTokenRequest(Message, versions="0-2", flexible="2+"):
    """Renews a delegation token."""

    hmac: bytes = field(BYTES)
    renew_period_ms: int = field(INT64)


class RenewDelegationTokenResponse(Message, versions="0-2", flexible="2+"):
    """Its new expiry."""

    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)


class ExpireDelegationTokenRequest(Message, versions="0-2", flexible="2+"):
    """Changes a delegation token's expiry."""

    hmac: bytes = field(BYTES)
    expiry_time_period_ms: int = field(INT64)


class ExpireDelegationTokenResponse(Message, versions="0-2", flexible="2+"):
    """Its new expiry."""

    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class DescribeDelegationTokenRequest(Message, versions="0-3", flexible="2+"):
    """Asks for delegation tokens by owner."""

    owners: list[DescribeDelegationTokenOwner] | None = field(
        array(DescribeDelegationTokenOwner), nullable="0+"
    )


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class DescribedDelegationToken(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, "3+")
    token_requester_principal_name: str = field(STRING, "3+")
    issue_timestamp: int = field(INT64)
    expiry_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    token_id: str = field(STRING)
    hmac: bytes = field(BYTES)
    renewers: list[DescribedDelegationTokenRenewer] = field(array(DescribedDelegationTokenRenewer))


class DescribeDelegationTokenResponse(Message, versions="0-3", flexible="2+"):
    """The tokens."""

    error_code: int = field(INT16)
    tokens: list[DescribedDelegationToken] = field(array(DescribedDelegationToken))
    throttle_time_ms: int = field(INT32)
