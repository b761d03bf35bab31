"""Client quotas (KIP-546)."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class ComponentData(Struct):
    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    match: str | None = field(STRING, nullable="0+")


class DescribeClientQuotasRequest(Message, versions="0-1", flexible="1+"):
    """Asks for client quotas that match a filter (KIP-546)."""

    components: list[ComponentData] = field(array(ComponentData))
    strict: bool = field(BOOLEAN)


class EntityData(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable="0+")


class ValueData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)


class EntryData(Struct):
    entity: list[EntityData] = field(array(EntityData))
    values: list[ValueData] = field(array(ValueData))


class DescribeClientQuotasResponse(Message, versions="0-1", flexible="1+"):
    """Quotas per entity."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    entries: list[EntryData] | None = field(array(EntryData), nullable="0+")


class OpData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOLEAN)


class AlterClientQuotasRequestEntryData(Struct, kafka_name="EntryData"):
    entity: list[EntityData] = field(array(EntityData))
    ops: list[OpData] = field(array(OpData))


class AlterClientQuotasRequest(Message, versions="0-1", flexible="1+"):
    """Sets or removes client quotas (KIP-546)."""

    entries: list[AlterClientQuotasRequestEntryData] = field(
        array(AlterClientQuotasRequestEntryData)
    )
    validate_only: bool = field(BOOLEAN)


class AlterClientQuotasResponseEntryData(Struct, kafka_name="EntryData"):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    entity: list[EntityData] = field(array(EntityData))


class AlterClientQuotasResponse(Message, versions="0-1", flexible="1+"):
    """The outcome per entity."""

    throttle_time_ms: int = field(INT32)
    entries: list[AlterClientQuotasResponseEntryData] = field(
        array(AlterClientQuotasResponseEntryData)
    )
