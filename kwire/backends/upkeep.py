"""`compact` and `apply_retention` of a cluster that was started here: log upkeep on request.

Replicas clean their logs one by one, and only what they know to be committed. So both first wait
until the replicas in the ISR have everything that the leader has now, and know that it is
committed; then every broker that answers does its part.
"""

from __future__ import annotations

import asyncio

from kwire import errors
from kwire.backends.options import check_name, unknown_topic
from kwire.control.route import partition_path, topic_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.backends.base import StartedBackend

_POLL_SECONDS = 0.002
_WAIT_SECONDS = 10.0


async def compact(inside: StartedBackend, topic: str) -> None:
    """Compact a topic; see `Cluster.compact`."""
    check_name("topic", topic)
    await _wait_committed(inside, topic, await _partition_count(inside, topic))
    path = topic_path(topic, "/compact")
    unfinished: dict[int, Any] = {}
    for broker_id in _answering(inside):
        unfinished[broker_id] = await inside.ask(broker_id, "POST", path)
    deadline = _now() + _WAIT_SECONDS
    while unfinished := {id_: found for id_, found in unfinished.items() if any(found.values())}:
        for broker_id, found in unfinished.items():
            if found["failed"]:
                index, why = next(iter(found["failed"].items()))
                raise errors.RequestError(
                    f"broker {broker_id} cannot compact {topic}-{index}: {why}",
                    "KAFKA_STORAGE_ERROR",
                )
            if found["cleaning"]:
                deadline = _now() + _WAIT_SECONDS  # as long as it takes
            elif _now() > deadline:
                index, why = next(iter(found["waiting"].items()))
                raise errors.WaitTimeoutError(
                    f"broker {broker_id} cannot compact {topic}-{index} yet: {why}"
                )
        await asyncio.sleep(_POLL_SECONDS)
        for broker_id in list(unfinished):
            try:
                unfinished[broker_id] = await inside.ask(broker_id, "GET", path)
            except errors.BrokerNotAvailableError:  # stopped meanwhile
                del unfinished[broker_id]


async def apply_retention(inside: StartedBackend, topic: str | None) -> None:
    """Apply retention to a topic or to all; see `Cluster.apply_retention`."""
    if topic is None:
        counts = await inside.topics()
    else:
        check_name("topic", topic)
        counts = {topic: await _partition_count(inside, topic)}
    for name, count in counts.items():
        await _wait_committed(inside, name, count)
    for broker_id in _answering(inside):
        await inside.ask(broker_id, "POST", "/v1/retention", {"topic": topic})


async def _partition_count(inside: StartedBackend, topic: str) -> int:
    counts = await inside.topics()
    if topic not in counts:
        raise unknown_topic(topic, counts)
    return counts[topic]


async def _wait_committed(inside: StartedBackend, topic: str, count: int) -> None:
    """Wait until the replicas in the ISR of all partitions have the high watermark at the present
    log end of the leader. A partition without leader is left out: nothing gets committed there."""
    deadline = _now() + _WAIT_SECONDS
    for index in range(count):
        wanted = -1
        while True:
            now = await inside.partition(topic, index)
            isr = [broker_id for broker_id in _answering(inside) if broker_id in now.isr]
            if now.leader not in isr:
                break
            path = partition_path(topic, index) + "/replica"
            found = {each: await inside.ask(each, "GET", path) for each in isr}
            end = found[now.leader]["log_end_offset"]
            wanted = end if wanted < 0 else min(wanted, end)  # lower: a new leader without them
            behind = {
                each: replica["high_watermark"]
                for each, replica in found.items()
                if replica["high_watermark"] < wanted
            }
            if not behind:
                break
            if _now() > deadline:
                known = ", ".join(f"{each} at {offset}" for each, offset in behind.items())
                raise errors.WaitTimeoutError(
                    f"not all of {topic}-{index} is committed: the log ends at {wanted},"
                    f" the high watermark is on broker {known}; {now}"
                )
            await asyncio.sleep(_POLL_SECONDS)


def _answering(inside: StartedBackend) -> list[int]:
    """The brokers that run and are not paused."""
    return [id_ for id_, handle in inside.handles.items() if handle.running and not handle.paused]


def _now() -> float:
    return asyncio.get_running_loop().time()
