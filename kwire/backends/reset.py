"""`Cluster.reset`: back to a new cluster, at the same addresses.

Clients that are connected now are those of an earlier test. The brokers keep them from everything
that comes later (`kwire.leftovers`), first of all from making again what is being deleted. Where that
cannot be (a cluster that was started elsewhere), what was made again in between is deleted again.
Topics are told apart by their ids: one that has been made again under its old name is another one.
"""

from __future__ import annotations

from contextlib import suppress

from kwire import errors
from kwire.backends.options import kwire_errors
from kwire.client.admin import REQUEST_SECONDS
from kwire.launch.spec import DOCKER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kwire.aio import Cluster
    from kwire.backends.base import Backend

_TRIES = 5
"""How often topics are deleted that clients make again."""


async def reset(cluster: Cluster, backend: Backend, *, keep_clients: bool) -> list[str]:
    """Carry out a reset. Returns topics that clients have made again and again."""
    if not cluster.external:
        nodes = (*cluster.controllers, *cluster.brokers)
        for node in nodes:
            await node.resume()
        await cluster.network.undo()  # a paused node could not be told
        for node in nodes:
            if not node.running:
                await node.start()
        await cluster.inside.restore()
    admin = backend.admin
    for _ in range(_TRIES):
        # Each time: some connect again only when a broker that was killed is back.
        if not (cluster.external or keep_clients):
            await _set_clients_aside(cluster)
        names = list(await backend.topics())
        if not names:
            return []
        with kwire_errors():
            await admin.run(admin.delete_these_topics(names, REQUEST_SECONDS))
    return list(await backend.topics())


async def _set_clients_aside(cluster: Cluster) -> None:
    for handle in cluster.inside.handles.values():
        try:
            with kwire_errors():
                await handle.ask("POST", "/v1/leftovers")
        except errors.RequestError:
            if cluster.inside.spec.isolation != DOCKER:
                raise
            return  # an older image, which has no such request


async def leftovers(cluster: Cluster, made_again: Iterable[str]) -> list[str]:
    """Sentences on what earlier users have left behind. `made_again`: the result of `reset`."""
    clients: list[dict[str, Any]] = []
    if cluster.started and not cluster.external:
        for handle in cluster.inside.handles.values():
            if handle.running and not handle.paused:
                with suppress(errors.KwireError), kwire_errors():
                    clients += (await handle.ask("GET", "/v1/leftovers"))["clients"]
    found = [count_clients(clients)] if clients else []
    if made_again:
        names = ", ".join(made_again)
        found.append(f"clients of an earlier test keep making topics that were deleted ({names})")
    return found


def count_clients(clients: list[dict[str, Any]]) -> str:
    """A line for people: "2 clients of an earlier test are still connected (…)"."""
    several = len(clients) != 1
    shown = []
    for each in clients:
        text = f"{each['client_id'] or 'unknown'} {each['address']}"
        shown.append(f"{text}, group {each['group']}" if each["group"] else text)
    return (
        f"{len(clients)} client{'s' if several else ''} of an earlier test {'are' if several else 'is'}"
        f" still connected ({'; '.join(shown)})"
    )
