"""Faults on the requests at the nodes of a cluster, for tests: `kwire.aio.Cluster.faults`.

The nodes act (`kwire.faults`), each for itself: `times`, `probability` and `seed` count at each of them. Here is what
is set, so that a node that was down or paused learns it when it is back, and what was hit at nodes that have ended.
"""

from __future__ import annotations

from contextlib import suppress

from kwire import errors
from kwire.backends.options import kwire_errors
from kwire.server.events import NodeEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType
    from typing import Any

    from kwire.aio import Cluster
    from kwire.backends.base import NodeHandle
    from kwire.backends.faults.disks import Disk, Disks
    from kwire.client.views import Request

    Counts = list[dict[str, Any]]
    Handles = list[NodeHandle]
    Lines = list[str]

_PATH = "/v1/faults"


class Fault:
    """A fault that was set, until it is removed. `id`: its name in the control API."""

    def __init__(self, faults: Faults, fault_id: str, given: dict[str, Any]) -> None:
        self._faults = faults
        self.id = fault_id
        self.given = given
        """What was given, as kwire writes it."""

    async def hits(self) -> int:
        """How many requests it has hit, at all nodes; also after its end."""
        return sum(each["hits"] for each in await self._faults.counts(self.id))

    async def requests(self) -> list[Request]:
        """Those requests, oldest first: the last 100 at each node."""
        from kwire.backends.requests import to_requests
        from kwire.recent import from_objects

        by_node: dict[int, list[list[Any]]] = {}
        for each in await self._faults.counts(self.id):
            for request in each["requests"]:
                entries = by_node.setdefault(request["broker"], [])
                entries += from_objects({"requests": [request]})
        return to_requests(by_node)

    async def remove(self) -> None:
        """End it; nothing happens if it has ended."""
        await self._faults.remove(self.id)

    def __repr__(self) -> str:
        from kwire.faults.rules import text_of

        return f"<Fault {self.id}, {text_of(self.given)}>"


class HasDisk:
    """A broker or controller whose disk can be made fail."""

    _cluster: Cluster
    _handle: NodeHandle

    @property
    def disk(self) -> Disk:
        """Its disk, to be made `fail`, `full` or `slow`, and to `heal`."""
        from kwire.backends.faults.disks import Disk

        return Disk(self._cluster.faults.disks, self._handle.node_id)


class Injection:
    """A fault, as `Faults.inject` returns it: `await` sets it; `async with` does for the duration of the block."""

    def __init__(self, faults: Faults, given: dict[str, Any]) -> None:
        self._faults = faults
        self._given = given
        self._fault: Fault | None = None

    def __await__(self) -> Generator[object, None, Fault]:
        return self._faults.add(self._given).__await__()

    async def __aenter__(self) -> Fault:
        self._fault = await self
        return self._fault

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fault is not None:
            await self._fault.remove()


