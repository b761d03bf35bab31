"""A cluster of containers: kwire's image in a Docker engine, for `Cluster(isolation="docker")` and the plugin's mode.

One broker is one container, with its controller in it, as `docker run` starts it. Several are a container each and one
for the controller, on a network of their own, as in examples/compose/three-brokers.yml. `kill` is `docker kill`, `stop`
is `docker stop`, `pause` is `docker pause`. What they have is asked from outside, over Kafka's protocol; the network
between them cannot be cut without cutting clients off, too.

The image is `kwire`, or what KWIRE_IMAGE says. The Docker SDK (the extra `kwire[docker]`) is imported when the first
cluster starts. Nothing of the cluster is left in the engine after `stop`; what a process that was killed has left, the
next start removes: the lock on a temporary directory is the proof that its owner lives.
"""

from __future__ import annotations

import asyncio
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from kwire import errors
from kwire.container_engine import (
    IMAGE_VARIABLE,
    LABEL_HOST,
    LABEL_OWNER,
    connected,
    explained,
    reachable_from_here,
    remove_quietly,
    sweep_engine,
    this_host,
)
from kwire.options import DOCKER, check_config, translated
from kwire.outside import SeenFromOutside
from kwire.protocol.errors import KafkaError
from kwire.server.admin import NoBrokerError
from kwire.server.temporary import TemporaryDirectory

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, TypeVar

    from kwire.server.admin import Address
    from kwire.server.handles import Handle

    T = TypeVar("T")

CONTROLLER_ID = 1000
START_SECONDS = 60.0
_STOP_SECONDS = 15
_POLL_SECONDS = 0.02
_PORT_TRIES = 5
_OWN_KEYS = ("listeners", "advertised.listeners", "node.id", "broker.id", "log.dirs", "log.dir")
_INTERNAL_ERROR = "internal error; please report it"  # as kwire.server.node logs it


class ContainerHandle:
    """One broker's container."""

    def __init__(self, owner: Containers, node_id: int, advertised: str) -> None:
        self._owner = owner
        self.node_id = node_id
        self.advertised = advertised
        self.paused = False
        self.running = False
        self.container: Any = None

    @property
    def address(self) -> Address:
        """Where it is reached."""
        host, _, port = self.advertised.rpartition(":")
        return host, int(port)

    @property
    def log_dir(self) -> str:
        raise errors.NotSupportedError(f"broker {self.node_id}: its logs are in its container")

    def expect(self, commands: list[str]) -> None:
        """There is no network to be cut."""

    async def start(self) -> None:
        """Returns when it is a member of the cluster again."""
        await self._owner.call(self.container.start)
        self.running = True
        await self._owner.wait_for_members({self.node_id})

    async def stop(self) -> None:
        """SIGTERM; killed when it does not stop in time."""
        if self.running:
            await self._owner.call(lambda: self.container.stop(timeout=_STOP_SECONDS))
            self.running = False

    async def kill(self) -> None:
        """SIGKILL."""
        if self.running:
            await self._owner.call(self.container.kill)
            self.running = self.paused = False

    async def pause(self) -> None:
        await self._owner.call(self.container.pause)
        self.paused = True

    async def resume(self) -> None:
        await self._owner.call(self.container.unpause)
        self.paused = False


