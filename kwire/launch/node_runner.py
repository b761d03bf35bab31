"""One node of a cluster, from configuration to a listening socket: a broker among several, or the controller.

`kwire node` runs one in its own process, the supervisor runs several on one event loop; both by `NodeRunner`.
"""

from __future__ import annotations

import asyncio
import logging
import os

from kwire.launch.parts import configured, endpoints
from kwire.server.errors import NodeError
from kwire.server.listeners import (
    format_address,
    inter_broker_listener,
)
from kwire.server.log_dirs import LogDirs, disk_space, load_error, split_dirs
from kwire.server.logs import event
from kwire.server.node import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.broker import Broker
    from kwire.control.node_api import NodeControl
    from kwire.controller_node import ControllerNode
    from kwire.server.file_log_store import FileLogStore
    from kwire.server.link_rules import LinkRule

_log = logging.getLogger(__name__)

BROKER, CONTROLLER = "broker", "controller"
_BIND_TRIES = 20
_BIND_PAUSE_SECONDS = 0.02
_SILENT_SECONDS = 1.0
_CONTROLLER_WAIT_SECONDS = 30.0


class NodeSettings:
    """What a node of a cluster is told. `values`: configuration keys and texts, node.id and listeners included."""

    __slots__ = (
        "again",
        "as_version",
        "broker_epoch",
        "brokers",
        "cluster_id",
        "controller",
        "data_dir",
        "more_controllers",
        "network",
        "recent_requests",
        "role",
        "standby",
        "temporary",
        "values",
    )

    def __init__(
        self,
        role: str,
        values: dict[str, str],
        data_dir: str,
        *,
        controller: tuple[int, str, int] | None = None,
        more_controllers: list[tuple[int, str, int]] | None = None,
        standby: bool = False,
        broker_epoch: int | None = None,
        cluster_id: str | None = None,
        brokers: int = 1,
        as_version: str | None = None,
        temporary: bool = False,
        again: bool = False,
        network: list[LinkRule] | None = None,
        recent_requests: bool = False,
    ) -> None:
        """`controller`: id, host and port, for a broker; `more_controllers`: others that may take over from it.
        `standby`, for a controller: others use its directory, too. `broker_epoch`: a foreign controller has given it.

        `brokers`: the cluster's size, which some defaults depend on. `temporary`: the directory need not survive a
        power cut. `again`: the node has run before, on the same port. `network`: rules that hold from
        the first moment. `recent_requests`: a broker keeps the last ones of clients (kwire.recent)."""
        self.network = network or []
        self.recent_requests = recent_requests
        self.again = again
        self.role = role
        self.values = values
        self.data_dir = data_dir
        self.controller = controller
        self.more_controllers = more_controllers or []
        self.standby = standby
        self.broker_epoch = broker_epoch
        self.cluster_id = cluster_id
        self.brokers = brokers
        self.as_version = as_version
        self.temporary = temporary