class Faults:
    """Faults on requests: errors, delays, answers that never come, corrupt records, closed connections."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._disks: Disks | None = None  # until there is one
        self._given: dict[str, dict[str, Any]] = {}  # those that are set
        self._ended: dict[str, Counts] = {}  # what nodes that have ended had hit
        self._last_id = 0

    def inject(
        self,
        api: str | None = None,
        *,
        error: str | int | None = None,
        delay: float | None = None,
        drop: str | None = None,
        throttle: float | None = None,
        corrupt: bool | None = None,
        close: bool | None = None,
        version: int | None = None,
        broker: int | None = None,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        listener: str | None = None,
        user: str | None = None,
        times: int | None = None,
        probability: float | None = None,
        seed: int | None = None,
        force: bool = False,
    ) -> Injection:
        """Set a fault on the requests that fit all of `api` ("Produce"), `version`, `broker`, `client_id`, … ; `await`
        sets it until it is removed, `async with` for the block. One of these happens to them: `error`, by Kafka's name
        or number, for the topics, partitions or groups that are named, or for all; `delay`, milliseconds before
        they are handled; `drop`: "before", they are never handled, "after", they are, but never answered; `throttle`,
        milliseconds; `corrupt` records (of Fetch); `close` the connection.

        `times`: the first ones at each node only; `probability`: some of them, the same with the same `seed`. `force`:
        an error that Kafka would not answer with. ConfigurationError for what could never hit; NotSupportedError."""
        given = {name: value for name, value in locals().items() if name != "self"}
        given["force"] = force or None
        return Injection(self, {name: value for name, value in given.items() if value is not None})

    def list(self) -> list[Fault]:
        """The faults that are set."""
        return [Fault(self, fault_id, given) for fault_id, given in self._given.items()]

    def find(self, fault_id: str) -> Fault:
        """The fault of this id. ClusterStateError: no such fault."""
        if fault_id not in self._given:
            raise errors.ClusterStateError(
                f"there is no fault {fault_id[:100]!r}; set are {list(self._given)}"
            )
        return Fault(self, fault_id, self._given[fault_id])

    async def clear(self) -> None:
        """Remove all faults."""
        for fault_id in [*self._given]:
            await self.remove(fault_id)

    # --- for its own

    @property
    def disks(self) -> Disks:
        """The faults of disks."""
        if self._disks is None:
            from kwire.backends.faults.disks import Disks

            self._disks = Disks(self._cluster)
        return self._disks

    async def reset(self) -> None:
        """Remove all faults, those of disks too; kill the brokers with a directory that is offline."""
        await self.clear()
        if self._disks is not None:
            await self._disks.restore()

    async def add(self, given: dict[str, Any]) -> Fault:
        """Check a fault and set it at all nodes that answer. ConfigurationError, ClusterStateError."""
        from kwire.faults.rules import checked, text_of

        handles = self._handles()
        try:
            given = checked(given)
        except ValueError as error:
            raise errors.ConfigurationError(str(error)) from None
        if (broker := given.get("broker")) is not None:
            self._cluster.node(broker)  # ClusterStateError for an unknown id
        self._last_id += 1
        fault_id = f"fault-{self._last_id}"
        self._given[fault_id] = given
        self._ended[fault_id] = []
        for handle in handles:
            with kwire_errors():
                await handle.ask("PUT", f"{_PATH}/{fault_id}", given)
        log = self._cluster.inside.events.log
        log(NodeEvent.FAULT_SET, fault=fault_id, rule=text_of(given))
        return Fault(self, fault_id, given)

    async def remove(self, fault_id: str) -> None:
        """Remove a fault at all nodes that answer; the others learn it when they do."""
        if self._given.pop(fault_id, None) is None:
            return
        for handle in self._handles():
            with suppress(errors.KwireError), kwire_errors():
                found = await handle.ask("DELETE", f"{_PATH}/{fault_id}")
                self._ended[fault_id] += found["faults"]
        hits = sum(each["hits"] for each in self._ended[fault_id])
        self._cluster.inside.events.log(NodeEvent.FAULT_REMOVED, fault=fault_id, hits=hits)

    async def counts(self, fault_id: str) -> Counts:
        """What a fault has hit, at each node."""
        found = [*self._ended.get(fault_id, ())]
        if fault_id in self._given:
            for handle in self._handles():
                with suppress(errors.KwireError), kwire_errors():
                    found += (await handle.ask("GET", f"{_PATH}/{fault_id}"))["faults"]
        return found

    async def keep_failures(self, handle: NodeHandle) -> None:
        """Fetch what a node that is about to end has hit, and its failures."""
        await self._cluster.inside.keep_failures(handle.node_id)
        if self._disks is not None:
            await self._disks.keep(handle)
        if self._given and handle.running and not handle.paused:
            with suppress(errors.KwireError), kwire_errors():
                for each in (await handle.ask("GET", _PATH))["faults"]:
                    self._ended.setdefault(each["id"], []).append(each)

    async def tell(self, handle: NodeHandle) -> None:
        """Tell a node that is back what time it is, and what is set now."""
        await self._cluster.clock.tell(handle)
        if self._disks is not None:
            await self._disks.tell(handle)
        if not self._last_id:
            return
        with kwire_errors():
            there = {each["id"] for each in (await handle.ask("GET", _PATH))["faults"]}
            for fault_id in there - self._given.keys():
                await handle.ask("DELETE", f"{_PATH}/{fault_id}")
            for fault_id, given in self._given.items():
                if fault_id not in there:
                    await handle.ask("PUT", f"{_PATH}/{fault_id}", given)

    def forget(self) -> None:
        """Nothing is set any more, and the time is the real one: the cluster has ended."""
        self._cluster.clock.forget()
        if self._disks is not None:
            self._disks.forget()
            self._disks = None
        self._given.clear()

    def _handles(self) -> Handles:
        """The nodes that answer."""
        inside = self._cluster.inside
        handles = [*inside.handles.values(), *inside.controllers.values()]
        return [each for each in handles if each.running and not each.paused]

    async def in_words(self) -> Lines:
        """A line for each fault that is set, for people: what it is, and how many requests it has hit."""
        from kwire.faults.rules import text_of

        lines = []
        for fault in self.list():
            hits = await fault.hits()
            lines.append(
                f"fault: {text_of(fault.given)}; {hits or 'no'} request{'s' * (hits != 1)} hit"
            )
        return lines if self._disks is None else lines + await self._disks.in_words()

    def __repr__(self) -> str:
        return f"<Faults: {self.list() or 'none'}>"
