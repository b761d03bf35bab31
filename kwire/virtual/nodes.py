"""kwire's own nodes in a world: the same runner, core and connections as on sockets, at other seams.

Each node is a host of its own ("broker-1", "controller-1000"): it listens, connects and sets its timers there, its
disks are in memory, its chance comes from the seed.
"""

from __future__ import annotations

from random import Random

from kwire.backends.launched import Launched
from kwire.backends.options import NodeLauncher
from kwire.launch.handles import ThreadHandle
from kwire.launch.node_runner import NodeRunner
from kwire.launch.supervisor import Supervisor
from kwire.virtual.disks import VirtualLogDirs
from kwire.virtual.hosts import HostLoop, context_of
from kwire.virtual.refusals import MemoryPort

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import Any

    from kwire.broker import Broker
    from kwire.controller_node import ControllerNode
    from kwire.launch.spec import ClusterSpec, NodeSpec
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.server.listeners import Listener
    from kwire.server.node import Node
    from kwire.virtual.world import World


class VirtualNodeRunner(NodeRunner):
    """One run of a node of a world."""

    def __init__(self, spec: NodeSpec, world: World, host: str) -> None:
        self._world, self.host = world, host
        self._virtual_loop = HostLoop(world.loop, host)
        super().__init__(spec)
        self._aside = None  # no thread
        self.open_dirs = self._open_log_dirs  # type: ignore[assignment]
        self.open_controllers = self._open_controllers

    def _make_node(self) -> None:
        super()._make_node()
        self.node.bind_listener = self._bind_in_memory  # type: ignore[assignment]
        self.node.find_loop = lambda: self._virtual_loop  # type: ignore[assignment,return-value]

    def _bind_in_memory(self, listener: Listener, config: BrokerConfig) -> MemoryPort:
        network = self._world.links
        port = listener.port or network.reserve()
        network.nodes[port] = self.host
        return MemoryPort(port)

    def _open_log_dirs(self, dirs: str, **_: Any) -> VirtualLogDirs:
        return VirtualLogDirs(self._world.disks, dirs)

    def _open_controllers(self, node: Node, path: str, **_: Any) -> Any:
        return self._world.disks.at(path)

    async def start(self, *, wait_seconds: float | None = None) -> None:
        loop = self._world.loop
        await loop.create_task(
            super().start(wait_seconds=wait_seconds), context=context_of(self.host)
        )

    def _load(self, cluster_id: str | None) -> Broker | ControllerNode:
        random = Random(self._world.draw_seed(self.host))
        if self.is_controller:
            return self._load_controller(cluster_id, random)
        return self._load_broker(cluster_id, random)


class VirtualLauncher(NodeLauncher):
    """Makes the nodes of a cluster of a world."""

    def __init__(
        self, world: World, spec: ClusterSpec, data_dir: str | os.PathLike[str] | None, name: str
    ) -> None:
        super().__init__(spec, data_dir)
        self._world, self._name = world, name

    def prepare(self) -> Supervisor:
        node = self.spec.node.replace(data_dir=f"/{self._name or 'kwire'}", temporary=True)
        supervisor = Supervisor(self.spec.replace(node=node, overrides=self._listeners()))
        prefix = f"{self._name}-" if self._name else ""
        for role, handles in (
            ("controller", supervisor.controllers),
            ("broker", supervisor.brokers),
        ):
            for node_id, handle in handles.items():
                host = f"{prefix}{role}-{node_id}"
                self._world.know(host, is_node=True)
                assert isinstance(handle, ThreadHandle)
                handle.make_runner = lambda spec, host=host: VirtualNodeRunner(  # type: ignore[misc]
                    spec, self._world, host
                )
        return supervisor

    def _listeners(self) -> dict[int, Any]:
        overrides = dict(self.spec.overrides)
        if self._chooses_ports:
            first, count = self.spec.node.node_id, self.spec.brokers
            for broker_id in range(first, first + count):
                port = self._world.links.reserve()
                listeners = {"listeners": self._template.format(port=port)}
                overrides[broker_id] = {**listeners, **overrides.get(broker_id, {})}
        return overrides


def backend(world: World, spec: ClusterSpec, name: str) -> Launched:
    """The nodes of a cluster in a world."""
    return Launched(VirtualLauncher(world, spec, None, name), spec)
