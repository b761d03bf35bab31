"""SaslHandshake and SaslAuthenticate where nobody is to log in: refused, as by KafkaApis.

A client that is set up for SASL and finds a plaintext listener reads the refusal; the connection's end, with its
reason, is the line in the broker's log (`kwire/server/connection_log.py`). At a SASL listener these requests come here
from clients that are authenticated: SaslHandshake may begin another log-in (`kwire/security/gate.py`).
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.sasl import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.apis.context import RequestContext
    from kwire.protocol.schemas.sasl import (
        DescribeUserScramCredentialsRequest,
        SaslAuthenticateRequest,
        SaslHandshakeRequest,
    )

_REASON = "SASL at a plaintext listener"
_STATE = ErrorCode.ILLEGAL_SASL_STATE
_DESCRIBED_TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request"
_UNKNOWN_USER = "Attempt to describe a user credential that does not exist"
_SCRAM_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


def handle_sasl_handshake(ctx: RequestContext, request: SaslHandshakeRequest) -> None:
    """Begin a log-in again where the client's session has an end; else refuse."""
    gate = ctx.services.gate
    if gate is not None and _is_guarded(ctx) and gate.handshake(ctx, request):
        return
    ctx.reply(SaslHandshakeResponse(error_code=_STATE, mechanisms=[]))
    if not _is_guarded(ctx):
        ctx.close(_REASON)


def handle_sasl_authenticate(ctx: RequestContext, _: SaslAuthenticateRequest) -> None:
    """Refuse: there was no SaslHandshake that succeeded."""
    message = "SaslAuthenticate request received after successful authentication"
    ctx.reply(SaslAuthenticateResponse(error_code=_STATE, error_message=message, auth_bytes=b""))
    if not _is_guarded(ctx):
        ctx.close(_REASON)


def _is_guarded(ctx: RequestContext) -> bool:
    """Whether the clients of this listener have to log in."""
    gate = ctx.services.gate
    return gate is not None and ctx.session.listener_name in gate.listeners


def handle_describe_scram(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> None:
    """DescribeUserScramCredentials v0: mechanisms and iterations of the users, as this broker knows them."""
    from kwire.replication.core.metadata import SCRAM_RESOURCE

    metadata = ctx.services.metadata
    asked = [user.name for user in request.users or ()]
    results = []
    for name in dict.fromkeys(asked or metadata.config_names(SCRAM_RESOURCE)):
        result = DescribeUserScramCredentialsResult(user=name, error_message="")
        texts = metadata.config(SCRAM_RESOURCE, name)
        if asked.count(name) > 1:
            result.error_code = int(ErrorCode.DUPLICATE_RESOURCE)
            result.error_message = f"{_DESCRIBED_TWICE}: {name}"
        elif not texts:
            result.error_code = int(ErrorCode.RESOURCE_NOT_FOUND)
            result.error_message = f"{_UNKNOWN_USER}: {name}"
        else:
            result.credential_infos = [
                CredentialInfo(
                    mechanism=_SCRAM_NUMBERS[mechanism], iterations=int(text.rpartition("=")[2])
                )
                for mechanism, text in texts.items()
            ]
        results.append(result)
    ctx.reply(DescribeUserScramCredentialsResponse(error_message="", results=results))
