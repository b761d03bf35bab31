"""Handlers of `GET /metrics`, of a cluster and of the nodes in a process, and `GET /v1/counts` of nodes.

Nodes are asked page by page (`counts.py`), and the loop is free in between; the text is written on a thread.
"""

from __future__ import annotations

import asyncio

from kwire.control.live.answers import Coming, Text
from kwire.control.metrics import counts
from kwire.control.metrics.table import Answer
from kwire.errors import KwireError
from kwire.protocol.errors import KafkaError
from kwire.server.errors import NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kwire.aio import Cluster
    from kwire.control.node_api import NodeControl

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE_SECONDS = 2.0
"""So long a node may be silent before the scrape goes on without it."""


async def of_cluster(cluster: Cluster) -> Text:
    """Metrics of all nodes, for Prometheus."""
    inside = cluster.inside
    brokers = set(inside.handles)
    asked = [_answer(handle, handle.node_id in brokers) for handle in inside.events.handles()]
    return await _text(await asyncio.gather(*asked))


async def _answer(handle: Any, is_broker: bool) -> Answer:
    """All pages of a node; none when it is down, paused or silent."""
    pages: list[dict[str, Any]] = []
    start: int | None = 0
    try:
        while start is not None and handle.running and not handle.paused:
            # Shielded: a late answer must not be read as the answer to the next request.
            asking = asyncio.shield(handle.ask("GET", "/v1/counts", {"start": start}))
            page = await asyncio.wait_for(asking, PATIENCE_SECONDS)
            pages += page["nodes"]
            start = page["next"]
            await asyncio.sleep(0)
    except (KafkaError, KwireError, NodeError, TimeoutError):
        pages.clear()
    return Answer(handle.node_id, "broker" if is_broker else "controller", pages)


def of_nodes(control: NodeControl) -> Coming:
    """Metrics of these nodes, for Prometheus."""

    async def make() -> Text:
        answers: dict[tuple[int, str], Answer] = {}
        start: int | None = 0
        while start is not None:
            page = counts.page(control, start)
            for node in page["nodes"]:
                which = node["id"], node["role"]
                answers.setdefault(which, Answer(*which, [])).pages.append(node)
            start = page["next"]
            await asyncio.sleep(0)
        return await _text(answers.values())

    return Coming(make)


async def _text(answers: Iterable[Answer]) -> Text:
    def write() -> bytes:
        from kwire.control.metrics.text import text

        return text(answers)

    return Text(MEDIA_TYPE, await asyncio.to_thread(write))
