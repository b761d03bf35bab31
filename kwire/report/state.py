"""How a cluster stands, as JSON for a report: nodes, partitions, groups, open transactions, the last requests."""

from __future__ import annotations

import re
import time
from contextlib import suppress

from kwire import errors
from kwire.protocol.errors import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.aio import Cluster

    Json = dict[str, Any]

MAX_PARTITIONS = 200
MAX_GROUPS = 20
MAX_TRANSACTIONS = 50
_SECONDS = 10.0  # for looking at partitions and groups
# An answer in the normal course of a client's work.
_EXPECTED = {"NONE", "MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS"}
_ERROR = re.compile(r"(?:^|; |: )([A-Z][A-Z_]{3,})(?=;|$)")


def now_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


def errors_in(outcome: str) -> list[str]:
    """The names of Kafka's errors in the outcome of a request (`kwire.recent`)."""
    found = _ERROR.findall(outcome)
    return [name for name in found if name in ErrorCode.__members__ and name not in _EXPECTED]


async def requests(cluster: Cluster) -> list[Json] | None:
    """The last requests of clients, oldest first; None when they are not kept."""
    if cluster.external or not cluster.started or not cluster.inside.requests.is_kept:
        return None
    from kwire.recent import to_objects

    at_ms = now_ms()
    found = []
    for each in to_objects(await cluster.inside.requests.by_broker())["requests"]:
        ago_ms = each["milliseconds_ago"]
        closed = each["api"] == "connection closed"
        found.append(
            {
                "t": None if ago_ms is None else at_ms - ago_ms,
                "broker": each["broker"],
                "client_id": each["client_id"],
                "api": each["api"],
                "outcome": each["outcome"],
                "count": each.get("count", 1),
                "error": closed or bool(errors_in(each["outcome"])),
            }
        )
    found.sort(key=lambda each: at_ms + 1 if each["t"] is None else each["t"])
    return found


def nodes(cluster: Cluster) -> list[Json]:
    """Controllers and brokers: id, kind, address, state (running, paused, down)."""
    return [
        {
            "id": each.id,
            "kind": kind,
            "address": each.address,
            "state": "paused" if each.paused else "running" if each.running else "down",
        }
        for kind, some in (("controller", cluster.controllers), ("broker", cluster.brokers))
        for each in some
    ]


def brokers_outside(partitions: list[Json]) -> list[Json]:
    """The brokers that have replicas of these partitions."""
    ids = {each["broker"] for partition in partitions for each in partition["replicas"]}
    return [
        {"id": each, "kind": "broker", "address": "", "state": "running"} for each in sorted(ids)
    ]


async def partitions(cluster: Cluster) -> Json:
    """`partitions`, internal ones last, `partitions_left_out`, and `partitions_error` in words."""
    from kwire.replication.core.metadata import INTERNAL_TOPICS

    found: Json = {"partitions": [], "partitions_left_out": 0, "partitions_error": None}
    if not cluster.started:
        found["partitions_error"] = "The cluster is stopped."
        return found
    try:
        topics = await cluster.topics(internal=True)
    except errors.KwireError as error:
        found["partitions_error"] = str(error)
        return found
    names = sorted(topics, key=lambda name: (name in INTERNAL_TOPICS, name))
    pairs = [(name, index) for name in names for index in range(topics[name])]
    deadline = time.monotonic() + _SECONDS
    for number, (name, index) in enumerate(pairs):
        if number >= MAX_PARTITIONS or time.monotonic() > deadline:
            found["partitions_left_out"] = len(pairs) - number
            break
        try:
            partition = await cluster.partition(name, index)
        except errors.KwireError as error:
            found["partitions_error"] = str(error)
            continue
        found["partitions"].append(_partition(partition, name in INTERNAL_TOPICS))
    return found


def _partition(partition: Any, internal: bool) -> Json:
    high_watermark = None
    with suppress(errors.BrokerNotAvailableError):
        high_watermark = partition.high_watermark
    replicas: list[Json] = []
    for broker in partition.replicas:
        each = partition.found.get(broker)
        if each is None:
            replicas.append({"broker": broker, "message": partition.missing.get(broker, "")})
            continue
        replicas.append(
            {
                "broker": broker,
                "start": each.log_start_offset,
                "end": each.log_end_offset,
                "hw": each.high_watermark,
                "epochs": each.known_epochs,
            }
        )
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "internal": internal,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": sorted(partition.isr),
        "high_watermark": high_watermark,
        "replicas": replicas,
    }


async def groups(cluster: Cluster) -> list[Json] | None:
    """The groups with members and offsets; None: unknown, also while a broker is paused whose groups
    nobody else has taken over yet."""
    if not cluster.started:
        return None
    found = []
    try:
        for group_id in (await cluster.groups())[:MAX_GROUPS]:
            found.append(_group(await cluster.group(group_id)))
    except errors.KwireError:
        return found or None
    return found


async def transactions(cluster: Cluster) -> list[Json] | None:
    """The transactions that are open; None: unknown, as of `groups`."""
    if not cluster.started:
        return None
    from dataclasses import asdict

    try:
        found = [each for each in await cluster.transactions() if each.open]
    except errors.KwireError:
        return None
    return [
        {
            **asdict(each),
            "partitions": [{**asdict(part), "holds": part.holds} for part in each.partitions],
        }
        for each in found[:MAX_TRANSACTIONS]
    ]


def _group(group: Any) -> Json:
    return {
        "id": group.id,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator if group.coordinator >= 0 else None,
        "lag": group.known_lag,
        "members": [
            {
                "id": each.id,
                "client_id": each.client_id,
                "host": each.host,
                "partitions": [f"{topic}-{index}" for topic, index in each.partitions],
            }
            for each in group.members
        ],
        "offsets": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
                "member_id": each.member_id,
            }
            for each in group.offsets
        ],
    }