class NodeRunner:
    """`await start()`, then it serves until `await stop()` or `kill()`; a new one for the next run."""

    def __init__(self, settings: NodeSettings) -> None:
        """SettingsError for a configuration that is refused."""
        self.settings = settings
        values = {**settings.values, "log.dirs": settings.data_dir}
        values.pop("log.dir", None)
        self.config, self.node, self._caps = configured(
            values, settings.as_version, brokers=settings.brokers
        )
        self.core: Broker | ControllerNode
        self.on_halted: Callable[[str], None] | None = None
        """Hears that the broker has ended itself, and why; nothing of it is left then."""
        self._dirs: LogDirs | FileLogStore | None = None
        self._ready = asyncio.Event()
        self._refusal: str | None = None
        self._waiting: asyncio.TimerHandle | None = None
        self._ended = False
        self._control: NodeControl | None = None

    @property
    def node_id(self) -> int:
        """Its id."""
        return self.config.node_id

    @property
    def is_controller(self) -> bool:
        """Or else a broker."""
        return self.settings.role == CONTROLLER

    @property
    def loaded(self) -> bool:
        """Whether it can be asked; not so at the beginning of `start`."""
        return hasattr(self, "core")

    @property
    def listeners(self) -> str:
        """As in the configuration, with the ports that were bound."""
        return ",".join(
            f"{each.name}://{format_address(each.host, each.port)}" for each in self.node.listeners
        )

    @property
    def address(self) -> tuple[str, int]:
        """Where the node is reached from this machine."""
        first = self.node.listeners[0]
        return reachable(format_address(first.host, first.port))

    @property
    def advertised(self) -> str:
        """Where clients are told to reach it."""
        return self.node.bootstrap_servers

    # -- start ---------------------------------------------------------------------------------------------------

    async def start(self, *, wait_seconds: float | None = None) -> None:
        """Binds, loads, serves, and for a broker: returns when the controller has told it of the cluster.

        NodeError, SettingsError: nothing is left running then. `wait_seconds`: how long the controller may take."""
        from kwire.launch.shape import check_node

        dirs = split_dirs(self.settings.data_dir)
        check_node(dirs, is_controller=self.settings.role == CONTROLLER)
        if self.settings.role == BROKER:
            self._say_later("")
        try:
            await self._bind()
            cluster_id = await self._cluster_id()
            try:
                self._load(cluster_id)
            except Exception as error:
                raise self._load_error(error) from None
            finally:
                self.node.write_events()
            if self.settings.network:
                self.set_link_rules(self.settings.network)
            await self.node.serve(self.core)
            if self.settings.role == BROKER:
                await self._registered(wait_seconds)
        except BaseException:
            self.kill()
            raise
        finally:
            if self._waiting is not None:
                self._waiting.cancel()

    def _say_later(self, told: str) -> None:
        """While the start lasts: every second what is waited for, unless it is what was `told` before."""
        loop = asyncio.get_running_loop()
        self._waiting = loop.call_later(_SILENT_SECONDS, self._say_what_is_waited_for, told)

    def _say_what_is_waited_for(self, told: str) -> None:
        text = self._what_is_waited_for()
        if text != told:
            event(_log, logging.INFO, text, node_id=self.config.node_id)
        self._say_later(text)

    def _what_is_waited_for(self) -> str:
        settings = self.settings
        assert settings.controller is not None
        addresses = [settings.controller, *settings.more_controllers]
        where = ", ".join(format_address(host, port) for _, host, port in addresses)
        member = getattr(getattr(self, "core", None), "member", None)
        if member is not None and member.link.refusal:
            return (
                f"waiting: the controller at {where} answers {member.link.refusal.name};"
                f" is another broker {self.config.node_id} alive?"
            )
        return f"waiting for the controller at {where}"

    async def _bind(self) -> None:
        """The port of this node's last run may take a moment to become free."""
        for tries_left in reversed(range(_BIND_TRIES if self.settings.again else 1)):
            try:
                self.node.bind()
                return
            except NodeError:
                self.node.close_sockets()
                if not tries_left:
                    raise
                self.node = Node(self.config)
            await asyncio.sleep(_BIND_PAUSE_SECONDS)

    async def _cluster_id(self) -> str | None:
        """Given, or the directory's (None), or, for a broker in a new directory, what the controller says."""
        settings = self.settings
        if (
            settings.cluster_id is not None
            or settings.role == CONTROLLER
            or settings.broker_epoch is not None
            or any(
                os.path.exists(os.path.join(path, "meta.properties"))
                for path in split_dirs(settings.data_dir)
            )
        ):
            return settings.cluster_id
        from kwire.client.connection import NoResponseError
        from kwire.client.streams import ask
        from kwire.protocol.schemas.cluster import DescribeClusterRequest

        assert settings.controller is not None
        addresses = [settings.controller, *settings.more_controllers]
        reason = "no answer"
        deadline = asyncio.get_running_loop().time() + _CONTROLLER_WAIT_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            _, host, port = address = addresses.pop(0)
            addresses.append(address)
            try:
                response = await ask((host, port), DescribeClusterRequest(), version=0)
                return str(response.cluster_id)
            except NoResponseError as error:
                reason = str(error)
            await asyncio.sleep(0.05)
        raise NodeError(f"the controller at {format_address(host, port)}: {reason}")

    def _load(self, cluster_id: str | None) -> None:
        from random import Random

        settings, node = self.settings, self.node
        random = Random(int.from_bytes(os.urandom(8), "big"))
        if settings.role == CONTROLLER:
            from kwire.controller_node import ControllerNode
            from kwire.server.file_log_store import FileLogStore

            self._dirs = store = FileLogStore(
                split_dirs(settings.data_dir)[0],
                fsync=not settings.temporary,
                shared=settings.standby,
            )
            self.core = ControllerNode(
                self.config,
                store,
                node.clock,
                node.outbox,
                random,
                cluster_id=cluster_id,
                shared=settings.standby,
                alone=store.is_alone,
            )
            self.core.start(endpoints(node))
            return
        from kwire.broker import Broker
        from kwire.replication.member.cluster_member import ClusterSettings

        self._dirs = dirs = LogDirs(settings.data_dir, fsync=not settings.temporary)
        assert settings.controller is not None
        controller_id, host, port = settings.controller
        self.core = Broker(
            self.config,
            dirs.opened,
            node.clock,
            node.outbox,
            random,
            disk_space=disk_space,
            api_caps=self._caps,
            cluster_id=cluster_id,
            cluster=ClusterSettings(
                controller_id,
                (host, port),
                inter_broker_listener(self.config, node.listeners).name,
                more_controllers=settings.more_controllers,
                broker_epoch=settings.broker_epoch,
                on_ready=self._ready.set,
                on_refused=self._refused,
            ),
            on_halt=self._halt,
        )
        if settings.recent_requests:
            from kwire.recent import RecentRequests

            self.core.sessions.recent = RecentRequests(node.clock, self.core.services.metadata)
        self.core.start(endpoints(node))

    def _load_error(self, error: Exception) -> Exception:
        from kwire.protocol.errors import KafkaError
        from kwire.replication.controller.state import JournalError

        if not isinstance(error, OSError | JournalError | KafkaError):
            return error
        return load_error(self.settings.data_dir, error)

    async def _registered(self, wait_seconds: float | None) -> None:
        try:
            async with asyncio.timeout(wait_seconds):
                await self._ready.wait()
        except TimeoutError:
            raise NodeError("the controller did not take up the broker in time") from None
        if self._refusal is not None:
            raise NodeError(self._refusal)

    def _refused(self, reason: str) -> None:
        self._refusal = reason
        self._ready.set()

    def _halt(self, why: str) -> None:
        """Its log directories have failed, which it finds out in the middle of a step: the end comes after it."""
        event(_log, logging.ERROR, f"the broker halts: {why}", node_id=self.config.node_id)
        self._refused(why)
        asyncio.get_running_loop().call_soon(self._halted, why)

    def _halted(self, why: str) -> None:
        if not self._ended:
            self.kill()
            if self.on_halted is not None:
                self.on_halted(why)

    @property
    def control(self) -> NodeControl:
        """The subject of the control API's requests to this node."""
        if self._control is None:
            from kwire.control.node_api import NodeControl

            rules = list(self.settings.network)
            self._control = NodeControl(lambda: [self] if self.loaded else [], rules)
        return self._control

    def tell_status(self) -> None:
        """Writes into the log how the node is (SIGUSR1)."""
        from kwire.control.status import snapshot_of_broker, snapshot_of_controller, tell

        if not hasattr(self, "core"):
            event(_log, logging.INFO, "is starting", node_id=self.config.node_id)
            return
        snapshot = snapshot_of_broker if self.settings.role == BROKER else snapshot_of_controller
        tell(self.config.node_id, snapshot(self.core))

    def set_link_rules(self, rules: list[LinkRule]) -> None:
        """Replace all rules for what this node sends to others, for tests."""
        self.node.peer_connections().set_rules(rules)

    # -- the end -------------------------------------------------------------------------------------------------

    async def stop(self, *, controlled: bool = True) -> None:
        """A clean stop; `controlled`: leaderships are moved away before. NodeError when logs cannot be closed."""
        if self._ended:
            return
        try:
            await self.node.stop(controlled=controlled)
        finally:
            self._release()

    def kill(self) -> None:
        """The end of a process that is killed: nothing is said, nothing is flushed."""
        if not self._ended:
            self.node.kill()
            self._release()

    def _release(self) -> None:
        self._ended = True
        self.node.close_sockets()
        if self._dirs is not None:
            self._dirs.close()


def reachable(address: str) -> tuple[str, int]:
    """Host and port to connect to, on this machine, of an address that is bound: "" and 0.0.0.0 are any."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)
