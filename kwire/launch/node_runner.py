"""Runs one node, from its spec to a listening socket: a broker, a controller or a standalone broker.

`kwire up` with one broker and `kwire node` run one in their process, the supervisor several on one event loop."""

from __future__ import annotations

import asyncio
import logging
import os
from enum import Enum

from kwire.launch.spec import BROKER, CONTROLLER, STANDALONE, may_ask_for_security
from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.server.errors import NodeError, SettingsError
from kwire.server.events import NodeEvent
from kwire.server.listeners import (
    endpoints,
    format_address,
    inter_broker_listener,
    logins_of,
    own_address,
)
from kwire.server.log_dirs import LogDirs, disk_space, load_error, open_controllers, split_dirs
from kwire.server.logs import event
from kwire.server.node import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kwire.broker import Broker
    from kwire.control.node_api import NodeControl
    from kwire.controller_node import ControllerNode
    from kwire.launch.aside import Aside
    from kwire.launch.joining import Joining
    from kwire.launch.spec import NodeSpec
    from kwire.replication.config.release import Release
    from kwire.server.file_log_store import FileLogStore
    from kwire.server.link_rules import LinkRule

_log = logging.getLogger(__name__)

_BIND_TRIES = 20
_BIND_PAUSE_SECONDS = 0.02


class Stage(Enum):
    """The stages of one run of a node, in order."""

    BINDING = "binding"
    LOADING = "loading"
    JOINING = "joining"
    """Loaded and serving; the controller has not registered the broker yet."""
    RUNNING = "running"
    ENDED = "ended"


BINDING, LOADING, JOINING, RUNNING, ENDED = Stage
VALID_PREVIOUS_STAGES: dict[Stage, tuple[Stage, ...]] = {
    BINDING: (),
    LOADING: (BINDING,),
    JOINING: (LOADING,),
    RUNNING: (JOINING,),
    ENDED: (BINDING, LOADING, JOINING, RUNNING, ENDED),  # itself: killed while it stops
}


