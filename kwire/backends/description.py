"""A cluster as text for people: `Cluster.describe`, and the section in the report of a failed test.

What a test author looks for comes first: topics, groups with their lag, open transactions, requests;
internal topics are one line each at the end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from kwire.backends.network import in_words
from kwire.errors import BrokerNotAvailableError, KwireError
from kwire.replication.core.metadata import TRANSACTION_STATE_TOPIC
from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kwire.aio import Cluster
    from kwire.backends.base import Backend
    from kwire.backends.views import Partition

_NO_CLIENT = "no client has connected to this cluster"
_GROUPS_SECONDS = 2.0  # brokers may be paused, which are waited for


def name_of(cluster: Cluster, backend: Backend) -> str:
    """One line: how many brokers there are, how they run, where to connect to."""
    if cluster.external:
        return f"<Cluster elsewhere, {backend.bootstrap_servers}>"
    spec = cluster.inside.spec
    brokers = f"{spec.brokers} broker{'s' if spec.brokers != 1 else ''}"
    where = backend.bootstrap_servers if cluster.started else "stopped"
    return f"<Cluster {brokers}, isolation {spec.isolation!r}, {where}>"


async def describe(cluster: Cluster) -> str:
    """Nodes, cuts and delays, topics, groups, open transactions, kept requests, internal topics."""
    if not cluster.started:
        return "the cluster is stopped"
    lines = [] if cluster.external else [repr(broker) for broker in cluster.brokers]
    if not cluster.external and len(cluster.controllers) > 1:
        lines += await _controllers(cluster)
    if in_force := in_words(cluster.network):
        lines.append(f"network: {in_force}")
    lines += cluster.clock.in_words()
    lines += await cluster.faults.in_words()
    internal: list[str] = []
    try:
        own = await cluster.topics()
        async for partition in _partitions(cluster, own):
            lines.append(str(partition))
        every = await cluster.topics(internal=True)
        others = {name: count for name, count in every.items() if name not in own}
        if others:
            lines += await _groups(cluster)
        if TRANSACTION_STATE_TOPIC in others:
            lines += await _open_transactions(cluster)
        for name, count in others.items():
            internal.append(await _in_short(cluster, name, count))
    except BrokerNotAvailableError as error:  # no controller, say
        lines.append(str(error))
    if not cluster.external:
        lines += await _requests(cluster)
    return "\n".join(lines + internal)


async def _controllers(cluster: Cluster) -> list[str]:
    active = None
    with suppress(KwireError):
        active = await cluster.active_controller()
    return [f"{each!r}{' active' if each is active else ''}" for each in cluster.controllers]


async def _partitions(cluster: Cluster, topics: dict[str, int]) -> AsyncIterator[Partition]:
    for topic, count in topics.items():
        for index in range(count):
            with suppress(KwireError):
                yield await cluster.partition(topic, index)


async def _groups(cluster: Cluster) -> list[str]:
    lines: list[str] = []
    try:
        async with asyncio.timeout(_GROUPS_SECONDS):
            for group_id in await cluster.groups():
                lines.append(str(await cluster.group(group_id)))
    except (KwireError, TimeoutError) as error:
        lines.append(f"groups: {str(error) or 'a broker does not answer'}")
    return lines


async def _open_transactions(cluster: Cluster) -> list[str]:
    try:
        async with asyncio.timeout(_GROUPS_SECONDS):
            return [str(each) for each in await cluster.transactions() if each.open]
    except (KwireError, TimeoutError) as error:
        return [f"transactions: {str(error) or 'a broker does not answer'}"]


async def _in_short(cluster: Cluster, topic: str, count: int) -> str:
    """A line about an internal topic; what is wrong with it, if anything is."""
    wrong = [
        f"{index} has no leader" if state.leader == NO_LEADER else f"{index} has ISR {sorted(isr)}"
        async for state in _partitions(cluster, {topic: count})
        for index, isr in [(state.partition, state.isr)]
        if state.leader == NO_LEADER or isr != set(state.replicas)
    ]
    return f"{topic}: {count} partition{'s' * (count != 1)}, {', '.join(wrong) or 'all in sync'}"


async def _requests(cluster: Cluster) -> list[str]:
    kept = await cluster.inside.requests.by_broker()
    if not any(kept.values()):
        return [_NO_CLIENT] if await _had_no_client(cluster) else []
    from kwire.recent import format_requests

    return ["last requests of clients:", *format_requests(kept)]


async def _had_no_client(cluster: Cluster) -> bool:
    """Whether it is certain that no client has connected; no request of one is kept.

    Not while requests are not kept, or a broker does not answer, which may have had one."""
    inside = cluster.inside
    if not inside.requests.is_kept:
        return False
    if any(not each.running or each.paused for each in inside.handles.values()):
        return False
    try:
        async with asyncio.timeout(_GROUPS_SECONDS):
            return not await cluster.clients()
    except (KwireError, TimeoutError):
        return False
