"""What a backend of `kwire.aio.Cluster` and its nodes must have: types, for type checkers alone.

`outside.Outside` is a `Backend`; `launched.Launched` and `containers.Containers` are
`StartedBackend`. mypy checks them where the cluster is given one.
"""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from typing import Any

    from kwire.backends.requests import RequestHistory
    from kwire.backends.views import Partition
    from kwire.client.streams import Client
    from kwire.server.link_rules import LinkRule


class NodeHandle(Protocol):
    """A broker or a controller to start and stop: of `kwire.launch.handles`, or a container."""

    node_id: int
    advertised: str
    paused: bool

    @property
    def running(self) -> bool:
        """Started and neither stopped nor killed; a paused node runs."""

    @property
    def log_dir(self) -> str:
        """The directories of its logs, with commas between. NotSupportedError."""

    async def start(self) -> None:
        """Return when the node is ready; a broker: when the controller has registered it."""

    async def stop(self) -> None:
        """End it cleanly."""

    async def kill(self) -> None:
        """End it at once."""

    def pause(self) -> Awaitable[None] | None:
        """Stop its processing, its sockets open."""

    def resume(self) -> Awaitable[None] | None:
        """Undo `pause`."""

    async def refresh_running(self) -> None:
        """Set `running` for a node that was ended from outside."""

    def set_start_rules(self, rules: list[LinkRule]) -> None:
        """Rules for what this node sends that hold when it starts the next time."""

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """What the control API of the node, which runs, answers (`kwire.control.routes`)."""

    async def set_link_rules(self, rules: list[LinkRule]) -> None:
        """Replace the rules for what this node, which runs, sends."""


class Backend(Protocol):
    """The brokers of a cluster, wherever they run."""

    admin: Client

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of each broker, with commas between. ClusterStateError: it is stopped."""

    async def topics(self) -> dict[str, int]:
        """Every topic and how many partitions it has."""

    async def partition(self, topic: str, index: int) -> Partition:
        """A partition as it is now. UnknownTopicOrPartitionError."""

    async def appoint(self, topic: str, index: int, leader: int, unclean: bool) -> None:
        """Hold an election whose winner is given. RequestError."""

    async def is_led(self, now: Partition) -> bool:
        """Whether the leader of a partition knows that it leads."""


class StartedBackend(Backend, Protocol):
    """The nodes of a cluster that was started here. ClusterStateError: it is stopped."""

    requests: RequestHistory

    @property
    def started(self) -> bool:
        """Between `start` and `stop`."""

    @property
    def handles(self) -> Mapping[int, NodeHandle]:
        """The brokers, by id."""

    @property
    def controllers(self) -> Mapping[int, NodeHandle]:
        """The controllers that are nodes of their own, by id."""

    @property
    def controller_id(self) -> int:
        """The id of the controller; of several, of the first. NotSupportedError."""

    def node(self, node_id: int) -> NodeHandle:
        """A broker or a controller. KeyError."""

    async def active_controller(self) -> int:
        """The id of the active controller. BrokerNotAvailableError when none is."""

    async def start(self) -> None:
        """Return when every broker knows all others. StartError, ConfigurationError."""

    async def abandon(self) -> None:
        """End a start that cannot be finished; nothing runs, nothing is raised."""

    async def stop(self) -> None:
        """End all nodes. InternalError, StartError: nothing runs in any case."""

    async def restore(self) -> None:
        """Return when all brokers, which run, are registered; drop dynamic configurations and kept
        requests."""

    async def keep_failures(self, node_id: int) -> None:
        """Keep what `failures` and `requests` need of a node that is about to be ended."""

    async def failures(self) -> list[str]:
        """Tracebacks of errors of kwire's own."""
