"""Client quotas: AlterClientQuotas.

Answers to org.apache.kafka.controller.ClientQuotaControlManager. The values of an entity are kept and go to the
brokers like a dynamic configuration: a resource of `QUOTA_RESOURCE`, whose name is the entity's text.

Deliberate difference: of names in place of an ip only localhost is known; Kafka's controller asks DNS.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.quotas import (
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)
from kwire.replication.controller.state import config_record
from kwire.replication.core.metadata import QUOTA_RESOURCE
from kwire.replication.core.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    entity_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.protocol.schemas.quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasRequestEntryData,
    )
    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.core.quotas import Entity

_LONG, _INT = ("a LONG", 2.0**63), ("an INT", 2.0**31 - 1)
_DOUBLE = None
_USER_KEYS: dict[str, tuple[str, float] | None] = {
    PRODUCER_BYTE_RATE: _LONG,
    CONSUMER_BYTE_RATE: _LONG,
    REQUEST_PERCENTAGE: _DOUBLE,
    CONTROLLER_MUTATION_RATE: _DOUBLE,
}
_IP_KEYS: dict[str, tuple[str, float] | None] = {CONNECTION_CREATION_RATE: _INT}
_FRACTION = 1e-6


class _Invalid(Exception):
    """A change that is refused: INVALID_REQUEST with this text."""


def alter_client_quotas(
    context: ControllerContext,
    changelog: ChangeLog,
    orders: Orders,
    request: AlterClientQuotasRequest,
) -> AlterClientQuotasResponse:
    """Handle AlterClientQuotas v0-1: the entities that may be changed, in one journal write."""
    results: dict[str, AlterClientQuotasResponseEntryData] = {}
    changes: dict[str, dict[str, str]] = {}
    for entry in request.entries:
        entity = {each.entity_type: each.entity_name for each in entry.entity}
        name = entity_text(entity)
        result = AlterClientQuotasResponseEntryData(error_message=None, entity=entry.entity)
        try:
            if name in results or len({op.key for op in entry.ops}) < len(entry.ops):
                # As in Kafka a key that is there twice is refused with these words, too.
                raise _Invalid(f"Ignoring duplicate entity {_in_java(entity)}")
            keys = _keys_of(entity)
            current = context.state.configs.get((QUOTA_RESOURCE, name), {})
            values = _changed(current, entry, keys)
            if values != current:
                changes[name] = values
        except _Invalid as problem:
            result.error_code = int(ErrorCode.INVALID_REQUEST)
            result.error_message = str(problem)
        results[name] = result
    if changes and not request.validate_only:
        records = [config_record(QUOTA_RESOURCE, name, each) for name, each in changes.items()]
        changelog.commit(records)
        for name, values in changes.items():
            orders.config_changed(QUOTA_RESOURCE, name, values)
            mutation_quota_changed(context, name, values)
    return AlterClientQuotasResponse(entries=list(results.values()))


def mutation_quota_changed(
    context: ControllerContext, name: str, values: Mapping[str, str]
) -> None:
    """Let the controller apply the values of an entity."""
    if context.mutations is None:
        if CONTROLLER_MUTATION_RATE not in values or context.clock is None:
            return
        from kwire.replication.core.mutations import MutationQuota

        config = context.config
        window_ms = config.controller_quota_window_size_seconds * 1000
        samples = config.controller_quota_window_num
        context.mutations = MutationQuota(context.clock, samples, window_ms)
    context.mutations.changed(name, values.get(CONTROLLER_MUTATION_RATE))


def _keys_of(entity: Entity) -> dict[str, tuple[str, float] | None]:
    """The keys that an entity can have, with type and largest value. _Invalid for what is no entity."""
    if not entity:
        raise _Invalid("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _Invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _Invalid(f"Empty {kind} not supported")
    if IP not in entity:
        return _USER_KEYS
    if len(entity) > 1:
        raise _Invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    if not _is_address(entity[IP]):
        raise _Invalid(f"{entity[IP]} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _changed(
    current: dict[str, str],
    entry: AlterClientQuotasRequestEntryData,
    keys: dict[str, tuple[str, float] | None],
) -> dict[str, str]:
    """The values of an entity after the change. A key that is not there can be removed, whatever its name."""
    values = dict(current)
    for op in entry.ops:
        if op.remove:
            values.pop(op.key, None)
            continue
        if op.key not in keys:
            raise _Invalid(f"Invalid configuration key {op.key}")
        if op.value <= 0.0:
            raise _Invalid(f"Quota {op.key} must be greater than 0")
        whole = keys[op.key]
        if whole is not None:
            if op.value > whole[1]:
                raise _Invalid(f"Proposed value for {op.key} is too large for {whole[0]}.")
            if op.value % 1.0 > _FRACTION:
                raise _Invalid(f"{op.key} cannot be a fractional value.")
        values[op.key] = repr(op.value)
    return values


def _is_address(name: str | None) -> bool:
    """Whether it is an IPv4 or IPv6 address, localhost, or None (the default)."""
    if name is None or name == "localhost":
        return True
    if ":" in name:
        parts = name.split(":")
        return len(parts) <= 8 and all(
            len(part) <= 4 and not part.strip("0123456789abcdefABCDEF") for part in parts
        )
    parts = name.split(".")
    return len(parts) == 4 and all(
        part.isascii() and part.isdigit() and int(part) < 256 for part in parts
    )


def _in_java(entity: Entity) -> str:
    """A ClientQuotaEntity as Java prints it."""
    names = (f"{kind}={'null' if name is None else name}" for kind, name in entity.items())
    return f"ClientQuotaEntity(entries={{{', '.join(names)}}})"
