"""A cluster started by this process, with its nodes on its event loop or in child processes.

Queries go to the nodes' control API (`kwire.control.node_api`) in process or over stdin, not over the
network, so that tests can inspect a broker that is cut off.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from kwire import errors
from kwire.backends.history import EventHistory
from kwire.backends.options import NodeLauncher, kwire_errors
from kwire.backends.requests import RequestHistory
from kwire.backends.views import Partition, Replica, require_answering
from kwire.client.admin import REQUEST_SECONDS
from kwire.client.streams import Client
from kwire.control.route import partition_path
from kwire.launch.spec import DOCKER
from kwire.server.errors import NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any

    from kwire.backends.containers import Containers
    from kwire.client.connection import Address
    from kwire.launch.handles import Handle
    from kwire.launch.spec import ClusterSpec
    from kwire.launch.supervisor import Supervisor

_POLL_SECONDS = 0.002
_SIGNALS_OF_USERS = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT}  # sent on purpose


class Launched:
    """The nodes of a cluster, while it runs and between its runs."""

    def __init__(self, launcher: NodeLauncher | None, spec: ClusterSpec) -> None:
        self._launcher = launcher
        self.spec = spec
        # Negotiation costs 2 ms of the first start. An adopted cluster may be of another release.
        self.admin = Client(self.addresses, negotiates=launcher is None)
        self.requests = RequestHistory(
            spec.node.recent_requests,
            brokers=lambda: self.handles,
            ask=self._requests_of,
            forget=lambda broker_id: self.ask(broker_id, "DELETE", "/v1/requests"),
        )
        self.events = EventHistory(self.nodes)
        self._supervisor: Supervisor | None = None
        self._failures: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def launcher(self) -> NodeLauncher:
        """The launcher of the cluster; an adopted cluster has none."""
        assert self._launcher is not None
        return self._launcher

    @property
    def given(self) -> ClusterSpec | None:
        """The options that the cluster was made with; None for an adopted one."""
        return None if self._launcher is None else self._launcher.spec

    @property
    def data_dir(self) -> str:
        """The data directory, or several with commas between. ClusterStateError when the cluster is stopped."""
        return self._running().data_dir

    @property
    def cluster_id(self) -> str | None:
        """As nodes have it; None before the first start."""
        return self.spec.node.cluster_id

    @classmethod
    def adopt(cls, supervisor: Supervisor) -> Launched:
        """Wrap a supervisor that the caller has started on this loop and will stop."""
        launched = cls(None, supervisor.spec)
        launched._supervisor = supervisor
        launched.admin.access = supervisor.access
        supervisor.log_event = launched.events.log
        launched._loop = asyncio.get_running_loop()
        return launched

    @property
    def started(self) -> bool:
        """Between `start` and `stop`."""
        return self._supervisor is not None

    @property
    def bootstrap_servers(self) -> str:
        """The advertised addresses of all brokers, comma-separated."""
        return self._running().bootstrap_servers

    @property
    def controller_id(self) -> int:
        """The node id of the (first) controller."""
        return self._running().controller_id

    @property
    def controllers(self) -> dict[int, Handle]:
        """The controllers, by id. ClusterStateError when the cluster is stopped."""
        return self._running().controllers

    @property
    def handles(self) -> dict[int, Handle]:
        """The brokers, by id. ClusterStateError when the cluster is stopped."""
        return self._running().brokers

    def node(self, node_id: int) -> Handle:
        """A broker or a controller. KeyError."""
        supervisor = self._running()
        return supervisor.controllers.get(node_id) or supervisor.brokers[node_id]

    def nodes(self) -> list[Handle]:
        """All controllers and brokers; none when the cluster is stopped."""
        supervisor = self._supervisor
        if supervisor is None:
            return []
        return [*supervisor.controllers.values(), *supervisor.brokers.values()]

    def addresses(self) -> list[Address]:
        """The addresses of the brokers that run and are not paused."""
        self._require_own_loop()
        handles = self.handles.values()
        return [handle.address for handle in handles if handle.answers]

    def _require_own_loop(self) -> None:
        if self._supervisor is not None and asyncio.get_running_loop() is not self._loop:
            raise errors.ClusterStateError(
                "the cluster was started on another event loop, and is used on that one only"
            )

    def _running(self) -> Supervisor:
        if self._supervisor is None:
            raise errors.ClusterStateError(
                "the cluster does not run: start it, or use it as a context"
            )
        return self._supervisor

    # --- start and stop

    async def start(self) -> None:
        """Start all nodes. StartError, ConfigurationError: nothing runs."""
        self.requests.clear()
        try:
            supervisor = self.launcher.prepare()
        except BaseException:
            await self.launcher.clean_up()
            raise
        self.spec = supervisor.spec
        try:
            with kwire_errors():
                await supervisor.start()
        except BaseException:
            await supervisor.kill()
            await self.launcher.clean_up()
            raise
        self._supervisor = supervisor
        self.admin.access = supervisor.access
        supervisor.log_event = self.events.log
        self._loop = asyncio.get_running_loop()

    async def abandon(self) -> None:
        """Kill all nodes of an unfinished start."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            await supervisor.kill()
            await self.launcher.clean_up()

    async def stop(self) -> None:
        """Stop all nodes. InternalError, StartError: nothing runs in any case."""
        self._require_own_loop()
        supervisor = self._running()
        for handle in self.nodes():
            handle.resume()
            await self._keep_failures(handle)
        self._failures += [
            f"the process of {what} has ended by itself: {how}"
            for what, how, status in supervisor.deaths
            if -status not in _SIGNALS_OF_USERS
        ]
        self._supervisor = None
        try:
            with kwire_errors():
                await supervisor.stop(last=True)
        finally:
            await supervisor.kill()
            await self.launcher.clean_up()
        self._raise_failures()

    async def restart(self, between: Callable[[], None], after: Callable[[], None]) -> None:
        """Kill all nodes, run a function on a thread, and start them again at their addresses; `after` runs on a
        thread while they serve. StartError."""
        self._require_own_loop()
        supervisor = self._running()
        for handle in self.nodes():
            if handle.answers:
                await self.keep_failures(handle.node_id)
        with kwire_errors():
            await supervisor.restart(between, after)
        self.spec = supervisor.spec

    # --- internal errors

    async def keep_failures(self, node_id: int) -> None:
        """Save the internal errors of a node that is about to end, so that `stop` can report them."""
        self._require_own_loop()
        await self._keep_failures(self.node(node_id))
        await self.requests.keep(node_id)
        await self.events.keep(self.node(node_id))

    async def _keep_failures(self, handle: Handle) -> None:
        if handle.answers:
            with suppress(NodeError):
                found = await handle.ask("GET", "/v1/failures")
                self._failures += found["failures"]

    async def failures(self) -> list[str]:
        """Tracebacks of internal errors so far."""
        found = list(self._failures)
        for handle in self.nodes():
            if handle.answers:
                found += (await _ask(handle, "GET", "/v1/failures"))["failures"]
        return found

    def _raise_failures(self) -> None:
        failures, self._failures = self._failures, []
        if failures:
            from kwire import __version__

            raise errors.InternalError(
                f"kwire {__version__} has met an internal error ({len(failures)} in all; please"
                f" report the first).\n{failures[0].rstrip()}\n"
                f"To reproduce: the same calls on {self.launcher.call}.",
                failures,
            )

    # --- queries

    async def topics(self) -> dict[str, int]:
        """Every topic and its number of partitions."""
        found: dict[str, int] = (await self._ask_controller("GET", "/v1/topics"))["topics"]
        return found

    async def partition(self, topic: str, index: int) -> Partition:
        """The state of a partition at the controller and at each replica."""
        path = partition_path(topic, index)
        state = await self._ask_controller("GET", path)
        found: dict[int, Replica] = {}
        missing: dict[int, str] = {}
        for broker_id in state["replicas"]:
            try:
                copy = await self.ask(broker_id, "GET", f"{path}/replica")
            except errors.KwireError as error:
                missing[broker_id] = str(error)
                continue
            found[broker_id] = Replica.from_json(broker_id, copy)
        return Partition(
            topic,
            index,
            state["leader"],
            state["leader_epoch"],
            frozenset(state["isr"]),
            tuple(state["replicas"]),
            None,
            found,
            missing,
        )

    async def appoint(self, topic: str, index: int, leader: int, unclean: bool) -> None:
        """Elect the given replica as leader."""
        election = {"topic": topic, "partition": index, "leader": leader, "unclean": unclean}
        await self._ask_controller("POST", "/v1/elections", election)

    async def is_led(self, now: Partition) -> bool:
        """Whether the leader of a partition knows that it leads."""
        with suppress(errors.KwireError):
            path = partition_path(now.topic, now.partition)
            copy = await self.ask(now.leader, "GET", f"{path}/replica")
            return bool(copy["leads"] and copy["leader_epoch"] >= now.leader_epoch)
        return False

    async def restore(self) -> None:
        """Wait until all brokers are registered; drop dynamic configurations and kept requests."""
        deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
        while not await self._all_are_known():
            if asyncio.get_running_loop().time() > deadline:
                raise errors.WaitTimeoutError("the controller does not take up all brokers")
            await asyncio.sleep(_POLL_SECONDS)
        handles = self.handles
        if self.requests.is_kept:
            await self.requests.forget()
        first = next(iter(handles.values()))
        configured = (await self._ask_controller("GET", "/v1/brokers/configured"))["brokers"]
        addresses = {name: (handles[int(name)] if name else first).address for name in configured}
        with kwire_errors():
            await self.admin.run(self.admin.reset_broker_configs(addresses))

    async def _all_are_known(self) -> bool:
        with suppress(errors.BrokerNotAvailableError):  # no controller is active yet
            found = await self._ask_controller("GET", "/v1/brokers")
            return bool(found["brokers"] == sorted(self.handles))
        return False

    async def _requests_of(self, broker_id: int) -> list[list[Any]]:
        from kwire.recent import from_objects

        return from_objects(await self.ask(broker_id, "GET", "/v1/requests"))

    async def ask(
        self, broker_id: int, method: str, path: str, body: dict[str, Any] | None = None
    ) -> Any:
        """Send a request to a broker's control API. BrokerNotAvailableError when it does not run or is
        paused."""
        self._require_own_loop()
        handle = self.handles.get(broker_id)
        if handle is None:  # replicas assigned in a run with more brokers
            raise errors.BrokerNotAvailableError(f"broker {broker_id} is not started in this run")
        require_answering(handle)
        return await _ask(handle, method, path, body)

    async def _ask_controller(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> Any:
        return await _ask(await self._active(), method, path, body)

    async def _active(self) -> Handle:
        supervisor = self._running()
        self._require_own_loop()
        if len(supervisor.controllers) == 1:
            require_answering(supervisor.controller, "controller")
            return supervisor.controller
        active = await supervisor.active_controller()
        if active is None:
            raise errors.BrokerNotAvailableError(
                f"none of the controllers {list(supervisor.controllers)} is active",
                "NOT_CONTROLLER",
            )
        return active

    async def active_controller(self) -> int:
        """The id of the active controller. BrokerNotAvailableError when none is active."""
        return (await self._active()).node_id


def backend_of(spec: ClusterSpec, data_dir: str | os.PathLike[str] | None) -> Launched | Containers:
    """The nodes of a cluster that is to be started: in this process, in child processes or in containers."""
    if spec.isolation == DOCKER:
        from kwire.backends.containers import Containers

        return Containers(spec, data_dir)
    return Launched(NodeLauncher(spec, data_dir), spec)


async def _ask(handle: Handle, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    with kwire_errors():
        return await handle.ask(method, path, body)
