"""A cluster as text for people: `Cluster.describe`, and the section in the report of a failed test."""

from __future__ import annotations

from contextlib import suppress

from kwire.errors import BrokerNotAvailableError, KwireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kwire.aio import Cluster
    from kwire.backends.base import Backend
    from kwire.backends.views import Partition


def name_of(cluster: Cluster, backend: Backend) -> str:
    """One line: how many brokers there are, how they run, where to connect to."""
    if cluster.external:
        return f"<Cluster elsewhere, {backend.bootstrap_servers}>"
    spec = cluster.inside.spec
    brokers = f"{spec.brokers} broker{'s' if spec.brokers != 1 else ''}"
    where = backend.bootstrap_servers if cluster.started else "stopped"
    return f"<Cluster {brokers}, isolation {spec.isolation!r}, {where}>"


async def describe(cluster: Cluster) -> str:
    """Nodes, partitions, the last requests if they are kept."""
    if not cluster.started:
        return "the cluster is stopped"
    lines = [] if cluster.external else [repr(broker) for broker in cluster.brokers]
    if not cluster.external and len(cluster.controllers) > 1:
        lines += await _controllers(cluster)
    try:
        async for partition in _all_partitions(cluster):
            lines.append(str(partition))
    except BrokerNotAvailableError as error:  # no controller, say
        lines.append(str(error))
    if not cluster.external:
        lines += await _requests(cluster)
    return "\n".join(lines)


async def _controllers(cluster: Cluster) -> list[str]:
    active = None
    with suppress(KwireError):
        active = await cluster.active_controller()
    return [f"{each!r}{' active' if each is active else ''}" for each in cluster.controllers]


async def _all_partitions(cluster: Cluster) -> AsyncIterator[Partition]:
    for topic, count in (await cluster.topics(internal=True)).items():
        for index in range(count):
            with suppress(KwireError):
                yield await cluster.partition(topic, index)


async def _requests(cluster: Cluster) -> list[str]:
    kept = await cluster.inside.requests.by_broker()
    if not any(kept.values()):
        return []
    from kwire.recent import format_requests

    return ["last requests of clients:", *format_requests(kept)]
