"""The clock of a cluster, for tests: `kwire.aio.Cluster.clock`.

An advance goes from event to event. All nodes are advanced by the same amount, up to the next event of any of them
(`kwire.advance`); then it waits, in real time and not for long, until its consequences at the others are done. A node
that is down or paused learns it when it is back: one that starts has the new time from its start on, for one that
was paused the time passes then.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from kwire import errors
from kwire.backends.options import kwire_errors
from kwire.server.events import NodeEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from typing import Any

    from kwire.aio import Cluster
    from kwire.backends.base import NodeHandle

    Handles = list[NodeHandle]

_PATH = "/v1/clock"
_LIFE_SECONDS = 2.0
"""How long an advance waits for nodes that have not shown that they are alive."""
_SETTLE_SECONDS = 0.5
"""How long it waits for the consequences of an event; never twice for the same one."""
_INEXACT_MS = 1000
"""Nodes get it one after the other."""
_EXTERNAL = (
    "the clock: the cluster was started elsewhere, and only who has started it can move its time"
)
_POLL_SECONDS = 0.002
_ROUNDS = 10_000
"""A fuse: then the rest passes at once at each node."""


class Clock:
    """The clock of all brokers and controllers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = asyncio.Lock()
        self._frozen_ms: int | None = None
        self._offset_ms = 0
        self._told: dict[int, int] = {}  # the offset of each node, when it was last told

    def now(self) -> datetime:
        """What time it is in the cluster, in UTC."""
        from datetime import UTC, datetime, timedelta

        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self._now_ms())

    async def advance(
        self,
        delay: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> datetime:
        """Let time pass at once, at all brokers and controllers, by a timedelta or the sum of the others; return what
        time it is then. What is due meanwhile happens in order: retention, compaction, ends of sessions, rebalances,
        transactions, offsets, ids of producers, followers that lag; a client that waits for it gets its answer.

        Connections stay, and so do leases of brokers that are alive. A member of a group sends heartbeats in real time:
        an advance by more than its session.timeout.ms ends its session, as a long pause of the broker does."""
        from kwire.advance import amounts

        self._require()
        try:
            total_ms = amounts.total_ms(days, hours, minutes, seconds, milliseconds)
            total_ms += 0 if delay is None else amounts.milliseconds_of(delay)
        except ValueError as error:
            raise errors.ConfigurationError(str(error)) from None
        await self.advance_by(total_ms)
        return self.now()

    async def freeze(self) -> None:
        """Let the time of all brokers and controllers stand still, until `resume`; `advance` still moves it.

        What waits for another node or for a connection goes on: heartbeats, leases, waiting fetches."""
        self._require()
        async with self._lock:
            if self._frozen_ms is None:
                self._frozen_ms = self._now_ms()
                await self._change_all("freeze")

    async def resume(self) -> None:
        """Let time go on after `freeze`, from where it stood; no-op if it is not frozen."""
        self._require()
        async with self._lock:
            if self._frozen_ms is not None:
                self._set_offset(self._frozen_ms - _real_ms())
                self._frozen_ms = None
                await self._change_all("resume", self._offset_ms)
                self._note()

    # --- for its own

    def _require(self) -> None:
        if self._cluster.external:
            raise errors.NotSupportedError(_EXTERNAL)

    def _now_ms(self) -> int:
        return _real_ms() + self._offset_ms if self._frozen_ms is None else self._frozen_ms

    @property
    def moved_ms(self) -> int | None:
        """What time it is, Unix ms, if it is not the real one."""
        return None if self._frozen_ms is None and not self._offset_ms else self._now_ms()

    def to_json(self) -> dict[str, Any]:
        """As the control API shows it."""
        now_ms = self._now_ms()
        frozen = self._frozen_ms is not None
        return {"now_ms": now_ms, "offset_ms": now_ms - _real_ms(), "frozen": frozen}

    def _set_offset(self, offset_ms: int) -> None:
        self._offset_ms = self._cluster.inside.events.clock_ms = offset_ms

    async def advance_by(self, total_ms: int) -> None:
        """Let so many milliseconds pass."""
        from kwire.advance import amounts

        async with self._lock:
            by = amounts.in_words(total_ms)
            self._cluster.inside.events.log(NodeEvent.CLOCK_ADVANCED, by=by)
            stuck = await self._begin()
            try:
                for _ in range(_ROUNDS):
                    delay_ms = await self._next_ms(total_ms)
                    await self._run(delay_ms)
                    total_ms -= delay_ms
                    stuck |= await self._settle(stuck)
                    if not total_ms:
                        return
                await self._run(total_ms)
            finally:
                self._note()

    async def _begin(self) -> set[str]:
        """Begin an advance; return what has been under way for long, and is not waited for."""
        await self._change_all("begin")
        end = _now() + _LIFE_SECONDS
        while True:
            found = await self._change_all("show")
            awaited = [text for each in found for text in each["awaited"]]
            under_way = {text for each in found for text in each["under_way"]}
            if not (awaited or under_way) or _now() > end:
                return under_way
            await asyncio.sleep(_POLL_SECONDS)

    async def _next_ms(self, left_ms: int) -> int:
        found = await self._change_all("look")
        dues = [each["next_ms"] for each in found if each["next_ms"] is not None]
        return min(left_ms, max(1, min(dues, default=left_ms)))

    async def _run(self, delay_ms: int) -> None:
        await self._change_all("run", delay_ms)
        if self._frozen_ms is None:
            self._set_offset(self._offset_ms + delay_ms)
        else:
            self._frozen_ms += delay_ms

    async def _settle(self, stuck: set[str]) -> set[str]:
        """Wait for the consequences of events; return those that took too long."""
        end = _now() + _SETTLE_SECONDS
        while True:
            found = await self._change_all("look")
            under_way = {text for each in found for text in each["under_way"]}
            if under_way <= stuck:
                return set()
            if _now() > end:
                return under_way
            await asyncio.sleep(_POLL_SECONDS)

    async def _change_all(self, verb: str, milliseconds: int = 0) -> list[dict[str, Any]]:
        """Do something to all nodes that answer; return their answers."""
        body = {"verb": verb, "milliseconds": milliseconds}
        found = await asyncio.gather(*(_change(each, body) for each in self._handles()))
        return [each for each in found if each is not None]

    def _handles(self) -> Handles:
        inside = self._cluster.inside
        handles = [*inside.controllers.values(), *inside.handles.values()]
        return [each for each in handles if each.running and not each.paused]

    async def tell(self, handle: NodeHandle) -> None:
        """Tell a node that is back what time it is."""
        if not self._offset_ms and self._frozen_ms is None:
            return
        with kwire_errors():
            found = await handle.ask("GET", _PATH)
            offset_ms = self.to_json()["offset_ms"]
            if self._frozen_ms is not None and not found["frozen"]:
                await handle.ask("PUT", _PATH, {"verb": "freeze"})
            missing_ms = offset_ms - found["offset_ms"]
            is_new = found["offset_ms"] < self._told.get(handle.node_id, 0) - _INEXACT_MS
            if missing_ms > _INEXACT_MS and not is_new:  # it was paused: now the time passes
                await handle.ask("POST", _PATH, {"milliseconds": missing_ms})
            elif missing_ms:
                await handle.ask("PUT", _PATH, {"verb": "set", "milliseconds": offset_ms})
            self._told[handle.node_id] = offset_ms

    def _note(self) -> None:
        """Remember what time the nodes have, for those that start again."""
        inside = self._cluster.inside
        for handle in (*inside.controllers.values(), *inside.handles.values()):
            handle.set_start_clock(self._offset_ms)
            if handle.running and not handle.paused:
                self._told[handle.node_id] = self._offset_ms

    async def restore(self) -> None:
        """Back to real time: the cluster is reset."""
        if self._offset_ms or self._frozen_ms is not None:
            await self._change_all("resume")
            await self._change_all("set")
            self.forget()
            self._note()

    def forget(self) -> None:
        """The time is the real one: the cluster is new."""
        self._frozen_ms = None
        self._offset_ms = 0
        self._told.clear()
        if not self._cluster.external:
            self._set_offset(0)

    def in_words(self) -> list[str]:
        """A line for people, if the time is not the real one."""
        frozen = "" if self._frozen_ms is None else ", frozen"
        offset_ms = self._offset_ms
        if not (offset_ms or frozen):
            return []
        from kwire.advance import amounts

        return [f"clock: {amounts.beside_real_time(offset_ms)}{frozen}"]

    def __repr__(self) -> str:
        return f"<Clock {self.now().isoformat()}>"


async def _change(handle: NodeHandle, body: dict[str, Any]) -> dict[str, Any] | None:
    """None: the node has ended meanwhile."""
    with suppress(errors.BrokerNotAvailableError, errors.StartError), kwire_errors():
        found: dict[str, Any] = await handle.ask("PUT", _PATH, body)
        return found
    return None


def _real_ms() -> int:
    return time.time_ns() // 1_000_000


def _now() -> float:
    return asyncio.get_running_loop().time()
