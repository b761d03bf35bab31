"""`disk` of the nodes of `kwire.Cluster`: for code without a loop; `disks.py` does the work."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Self

    from kwire import aio
    from kwire.backends.faults import disks
    from kwire.cluster import Cluster


class DiskFault:
    """A fault of a disk that was set: until it is removed, or as a context until the end of the block."""

    def __init__(self, cluster: Cluster, inner: disks.DiskFault) -> None:
        self._cluster = cluster
        self._inner = inner

    @property
    def id(self) -> str:
        """Its name in the control API."""
        return self._inner.id

    @property
    def node_id(self) -> int:
        """The broker or controller whose disk it is of."""
        return self._inner.node_id

    @property
    def given(self) -> dict[str, Any]:
        """What was given, as kwire writes it."""
        return self._inner.given

    @property
    def hits(self) -> int:
        """How many operations it has hit, also after its end; at a node that has ended: as far as is known."""
        return self._cluster._run(self._inner.hits())

    def remove(self) -> None:
        """End it; nothing happens if it has ended. A directory that is offline stays so until its broker restarts."""
        self._cluster._run(self._inner.remove())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return repr(self._inner)


class Disk:
    """The disk of one broker or controller, with all its log directories: to be made fail, full or slow."""

    def __init__(self, cluster: Cluster, inner: disks.Disk) -> None:
        self._cluster = cluster
        self._inner = inner

    def fail(
        self,
        operation: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        directory: str | None = None,
        times: int | None = None,
        error: str | None = None,
    ) -> DiskFault:
        """Let an operation fail: "append", "read", "fsync", "write" (of a checkpoint or snapshot), "create", "truncate"
        or "delete"; with all files, or those of `topic` and `partition`, in all log directories or in `directory`
        (its path, or a name at its end); the first `times`. `error`: EIO, or ENOSPC, EROFS, EACCES, EDQUOT. As with
        Kafka the log directory goes offline, with the last one the broker halts. ConfigurationError."""
        return self._set(
            self._inner.fail(
                operation,
                topic=topic,
                partition=partition,
                directory=directory,
                times=times,
                error=error,
            )
        )

    def full(self, *, directory: str | None = None) -> DiskFault:
        """Let the disk be full (ENOSPC): nothing can be appended, written or created, what is there can be read."""
        return self._set(self._inner.full(directory=directory))

    def slow(
        self,
        milliseconds: float,
        operation: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        directory: str | None = None,
    ) -> DiskFault:
        """Let appends, reads and fsyncs take so much longer, or one `operation` of these. Requests that need the disk
        are late, of clients and of followers; others are not. Not of controllers. ConfigurationError."""
        return self._set(
            self._inner.slow(
                milliseconds, operation, topic=topic, partition=partition, directory=directory
            )
        )

    def heal(self) -> None:
        """End all faults of this disk. A directory that is offline stays so until the broker restarts, as in Kafka."""
        self._cluster._run(self._inner.heal())

    def faults(self) -> list[DiskFault]:
        """The faults of this disk that are set."""
        return [DiskFault(self._cluster, each) for each in self._inner.faults()]

    def __repr__(self) -> str:
        return repr(self._inner)

    def _set(self, injection: disks.DiskInjection) -> DiskFault:
        async def add() -> disks.DiskFault:
            return await injection

        return DiskFault(self._cluster, self._cluster._run(add()))


class HasDisk:
    """A broker or controller whose disk can be made fail."""

    _cluster: Cluster
    _inner: aio.Broker | aio.Controller

    @property
    def disk(self) -> Disk:
        """Its disk, to be made `fail`, `full` or `slow`, and to `heal`."""
        return Disk(self._cluster, self._inner.disk)
