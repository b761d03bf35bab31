"""A cluster's nodes: started, stopped, killed and started again, on one event loop or in a process each.

Answers to no class of Kafka's; its tests have KafkaClusterTestKit. The controller is node 1000 (or the first free id
above the brokers), always a node of its own; brokers have the ids that were asked for. More controllers, that take
over from it, have the next ids and share its directory. Between nodes everything crosses TCP, whatever the isolation.

Invariants: a node keeps its ports and its directory from one run to the next; a process that ends unasked is told in
one line and takes nobody with it; nothing that was started outlives `stop`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress

from kwire.launch.handles import START_SECONDS, Handle, ProcessHandle, ThreadHandle
from kwire.launch.node_runner import BROKER, CONTROLLER, NodeSettings
from kwire.replication.config.table import BROKER_KEYS
from kwire.server.errors import NodeError
from kwire.server.log_dirs import below, split_dirs
from kwire.server.logs import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.launch.shape import ClusterLock

_log = logging.getLogger(__name__)

THREAD, PROCESS = "thread", "process"
CONTROLLER_ID = 1000
_STATUS_SECONDS = 2.0
_MEMBERSHIP_CHECK_SECONDS = 0.005
_TURNS_TO_CLOSE = 10
_METADATA_VERSION = 4  # every release of --as-version serves it
_CREATE_TOPICS_SECONDS = 30.0
_INTERNAL = "KWIRE_INTERNAL"
_INTER_BROKER_KEYS = {"inter.broker.listener.name", "security.inter.broker.protocol"}


class Supervisor:
    """All nodes of one cluster. `await start()`, … `await stop()`."""

    def __init__(
        self,
        values: dict[str, str],
        data_dir: str,
        *,
        brokers: int,
        controllers: int = 1,
        isolation: str = THREAD,
        first_id: int = 1,
        temporary: bool = False,
        as_version: str | None = None,
        cluster_id: str | None = None,
        overrides: dict[int, dict[str, str]] | None = None,
        log_options: list[str] | None = None,
        recent_requests: bool = False,
    ) -> None:
        """`values`: every broker's configuration; ports in its listeners are those of the first broker, the next one
        has the next ones, and so on (0 stays 0). `overrides`: keys of single brokers (broker.rack, say), by id.
        `controllers`: how many; one of them is active.

        `log_options`: those of the command line, for processes. `recent_requests`: brokers keep them (kwire.recent)."""
        self.isolation = isolation
        self.data_dir = data_dir
        self._log_options = log_options or []
        self._stopping = False
        self._temporary = temporary
        self.on_none_left: Callable[[], None] | None = None
        """Hears that the last node has ended unasked."""
        self._lock: ClusterLock | None = None
        self._idle: list[int] = []  # brokers whose data is here, and that are not started
        self.deaths: list[tuple[str, str, int]] = []  # of processes, unasked: who, how, return code
        last_id = first_id + brokers - 1
        self.controller_id = CONTROLLER_ID
        if first_id < CONTROLLER_ID + controllers and last_id >= CONTROLLER_ID:
            self.controller_id = last_id + 1
        self._base = {
            key: value
            for key, value in values.items()
            if key not in ("node.id", "broker.id", "log.dir", "log.dirs")
        }
        self._cluster_id = cluster_id or _stored_cluster_id(data_dir)
        common = {
            "cluster_id": self._cluster_id,
            "brokers": brokers,
            "temporary": temporary,
            "as_version": as_version,
        }
        own = {
            key: value
            for key, value in self._base.items()
            if not key.startswith(
                ("listener", "advertised.", "inter.broker.", "controller.listener")
            )
            and key not in ("security.inter.broker.protocol", "broker.rack")
        }
        host = values["listeners"].partition("://")[2].partition(",")[0].rpartition(":")[0]
        own["listeners"] = f"PLAINTEXT://{host or '127.0.0.1'}:0"
        self.controllers: dict[int, Handle] = {}
        for node_id in range(self.controller_id, self.controller_id + controllers):
            settings = NodeSettings(
                CONTROLLER,
                {**own, "node.id": str(node_id)},
                os.path.join(split_dirs(data_dir)[0], "controller"),
                standby=controllers > 1,
                **common,  # type: ignore[arg-type]
            )
            self.controllers[node_id] = self._handle(node_id, settings)
        self.controller = self.controllers[self.controller_id]
        self.brokers: dict[int, Handle] = {}
        for number in range(brokers):
            node_id = first_id + number
            own = {**self._base, **_shifted_ports(self._base, number), "node.id": str(node_id)}
            own.update((overrides or {}).get(node_id, {}))
            _add_internal_listener(own)
            settings = NodeSettings(
                BROKER,
                own,
                below(data_dir, f"broker-{node_id}"),
                recent_requests=recent_requests,
                **common,  # type: ignore[arg-type]
            )
            self.brokers[node_id] = self._handle(node_id, settings)

    def _handle(self, node_id: int, settings: NodeSettings) -> Handle:
        if self.isolation == PROCESS:
            return ProcessHandle(node_id, settings, self._log_options, self._died)
        return ThreadHandle(node_id, settings, self._died)

    def _died(self, node_id: int, status: int, why: str | None = None) -> None:
        if not self._stopping:
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
            how = why or how
            what = self._name(node_id)
            self.deaths.append((what, how, status))
            others = "the others go on" if self.any_runs else "no other is left"
            event(_log, logging.ERROR, f"{what} has ended ({how}); {others}")
            if not self.any_runs and self.on_none_left is not None:
                self.on_none_left()

    def _name(self, node_id: int) -> str:
        if node_id not in self.controllers:
            return f"broker {node_id}"
        return "the controller" if len(self.controllers) == 1 else f"controller {node_id}"

    @property
    def any_runs(self) -> bool:
        """Whether any node does."""
        return any(
            handle.running for handle in (*self.controllers.values(), *self.brokers.values())
        )

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients are told them."""
        return ",".join(handle.advertised for handle in self.brokers.values())

    # -- the whole cluster ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts everything; returns when every broker knows of every other. NodeError, SettingsError: nothing runs."""
        self._stopping = False
        try:
            self._take_directory()
            for handle in self.controllers.values():  # in turn: the first is the active one
                await self._start_node(handle)
            active = await self.active_controller() if self._idle else None
            if active is not None:  # before the others register: they leave ISRs meanwhile
                await active.ask("POST", "/v1/brokers/fence", {"brokers": self._idle})
            addresses = [(node_id, *each.address) for node_id, each in self.controllers.items()]
            for handle in self.brokers.values():
                handle.settings.controller, *handle.settings.more_controllers = addresses
            starts = [self._start_node(handle) for handle in self.brokers.values()]
            results = await asyncio.gather(*starts, return_exceptions=True)
            for failure in results:
                if isinstance(failure, BaseException):
                    raise failure
            await self.wait_for_members()
        except BaseException:
            await self.kill()
            raise

    def _take_directory(self) -> None:
        """NodeError when the directory is in use, or is not this cluster's. A temporary one is held by its maker."""
        if self._temporary:
            return
        from kwire.launch import shape

        dirs = split_dirs(self.data_dir)
        shape.check_cluster(dirs)
        self._lock = shape.ClusterLock(dirs)
        found = {broker for path in dirs for broker in shape.brokers_in(path)}
        self._idle = idle = sorted(found - self.brokers.keys())
        if idle:
            which = ", ".join(map(str, idle))
            text = f"the data directory has data of broker {which}, which is not started"
            if len(idle) > 1:
                text = f"the data directory has data of brokers {which}, which are not started"
            event(_log, logging.WARNING, text, data_dir=self.data_dir)

    def _let_directory_go(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    async def _start_node(self, handle: Handle) -> None:
        try:
            await handle.start()
        except NodeError as error:
            raise NodeError(f"{self._name(handle.node_id)}: {error}") from None

    async def stop(self) -> None:
        """Stops everything cleanly, controllers first: nobody need take over anything."""
        self._stopping = True
        failures: list[BaseException] = []
        # An asyncio server that is closed while it accepts forgets the socket.
        await _settle_connections()
        for handles in (self.controllers, self.brokers):
            stops = [handle.stop(controlled=False) for handle in handles.values()]
            results = await asyncio.gather(*stops, return_exceptions=True)
            failures += [failure for failure in results if isinstance(failure, BaseException)]
            await _settle_connections()
        self._let_directory_go()
        if failures:
            raise failures[0]

    async def kill(self) -> None:
        """Ends what runs, at once."""
        self._stopping = True
        for handle in (*self.brokers.values(), *self.controllers.values()):
            await handle.kill()
        self._let_directory_go()
        await _settle_connections()

    async def tell_status(self) -> None:
        """Writes into the log how every node is: `status.py`."""
        from kwire.control.status import tell

        for handle in (*self.controllers.values(), *self.brokers.values()):
            if not handle.running:
                event(_log, logging.INFO, "does not run", node_id=handle.node_id)
                continue
            try:
                # Shielded: an answer that comes too late must not be taken for that to the next question.
                asking = asyncio.shield(handle.ask("GET", "/v1/status"))
                for node in (await asyncio.wait_for(asking, _STATUS_SECONDS))["nodes"]:
                    tell(handle.node_id, node["status"])
            except (TimeoutError, NodeError):
                event(_log, logging.INFO, "does not answer", node_id=handle.node_id)

    async def active_controller(self) -> Handle | None:
        """The controller that is active now; of two that think they are, the later one. None: nobody knows of one."""
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
        """Returns when every running broker's metadata lists exactly the running brokers."""
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
            return set(handle.runner.core.services.metadata.brokers)  # type: ignore[union-attr]  # a broker
        from kwire.client.connection import NoResponseError
        from kwire.client.streams import ask
        from kwire.protocol.schemas.metadata import MetadataRequest

        request = MetadataRequest(topics=[])
        try:
            response = await ask(handle.address, request, version=_METADATA_VERSION)
        except NoResponseError:
            return set()
        return {broker.node_id for broker in response.brokers}

    async def create_topics(
        self,
        topics: list[tuple[str, int, int]],
        configs: dict[str, dict[str, str]] | None = None,
    ) -> None:
        """Creates topics (name, partitions, replication; -1: default) that do not exist. `configs`: by topic.

        SettingsError for what is refused."""
        from kwire.client.connection import NoResponseError
        from kwire.client.streams import ask
        from kwire.launch.initial_topics import check_created, create_request

        request = create_request(topics, configs or {})
        handle = next(iter(self.brokers.values()))
        try:
            response = await ask(handle.address, request, seconds=_CREATE_TOPICS_SECONDS)
        except NoResponseError as error:
            raise NodeError(f"--topic: broker {handle.node_id}: {error}") from None
        check_created(response)


async def _settle_connections() -> None:
    """Connections that were being made are given up, those that were ended are closed: asyncio takes a few turns."""
    for _ in range(_TURNS_TO_CLOSE):
        await asyncio.sleep(0)


def _stored_cluster_id(data_dir: str) -> str:
    """The id of the cluster whose directory it is; a new one for a new directory."""
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


def _add_internal_listener(values: dict[str, str]) -> None:
    """Where clients are told another address than the one that is bound, the nodes, all on this machine, need not be
    able to reach it: they get a listener of their own."""
    if not values.get("advertised.listeners") or _INTER_BROKER_KEYS & values.keys():
        return
    protocols = values.get("listener.security.protocol.map")
    own_protocol = f"{_INTERNAL}:PLAINTEXT"
    if protocols is None:
        protocols = BROKER_KEYS["listener.security.protocol.map"][1]
    values["listener.security.protocol.map"] = f"{protocols},{own_protocol}"
    for key in ("listeners", "advertised.listeners"):
        values[key] += f",{_INTERNAL}://127.0.0.1:0"
    values["inter.broker.listener.name"] = _INTERNAL


def _shifted_ports(values: dict[str, str], number: int) -> dict[str, str]:
    """Broker `number`'s listeners (the first is 0): each port is the first broker's plus `number`."""
    shifted = {}
    for key in ("listeners", "advertised.listeners"):
        if values.get(key):
            items = []
            for item in values[key].split(","):
                address, _, port = item.strip().rpartition(":")
                if port.isascii() and port.isdigit() and int(port) > 0:
                    port = str(int(port) + number)
                items.append(f"{address}:{port}")
            shifted[key] = ",".join(items)
    return shifted
