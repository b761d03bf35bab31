"""Groups and open transactions of one broker, as the page shows them: read from the coordinators, without a request."""

from __future__ import annotations

from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.apis.context import Services
    from kwire.coordinator.group_shard import GroupShard

    Json = dict[str, Any]

MAX_GROUPS = 100
MAX_OFFSETS = 5000
"""Of all groups of a broker; the lag of further ones is not shown."""
MAX_TRANSACTIONS = 100


def groups(services: Services) -> list[Json]:
    """The groups whose coordinator is this broker, at most `MAX_GROUPS`."""
    found: list[Json] = []
    room = MAX_OFFSETS
    for context in services.group_coordinator.runtime.contexts.values():
        if context.is_loading:
            continue
        shard = context.shard
        known = shard.classic.groups
        names = [*known, *(name for name in shard.offsets.store.groups if name not in known)]
        for name in names[: MAX_GROUPS - len(found)]:
            found.append(_group(services.node_id, shard, name, room))
            room -= len(found[-1]["offsets"])
    return found


def _group(node_id: int, shard: GroupShard, name: str, room: int) -> Json:
    """`room`: for so many offsets."""
    group, store = shard.classic.groups.get(name), shard.offsets.store
    offsets: list[list[Any]] = []
    for topic, index, entry in store.iterate(name):
        if len(offsets) == room:
            break
        value = store.committed_value(entry)
        if value is not None:
            offsets.append([topic, index, value.committed_offset])
    members = () if group is None else group.members.values()
    return {
        "id": name,
        "coordinator": node_id,
        "state": "Empty" if group is None else group.state,
        "generation": -1 if group is None else group.generation_id,
        "assignor": "" if group is None else group.protocol_name or "",
        "members": [
            {
                "id": each.member_id,
                "client_id": each.client_id,
                "host": each.client_host.removeprefix("/"),
                "partitions": _assigned(bytes(each.assignment)),
            }
            for each in members
        ],
        "offsets": offsets,
    }


@lru_cache(maxsize=256)
def _assigned(assignment: bytes) -> list[list[Any]]:
    from kwire.client.groups import assigned_partitions

    return [list(key) for key in assigned_partitions(assignment)]


def transactions(services: Services) -> list[Json]:
    """The open transactions whose coordinator is this broker, at most `MAX_TRANSACTIONS`."""
    coordinator = services.transactions_if_used
    if coordinator is None:
        return []
    from kwire.transactions.metadata import IDLE

    found: list[Json] = []
    for context in coordinator.runtime.contexts.values():
        for each in () if context.is_loading else context.shard.transactions.values():
            values = each.values
            if values.state in IDLE or len(found) == MAX_TRANSACTIONS:
                continue
            found.append(
                {
                    "id": each.transactional_id,
                    "coordinator": services.node_id,
                    "state": values.state.name,
                    "producer_id": values.producer_id,
                    "producer_epoch": values.producer_epoch,
                    "start_ms": values.start_ms,
                    "timeout_ms": values.timeout_ms,
                    "partitions": [list(key) for key in values.partitions],
                }
            )
    return found
