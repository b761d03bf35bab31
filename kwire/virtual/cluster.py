"""The cluster of a world: `kwire.aio.Cluster` with all its verbs, in virtual time."""

from __future__ import annotations

from contextlib import suppress

from kwire import aio
from kwire.backends.options import config_texts
from kwire.errors import ConfigurationError, KwireError, NotSupportedError
from kwire.virtual.nodes import backend

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from types import TracebackType
    from typing import Any, NoReturn, Self

    from kwire.backends.base import StartedBackend
    from kwire.snapshots.saved import Snapshot
    from kwire.virtual.world import World

_REFUSED = {
    "isolation": "the brokers of a world run in its own loop",
    "data_dir": "the disks of a world are in memory",
    "tls": "there is no TLS in virtual time",
    "mtls": "there is no TLS in virtual time",
}
_CHEAP = {"replica.fetch.wait.max.ms": "5000"}
"""A follower's idle fetch costs real time; one with a record in it is answered at once all the same."""
_SNAPSHOTS = (
    "snapshots: a snapshot is a directory of files, and the disks of a world are in memory; a world starts in"
    " milliseconds: fill the new one by the same calls"
)


class VirtualCluster(aio.Cluster):
    """A cluster of a world. Each broker and controller is a host: "broker-1", "controller-1000"."""

    def __init__(self, world: World, brokers: int, name: str, options: dict[str, Any]) -> None:
        for option, why in _REFUSED.items():
            if options.get(option, False) not in (None, False, "thread"):
                raise ConfigurationError(f"{option}: {why}")
        self._world, self._name = world, name
        config = {**_CHEAP, **config_texts(options.pop("config", None))}
        super().__init__(brokers, config, **options)

    def _use(self, given: StartedBackend) -> None:
        super()._use(backend(self._world, given.spec, self._name))

    @property
    def hosts(self) -> list[str]:
        """The hosts of its controllers and brokers."""
        prefix = f"{self._name}-" if self._name else ""
        controllers = [f"{prefix}controller-{each}" for each in self.inside.controllers]
        return controllers + [f"{prefix}broker-{each}" for each in self.inside.handles]

    def host_of(self, broker_id: int) -> str:
        """The host of a broker. ClusterStateError: there is no such broker."""
        return (
            f"{self._name}-broker-{broker_id}"
            if self._name
            else f"broker-{self.broker(broker_id).id}"
        )

    async def start(self) -> None:
        """As of kwire.aio.Cluster; the weather begins with the first cluster of a world."""
        if not self.started:
            await super().start()
            self._world.began(self)

    async def stop(self) -> None:
        """As of kwire.aio.Cluster."""
        if self.started:
            await self._world.ends(self)
            await super().stop()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.started:
            if error is not None:
                self._world.calm_now()
            with suppress(KwireError):
                await self._world.remember(self)
        await super().__aexit__(kind, error, trace)

    # --- what a world does not have

    def _no_snapshots(self) -> NoReturn:
        raise NotSupportedError(_SNAPSHOTS)

    async def snapshot(
        self, name: str | None = None, *, to: str | os.PathLike[str] | None = None
    ) -> Snapshot:
        """NotSupportedError."""
        self._no_snapshots()

    async def restore(self, snapshot: Any) -> None:
        """NotSupportedError."""
        self._no_snapshots()

    async def snapshots(self) -> list[Snapshot]:
        """NotSupportedError."""
        self._no_snapshots()

    async def fork(self, snapshot: Any = None) -> Self:
        """NotSupportedError."""
        self._no_snapshots()
