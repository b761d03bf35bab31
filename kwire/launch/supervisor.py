"""Starts, stops, kills and restarts the nodes of a cluster, on one event loop or in a process each.

Compare KafkaClusterTestKit in Kafka's tests. The controller is node 1000 (or the first free id above
the brokers) and always a separate node; brokers have the ids of the spec. Standby controllers have
the next ids and share its directory. Nodes talk over TCP only, whatever the isolation.

Invariants: a node keeps its ports and its directory across restarts; a process that dies
unexpectedly is logged in one line and the other nodes keep running; nothing outlives `stop`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from functools import cached_property, partial

from kwire.launch.handles import START_SECONDS, Handle, ProcessHandle, ThreadHandle
from kwire.launch.spec import BROKER, PROCESS, may_ask_for_security
from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.server.errors import NodeError, SettingsError
from kwire.server.events import NodeEvent
from kwire.server.listeners import logins_of, parse_listeners
from kwire.server.log_dirs import split_dirs
from kwire.server.logs import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kwire.launch.shape import ClusterLock
    from kwire.launch.spec import ClusterSpec, NodeSpec
    from kwire.replication.core.events import EventType
    from kwire.security.client import Access

_log = logging.getLogger(__name__)

_STATUS_SECONDS = 2.0
_MEMBERSHIP_CHECK_SECONDS = 0.005
_TURNS_TO_CLOSE = 10
_METADATA_VERSION = 4  # every release of --as-version serves it
_CREATE_TOPICS_SECONDS = 30.0


class Supervisor:
    """All nodes of one cluster. `await start()`, … `await stop()`."""

    def __init__(self, spec: ClusterSpec) -> None:
        node = spec.node
        if node.cluster_id is None:
            node = node.replace(cluster_id=_stored_cluster_id(node.data_dir))
        self.spec = spec = spec.replace(node=node)
        self.isolation = spec.isolation
        self.data_dir = node.data_dir
        self._stopping = False
        self._after: set[asyncio.Task[None]] = set()
        self.log_event: Callable[..., None] = partial(event, _log)
        """Logs an event of the cluster that nobody asked for."""
        self.on_none_left: Callable[[], None] | None = None
        """Called when the last running node has died unexpectedly."""
        self.control_url: str | None = None
        """The address of the cluster's control API, if it has one; read by `start`."""
        self._lock: ClusterLock | None = None
        self._idle: list[int] = []  # ids with data here that the spec does not start
        self.deaths: list[tuple[str, str, int]] = []  # unexpected: node, how, return code
        self.controller_id = spec.controller_id
        self.controllers = {each.node_id: self._handle(each) for each in spec.controller_specs()}
        self.controller = self.controllers[self.controller_id]
        self.brokers = {each.node_id: self._handle(each) for each in spec.broker_specs()}

    def _handle(self, spec: NodeSpec) -> Handle:
        if self.isolation == PROCESS:
            return ProcessHandle(spec, self._on_death)
        return ThreadHandle(spec, self._on_death)

    def _on_death(self, node_id: int, status: int, why: str | None = None) -> None:
        if not self._stopping:
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
            how = why or how
            what = self._name(node_id)
            handle = self.controllers.get(node_id) or self.brokers[node_id]
            handle.has_halted = handle.may_halt
            if not handle.may_halt:
                self.deaths.append((what, how, status))
            others = "the others go on" if self.any_runs else "no other is left"
            self.log_event(
                NodeEvent.NODE_DIED, node=what, detail=how, others=others, node_id=node_id
            )
            if not self.any_runs and self.on_none_left is not None:
                self.on_none_left()

    @cached_property
    def access(self) -> Access | None:
        """What kwire itself needs to come in at the brokers; None: nothing. SettingsError."""
        values = next(iter(self.brokers.values())).spec.configuration()
        if not may_ask_for_security(values):
            return None
        try:
            config = BrokerConfig(values, brokers=self.spec.brokers)
            logins = logins_of(config, parse_listeners(config), BROKER)
        except ConfigError as error:
            raise SettingsError(str(error)) from None
        return None if logins is None else logins.own

    def name_of(self, node_id: int) -> str:
        """The node as it is called in logs: "broker 1", "controller 1000"."""
        return (self.controllers.get(node_id) or self.brokers[node_id]).spec.name

    def _log_state(self, kind: EventType, node_id: int) -> None:
        event(_log, kind, None, self.name_of(node_id), node_id=node_id)

    def _name(self, node_id: int) -> str:
        if node_id not in self.controllers:
            return f"broker {node_id}"
        return "the controller" if len(self.controllers) == 1 else f"controller {node_id}"

    @property
    def any_runs(self) -> bool:
        """Whether any node runs."""
        return any(
            handle.running for handle in (*self.controllers.values(), *self.brokers.values())
        )

    @property
    def bootstrap_servers(self) -> str:
        """The advertised addresses of all brokers, comma-separated."""
        return ",".join(handle.advertised for handle in self.brokers.values())

    # --- the whole cluster

    async def start(self) -> None:
        """Start all nodes; return when every broker's metadata lists all brokers.

        NodeError, SettingsError: nothing runs."""
        self._stopping = False
        try:
            self._lock_directory()
            for handle in self.controllers.values():  # one by one: the first becomes active
                await self._start_node(handle)
            active = await self.active_controller() if self._idle else None
            if active is not None:  # so that they leave ISRs while the others register
                await active.ask("POST", "/v1/brokers/fence", {"brokers": self._idle})
            voters = tuple((node_id, *each.address) for node_id, each in self.controllers.items())
            for handle in self.brokers.values():
                handle.spec = handle.spec.replace(controllers=voters, control_url=self.control_url)
            starts = [self._start_node(handle) for handle in self.brokers.values()]
            results = await asyncio.gather(*starts, return_exceptions=True)
            for failure in results:
                if isinstance(failure, BaseException):
                    raise failure
            await self.wait_for_members()
        except BaseException:
            await self.kill()
            raise

    def _lock_directory(self) -> None:
        """Lock the data directory. NodeError when it is in use or not this cluster's.

        A temporary directory is locked by its TemporaryDirectory."""
        if self.spec.node.temporary:
            return
        from kwire.launch import shape

        dirs = split_dirs(self.data_dir)
        shape.check_cluster(dirs)
        self._lock = shape.ClusterLock(dirs)
        _finish_restore(self.data_dir)
        found = {broker for path in dirs for broker in shape.brokers_in(path)}
        self._idle = idle = sorted(found - self.brokers.keys())
        if idle:
            event(_log, NodeEvent.UNUSED_DATA_FOUND, brokers=idle, data_dir=self.data_dir)

    def _release_directory(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def _start_node(self, handle: Handle) -> None:
        try:
            await handle.start()
        except NodeError as error:
            raise NodeError(f"{self._name(handle.node_id)}: {error}") from None

    async def stop(self, *, last: bool = False) -> None:
        """Stop all nodes cleanly, controllers first, so that no leadership moves.

        `last`: they are not started again; a temporary directory is left as it is, to be deleted."""
        self._stopping = True
        await self._end_after()
        failures: list[BaseException] = []
        # An asyncio server that is closed while it accepts forgets the socket.
        await _settle_connections()
        for handles in (self.controllers, self.brokers):
            stops = [handle.stop(controlled=False, last=last) for handle in handles.values()]
            results = await asyncio.gather(*stops, return_exceptions=True)
            failures += [failure for failure in results if isinstance(failure, BaseException)]
            await _settle_connections()
        self._release_directory()
        if failures:
            raise failures[0]

    async def kill(self) -> None:
        """Kill all nodes."""
        await self._kill_nodes()
        await self._end_after()

    async def _kill_nodes(self) -> None:
        self._stopping = True
        for handle in (*self.brokers.values(), *self.controllers.values()):
            await handle.kill()
        self._release_directory()
        await _settle_connections()

    async def restart(self, between: Callable[[], None], after: Callable[[], None]) -> None:
        """Kill all nodes, run a function on a thread, start them again where they were. What the function raises is
        raised after the start; NodeError, SettingsError: nothing runs. `after` runs on a thread while they serve."""
        from kwire.launch.aside import Aside

        await self._kill_nodes()
        try:
            await Aside().run(between)
        finally:
            self._take_cluster_id()
            await self.start()
            task = asyncio.get_running_loop().create_task(Aside().run(after))
            self._after.add(task)
            task.add_done_callback(self._after.discard)

    async def _end_after(self) -> None:
        """Wait until what runs after a restart has ended."""
        if self._after:
            await asyncio.wait(self._after)

    def _take_cluster_id(self) -> None:
        """Give all nodes the cluster id in the data directory, which may be another's now."""
        cluster_id = _stored_cluster_id(self.data_dir)
        self.spec = self.spec.replace(node=self.spec.node.replace(cluster_id=cluster_id))
        for handle in (*self.controllers.values(), *self.brokers.values()):
            handle.spec = handle.spec.replace(cluster_id=cluster_id)

    async def log_status(self) -> None:
        """Log the status of every node (`control/status.py`)."""
        from kwire.control.status import log_snapshot

        for handle in (*self.controllers.values(), *self.brokers.values()):
            if not handle.running:
                self._log_state(NodeEvent.NODE_NOT_RUNNING, handle.node_id)
                continue
            try:
                # Shielded: a late answer must not be read as the answer to the next request.
                asking = asyncio.shield(handle.ask("GET", "/v1/status"))
                for node in (await asyncio.wait_for(asking, _STATUS_SECONDS))["nodes"]:
                    log_snapshot(handle.node_id, node["status"], self.name_of(handle.node_id))
            except (TimeoutError, NodeError):
                self._log_state(NodeEvent.NODE_NOT_ANSWERING, handle.node_id)

    async def active_controller(self) -> Handle | None:
        """The active controller; of two that claim to be, the one with the higher epoch. None: none
        is active."""
        found: tuple[int, Handle] | None = None
        for handle in self.controllers.values():
            if not handle.running or handle.paused:
                continue
            with suppress(NodeError):
                (state,) = (await handle.ask("GET", "/v1/cluster"))["controllers"]
                if state["active"] and (found is None or state["epoch"] > found[0]):
                    found = state["epoch"], handle
        return found[1] if found is not None else None

    async def wait_for_members(self, seconds: float = START_SECONDS) -> None:
        """Return when every running broker's metadata lists exactly the running brokers."""
        wanted = {node_id for node_id, handle in self.brokers.items() if handle.running}
        deadline = asyncio.get_running_loop().time() + seconds
        for node_id in wanted:
            while await self._members_seen_by(self.brokers[node_id]) != wanted:
                if asyncio.get_running_loop().time() > deadline:
                    raise NodeError(f"broker {node_id} does not see the others")
                await asyncio.sleep(_MEMBERSHIP_CHECK_SECONDS)

    async def _members_seen_by(self, handle: Handle) -> set[int]:
        if isinstance(handle, ThreadHandle):
            if handle.runner is None:
                return set()
            brokers = handle.runner.core.services.metadata.brokers  # type: ignore[union-attr]  # a broker
            return {broker_id for broker_id, each in brokers.items() if each.endpoints}
        from kwire.client.connection import NoResponseError
        from kwire.client.streams import ask
        from kwire.protocol.schemas.metadata import MetadataRequest

        request = MetadataRequest(topics=[])
        try:
            response = await ask(
                handle.address, request, version=_METADATA_VERSION, access=self.access
            )
        except NoResponseError:
            return set()
        return {broker.node_id for broker in response.brokers}

    async def create_topics(
        self,
        topics: Iterable[tuple[str, int, int]],
        configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Create topics (name, partitions, replication; -1: default) unless they exist.

        `configs`: by topic. SettingsError for a refused topic."""
        from kwire.client.connection import NoResponseError
        from kwire.client.streams import ask
        from kwire.launch.initial_topics import check_created, create_request

        request = create_request(topics, configs or {})
        handle = next(iter(self.brokers.values()))
        try:
            seconds = _CREATE_TOPICS_SECONDS
            response = await ask(handle.address, request, seconds=seconds, access=self.access)
        except NoResponseError as error:
            raise NodeError(f"--topic: broker {handle.node_id}: {error}") from None
        check_created(response)


async def _settle_connections() -> None:
    """Give asyncio the turns that it needs to cancel connection attempts and close transports."""
    for _ in range(_TURNS_TO_CLOSE):
        await asyncio.sleep(0)


def _finish_restore(data_dir: str) -> None:
    """Finish the restore of a snapshot in which a process was killed. NodeError."""
    from kwire.snapshots import restoring

    if restoring.is_open(data_dir):
        try:
            restoring.finish(data_dir)
        except OSError as error:
            raise NodeError(
                f"data directory {data_dir}: a restore cannot be finished: {error}"
            ) from None


def _stored_cluster_id(data_dir: str) -> str:
    """The cluster id stored in the directory, or a new one for a new directory."""
    from kwire.replication.log.checkpoints import encode_uuid

    path = os.path.join(split_dirs(data_dir)[0], "controller", "meta.properties")
    with suppress(OSError), open(path) as file:
        for line in file:
            key, _, value = line.strip().partition("=")
            if key == "cluster.id" and value:
                return value
    cluster_id = "-"
    while cluster_id.startswith("-"):
        cluster_id = encode_uuid(os.urandom(16)).decode()
    return cluster_id
