"""Faults of the disks of a cluster's nodes, for tests: `kwire.aio.Cluster.broker(1).disk`.

The nodes act (`kwire.server.disks`), each for itself. Here is what is set, so that a node that is back is told again;
what its faults had hit before it ended is not known any more, but that they were set is.
"""

from __future__ import annotations

from contextlib import suppress

from kwire import errors
from kwire.backends.options import kwire_errors
from kwire.backends.views import require_answering
from kwire.server.disks.rules import FIELDS, SLOW, checked, text_of
from kwire.server.events import NodeEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType
    from typing import Any

    from kwire.aio import Cluster
    from kwire.backends.base import NodeHandle

    Found = list["DiskFault"]
    Lines = list[str]

_PATH = "/v1/disks"


class DiskFault:
    """A fault of a disk that was set, until it is removed. `id`: its name in the control API."""

    def __init__(self, disks: Disks, fault_id: str, node_id: int, given: dict[str, Any]) -> None:
        self._disks = disks
        self.id = fault_id
        self.node_id = node_id
        self.given = given
        """What was given, as kwire writes it."""

    async def hits(self) -> int:
        """How many operations it has hit, also after its end; at a node that has ended: as far as is known."""
        return await self._disks.hits(self)

    async def remove(self) -> None:
        """End it; nothing happens if it has ended. A directory that is offline stays so until its broker restarts."""
        await self._disks.remove([self])

    def __repr__(self) -> str:
        return f"<DiskFault {self.id} of node {self.node_id}, {text_of(self.given)}>"


class DiskInjection:
    """A fault of a disk, as `Disk.fail` returns it: `await` sets it; `async with` does for the block."""

    def __init__(self, disks: Disks, node_id: int, given: dict[str, Any]) -> None:
        self._disks = disks
        self._node_id = node_id
        self._given = given
        self._fault: DiskFault | None = None

    def __await__(self) -> Generator[object, None, DiskFault]:
        return self._disks.add(self._node_id, self._given).__await__()

    async def __aenter__(self) -> DiskFault:
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


class Disk:
    """The disk of one broker or controller, with all its log directories: to be made fail, full or slow."""

    def __init__(self, disks: Disks, node_id: int) -> None:
        self._disks = disks
        self._node_id = node_id

    def fail(
        self,
        operation: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        directory: str | None = None,
        times: int | None = None,
        error: str | None = None,
    ) -> DiskInjection:
        """Let an operation fail: "append", "read", "fsync", "write" (of a checkpoint or snapshot), "create", "truncate"
        or "delete"; with all files, or those of `topic` and `partition`, in all log directories or in `directory`
        (its path, or a name at its end); the first `times`. `error`: EIO, or ENOSPC, EROFS, EACCES, EDQUOT. As with
        Kafka the log directory goes offline, with the last one the broker halts. ConfigurationError."""
        given: dict[str, Any] = {
            "act": "fail",
            "operation": operation,
            "topic": topic,
            "partition": partition,
        }
        given |= {"directory": directory, "times": times, "error": error}
        return DiskInjection(self._disks, self._node_id, given)

    def full(self, *, directory: str | None = None) -> DiskInjection:
        """Let the disk be full (ENOSPC): nothing can be appended, written or created, what is there can be read."""
        return DiskInjection(self._disks, self._node_id, {"act": "full", "directory": directory})

    def slow(
        self,
        milliseconds: float,
        operation: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        directory: str | None = None,
    ) -> DiskInjection:
        """Let appends, reads and fsyncs take so much longer, or one `operation` of these. Requests that need the disk
        are late, of clients and of followers; others are not. Not of controllers. ConfigurationError."""
        given: dict[str, Any] = {
            "act": "slow",
            "operation": operation,
            "topic": topic,
            "partition": partition,
        }
        given |= {"directory": directory, "milliseconds": milliseconds}
        return DiskInjection(self._disks, self._node_id, given)

    async def heal(self) -> None:
        """End all faults of this disk. A directory that is offline stays so until the broker restarts, as in Kafka."""
        await self._disks.heal(self._node_id)

    def faults(self) -> list[DiskFault]:
        """The faults of this disk that are set."""
        return self._disks.list(self._node_id)

    def __repr__(self) -> str:
        return f"<Disk of node {self._node_id}: {self.faults() or 'no faults'}>"


