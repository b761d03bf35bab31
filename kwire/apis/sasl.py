"""SaslHandshake and SaslAuthenticate at a plaintext listener: refused, as by KafkaApis.

A client that is set up for SASL reads the refusal; the connection's end, with its reason, is the line
in the broker's log (`kwire/server/connection_log.py`).
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.apis.context import RequestContext
    from kwire.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

_REASON = "SASL at a plaintext listener"
_STATE = ErrorCode.ILLEGAL_SASL_STATE


def handle_sasl_handshake(ctx: RequestContext, _: SaslHandshakeRequest) -> None:
    """Refuse: this listener authenticates nobody."""
    ctx.reply(SaslHandshakeResponse(error_code=_STATE, mechanisms=[]))
    ctx.close(_REASON)


def handle_sasl_authenticate(ctx: RequestContext, _: SaslAuthenticateRequest) -> None:
    """Refuse: there was no SaslHandshake that succeeded."""
    message = "SaslAuthenticate request received after successful authentication"
    ctx.reply(SaslAuthenticateResponse(error_code=_STATE, error_message=message, auth_bytes=b""))
    ctx.close(_REASON)
