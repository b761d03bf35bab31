"""ApiVersions (18): the served version ranges. Answers to kafka.server.ApiVersionManager and to
KafkaApis.

The only feature that is listed is transaction.version, where EndTxn is served in version 5: clients
of 4.x then bump their epoch with each transaction (KIP-890). kwire has no KRaft metadata version, and
clients read the absence of group.version as "classic protocols". Requests of an unknown version are
answered by kwire/session.py.
"""

from __future__ import annotations

from kwire.apis.context import transaction_version
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.apis.context import RequestContext


def handle_api_versions(ctx: RequestContext, request: ApiVersionsRequest) -> None:
    """Reply with all served ranges; INVALID_REQUEST for a client name against KIP-511's rule."""
    ctx.session.client_id = ctx.client_id
    ctx.reply(_api_versions(ctx, request))


def _api_versions(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_is_software_word(name) and _is_software_word(version)):
            return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        ctx.session.identify(name, version)
    services = ctx.services
    if (request.cluster_id is not None and request.cluster_id != services.cluster_id) or (
        request.node_id not in (-1, services.node_id)
    ):
        # The client expects another broker, which used to have this address.
        return ApiVersionsResponse(error_code=int(ErrorCode.REBOOTSTRAP_REQUIRED))
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, (lowest, highest) in services.api_ranges.items()
        ]
    )
    level = transaction_version(services.api_ranges)
    if level:
        _list_transaction_version(response, level, ctx.api_version)
    return response


def _list_transaction_version(response: ApiVersionsResponse, level: int, api_version: int) -> None:
    name = "transaction.version"
    response.finalized_features_epoch = 0
    response.finalized_features = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
    ]
    if api_version >= 4:
        # Clients before cannot read a feature that begins with 0 (KAFKA-17492).
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=0, max_version=level)
        ]


def _is_software_word(text: str) -> bool:
    """Letters, digits, dots and dashes, with a letter or a digit at both ends (KIP-511)."""
    inner = text.replace("-", "a").replace(".", "a")
    return text.isascii() and inner.isalnum() and text[:1].isalnum() and text[-1:].isalnum()
