"""A standalone broker that runs on this loop, as a cluster of one: for the control API of `kwire up`.

It has no links and no other controller, and it ends with its process: what needs these is
NotSupportedError with the reason. Topics and partitions are queried over Kafka's protocol. The restore of a
snapshot starts the broker again in its process: its owner (`kwire.launch.up`) and this keep the first run, and go by
its `latest`.
"""

from __future__ import annotations

from contextlib import ExitStack

from kwire import errors
from kwire.backends.history import EventHistory
from kwire.backends.launched import Launched
from kwire.backends.options import kwire_errors
from kwire.backends.outside import SeenFromOutside
from kwire.backends.requests import RequestHistory
from kwire.backends.views import Partition, Replica
from kwire.control.node_api import NodeControl
from kwire.control.route import partition_path
from kwire.launch.aside import Aside
from kwire.launch.node_runner import NodeRunner
from kwire.launch.shape import ClusterLock
from kwire.launch.spec import ClusterSpec
from kwire.server.errors import NodeError, SettingsError
from kwire.server.log_dirs import split_dirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from kwire.backends.base import StartedBackend
    from kwire.client.connection import Address
    from kwire.launch.spec import NodeSpec
    from kwire.launch.supervisor import Supervisor
    from kwire.server.link_rules import LinkRule

_REASON = (
    "a standalone broker is its process, which ends with Ctrl-C, `kwire down` or kill -9;"
    " start `kwire up --brokers 2` or more to kill and start brokers"
)


def adopt(running: Supervisor | NodeRunner) -> StartedBackend:
    """The backend of what the caller has started on this loop and will stop."""
    return Standalone(running) if isinstance(running, NodeRunner) else Launched.adopt(running)


