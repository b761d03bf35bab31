"""DescribeClientQuotas (48): quotas that match a filter, as this broker knows them.

Answers to org.apache.kafka.image.ClientQuotasImage. `kafka-configs --describe --entity-type users` looks for quotas
before it lists SCRAM credentials.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kwire.replication.core.metadata import QUOTA_RESOURCE
from kwire.replication.core.quotas import CLIENT_ID, IP, USER, entity_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.apis.context import RequestContext
    from kwire.protocol.schemas.quotas import ComponentData, DescribeClientQuotasRequest
    from kwire.replication.core.quotas import Entity

_MATCHES = ("EXACT", "DEFAULT", "SPECIFIED")
_EXACT, _SPECIFIED = 0, 2
_NOT_TOGETHER = (
    "Invalid entity filter component combination."
    " IP filter component should not be used with user or clientId filter component."
)


def handle_describe_client_quotas(
    ctx: RequestContext, request: DescribeClientQuotasRequest
) -> None:
    """Handle DescribeClientQuotas v0-1."""
    response = DescribeClientQuotasResponse(error_message="", entries=[])
    try:
        _check(request.components)
    except KafkaError as error:
        response.error_code, response.error_message = int(error.code), error.message
        response.entries = None
        ctx.reply(response)
        return
    metadata = ctx.services.metadata
    for name in metadata.config_names(QUOTA_RESOURCE):
        entity = entity_of(name)
        if _matches(entity, request):
            values = metadata.config(QUOTA_RESOURCE, name)
            entry = EntryData(
                entity=[EntityData(entity_type=kind, entity_name=entity[kind]) for kind in entity],
                values=[ValueData(key=key, value=float(values[key])) for key in sorted(values)],
            )
            response.entries.append(entry)  # type: ignore[union-attr]  # null in errors only
    ctx.reply(response)


def _matches(entity: Entity, request: DescribeClientQuotasRequest) -> bool:
    """Whether an entity has the types of the filter, by name where it gives one, and with `strict` no others."""
    components = request.components
    if request.strict and len(entity) != len(components):
        return False
    return all(
        each.entity_type in entity
        and (each.match_type == _SPECIFIED or entity[each.entity_type] == each.match)
        for each in components
    )


def _check(components: list[ComponentData]) -> None:
    """KafkaError for a filter that Kafka refuses."""
    seen: list[str] = []
    for each in components:
        kind = each.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in seen:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (IP, USER, CLIENT_ID):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if not 0 <= each.match_type < len(_MATCHES):
            raise _invalid(f"Unknown match type {each.match_type}")
        if each.match_type == _EXACT and each.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if each.match_type != _EXACT and each.match is not None:
            name = f"MATCH_TYPE_{_MATCHES[each.match_type]}"
            raise _invalid(f"Request specified {name}, but also specified a match string.")
        seen.append(kind)
    if IP in seen and len(seen) > 1:
        raise _invalid(_NOT_TOGETHER)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
