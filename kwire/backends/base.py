"""Protocols of the backends of `kwire.aio.Cluster` and of their nodes, for type checkers.

`outside.Outside` is a `Backend`; `launched.Launched` and `containers.Containers` are
`StartedBackend`. mypy checks that where `Cluster` constructs them.
"""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from typing import Any

    from kwire.backends.history import EventHistory
    from kwire.backends.requests import RequestHistory
    from kwire.backends.views import Partition
    from kwire.client.streams import Client
    from kwire.launch.spec import ClusterSpec
    from kwire.server.link_rules import LinkRule


class NodeHandle(Protocol):
    """A broker or a controller to start and stop: of `kwire.launch.handles`, or a container."""

    node_id: int
    advertised: str
    paused: bool
    may_halt: bool
    """A test has set that its disk fails: a broker that ends by itself then is no error."""
    has_halted: bool
    """It has ended so."""

    @property
    def running(self) -> bool:
        """Started and neither stopped nor killed; a paused node runs."""

    @property
    def rack(self) -> str | None:
        """The broker's rack, `broker.rack`; None without one."""

    @property
    def log_dir(self) -> str:
        """The node's log directories, comma-separated. NotSupportedError."""

    async def start(self) -> None:
        """Start the node; return when it is ready, a broker when the controller has registered it."""

    async def stop(self) -> None:
        """Stop the node cleanly."""

    async def kill(self) -> None:
        """Kill the node."""

    def pause(self) -> Awaitable[None] | None:
        """Suspend the node; its sockets stay open."""

    def resume(self) -> Awaitable[None] | None:
        """Undo `pause`."""

    async def refresh_running(self) -> None:
        """Update `running` if the node was killed from outside."""

    def set_start_rules(self, rules: list[LinkRule]) -> None:
        """Set the link rules that apply when this node starts the next time."""

    def set_start_clock(self, offset_ms: int) -> None:
        """Set how far the clock is ahead of real time when this node starts the next time, where that can be."""

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request to the control API (`kwire.control.routes`) of the node, which runs."""

    async def set_link_rules(self, rules: list[LinkRule]) -> None:
        """Replace the link rules of this node (the sender), which runs."""


class Backend(Protocol):
    """The brokers of a cluster, wherever they run."""

    admin: Client
    events: EventHistory

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of each broker, comma-separated. ClusterStateError when stopped."""

    async def topics(self) -> dict[str, int]:
        """Every topic and its number of partitions."""

    async def partition(self, topic: str, index: int) -> Partition:
        """The current state of a partition. UnknownTopicOrPartitionError."""

    async def appoint(self, topic: str, index: int, leader: int, unclean: bool) -> None:
        """Elect the given replica as leader. RequestError."""

    async def is_led(self, now: Partition) -> bool:
        """Whether the leader of a partition knows that it leads."""


class StartedBackend(Backend, Protocol):
    """The nodes of a cluster that was started here. ClusterStateError when it is stopped."""

    requests: RequestHistory
    spec: ClusterSpec

    @property
    def started(self) -> bool:
        """Between `start` and `stop`."""

    @property
    def handles(self) -> Mapping[int, NodeHandle]:
        """The brokers, by id."""

    @property
    def controllers(self) -> Mapping[int, NodeHandle]:
        """The controllers that are separate nodes, by id."""

    @property
    def controller_id(self) -> int:
        """The id of the controller; of several, of the first. NotSupportedError."""

    def node(self, node_id: int) -> NodeHandle:
        """A broker or a controller. KeyError."""

    async def ask(
        self, broker_id: int, method: str, path: str, body: dict[str, Any] | None = None
    ) -> Any:
        """Send a request to a broker's control API. BrokerNotAvailableError when it does not run or
        is paused."""

    async def active_controller(self) -> int:
        """The id of the active controller. BrokerNotAvailableError when none is."""

    async def start(self) -> None:
        """Start all nodes; return when every broker's metadata lists all brokers.

        StartError, ConfigurationError."""

    async def abandon(self) -> None:
        """Clean up after a failed start; nothing runs, nothing is raised."""

    async def stop(self) -> None:
        """Stop all nodes. InternalError, StartError: nothing runs in any case."""

    async def restore(self) -> None:
        """Wait until all brokers, which run, are registered; drop dynamic configurations and kept
        requests."""

    async def keep_failures(self, node_id: int) -> None:
        """Save the data for `failures` and `requests` of a node that is about to end."""

    async def failures(self) -> list[str]:
        """Tracebacks of kwire's internal errors."""
