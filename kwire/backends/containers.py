"""A cluster of containers in a Docker engine, for `Cluster(isolation="docker")` and the pytest plugin.

A single broker is one container with the controller in it, as `docker run` starts it. Several brokers are a container
each, plus one for each controller, on their own network, as in examples/compose/three-brokers.yml. `kill` is `docker
kill`, `stop` is `docker stop`, `pause` is `docker pause`. Topics and partitions are queried over Kafka's protocol; link
rules, the last requests and the active controller over the control API of each container (`kwire.control.node_api`).

The image is `kwire`, or the one that KWIRE_IMAGE names. The Docker SDK (the extra `kwire[docker]`) is imported when the
first cluster starts. `stop` leaves nothing in the engine. Leftovers of a killed process are removed by the next start:
a lock on a temporary directory shows whether the owner lives.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from base64 import urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

from kwire import errors
from kwire.backends.container import ENDED, ContainerHandle, control_variables
from kwire.backends.engine import (
    IMAGE_VARIABLE,
    LABEL_HOST,
    LABEL_OWNER,
    connect_engine,
    reachable_from_here,
    remove_quietly,
    sweep_engine,
    this_host,
    translate_errors,
)
from kwire.backends.inside.doors import INSIDE_PORT, Doors, alias_of
from kwire.backends.options import check_configs, checked_controllers, kwire_errors
from kwire.backends.outside import SeenFromOutside
from kwire.backends.requests import RequestHistory
from kwire.backends.views import require_answering
from kwire.client.admin import NoBrokerError
from kwire.launch.spec import CONTROL_PORT, DOCKER
from kwire.protocol.errors import KafkaError
from kwire.replication.core.types import CONTROLLER_ID, CONTROLLER_IDS_FROM
from kwire.server.temporary import TemporaryDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from kwire.client.connection import Address
    from kwire.launch.spec import ClusterSpec

    T = TypeVar("T")

_DATA_DIR = "/var/lib/kafka/data"
START_SECONDS = 60.0
_POLL_SECONDS = 0.02
_PORT_TRIES = 5


class Containers(SeenFromOutside):
    """A cluster in a Docker engine."""

    def __init__(self, spec: ClusterSpec, data_dir: str | os.PathLike[str] | None) -> None:
        """ConfigurationError. The engine is contacted by `start` only."""
        super().__init__()
        check_configs(spec, dict(spec.node.values))
        count = checked_controllers(spec.controllers)
        self._doors = Doors(spec)
        self.spec = spec
        """What it was made with; while it runs, with its certificates."""
        self._controller_ids = list(range(CONTROLLER_ID, CONTROLLER_ID + count))
        self.requests = RequestHistory(
            spec.node.recent_requests,
            brokers=lambda: self.handles,
            ask=self._requests_of,
            forget=lambda node_id: self.ask(node_id, "DELETE", "/v1/requests"),
        )
        self.controllers: dict[int, ContainerHandle] = {}  # in containers of their own
        if data_dir is not None:
            raise errors.ConfigurationError('data_dir: not possible with isolation "docker"')
        self._brokers = spec.brokers
        self.image = os.environ.get(IMAGE_VARIABLE) or "kwire"
        self.handles: dict[int, ContainerHandle] = {}
        self._client: Any = None
        self._volume: Any = None  # which several controllers share
        self._made: list[Any] = []  # containers
        self._network: Any = None
        self._owner: TemporaryDirectory | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def started(self) -> bool:
        """Between `start` and `stop`."""
        return self._client is not None

    @property
    def bootstrap_servers(self) -> str:
        """The advertised addresses of all brokers, comma-separated."""
        self._require_started()
        return ",".join(handle.advertised for handle in self.handles.values())

    @property
    def controller_id(self) -> int:
        """The node id of the (first) controller. NotSupportedError for a single broker, whose container includes it."""
        self._require_controllers()
        return CONTROLLER_ID

    def _require_controllers(self) -> None:
        if not self.has_network:
            raise errors.NotSupportedError(
                f'the controller: with isolation "{DOCKER}" that of a single broker is in its container'
            )

    @property
    def has_network(self) -> bool:
        """Whether there is more than one container."""
        return self._brokers > 1 or len(self._controller_ids) > 1

    def node(self, node_id: int) -> ContainerHandle:
        """A broker or a controller. KeyError."""
        self._require_started()
        return self.controllers.get(node_id) or self.handles[node_id]

    def id_inside(self, node_id: int) -> int:
        """The id that the image uses for a node: a controller's is offset by a constant."""
        return node_id + CONTROLLER_IDS_FROM if node_id in self.controllers else node_id

    async def active_controller(self) -> int:
        """The id of the active controller. BrokerNotAvailableError when none is active."""
        self._require_started()
        self._require_controllers()
        found: list[tuple[int, int]] = []
        for node_id, handle in self.controllers.items():
            if handle.answers:
                with suppress(errors.KwireError):
                    for each in (await handle.ask("GET", "/v1/cluster"))["controllers"]:
                        if each["active"]:
                            found.append((each["epoch"], node_id))
        if not found:
            raise errors.BrokerNotAvailableError(
                f"none of the controllers {self._controller_ids} is active", "NOT_CONTROLLER"
            )
        return max(found)[1]

    def addresses(self) -> list[Address]:
        self._require_started()
        return [h.address for h in self.handles.values() if h.running and not h.paused]

    def _require_started(self) -> None:
        if self._client is None:
            raise errors.ClusterStateError(
                "the cluster does not run: start it, or use it as a context"
            )

    async def call(self, work: Callable[[], T]) -> T:
        """Run a blocking call of the SDK in a thread. StartError when the engine refuses it."""
        assert self._threads is not None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: translate_errors(work, self.image))

    # --- start and stop

    async def start(self) -> None:
        """Start all; return when every broker is registered. StartError: the engine is clean."""
        self.requests.clear()
        workers = self._brokers + len(self._controller_ids)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="kwire-docker")
        try:
            self._client = await self.call(connect_engine)
            await self.call(lambda: sweep_engine(self._client))
            await self.call(lambda: self._client.images.get(self.image))
            self._owner = folder = TemporaryDirectory()
            _, bound = reachable_from_here(self._client)
            await self.call(lambda: self._doors.make_certificates(folder.path, bound))
            self.spec = self._doors.spec
            if self.has_network:
                await self.call(self._start_controllers)
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
        return self.data_dir.rpartition("/")[2]

    def _start_controllers(self) -> None:
        labels = self._labels()
        self._network = self._client.networks.create(self._name(), labels=labels)
        if len(self._controller_ids) > 1:
            self._volume = self._client.volumes.create(self._name(), labels=labels)
        for node_id in self._controller_ids:
            self._run_controller(node_id)

    def _membership(self) -> dict[str, str]:
        voters = ",".join(f"{each}@{alias_of(each)}:9093" for each in self._controller_ids)
        return {
            "CLUSTER_ID": self.cluster_id,
            "KAFKA_CONTROLLER_QUORUM_VOTERS": voters,
            "KWIRE_CONTROLLERS": str(len(self._controller_ids)),
        }

    @property
    def data_dir(self) -> str:
        """A temporary directory on this machine, for snapshots."""
        self._require_started()
        return self._labels()[LABEL_OWNER]

    @property
    def cluster_id(self) -> str:
        digest = hashlib.sha256(self._labels()[LABEL_OWNER].encode()).digest()[:16]
        return "K" + urlsafe_b64encode(digest).decode()[1:22]

    def _run_controller(self, node_id: int) -> None:
        variables = {
            **self._doors.of_controller(node_id),
            **self.spec.node.replace(recent_requests=False).variables(),
            **self._membership(),
            "KAFKA_NODE_ID": str(node_id),
        }

        def made(host: str, port: int) -> tuple[ContainerHandle, dict[str, str]]:
            control, advertised = f"{host}:{port}", f"{alias_of(node_id)}:9093"
            handle = ContainerHandle(self, node_id, advertised, control, "controller")
            return handle, variables

        self.controllers[node_id] = self._run_with_ports(made, [CONTROL_PORT])

    def _run_broker(self, node_id: int) -> None:
        def made(
            host: str, port: int, control: int, *inside: int
        ) -> tuple[ContainerHandle, dict[str, str]]:
            handle = ContainerHandle(self, node_id, f"{host}:{port}", f"{host}:{control}")
            for each in inside:
                handle.inside = self.admin.routes[alias_of(node_id), INSIDE_PORT] = host, each
            return handle, self._broker_variables(node_id, handle.advertised)

        self.handles[node_id] = self._run_with_ports(made, self._doors.ports)

    def _run_with_ports(
        self, made: Callable[..., tuple[ContainerHandle, dict[str, str]]], inner: list[int]
    ) -> ContainerHandle:
        """Run a container with published ports; retry when one of them has been taken meanwhile.

        Ports are chosen here because the node advertises them. `made(host, *ports)` returns the
        handle and the variables. `inner`: the ports inside the container."""
        host, bound = reachable_from_here(self._client)
        for tries_left in reversed(range(_PORT_TRIES)):
            with ExitStack() as stack:
                chosen = [stack.enter_context(socket.create_server((bound, 0))) for _ in inner]
                ports = [each.getsockname()[1] for each in chosen]
            handle, variables = made(host, *ports)
            published = {
                f"{port}/tcp": (bound, outer) for port, outer in zip(inner, ports, strict=True)
            }
            variables = {**variables, **control_variables()}
            try:
                handle.container = self._run(variables, handle, published)
            except Exception as error:
                if tries_left and "already" in str(error):  # allocated, in use
                    continue
                raise
            handle.running = True
            return handle
        raise AssertionError

    def _broker_variables(self, node_id: int, advertised: str) -> dict[str, str]:
        variables = self._doors.of_broker(node_id, advertised, is_alone=not self.has_network)
        factor = str(min(3, self._brokers))
        variables.setdefault("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", factor)
        variables.setdefault("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", factor)
        variables.update(self.spec.node.variables())
        if not self.has_network:
            return variables
        return {**variables, **self._membership(), "KAFKA_NODE_ID": str(node_id)}

    def _run(
        self, variables: dict[str, str], handle: ContainerHandle, ports: dict[str, Any]
    ) -> Any:
        node_id, volumes = handle.node_id, {}
        if self._volume is not None and handle.kind == "controller":
            volumes[self._volume.name] = {"bind": _DATA_DIR, "mode": "rw"}
        container = self._client.containers.create(
            self.image,
            detach=True,
            environment=variables,
            ports=ports,
            volumes=volumes,
            labels=self._labels(),
            name=f"{self._name()}-{node_id}-{os.urandom(2).hex()}",
        )
        self._made.append(container)
        if self._network is not None:
            self._network.connect(container, aliases=[alias_of(node_id)])
        if handle.kind == "broker":
            self._doors.put_certificates(container, node_id)
        container.start()
        return container

    async def wait_for_members(self, wanted: set[int]) -> None:
        """Wait until a broker's metadata lists these. StartError: container ended, or time-out."""
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while not wanted <= await self._members():
            await self.call(self._require_alive)
            if asyncio.get_running_loop().time() > deadline:
                raise errors.StartError(f"brokers {sorted(wanted)} were not ready in time")
            await asyncio.sleep(_POLL_SECONDS)

    async def wait_for_control(self, handle: ContainerHandle) -> None:
        """Wait until a node's control API answers. StartError: container ended, or time-out."""
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while True:
            try:
                await handle.ask("GET", "/healthz")
                return
            except errors.BrokerNotAvailableError as error:
                await self.call(self._require_alive)
                if asyncio.get_running_loop().time() > deadline:
                    raise errors.StartError(f"not ready in time: {error}") from None
            await asyncio.sleep(_POLL_SECONDS)

    async def _members(self) -> set[int]:
        try:
            metadata = await self.admin.run(self.admin.metadata())
        except (KafkaError, NoBrokerError):
            return set()
        return {broker.node_id for broker in metadata.brokers}

    def _require_alive(self) -> None:
        for handle in (*self.controllers.values(), *self.handles.values()):
            if handle.running:
                handle.container.reload()
                if handle.container.status in ENDED:
                    handle.running = False
                    lines = handle.container.logs(stdout=False).decode(errors="replace").split("\n")
                    last = next((line for line in reversed(lines) if line.strip()), "no reason")
                    what = f"{handle.kind} {handle.node_id}"
                    raise errors.StartError(f"{what}: its container ended: {last}")

    async def abandon(self) -> None:
        """Remove everything from the engine, also after an unfinished start."""
        client, self._client = self._client, None
        threads, self._threads = self._threads, None
        if threads is None:
            return
        loop = asyncio.get_running_loop()
        with suppress(errors.KwireError):
            await loop.run_in_executor(threads, lambda: translate_errors(self._remove, self.image))
        if client is not None:
            client.close()
        threads.shutdown()
        if self._owner is not None:
            self._owner.remove()
        self.spec = self._doors.forget_certificates()
        self._owner = self._network = self._volume = None
        for handle in (*self.controllers.values(), *self.handles.values()):
            handle.running = handle.paused = False
        self.handles, self.controllers = {}, {}

    def _remove(self) -> None:
        made, self._made = self._made, []
        for container in made:
            remove_quietly(lambda c=container: c.remove(force=True, v=True))  # type: ignore[misc]
        if self._network is not None:
            remove_quietly(self._network.remove)
        if self._volume is not None:
            remove_quietly(self._volume.remove)

    async def stop(self) -> None:
        """Stop and remove everything, in any case. InternalError when a broker has had an internal error."""
        try:
            found = await self.failures()
        finally:
            await self.abandon()
        if found:
            raise errors.InternalError(
                f"kwire has met an internal error in image {self.image} (please report it):\n{found[0]}",
                found,
            )

    # --- internal errors

    async def keep_failures(self, node_id: int) -> None:
        """Save the last requests of a node that is about to end; its log outlives its process."""
        self._require_started()
        await self.requests.keep(node_id)
        await self.events.keep(self.node(node_id))

    async def failures(self) -> list[str]:
        """Log lines of the containers about internal errors."""
        self._require_started()
        return await self.call(self._logged_failures)

    def _logged_failures(self) -> list[str]:
        found = []
        for container in self._made:
            text = container.logs(stdout=False).decode(errors="replace")
            at = text.find(errors.INTERNAL_ERROR)
            if at >= 0:
                found.append(text[text.rfind("\n", 0, at) + 1 :][:6000])
        return found

    # --- queries

    async def restore(self) -> None:
        """Wait until all brokers are registered; drop dynamic configurations and kept requests."""
        await self.wait_for_members(set(self.handles))
        if self.requests.is_kept:
            await self.requests.forget()
        addresses = {str(node_id): handle.address for node_id, handle in self.handles.items()}
        with kwire_errors():
            await self.admin.run(self.admin.reset_broker_configs({"": addresses["1"], **addresses}))

    async def _requests_of(self, node_id: int) -> list[list[Any]]:
        from kwire.recent import from_objects

        return from_objects(await self.ask(node_id, "GET", "/v1/requests"))

    async def ask(self, broker_id: int, method: str, path: str, body: Any = None) -> Any:
        require_answering(self.handles[broker_id])
        return await self.handles[broker_id].ask(method, path, body)
