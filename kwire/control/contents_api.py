"""Handlers of a cluster's control API about what it holds: topics, records, groups, transactions, clients, requests.

See `cluster_api.py`. Keys and values of records are texts, or {"base64": …} where the bytes are not
UTF-8; with encoding base64 all of them are base64.
"""

from __future__ import annotations

from base64 import b64decode, b64encode

from kwire import errors
from kwire.control.cluster_api import partition as describe_partition
from kwire.control.errors import ControlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.aio import Cluster
    from kwire.client.views import Group, Record, Transaction

_TEXT, _BASE64 = "text", "base64"


# --- topics


async def topics(cluster: Cluster, internal: bool | None) -> dict[str, Any]:
    """The topics, and how many partitions each has."""
    return {"topics": await cluster.topics(internal=bool(internal))}


async def topic(cluster: Cluster, name: str) -> dict[str, Any]:
    """A topic, with the state of each partition."""
    return {"topic": name, **await partitions(cluster, name)}


async def partitions(cluster: Cluster, name: str) -> dict[str, Any]:
    """The state of each partition of a topic."""
    counts = await cluster.topics(internal=True)
    if name not in counts:
        raise errors.UnknownTopicOrPartitionError(f"there is no topic {name}")
    found = [await describe_partition(cluster, name, index) for index in range(counts[name])]
    return {"partitions": found}


async def create_topic(
    cluster: Cluster,
    name: str,
    count: int | None,
    replication_factor: int | None,
    config: dict[str, Any] | None,
    assignment: list[Any] | None,
) -> dict[str, Any]:
    """Create a topic; return it when all its partitions have leaders."""
    await cluster.create_topic(
        name,
        -1 if count is None else count,
        -1 if replication_factor is None else replication_factor,
        config,
        assignment,
    )
    return await topic(cluster, name)


async def delete_topic(cluster: Cluster, name: str) -> dict[str, Any]:
    """Delete a topic; return when it is gone."""
    await cluster.delete_topic(name)
    return {}


# --- records


async def records(
    cluster: Cluster,
    name: str,
    index: int | None,
    start: int | None,
    end: int | None,
    limit: int | None,
    max_bytes: int | None,
    encoding: str | None,
) -> dict[str, Any]:
    """The records of a topic, or of one partition, as of now."""
    _check_encoding(encoding)
    found = await cluster.records(name, index, start=start, end=end, limit=limit)
    if max_bytes is not None:
        found = _first_bytes(found, max_bytes)
    return {"records": [_to_json(each, encoding) for each in found]}


def _first_bytes(found: list[Record], size: int) -> list[Record]:
    """The first records whose keys and values have so many bytes; one at least."""
    for count, each in enumerate(found):
        size -= len(each.key or b"") + len(each.value or b"")
        if size < 0:
            return found[: max(1, count)]
    return found


async def produce(
    cluster: Cluster,
    name: str,
    value: Any,
    key: Any,
    index: int | None,
    headers: list[Any] | None,
    timestamp: int | None,
    encoding: str | None,
) -> dict[str, Any]:
    """Write a record; return it with its offset."""
    _check_encoding(encoding)
    pairs = []
    for header in headers or ():
        if not isinstance(header, dict) or not isinstance(header.get("name"), str):
            raise ControlError(400, f'headers: expected {{"name": …, "value": …}}, not {header!r}')
        pairs.append((header["name"], _bytes("headers", header.get("value"), encoding)))
    written = await cluster.produce(
        name,
        _bytes("value", value, encoding),
        _bytes("key", key, encoding),
        partition=index,
        headers=pairs,
        timestamp=timestamp,
    )
    return _to_json(written, encoding)


def _check_encoding(encoding: str | None) -> None:
    if encoding not in (None, _TEXT, _BASE64):
        raise ControlError(400, f"encoding: expected {_TEXT} or {_BASE64}, not {encoding!r}")


def _to_json(record: Record, encoding: str | None) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _data(record.key, encoding),
        "value": _data(record.value, encoding),
        "headers": [
            {
                "name": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
                "value": _data(value, encoding),
            }
            for name, value in record.headers
        ],
        "leader_epoch": record.leader_epoch,
    }


def _data(data: bytes | None, encoding: str | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    if encoding == _BASE64:
        return b64encode(data).decode()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _bytes(what: str, given: Any, encoding: str | None) -> bytes | None:
    """The bytes of a key or value, in any form that `_data` gives. ControlError."""
    if given is None:
        return None
    is_base64 = encoding == _BASE64
    text = given
    if isinstance(given, dict) and given.keys() == {"base64"}:
        is_base64, text = True, given["base64"]
    if not isinstance(text, str):
        raise ControlError(400, f'{what}: expected a text, null or {{"base64": …}}, not {given!r}')
    if not is_base64:
        return text.encode("utf-8", "surrogatepass")
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ControlError(400, f"{what}: expected base64, not {text[:40]!r}") from None


# --- groups


async def groups(cluster: Cluster) -> dict[str, Any]:
    """The ids of all consumer groups."""
    return {"groups": await cluster.groups()}


async def group(cluster: Cluster, group_id: str) -> dict[str, Any]:
    """A group with its members, offsets and lag; `lag` null: nothing is assigned or
    committed, or a leader is missing."""
    return _group_to_json(await cluster.group(group_id))


def _group_to_json(found: Group) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        **asdict(found),
        "members": [
            {
                **asdict(member),
                "partitions": [
                    {"topic": topic, "partition": index} for topic, index in member.partitions
                ],
            }
            for member in found.members
        ],
        "lag": found.known_lag,
    }


# --- transactions


async def transactions(cluster: Cluster) -> dict[str, Any]:
    """All transactional ids, with their transactions."""
    return {"transactions": [_transaction_to_json(each) for each in await cluster.transactions()]}


async def transaction(cluster: Cluster, transactional_id: str) -> dict[str, Any]:
    """A transactional id; its state is Dead if nobody uses it."""
    return _transaction_to_json(await cluster.transaction(transactional_id))


async def fence(cluster: Cluster, transactional_id: str) -> dict[str, Any]:
    """Fence its producer; return the transactional id."""
    return _transaction_to_json(await cluster.fence_producer(transactional_id))


def _transaction_to_json(found: Transaction) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(found)


# --- clients and requests


async def clients(cluster: Cluster) -> dict[str, Any]:
    """The open connections of clients at all brokers."""
    from dataclasses import asdict

    return {"clients": [asdict(each) for each in await cluster.clients()]}


async def requests(
    cluster: Cluster, api: str | None, client_id: str | None, broker: int | None
) -> dict[str, Any]:
    """The last requests of clients at each broker: of this API, client, broker only, if given."""
    from kwire.recent import select, to_objects

    await cluster.requests()  # NotSupportedError: they are not kept
    found = to_objects(await cluster.inside.requests.by_broker())
    return select(found, api, client_id, broker)


async def forget(cluster: Cluster) -> dict[str, Any]:
    """Forget the requests that are kept."""
    await cluster.inside.requests.forget()
    return {}