class Containers(SeenFromOutside):
    """A cluster in a Docker engine."""

    external = False

    def __init__(
        self, brokers: int, config: dict[str, str], data_dir: str | os.PathLike[str] | None
    ) -> None:
        """ConfigurationError. No engine is asked yet."""
        super().__init__()
        check_config(brokers, config)
        if data_dir is not None:
            raise errors.ConfigurationError('data_dir: not possible with isolation "docker"')
        for key in config:
            if key in _OWN_KEYS or key.startswith(("listener.", "inter.broker.", "controller.")):
                raise errors.ConfigurationError(f'{key}: not possible with isolation "docker"')
        self._brokers = brokers
        self._config = config
        self.image = os.environ.get(IMAGE_VARIABLE) or "kwire"
        self.handles: dict[int, ContainerHandle] = {}
        self._client: Any = None
        self._made: list[Any] = []  # containers, and then what else is to be removed
        self._network: Any = None
        self._owner: TemporaryDirectory | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def started(self) -> bool:
        """Between `start` and `stop`."""
        return self._client is not None

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        self._require_started()
        return ",".join(handle.advertised for handle in self.handles.values())

    @property
    def controller_id(self) -> int:
        """NotSupportedError: nothing can be done with it here."""
        self._unsupported("the controller")

    def node(self, node_id: int) -> Handle:
        """NotSupportedError: there is no way into the network between containers."""
        self._unsupported("the network between brokers")

    def addresses(self) -> list[Address]:
        self._require_started()
        return [h.address for h in self.handles.values() if h.running and not h.paused]

    def _require_started(self) -> None:
        if self._client is None:
            raise errors.ClusterStateError(
                "the cluster does not run: start it, or use it as a context"
            )

    def _unsupported(self, what: str) -> NoReturn:
        raise errors.NotSupportedError(f'{what}: not possible with isolation "{DOCKER}"')

    async def call(self, work: Callable[[], T]) -> T:
        """Something of the SDK's, which blocks, in a thread. StartError for what the engine refuses."""
        assert self._threads is not None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: explained(work, self.image))

    # -- start and stop ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when every broker is a member. StartError: nothing is left in the engine."""
        self._threads = ThreadPoolExecutor(self._brokers + 1, thread_name_prefix="kwire-docker")
        try:
            self._client = await self.call(connected)
            await self.call(lambda: sweep_engine(self._client))
            await self.call(lambda: self._client.images.get(self.image))
            self._owner = TemporaryDirectory()
            if self._brokers > 1:
                await self.call(self._start_controller)
            works = [
                self.call(lambda node_id=node_id: self._run_broker(node_id))  # type: ignore[misc]
                for node_id in range(1, self._brokers + 1)
            ]
            results = await asyncio.gather(*works, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            self.handles = dict(sorted(self.handles.items()))
            await self.wait_for_members(set(self.handles))
        except BaseException:
            await self.abandon()
            raise

    def _labels(self) -> dict[str, str]:
        assert self._owner is not None
        return {LABEL_OWNER: self._owner.path, LABEL_HOST: this_host()}

    def _name(self) -> str:
        return self._labels()[LABEL_OWNER].rpartition("/")[2]

    def _start_controller(self) -> None:
        labels = self._labels()
        self._network = self._client.networks.create(self._name(), labels=labels)
        variables = {**_CONTROLLER, **_variables(self._config)}
        self._run(variables | {"CLUSTER_ID": self._cluster_id()}, CONTROLLER_ID, {})

    def _cluster_id(self) -> str:
        import hashlib
        from base64 import urlsafe_b64encode

        digest = hashlib.sha256(self._labels()[LABEL_OWNER].encode()).digest()[:16]
        return "K" + urlsafe_b64encode(digest).decode()[1:22]

    def _run_broker(self, node_id: int) -> None:
        """A container whose port is told to clients, so it is chosen first; somebody may take it before the engine."""
        host, bound = reachable_from_here(self._client)
        for tries_left in reversed(range(_PORT_TRIES)):
            with socket.create_server((bound, 0)) as chosen:
                port = chosen.getsockname()[1]
            handle = ContainerHandle(self, node_id, f"{host}:{port}")
            try:
                handle.container = self._run(
                    self._broker_variables(node_id, handle.advertised),
                    node_id,
                    {"9092/tcp": (bound, port)},
                )
            except Exception as error:
                if tries_left and "already" in str(error):  # allocated, in use
                    continue
                raise
            handle.running = True
            self.handles[node_id] = handle
            return

    def _broker_variables(self, node_id: int, advertised: str) -> dict[str, str]:
        variables = _variables(self._config)
        factor = str(min(3, self._brokers))
        variables.setdefault("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", factor)
        variables.setdefault("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", factor)
        if self._brokers == 1:
            variables["KAFKA_LISTENERS"] = "PLAINTEXT://0.0.0.0:9092"
            variables["KAFKA_ADVERTISED_LISTENERS"] = f"PLAINTEXT://{advertised}"
            return variables
        inside = f"INSIDE://{_alias(node_id)}:19092"
        return {
            **variables,
            **_BROKER,
            "CLUSTER_ID": self._cluster_id(),
            "KAFKA_NODE_ID": str(node_id),
            "KAFKA_ADVERTISED_LISTENERS": f"HOST://{advertised},{inside}",
        }

    def _run(self, variables: dict[str, str], node_id: int, ports: dict[str, Any]) -> Any:
        container = self._client.containers.create(
            self.image,
            detach=True,
            environment=variables,
            ports=ports,
            labels=self._labels(),
            name=f"{self._name()}-{node_id}-{os.urandom(2).hex()}",
        )
        self._made.append(container)
        if self._network is not None:
            self._network.connect(container, aliases=[_alias(node_id)])
        container.start()
        return container

    async def wait_for_members(self, wanted: set[int]) -> None:
        """Returns when a broker's metadata lists all of these. StartError when one has ended, or does not come."""
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while not wanted <= await self._members():
            await self.call(self._require_alive)
            if asyncio.get_running_loop().time() > deadline:
                raise errors.StartError(f"brokers {sorted(wanted)} were not ready in time")
            await asyncio.sleep(_POLL_SECONDS)

    async def _members(self) -> set[int]:
        try:
            metadata = await self.admin.metadata()
        except (KafkaError, NoBrokerError):
            return set()
        return {broker.node_id for broker in metadata.brokers}

    def _require_alive(self) -> None:
        for handle in self.handles.values():
            if handle.running:
                handle.container.reload()
                if handle.container.status in ("exited", "dead"):
                    handle.running = False
                    lines = handle.container.logs(stdout=False).decode(errors="replace").split("\n")
                    last = next((line for line in reversed(lines) if line.strip()), "no reason")
                    raise errors.StartError(f"broker {handle.node_id}: its container ended: {last}")

    async def abandon(self) -> None:
        """The end of a start that was not finished; and of everything else."""
        client, self._client = self._client, None
        threads, self._threads = self._threads, None
        if threads is None:
            return
        loop = asyncio.get_running_loop()
        with suppress(errors.KwireError):
            await loop.run_in_executor(threads, lambda: explained(self._remove, self.image))
        if client is not None:
            client.close()
        threads.shutdown()
        if self._owner is not None:
            self._owner.remove()
        self._owner = self._network = None
        for handle in self.handles.values():
            handle.running = handle.paused = False
        self.handles = {}

    def _remove(self) -> None:
        made, self._made = self._made, []
        for container in made:
            remove_quietly(lambda c=container: c.remove(force=True, v=True))  # type: ignore[misc]
        if self._network is not None:
            remove_quietly(self._network.remove)

    async def stop(self) -> None:
        """InternalError when a broker has met an error of kwire's own; nothing is left in the engine in any case."""
        try:
            found = await self.failures()
        finally:
            await self.abandon()
        if found:
            raise errors.InternalError(
                f"kwire has met an internal error in image {self.image} (please report it):\n{found[0]}",
                found,
            )

    # -- errors of kwire's own -------------------------------------------------------------------------------------

    async def keep_failures(self, node_id: int) -> None:
        """Nothing to be done but to look whether there is a cluster: a container's log outlives its process."""
        self._require_started()

    async def failures(self) -> list[str]:
        """What brokers have logged about errors of kwire's own."""
        self._require_started()
        return await self.call(self._logged_failures)

    def _logged_failures(self) -> list[str]:
        found = []
        for container in self._made:
            text = container.logs(stdout=False).decode(errors="replace")
            at = text.find(_INTERNAL_ERROR)
            if at >= 0:
                found.append(text[text.rfind("\n", 0, at) + 1 :][:6000])
        return found

    # -- questions -------------------------------------------------------------------------------------------------

    async def made_whole(self) -> None:
        """After all brokers were started: all are known again, none has dynamic configurations."""
        await self.wait_for_members(set(self.handles))
        addresses = {str(node_id): handle.address for node_id, handle in self.handles.items()}
        with translated():
            await self.admin.reset_broker_configs({"": addresses["1"], **addresses})

    async def requests_told(self) -> list[str]:
        """They are not kept in containers."""
        return []


_CONTROLLER = {
    "KAFKA_NODE_ID": str(CONTROLLER_ID),
    "KAFKA_PROCESS_ROLES": "controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": f"{CONTROLLER_ID}@controller:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENERS": "CONTROLLER://0.0.0.0:9093",
}
_BROKER = {
    "KAFKA_PROCESS_ROLES": "broker",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": f"{CONTROLLER_ID}@controller:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,HOST:PLAINTEXT,INSIDE:PLAINTEXT",
    "KAFKA_LISTENERS": "HOST://0.0.0.0:9092,INSIDE://0.0.0.0:19092",
}


def _alias(node_id: int) -> str:
    return "controller" if node_id == CONTROLLER_ID else f"kafka-{node_id}"


def _variables(config: dict[str, str]) -> dict[str, str]:
    """Configuration keys as the image's variables (docs/docker.md)."""
    found = {}
    for key, value in config.items():
        name = key.replace("_", "__").replace("-", "___").replace(".", "_")
        found["KAFKA_" + name.upper()] = value
    return found