class Disks:
    """The faults of all disks of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._set: dict[str, DiskFault] = {}
        self._hits: dict[str, int] = {}  # as far as is known
        self._last_id = 0
        self._may_be_offline = False

    def list(self, node_id: int | None = None) -> Found:
        """The faults that are set, of one node or of all."""
        return [each for each in self._set.values() if node_id in (None, each.node_id)]

    def find(self, fault_id: str) -> DiskFault:
        """The fault of this id. ClusterStateError: there is none."""
        if fault_id not in self._set:
            raise errors.ClusterStateError(
                f"there is no fault of a disk {fault_id[:100]!r}; set are {[*self._set]}"
            )
        return self._set[fault_id]

    async def add(self, node_id: int, given: dict[str, Any]) -> DiskFault:
        """Check a fault and set it. ConfigurationError, BrokerNotAvailableError."""
        handle = self._handle(node_id)
        kind = self._kind(node_id)
        try:
            given = checked({name: given[name] for name in FIELDS if given.get(name) is not None})
        except ValueError as error:
            raise errors.ConfigurationError(str(error)) from None
        require_answering(handle, kind)
        self._last_id += 1
        fault = DiskFault(self, f"disk-{self._last_id}", node_id, given)
        self._set[fault.id] = fault
        handle.may_halt |= given["act"] != SLOW
        try:
            with kwire_errors():
                await self._tell(handle)
        except errors.RequestError as error:
            del self._set[fault.id]
            self._last_id -= fault.id == f"disk-{self._last_id}"
            text = str(error).removesuffix(" (INVALID_REQUEST)")
            raise errors.ConfigurationError(text) from None
        self._may_be_offline |= given["act"] != SLOW
        self._log(NodeEvent.DISK_FAULT_SET, node_id, fault=text_of(given))
        return fault

    async def remove(self, faults: Found) -> None:
        """Remove faults at the nodes that answer; the others are told when they do."""
        faults = [each for each in faults if each.id in self._set]
        await self._count(faults)
        for fault in faults:
            self._set.pop(fault.id, None)
        for node_id in {each.node_id: None for each in faults}:
            handle = self._handle(node_id)
            if handle.running and not handle.paused:
                with suppress(errors.KwireError), kwire_errors():
                    await self._tell(handle)

    async def heal(self, node_id: int | None = None) -> None:
        """Remove all faults, of one node or of all."""
        faults = self.list(node_id)
        for each in {fault.node_id: None for fault in faults}:
            self._log(NodeEvent.DISK_HEALED, each)
        await self.remove(faults)

    async def restore(self) -> None:
        """Remove all faults, and kill the brokers with a directory that is offline, to be started again."""
        await self.heal()
        if not self._may_be_offline:
            return
        self._may_be_offline = False
        for broker in self._cluster.brokers:
            handle = self._handle(broker.id)
            await handle.refresh_running()
            if not handle.running or handle.paused:
                continue
            with suppress(errors.KwireError), kwire_errors():
                found = await handle.ask("GET", _PATH)
                if any(each["failure"] is not None for each in found["directories"]):
                    await broker.kill()
                else:
                    self._note(handle)

    async def tell(self, handle: NodeHandle) -> None:
        """Tell a node that is back what is set."""
        if self._last_id:
            self._note(handle)
            if self.list(handle.node_id):
                with kwire_errors():
                    await self._tell(handle)

    async def hits(self, fault: DiskFault) -> int:
        """How many operations a fault has hit."""
        if fault.id in self._set:
            await self._count([fault])
        return self._hits.get(fault.id, 0)

    async def keep(self, handle: NodeHandle) -> None:
        """Fetch what the faults of a node that is about to end have hit."""
        if self._set:
            await self._count(self.list(handle.node_id))

    def forget(self) -> None:
        """Nothing is set any more: the cluster has ended."""
        self._set.clear()

    async def in_words(self) -> Lines:
        """A line for each fault that is set, for people."""
        lines = []
        for fault in self.list():
            hits = await fault.hits()
            lines.append(
                f"disk of {self._kind(fault.node_id)} {fault.node_id}: {text_of(fault.given)};"
                f" {hits or 'no'} operation{'s' * (hits != 1)} hit"
            )
        return lines

    async def _tell(self, handle: NodeHandle) -> None:
        faults = {each.id: each.given for each in self.list(handle.node_id)}
        await handle.ask("PUT", _PATH, {"faults": faults})

    async def _count(self, faults: Found) -> None:
        for node_id in {each.node_id: None for each in faults}:
            handle = self._handle(node_id)
            await handle.refresh_running()
            if handle.has_halted:
                self._infer(handle)
            elif handle.running and not handle.paused:
                with suppress(errors.KwireError), kwire_errors():
                    for each in (await handle.ask("GET", _PATH))["faults"]:
                        if each["node"] == node_id:
                            known = self._hits.get(each["id"], 0)
                            self._hits[each["id"]] = max(known, each["hits"])

    def _infer(self, handle: NodeHandle) -> None:
        """A broker that has halted does not tell what has hit it; if there was only one fault, it was that."""
        fatal = [each for each in self.list(handle.node_id) if each.given["act"] != SLOW]
        if len(fatal) == 1:
            self._hits[fatal[0].id] = max(self._hits.get(fatal[0].id, 0), 1)

    def _note(self, handle: NodeHandle) -> None:
        """Its end is no failure if its disk may fail; one that has failed may end it later."""
        handle.has_halted = False
        handle.may_halt = any(each.given["act"] != SLOW for each in self.list(handle.node_id))

    def _handle(self, node_id: int) -> NodeHandle:
        return self._cluster.node(node_id)

    def _kind(self, node_id: int) -> str:
        return "broker" if node_id in self._cluster.inside.handles else "controller"

    def _log(self, kind: Any, node_id: int, **fields: object) -> None:
        role = self._kind(node_id)
        self._cluster.inside.events.log(kind, role=role, node_id=node_id, **fields)
