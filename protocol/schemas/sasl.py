"""Authentication."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class SaslHandshakeRequest(Message, versions="0-1"):
    """Chooses a SASL mechanism (KIP-43). Never flexible."""

    mechanism: str = field(STRING)


class SaslHandshakeResponse(Message, versions="0-1"):
    """Whether it is supported, and which are."""

    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))


class SaslAuthenticateRequest(Message, versions="0-2", flexible="2+"):
    """Carries a SASL token (KIP-152)."""

    auth_bytes: bytes = field(BYTES)


class SaslAuthenticateResponse(Message, versions="0-2", flexible="2+"):
    """The server's token and the session's lifetime (KIP-368)."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, "1+", ignorable=True)


class UserName(Struct):
    name: str = field(STRING)


class DescribeUserScramCredentialsRequest(Message, versions="0", flexible="0+"):
    """Asks which users have SCRAM credentials (KIP-554)."""

    users: list[UserName] | None = field(array(UserName), nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = field(INT8)
    iterations: int = field(INT32)


class DescribeUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    credential_infos: list[CredentialInfo] = field(array(CredentialInfo))


class DescribeUserScramCredentialsResponse(Message, versions="0", flexible="0+"):
    """Mechanisms and iterations per user."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field(
        array(DescribeUserScramCredentialsResult)
    )


class ScramCredentialDeletion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)


class ScramCredentialUpsertion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)
    iterations: int = field(INT32)
    salt: bytes = field(BYTES)
    salted_password: bytes = field(BYTES)


class AlterUserScramCredentialsRequest(Message, versions="0", flexible="0+"):
    """Sets or deletes SCRAM credentials (KIP-554)."""

    deletions: list[ScramCredentialDeletion] = field(array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(array(ScramCredentialUpsertion))


class AlterUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class AlterUserScramCredentialsResponse(Message, versions="0", flexible="0+"):
    """The outcome per user."""

    throttle_time_ms: int = field(INT32)
    results: list[AlterUserScramCredentialsResult] = field(array(AlterUserScramCredentialsResult))
