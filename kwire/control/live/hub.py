"""The state of a cluster as it moves, for the page: one loop that asks the nodes, for any number of pages at once.

It runs while a page is open. A part is a JSON object with what is new in it; a page that comes gets all of it, in
several parts, then the same changes as the others. Also the events of the nodes come with the answers, so that
these are asked once.

Invariants: parts come in order; a page that does not read has at most `MAX_WAITING` of them in memory, and gets
everything anew when it reads again; the loop takes no more than `SHARE` of the time, however large the cluster is.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from weakref import WeakKeyDictionary, proxy

from kwire import __version__
from kwire.control.live.merged import PART, Merged
from kwire.errors import INTERNAL_ERROR, KwireError
from kwire.protocol.errors import KafkaError
from kwire.server.errors import NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Any

    from kwire.aio import Cluster
    from kwire.backends.base import NodeHandle

    Json = dict[str, Any]

INTERVAL_SECONDS = 0.1
SHARE = 0.04
MAX_INTERVAL_SECONDS = 2.0
PATIENCE_SECONDS = 0.04
"""How long the others wait for a node that has not answered."""
MORE_EVERY = 5
"""Groups, transactions and requests are asked for every so many times."""
MAX_WAITING = 50
HEARTBEAT_SECONDS = 3.0
MAX_PAGES = 50
EVENTS_AT_FIRST = 200
NOTHING_NEW = b": nothing new\n\n"

_HUBS: WeakKeyDictionary[Cluster, Hub] = WeakKeyDictionary()


def hub_of(cluster: Cluster) -> Hub:
    """The hub of a cluster; idle until somebody reads."""
    if cluster not in _HUBS:
        _HUBS[cluster] = Hub(cluster)
    return _HUBS[cluster]


class Hub:
    """See the module."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = proxy(cluster)  # which is the key of this in `_HUBS`
        self._readers: set[_Reader] = set()
        self._running: asyncio.Task[None] | None = None
        self._asked: dict[int, asyncio.Task[Any]] = {}
        self._merged = Merged()
        self._since: dict[int, int] = {}
        self._count = 0
        self._event_number = 0
        self._cost = 0.0
        """Seconds of this thread for the current round."""

    @property
    def pages(self) -> int:
        """How many are open."""
        return len(self._readers)

    @property
    def interval(self) -> float:
        """Seconds from the last round to the next."""
        return max(INTERVAL_SECONDS, min(self._cost / SHARE, MAX_INTERVAL_SECONDS))

    async def parts(self) -> AsyncGenerator[bytes]:
        """Server-sent events: the state, in several parts, then each change; a comment when there was none."""
        reader = _Reader()
        try:
            self._readers.add(reader)
            if self._running is None:
                self._begin()
            while True:
                if reader.is_new and self._count:
                    reader.start()
                    for part in self._whole(PART):
                        yield encoded(part)
                    continue
                yield await reader.next()
        finally:
            self._readers.discard(reader)
            if not self._readers:
                self._end()

    async def once(self) -> Json:
        """The state now, as one object."""
        if self._running is None:
            await self._tick(more=True)
        replicas: Json = {}
        found: Json = {"partitions": [], "replicas": replicas}
        for part in self._whole(sys.maxsize):
            replicas.update(part.pop("replicas", {}))
            found |= part
        if self._running is None:
            self._forget()
        return found

    def _begin(self) -> None:
        self._running = asyncio.get_running_loop().create_task(self._run())

    def _end(self) -> None:
        running, self._running = self._running, None
        for task in (running, *self._asked.values()):
            if task is not None:
                task.cancel()
        self._forget()

    def _forget(self) -> None:
        self._asked = {}
        self._merged = Merged()
        self._since = {}
        self._count = 0

    async def _run(self) -> None:
        while True:
            begun, self._cost = time.monotonic(), 0.0
            part = await self._tick(more=self._count % MORE_EVERY == 0)
            if part:
                spent, data = time.thread_time(), encoded(part)
                for reader in self._readers:
                    reader.add(data)
                self._cost += time.thread_time() - spent
            await asyncio.sleep(max(0.0, begun + self.interval - time.monotonic()))

    async def _tick(self, *, more: bool) -> Json:
        """Ask the nodes; return what is new."""
        handles = self._handles()
        loop = asyncio.get_running_loop()
        for handle in handles:
            if handle.running and not handle.paused and handle.node_id not in self._asked:
                self._asked[handle.node_id] = loop.create_task(self._ask(handle, more))
        if self._asked:
            await asyncio.wait(self._asked.values(), timeout=PATIENCE_SECONDS)
        spent = time.thread_time()
        answered = {node_id: task for node_id, task in self._asked.items() if task.done()}
        for node_id in answered:
            del self._asked[node_id]
        answers = [found for task in answered.values() if (found := _result(task)) is not None]
        self._count += 1
        part = self._merged.take(answers, self._nodes(handles))
        for each in answers:
            self._since[each["id"]] = each["number"]
        events = self._new_events(answers)
        if events:
            part["events"] = events
        self._cost += time.thread_time() - spent
        if more:
            part |= self._merged.changed(await self._of_cluster())
        if part:
            part["at_ms"] = _now_ms()
        return part

    def _handles(self) -> list[NodeHandle]:
        inside = self._cluster.inside
        if not inside.started:
            return []
        return [*inside.controllers.values(), *inside.handles.values()]

    async def _ask(self, handle: NodeHandle, more: bool) -> Json | None:
        node_id = handle.node_id
        seen = self._cluster.inside.events.seen(node_id)
        given = {"since": self._since.get(node_id, 0), "events": seen, "more": more}
        spent = time.thread_time()
        try:
            (found,) = (await handle.ask("GET", "/v1/changes", given))["nodes"]
        except (KafkaError, KwireError, NodeError, ValueError) as error:
            if INTERNAL_ERROR in str(error):
                raise
            return None  # it has just ended, or does not answer
        self._cost += time.thread_time() - spent
        return {**found, "events_since": seen}

    def _new_events(self, answers: list[Json]) -> list[Json]:
        history = self._cluster.inside.events
        news = [(a["id"], a["events_since"], a["events"], a["dropped"]) for a in answers]
        history.add_news(news)
        if history.number == self._event_number:
            return []
        found = history.numbered(self._event_number)
        self._event_number = history.number
        return [_event(each) for each in found[-EVENTS_AT_FIRST:]]

    def _nodes(self, handles: list[NodeHandle]) -> list[Json]:
        standalone = not self._cluster.inside.controllers
        return [
            {
                "id": each.node_id,
                "role": "broker" if each.node_id in self._cluster.inside.handles else "controller",
                "address": each.advertised,
                "running": each.running,
                "paused": each.paused,
                "rack": each.rack,
                "alone": standalone,
            }
            for each in handles
        ]

    async def _of_cluster(self) -> Json:
        """What the cluster knows itself: cuts, delays, faults of requests and disks with their hits, the clock."""
        from kwire.faults.rules import text_of
        from kwire.server.disks.rules import text_of as text_of_disk

        cluster = self._cluster
        clock = cluster.clock.to_json()
        cuts, delays = [], []
        with suppress(KwireError):
            for one_way in (False, True):
                cuts += [[*each, one_way] for each in cluster.network.cuts(one_way=one_way)]
                delays += [[*each, one_way] for each in cluster.network.delays(one_way=one_way)]
        return {
            "kwire": __version__,
            "bootstrap": cluster.bootstrap_servers,
            "clock": {"offset_ms": clock["offset_ms"] // 100 * 100, "frozen": clock["frozen"]}
            | ({"now_ms": clock["now_ms"]} if clock["frozen"] else {}),
            "network": {"cuts": cuts, "delays": delays},
            "faults": [
                {"id": each.id, "text": text_of(each.given), "hits": await each.hits()}
                for each in cluster.faults.list()
            ],
            "disks": [
                {"id": each.id, "text": text_of_disk(each.given), "hits": await each.hits()}
                | {"node": each.node_id}
                for each in cluster.faults.disks.list()
            ],
        }

    def _whole(self, size: int) -> list[Json]:
        events = self._cluster.inside.events.objects()[-EVENTS_AT_FIRST:]
        return [
            *self._merged.parts(size),
            {"events": [_event(each) for each in events], "at_ms": _now_ms()},
        ]


class _Reader:
    """The parts that wait for one page."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._news = asyncio.Event()
        self.is_new = True
        """It has nothing yet, or has missed something."""

    def start(self) -> None:
        self.is_new = False
        self._waiting.clear()

    def add(self, part: bytes) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self.is_new = True
            self._waiting.clear()
        if not self.is_new:
            self._waiting.append(part)
        self._news.set()

    async def next(self) -> bytes:
        """The next part; a comment when none came for `HEARTBEAT_SECONDS`, or everything is to be told anew."""
        if not self._waiting:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._news.wait()
        return self._waiting.pop(0) if self._waiting else NOTHING_NEW


def _event(found: Json) -> Json:
    """An event as the page shows it."""
    from kwire.report.marks import kind_of

    fields = found["fields"]
    about = {name: fields[name] for name in ("topic", "partition") if fields.get(name) is not None}
    names = ("number", "time_ms", "node", "event", "level", "words", "message")
    return {name: found[name] for name in names} | {"kind": kind_of(found)} | about


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _result(task: asyncio.Task[Any]) -> Any:
    """What a node has answered; an exception is a bug, of which pages must not get stuck."""
    if task.cancelled():
        return None
    if (error := task.exception()) is not None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "what a node told the page was not understood", "exception": error}
        )
        return None
    return task.result()


def encoded(part: Json) -> bytes:
    """A part as a server-sent event."""
    return b"data: " + json.dumps(part, separators=(",", ":")).encode() + b"\n\n"