class NodeRunner:
    """One run of a node: it serves between `await start()` and `await stop()` or `kill()`. A restart needs another."""

    open_dirs, open_controllers = LogDirs, staticmethod(open_controllers)

    def __init__(self, spec: NodeSpec) -> None:
        """SettingsError when the configuration is refused."""
        self.spec, self.stage = spec, BINDING
        try:
            if may_ask_for_security(spec.values):
                from kwire.launch.configuration import check_security

                check_security(spec.values)
            self._api_caps, release = _imitated(spec)
            values = spec.configuration()
            self.config = BrokerConfig(values, brokers=spec.brokers, release=release)
            self._make_node()
        except ConfigError as error:
            raise SettingsError(str(error)) from None
        # Called with the loaded core before the node serves.
        self.on_loaded: Callable[[Broker | ControllerNode], None] | None = None
        self.on_halted: Callable[[str], None] | None = None
        """Called with the reason after the broker has halted itself and released everything."""
        self.latest: NodeRunner = self  # of a standalone broker that was restarted by a restore
        self._loop: asyncio.AbstractEventLoop
        self._aside: Aside | None = None
        if spec.role == BROKER:
            from kwire.launch.aside import Aside

            self._aside = Aside()
        self._core: Broker | ControllerNode | None = None
        self._dirs: LogDirs | FileLogStore | None = None
        self._joining = _joining(spec)
        self._halt_reason: str | None = None
        self._control: NodeControl | None = None

    def _make_node(self) -> None:
        self.node = self.spec.with_clock(Node(self.config, self.spec.name))
        self.logins = logins_of(self.config, self.node.listeners, self.spec.role)

    def _move(self, stage: Stage) -> None:
        assert self.stage in VALID_PREVIOUS_STAGES[stage], f"{self.stage.value} -> {stage.value}"
        self.stage = stage

    @property
    def node_id(self) -> int:
        return self.spec.node_id

    @property
    def is_controller(self) -> bool:
        """Whether the node is a controller only."""
        return self.spec.role == CONTROLLER

    @property
    def is_loaded(self) -> bool:
        """Whether the node has a core and can answer requests of the control API."""
        return self.stage in (JOINING, RUNNING)

    @property
    def core(self) -> Broker | ControllerNode:
        """The broker or controller. NodeError before it is loaded."""
        if self._core is None:
            raise NodeError(f"node {self.node_id} is {self.stage.value}")
        return self._core

    @property
    def listeners(self) -> str:
        """The listeners as in the configuration, with the bound ports."""
        return ",".join(
            f"{each.name}://{format_address(each.host, each.port)}" for each in self.node.listeners
        )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port for kwire itself to reach the node, from this machine."""
        return own_address(self.config, self.node.listeners)

    @property
    def advertised(self) -> str:
        """The advertised address (HOST:PORT)."""
        return self.node.bootstrap_servers

    # --- start

    async def start(self, *, wait_seconds: float | None = None) -> None:
        """Bind, load and serve; for a broker of a cluster, return when the controller has registered it.

        `wait_seconds`: the limit for the registration. NodeError, SettingsError: nothing is left running."""
        joining, spec = self._joining, self.spec
        try:
            self._check_directories()
            if joining is not None:
                joining.log_waiting()
            await self._bind()
            cluster_id = spec.cluster_id
            if cluster_id is None and joining is not None:
                at = None if self.logins is None else self.logins.at_controllers
                cluster_id = await joining.fetch_cluster_id(at)
            self._move(LOADING)
            try:
                self._core = await self._load_aside(cluster_id)
            except Exception as error:
                raise self._load_error(error) from None
            finally:
                self.node.write_events()
            await self._open_and_log()
            self._check_halted()
            self._move(JOINING)
            if spec.network:
                self.set_link_rules(list(spec.network))
            if self.on_loaded is not None:
                self.on_loaded(self._core)
            await self.node.serve(self._core)
            if joining is not None:
                await joining.wait(wait_seconds)
            self._check_halted()
            self._move(RUNNING)
        except BaseException:
            self.kill()
            raise
        finally:
            if joining is not None:
                joining.end()

    def _check_halted(self) -> None:
        """NodeError when the broker has halted itself during the start."""
        if self._halt_reason is not None:
            raise NodeError(self._halt_reason)

    def _check_directories(self) -> None:
        """NodeError when the data directory belongs to a different kind of node."""
        spec = self.spec
        if spec.role == STANDALONE and spec.temporary:
            return  # nothing is there yet
        from kwire.launch.shape import check_node, check_standalone

        if spec.role == STANDALONE:
            check_standalone(split_dirs(spec.data_dir))
        else:
            check_node(split_dirs(spec.data_dir), is_controller=self.is_controller)

    async def _bind(self) -> None:
        """Bind; on a restart retry, for the port of the last run may take a moment to become free."""
        for tries_left in reversed(range(_BIND_TRIES if self.spec.again else 1)):
            try:
                self.node.bind()
                self.node.connection_log.control_url = self.spec.control_url
                self._loop = asyncio.get_running_loop()
                if self._aside is not None:
                    self.node.run_aside = self._aside.run
                return
            except NodeError:
                self.node.close_sockets()
                if not tries_left:
                    raise
                self._make_node()
            await asyncio.sleep(_BIND_PAUSE_SECONDS)

    async def _load_aside(self, cluster_id: str | None) -> Broker | ControllerNode:
        if self._aside is None or self.spec.temporary:  # of which there is little to load
            return self._load(cluster_id)
        return await self._aside.run(lambda: self._load(cluster_id))

    def _load(self, cluster_id: str | None) -> Broker | ControllerNode:
        """Construct and start the core: its data is loaded, requests to other nodes are in the outbox."""
        from random import Random

        random = Random(int.from_bytes(os.urandom(8), "big"))
        load = self._load_controller if self.is_controller else self._load_broker
        return load(cluster_id, random)

    def _load_controller(self, cluster_id: str | None, random: Random) -> ControllerNode:
        from kwire.controller_node import ControllerNode

        spec, node = self.spec, self.node
        self._dirs = store = self.open_controllers(
            node, split_dirs(spec.data_dir)[0], fsync=not spec.temporary, shared=spec.standby
        )
        core = ControllerNode(
            self.config,
            store,
            node.clock,
            node.outbox,
            random,
            cluster_id=cluster_id,
            shared=spec.standby,
            alone=store.is_alone,
        )
        core.start(endpoints(node.listeners))
        return core

    def _load_broker(self, cluster_id: str | None, random: Random) -> Broker:
        from kwire.broker import Broker

        spec, node = self.spec, self.node
        cluster = None
        if self._joining is not None:
            listener = inter_broker_listener(self.config, node.listeners).name
            cluster = self._joining.cluster_settings(listener)
        self._dirs = dirs = self.open_dirs(spec.data_dir, fsync=not spec.temporary).deliver_to(node)
        core = Broker(
            self.config,
            dirs.opened,
            node.clock,
            node.outbox,
            random,
            disk_space=disk_space,
            api_caps=self._api_caps,
            cluster_id=cluster_id,
            cluster=cluster,
            on_halt=self._halt,
        )
        core.work.elsewhere = dirs.run_elsewhere
        if core.member is not None and self._joining is not None:
            self._joining.link = core.member.link
        if spec.recent_requests:
            from kwire.recent import RecentRequests

            core.sessions.recent = RecentRequests(node.clock, core.services.metadata)
        core.start(endpoints(node.listeners))
        return core

    async def _open_and_log(self) -> None:
        """Let clients log in. Log what a standalone broker has loaded; brokers of a cluster log that they join."""
        if self.logins is not None:
            await self.logins.open(self.node, self.core, self.spec.controllers)
        if self.spec.role == STANDALONE:
            services = self.core.services
            event(
                _log,
                NodeEvent.LOG_DIRS_LOADED,
                None,
                self.spec.name,
                log_dir=self.spec.data_dir,
                cluster_id=services.cluster_id,
                node_id=self.node_id,
                logs=len(list(services.log_manager.logs())),  # type: ignore[union-attr]  # a broker's
            )

    def _load_error(self, error: Exception) -> Exception:
        from kwire.protocol.errors import KafkaError
        from kwire.replication.controller.state import JournalError

        if not isinstance(error, OSError | JournalError | KafkaError):
            return error
        return load_error(self.spec.data_dir, error)

    def _halt(self, why: str) -> None:
        """Halt the broker after the current step, in which it found its log directories failed."""
        node_id = self.config.node_id
        event(_log, NodeEvent.BROKER_HALTED, None, self.spec.name, detail=why, node_id=node_id)
        self._halt_reason = why
        if self._joining is not None:
            self._joining.refuse(why)
        self._loop.call_soon_threadsafe(self._finish_halt, why)  # it may be loading, on a thread

    def _finish_halt(self, why: str) -> None:
        if self.stage is not ENDED:
            self.kill()
            if self.on_halted is not None:
                self.on_halted(why)

    @property
    def control(self) -> NodeControl:
        """The node as the control API sees it."""
        if self._control is None:
            from kwire.control.node_api import NodeControl

            rules = list(self.spec.network)
            self._control = NodeControl(lambda: [self] if self.is_loaded else [], rules)
        return self._control

    def log_status(self) -> None:
        """Log the node's status (SIGUSR1)."""
        from kwire.control.status import log_snapshot, snapshot_of_broker, snapshot_of_controller

        if not self.is_loaded:
            event(_log, NodeEvent.NODE_STARTING, None, self.spec.name, node_id=self.config.node_id)
            return
        snapshot = snapshot_of_controller if self.is_controller else snapshot_of_broker
        log_snapshot(self.config.node_id, snapshot(self.core), self.spec.name)

    def set_link_rules(self, rules: list[LinkRule]) -> None:
        """Replace all link rules of this node, the sender; for tests."""
        self.node.peer_connections().set_rules(rules)

    # --- stop

    async def stop(self, *, controlled: bool = True, last: bool = False) -> None:
        """Stop cleanly; with `controlled` leaderships move away first (controlled shutdown).

        `last`: the node is not started again, so a temporary directory is left as it is, to be
        deleted. NodeError when logs cannot be closed."""
        if self.stage is ENDED:
            return
        try:
            discard = last and self.spec.temporary
            await self.node.stop(controlled=controlled, discard=discard)
        finally:
            self._release()

    def kill(self) -> None:
        """End the node as `kill -9` would: nothing is flushed, clients get no response."""
        if self.stage is not ENDED:
            if self._aside is not None:
                self._aside.wait()
            self.node.kill()
            self._release()

    def _release(self) -> None:
        self._move(ENDED)
        self.node.close_sockets()
        if self._dirs is not None:
            self._dirs.close()


def _joining(spec: NodeSpec) -> Joining | None:
    """The join of a broker of a cluster; None for other nodes."""
    if spec.role != BROKER:
        return None
    from kwire.launch.joining import Joining

    return Joining(spec)


def _imitated(spec: NodeSpec) -> tuple[dict[int, tuple[int, int]] | None, Release | None]:
    """API versions and configuration keys of the release to imitate. SettingsError."""
    if spec.as_version is None:
        return None, None
    from kwire.launch.configuration import imitated

    return imitated(spec.as_version)
