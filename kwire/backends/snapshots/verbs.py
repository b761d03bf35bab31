"""The part of `kwire.aio.Cluster` that saves snapshots and goes back to them.

What is in one and how it is taken: `taking.py`; on the disk: `kwire.snapshots`. All of that is imported at first use.
"""

from __future__ import annotations

import asyncio
import os

from kwire import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

    from kwire.backends.base import StartedBackend
    from kwire.backends.snapshots.taking import Saveable
    from kwire.snapshots.saved import Snapshot

    Named = Snapshot | str | os.PathLike[str]


class Snapshots:
    """Snapshots of a cluster that was started here."""

    _copying: asyncio.Lock | None = None
    """Held while a snapshot is taken, put back or deleted."""

    if TYPE_CHECKING:

        def _require_inside(self, what: str) -> StartedBackend: ...

    @classmethod
    def from_snapshot(
        cls,
        snapshot: Snapshot | str | os.PathLike[str],
        config: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Self:
        """A cluster that starts with what a snapshot holds (its path, or itself), with as many brokers and controllers.

        `config` and `options` as of `Cluster`: what was given there is not in a snapshot. ClusterStateError."""
        from kwire.backends.snapshots import forking

        found = forking.of_new_cluster(snapshot)
        cluster = cls(found.brokers, config, controllers=found.controllers, **options)  # type: ignore[call-arg]
        forking.start_with(cluster, found)  # type: ignore[arg-type]  # a Cluster
        return cluster

    async def snapshot(
        self, name: str | None = None, *, to: str | os.PathLike[str] | None = None
    ) -> Snapshot:
        """Save all that the cluster holds: topics, records, groups, transactions, producers, ACLs, users, quotas,
        dynamic configurations, epochs. No connection is closed; clients wait some milliseconds. An earlier one of that
        name is replaced.

        `name`: default: snapshot-1, …. It is kept in the data directory, and ends with a temporary one. `to`: a
        directory for it instead, that outlives the cluster. StartError: it could not be written."""
        from kwire.backends.snapshots import taking
        from kwire.snapshots import saved

        launched = self._snapshots_of()
        if to is not None and name is not None:
            raise errors.ConfigurationError("snapshot: give a name, or a directory with to=")
        async with self._lock():
            if to is not None:
                path = os.path.abspath(to)
            else:
                folder = self._folder(launched)
                if name is None:
                    taken = {each.name for each in saved.listed(folder)}
                    count = len(taken)
                    name = next(
                        f"snapshot-{n}" for n in range(1, count + 2) if f"snapshot-{n}" not in taken
                    )
                path = os.path.join(folder, saved.checked_name(name))
            return await taking.take(launched, path)

    async def restore(self, snapshot: Named) -> None:
        """Go back to a snapshot: all nodes are killed and start again, at their addresses, with its data; no cuts,
        delays or faults. Connections are closed: clients see brokers that were killed, then what was there at the
        snapshot.

        `snapshot`: itself, its name, or the path of a directory. ClusterStateError: unknown, or of another
        number of brokers."""
        from kwire.backends.snapshots import taking

        launched = self._snapshots_of()
        async with self._lock():
            found = self._find(launched, snapshot)
            await taking.put_back(self, launched, found)  # type: ignore[arg-type]  # a Cluster

    async def snapshots(self) -> list[Snapshot]:
        """The snapshots in the data directory, by name."""
        from kwire.snapshots import saved

        return saved.listed(self._folder(self._snapshots_of()))

    async def delete_snapshot(self, snapshot: Named) -> None:
        """Delete a snapshot. ClusterStateError: no such snapshot."""
        from kwire.snapshots import saved

        launched = self._snapshots_of()
        async with self._lock():
            saved.remove(self._find(launched, snapshot).path)

    async def fork(self, snapshot: Named | None = None) -> Self:
        """Start a second cluster, at other addresses, with what this one holds now, or with a snapshot of it.

        It has the same options, a temporary data directory, and its own life: stop it, or use it as a context."""
        from kwire.backends.snapshots import forking, taking
        from kwire.snapshots import saved

        launched = self._snapshots_of()
        launcher = forking.launcher_of(launched)
        async with self._lock():
            if snapshot is None:
                path = os.path.join(self._folder(launched), f"fork-{os.urandom(4).hex()}")
                found = await taking.take(launched, path)
            else:
                found = self._find(launched, snapshot)
            launcher.snapshot = found
            forked = type(self)()
            forked._use(forking.backend_of(launcher))  # type: ignore[attr-defined]  # a Cluster
            try:
                await forked.start()  # type: ignore[attr-defined]
            finally:
                if snapshot is None:
                    saved.remove(found.path)
            return forked

    def _snapshots_of(self) -> Saveable:
        from kwire.backends.snapshots import taking

        return taking.launched(self._require_inside("snapshots"))

    @staticmethod
    def _folder(launched: Saveable) -> str:
        from kwire.server.log_dirs import split_dirs
        from kwire.snapshots.tree import FOLDER

        return os.path.join(split_dirs(launched.data_dir)[0], FOLDER)

    def _find(self, launched: Saveable, snapshot: Named) -> Snapshot:
        from kwire.snapshots import saved

        if isinstance(snapshot, saved.Snapshot):
            return saved.read(snapshot.path)
        if isinstance(snapshot, os.PathLike) or (isinstance(snapshot, str) and os.sep in snapshot):
            return saved.read(os.fspath(snapshot))
        return saved.named(self._folder(launched), snapshot)

    def _lock(self) -> asyncio.Lock:
        if self._copying is None:
            self._copying = asyncio.Lock()
        return self._copying