class StandaloneHandle:
    """The broker, which runs as long as there is this process."""

    running = True
    paused = False
    may_halt = has_halted = False

    def __init__(self, first: NodeRunner) -> None:
        """`first`: the first run, which knows the `latest`."""
        self._first = first
        self._control = NodeControl(self._loaded, None)
        self.node_id = first.node_id
        self.advertised = first.advertised

    @property
    def spec(self) -> NodeSpec:
        return self._first.latest.spec

    @property
    def answers(self) -> bool:
        """Whether it can be asked: always, but during a restore."""
        return self._first.latest.is_loaded

    def _loaded(self) -> list[NodeRunner]:
        latest = self._first.latest
        return [latest] if latest.is_loaded else []

    @property
    def rack(self) -> str | None:
        """The broker's rack, `broker.rack`; None without one."""
        return self.spec.values.get("broker.rack")

    @property
    def log_dir(self) -> str:
        """The node's log directories, comma-separated."""
        return self.spec.data_dir

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request to the control API of the node. RequestError and others of kwire.errors."""
        from kwire.control.errors import ControlError
        from kwire.control.routes import ask_nodes

        try:
            return ask_nodes(self._control, method, path, body or {})
        except ControlError as error:
            raise errors.refused(error.kafka_error or "INVALID_REQUEST", str(error)) from None

    async def start(self) -> None:
        """Refuse: NotSupportedError."""
        _refuse(self.node_id)

    async def stop(self) -> None:
        """Refuse: NotSupportedError."""
        _refuse(self.node_id)

    async def kill(self) -> None:
        """Refuse: NotSupportedError."""
        _refuse(self.node_id)

    async def pause(self) -> None:
        """Refuse: NotSupportedError."""
        _refuse(self.node_id)

    async def resume(self) -> None:
        """Do nothing: it is never paused."""

    async def refresh_running(self) -> None:
        """Do nothing: it runs."""

    def set_start_rules(self, rules: list[LinkRule]) -> None:
        """Do nothing: it has no links."""

    def set_start_clock(self, offset_ms: int) -> None:
        """Do nothing: it does not start again."""

    async def set_link_rules(self, rules: list[LinkRule]) -> None:
        """Do nothing: it has no links."""


def _refuse(node_id: int) -> NoReturn:
    raise errors.NotSupportedError(f"broker {node_id}: {_REASON}")


class Standalone(SeenFromOutside):
    """The broker as a cluster."""

    started = True

    def __init__(self, runner: NodeRunner) -> None:
        super().__init__()
        self._runner = runner
        self._failures: list[str] = []
        self.admin.access = None if runner.logins is None else runner.logins.own
        self._handle = StandaloneHandle(runner)
        self.handles = {runner.node_id: self._handle}
        self.controllers: dict[int, StandaloneHandle] = {}
        self.spec = ClusterSpec(brokers=1, node=runner.spec)
        self.bootstrap_servers = runner.advertised
        self.events = EventHistory(lambda: self.handles.values())
        self.requests = RequestHistory(
            runner.spec.recent_requests,
            brokers=lambda: self.handles,
            ask=self._requests_of,
            forget=lambda broker_id: self.ask(broker_id, "DELETE", "/v1/requests"),
        )

    def addresses(self) -> list[Address]:
        return [self._runner.address]

    @property
    def controller_id(self) -> int:
        """NotSupportedError: the controller is in the broker."""
        raise errors.NotSupportedError("the controller: that of a standalone broker is in it")

    async def active_controller(self) -> int:
        """BrokerNotAvailableError: the controller is in the broker."""
        raise errors.BrokerNotAvailableError(
            "the controller of a standalone broker is in it", "NOT_CONTROLLER"
        )

    def node(self, node_id: int) -> StandaloneHandle:
        """The broker. KeyError."""
        handle: StandaloneHandle = self.handles[node_id]
        return handle

    async def ask(
        self, broker_id: int, method: str, path: str, body: dict[str, Any] | None = None
    ) -> Any:
        """Send a request to the control API of the broker."""
        return await self.handles[broker_id].ask(method, path, body)

    async def partition(self, topic: str, index: int) -> Partition:
        """The state of a partition, with the epochs of its replica."""
        seen = await super().partition(topic, index)
        copy = await self._handle.ask("GET", f"{partition_path(topic, index)}/replica")
        replica = Replica.from_json(self._handle.node_id, copy)
        return Partition(
            topic,
            index,
            seen.leader,
            seen.leader_epoch,
            seen.isr,
            seen.replicas,
            None,
            {self._handle.node_id: replica},
        )

    async def _requests_of(self, broker_id: int) -> list[list[Any]]:
        from kwire.recent import from_objects

        return from_objects(await self.ask(broker_id, "GET", "/v1/requests"))

    async def restore(self) -> None:
        """Drop dynamic configurations and kept requests."""
        if self.requests.is_kept:
            await self.requests.forget()
        addresses = {"": self._runner.address, str(self._handle.node_id): self._runner.address}
        with kwire_errors():
            await self.admin.run(self.admin.reset_broker_configs(addresses))

    async def keep_failures(self, node_id: int) -> None:
        """Refuse: nothing ends here. NotSupportedError."""
        _refuse(node_id)

    async def failures(self) -> list[str]:
        """Tracebacks of internal errors, also of before a restore."""
        found: list[str] = (await self._handle.ask("GET", "/v1/failures"))["failures"]
        return self._failures + found

    # --- snapshots

    @property
    def data_dir(self) -> str:
        """The data directory, or several with commas between."""
        return self._runner.spec.data_dir

    @property
    def cluster_id(self) -> str:
        return self._runner.latest.core.services.cluster_id

    async def restart(self, between: Callable[[], None], after: Callable[[], None]) -> None:
        """Kill the broker, run a function on a thread, and start the broker again at its address; `after` runs on a
        thread while it serves. StartError."""
        self._failures = await self.failures()
        await self.requests.keep(self._handle.node_id)
        await self.events.keep(self._handle)
        with kwire_errors():
            await _restart(self._runner, between, after)

    async def start(self) -> None:
        """Do nothing: it runs."""

    async def abandon(self) -> None:
        """Do nothing: its owner stops it."""

    async def stop(self) -> None:
        """Do nothing: its owner stops it."""


async def _restart(
    first: NodeRunner, between: Callable[[], None], after: Callable[[], None]
) -> None:
    """Kill the broker, run a function on a thread, start the broker again, run `after` on a thread while it serves.

    What the function raises is raised after the start. NodeError, SettingsError: nothing runs, and the owner knows."""
    old = first.latest
    values = {**old.spec.values, "listeners": old.listeners}
    url = old.node.connection_log.control_url
    new = NodeRunner(old.spec.replace(values=values, again=True, control_url=url))
    new.on_halted = old.on_halted
    old.kill()
    first.latest = new
    try:
        with ExitStack() as held:
            if not old.spec.temporary:  # which its owner has locked
                held.callback(ClusterLock(split_dirs(old.spec.data_dir)).release)
            await Aside().run(between)
    finally:
        try:
            await new.start()
        except (NodeError, SettingsError) as error:
            if new.on_halted is not None:
                new.on_halted(str(error))
            raise
        await Aside().run(after)
