"""DescribeClientQuotas (48): there are no quotas, and none can be set (AlterClientQuotas is not served).

`kafka-configs --describe --entity-type users` looks for quotas before it lists SCRAM credentials. The checks of
the filter are those of org.apache.kafka.image.ClientQuotasImage.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.quotas import DescribeClientQuotasResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.apis.context import RequestContext
    from kwire.protocol.schemas.quotas import ComponentData, DescribeClientQuotasRequest

_IP, _OTHERS = "ip", ("user", "client-id")
_MATCHES = ("EXACT", "DEFAULT", "SPECIFIED")
_EXACT = 0
_NOT_TOGETHER = (
    "Invalid entity filter component combination."
    " IP filter component should not be used with user or clientId filter component."
)


def handle_describe_client_quotas(
    ctx: RequestContext, request: DescribeClientQuotasRequest
) -> None:
    """Handle DescribeClientQuotas v0-1: nothing is found by a filter that is allowed."""
    response = DescribeClientQuotasResponse(error_message="", entries=[])
    try:
        _check(request.components)
    except KafkaError as error:
        response.error_code, response.error_message = int(error.code), error.message
        response.entries = None
    ctx.reply(response)


def _check(components: list[ComponentData]) -> None:
    """KafkaError for a filter that Kafka refuses."""
    seen: list[str] = []
    for each in components:
        kind = each.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in seen:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (_IP, *_OTHERS):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if not 0 <= each.match_type < len(_MATCHES):
            raise _invalid(f"Unknown match type {each.match_type}")
        if each.match_type == _EXACT and each.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if each.match_type != _EXACT and each.match is not None:
            name = f"MATCH_TYPE_{_MATCHES[each.match_type]}"
            raise _invalid(f"Request specified {name}, but also specified a match string.")
        seen.append(kind)
    if _IP in seen and len(seen) > 1:
        raise _invalid(_NOT_TOGETHER)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
