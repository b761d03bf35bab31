"""`kwire.aio.Cluster`: a cluster of brokers as an object, for code that runs on an event loop.

With isolation "thread" the brokers run on the caller's own loop, each behind its own TCP port; with "process" each is a
process (`kill` is SIGKILL, `pause` is SIGSTOP), with "docker" a container. `Cluster.connect` takes one that somebody
else has started, also a real Kafka: then whatever needs a broker's inside raises NotSupportedError. `kwire.Cluster` is
the same for code without a loop. Nothing outlives `stop`: no task, socket, process, container or temporary directory.

What a cluster is, is behind one of `launched.py`, `containers.py` and `outside.py`. Not here yet: faults, the clock,
snapshots, recorded requests.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress

from kwire import errors
from kwire.backends.launched import Launched
from kwire.backends.network import Network
from kwire.backends.options import (
    NodeLauncher,
    check_assignment,
    check_name,
    check_number,
    config_texts,
    kwire_errors,
    parse_topics,
)
from kwire.backends.outside import Outside
from kwire.backends.views import (
    BrokerState,
    ControllerState,
    NodeState,
    Partition,
    require_answering,
)
from kwire.backends.waiting import Observations
from kwire.client.admin import PREFERRED, REQUEST_SECONDS, UNCLEAN
from kwire.launch.spec import DOCKER, ClusterSpec, NodeSpec
from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from kwire.backends.base import Backend, NodeHandle, StartedBackend
    from kwire.launch.supervisor import Supervisor

    T = TypeVar("T")

_POLL_SECONDS = 0.002
_NAME_CHARACTERS = 100  # of a topic, in what is said of it


class _Node(NodeState):
    """One node of a cluster that was started here."""

    def __init__(self, cluster: Cluster, handle: NodeHandle) -> None:
        super().__init__(handle)
        self._cluster = cluster

    async def kill(self) -> None:
        """Ends it as `kill -9` does: nothing is flushed, nobody is told. Others notice when they do: `wait_for`."""
        await self._cluster.inside.keep_failures(self.id)
        with kwire_errors():
            await self._handle.kill()

    async def stop(self) -> None:
        """A clean stop. Of a broker, with a controlled shutdown: leaderships move away first, then its logs are
        closed. Of a controller: another takes over at once, if there is one."""
        await self.resume()
        await self._cluster.inside.keep_failures(self.id)
        with kwire_errors():
            await self._handle.stop()

    async def start(self) -> None:
        """Starts it again, with its port and its directory. A broker: returns when the controller has taken it up."""
        await self._handle.refresh_running()
        if self.running:
            raise errors.ClusterStateError(f"{self._kind} {self.id} runs already")
        self._handle.set_start_rules(self._cluster.network.rules_of(self.id))
        with kwire_errors():
            await self._handle.start()

    async def pause(self) -> None:
        """Lets it stand still, its sockets open, as SIGSTOP does. Its lease runs out (broker.session.timeout.ms; a
        controller's: controller.quorum.fetch.timeout.ms)."""
        require_answering(self._handle, self._kind)
        await _done(self._handle.pause())

    async def resume(self) -> None:
        """Undoes `pause`."""
        if self.paused:
            await _done(self._handle.resume())


class Broker(BrokerState, _Node):
    """One broker of a cluster that was started here."""


class Controller(ControllerState, _Node):
    """One controller of a cluster that was started here. When none is active, no leader is elected, no topic made."""


class Cluster:
    """A cluster: `async with Cluster(brokers=3) as cluster`, or `await start()` … `await stop()`."""

    def __init__(
        self,
        brokers: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        isolation: str = "thread",
        data_dir: str | os.PathLike[str] | None = None,
        topics: Iterable[str] | Mapping[str, int] = (),
        recent_requests: bool = False,
        controllers: int = 1,
    ) -> None:
        """`config`: Kafka's keys, for every broker. `isolation`: "thread", "process" or "docker".

        `data_dir` (or log.dirs in `config`): for data that stays; without, a temporary directory. `topics`: made at
        the start: "NAME[:PARTITIONS[:REPLICATION]]" each, or names and numbers of partitions. `recent_requests`: each
        broker keeps the last 20 of its clients, for `describe`. `controllers`: how many; one of them is active, the
        others take over from it. ConfigurationError."""
        self._topics = parse_topics(topics)
        texts = config_texts(config)
        spec = ClusterSpec(
            brokers=brokers,
            controllers=controllers,
            isolation=isolation,
            node=NodeSpec(
                node_id=1, values=texts, recent_requests=recent_requests, log_level="warning"
            ),
        )
        if isolation == DOCKER:
            from kwire.backends.containers import Containers

            self._use(Containers(spec, data_dir))
        else:
            self._use(Launched(NodeLauncher(spec, data_dir), spec))
        self._brokers: dict[int, Broker] = {}
        self._controllers: dict[int, Controller] = {}
        self.network = Network(self)
        """`cut`, `heal` and `delay` between brokers."""
        self.observations = Observations()

    def _use(self, backend: StartedBackend) -> None:
        self._backend: Backend = backend
        self._inside: StartedBackend | None = backend

    # --- start and stop

    @classmethod
    async def connect(cls, bootstrap_servers: str) -> Self:
        """A cluster that runs elsewhere. BrokerNotAvailableError when nobody answers there."""
        cluster = cls()
        cluster._backend = outside = Outside(bootstrap_servers)
        cluster._inside = None
        await outside.connect()
        return cluster

    @classmethod
    def of(cls, supervisor: Supervisor) -> Self:
        """The cluster of a supervisor that runs on this loop, and that is stopped by whoever started it."""
        cluster = cls()
        cluster._use(Launched.adopt(supervisor))
        cluster._name_nodes()
        return cluster

    @property
    def external(self) -> bool:
        """Whether somebody else has started it."""
        return self._inside is None

    @property
    def started(self) -> bool:
        """Between `start` and `stop`; always, for one that was started elsewhere."""
        return self.external or self.inside.started

    async def start(self) -> None:
        """Starts all brokers; returns when each knows of all others. StartError, ConfigurationError: nothing runs."""
        if self.started:
            return
        inside = self.inside
        await inside.start()
        try:
            self._name_nodes()
            there = await inside.topics() if self._topics else {}
            for name, partitions, replication in self._topics:
                if name not in there:
                    await self.create_topic(name, partitions, replication)
        except BaseException:
            await inside.abandon()
            raise

    def _name_nodes(self) -> None:
        inside = self.inside
        self._brokers = {id_: Broker(self, handle) for id_, handle in inside.handles.items()}
        self._controllers = {
            id_: Controller(self, handle) for id_, handle in inside.controllers.items()
        }

    async def stop(self) -> None:
        """Stops everything. InternalError when a broker has met an error of kwire's own, StartError when one cannot be
        stopped cleanly; in both cases nothing runs any more. What is stopped already stays so."""
        if self.started and not self.external:
            await self.inside.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.stop()
        except errors.KwireError as failure:
            if error is None:
                raise
            error.add_note(str(failure))

    async def failures(self) -> list[str]:
        """Tracebacks of errors of kwire's own, so far; `stop` raises InternalError when there are any."""
        return [] if self.external else await self.inside.failures()

    # --- the cluster

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given: the addresses of all brokers."""
        return self._backend.bootstrap_servers

    @property
    def brokers(self) -> list[Broker]:
        """All brokers, also those that do not run. NotSupportedError from outside."""
        self._require_inside("its brokers")
        return [self._brokers[broker_id] for broker_id in self.inside.handles]

    @property
    def controller_id(self) -> int:
        """The controller's node id, for `network.cut`: no broker's. Of several controllers, the first one's."""
        return self._require_inside("the controller").controller_id

    @property
    def controllers(self) -> list[Controller]:
        """All controllers, also those that do not run. NotSupportedError from outside."""
        return [self._controllers[each] for each in self._require_inside("controllers").controllers]

    def controller(self, controller_id: int) -> Controller:
        """One controller. ClusterStateError when there is none of this id."""
        controllers = self._require_inside(f"controller {controller_id}").controllers
        if controller_id not in controllers:
            raise errors.ClusterStateError(
                f"there is no controller {controller_id!r}; the controllers are {list(controllers)}"
            )
        return self._controllers[controller_id]

    async def active_controller(self) -> Controller:
        """The controller that decides now. BrokerNotAvailableError when there is none."""
        return self._controllers[await self._require_inside("controllers").active_controller()]

    def broker(self, broker_id: int) -> Broker:
        """One broker. ClusterStateError when there is none of this id."""
        handles = self._require_inside(f"broker {broker_id}").handles
        if broker_id not in handles:
            raise self._no_broker(broker_id)
        return self._brokers[broker_id]

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, object] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Makes a topic; returns when all its partitions have leaders. -1: the brokers' defaults.

        `assignment`: the replicas of each partition, in place of the two numbers. RequestError (TOPIC_ALREADY_EXISTS,
        INVALID_REPLICATION_FACTOR, …)."""
        texts = config_texts(config)
        check_name("topic", name)
        if assignment is not None:
            check_assignment(assignment)
            if (partitions, replication_factor) != (-1, -1):
                raise errors.ConfigurationError(
                    "assignment: says how many partitions and replicas there are; not beside these"
                )
        admin = self._backend.admin
        with kwire_errors(f"topic {name[:_NAME_CHARACTERS]}"):
            await admin.run(
                admin.create_topic(
                    name, partitions, replication_factor, texts, assignment, REQUEST_SECONDS
                )
            )

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic; returns when it is gone. UnknownTopicOrPartitionError."""
        check_name("topic", name)
        admin = self._backend.admin
        with kwire_errors(f"topic {name[:_NAME_CHARACTERS]}"):
            await admin.run(admin.delete_topics([name], REQUEST_SECONDS))

    async def topics(self) -> dict[str, int]:
        """Every topic, those of the coordinators included, and how many partitions it has."""
        return dict(sorted((await self._backend.topics()).items()))

    async def reset(self) -> None:
        """Makes it as new: all brokers run, the network is whole, no topics, no groups, no dynamic configurations."""
        if not self.external:
            nodes = (*self.controllers, *self.brokers)
            for node in nodes:
                await node.resume()
            await self.network.heal()  # a paused node could not be told
            for node in nodes:
                if not node.running:
                    await node.start()
            await self.inside.restore()
        names = list(await self._backend.topics())
        if names:
            admin = self._backend.admin
            with kwire_errors():
                await admin.run(admin.delete_topics(names, REQUEST_SECONDS))

    # --- partitions

    async def partition(self, topic: str, partition: int) -> Partition:
        """A partition as it is now. UnknownTopicOrPartitionError."""
        check_name("topic", topic)
        check_number("partition", partition)
        found = await self._backend.partition(topic, partition)
        self.observations.record_partition(found)
        return found

    async def elect(
        self, topic: str, partition: int, leader: int | None = None, *, unclean: bool = False
    ) -> None:
        """Holds an election; returns when its winner leads. Nothing happens when it leads already.

        `leader`: this replica; None: the preferred one, or with `unclean` the first that lives of a partition without
        leader. `unclean`: also one that is not in the ISR, at the loss of what it lacks. RequestError
        (ELIGIBLE_LEADERS_NOT_AVAILABLE, PREFERRED_LEADER_NOT_AVAILABLE). From outside a given leader is first made the
        preferred one, by a reassignment to the same replicas in another order."""
        check_name("topic", topic)
        check_number("partition", partition)
        if leader is not None:
            check_number("leader", leader)
        with kwire_errors(f"{topic}-{partition}"):
            if leader is None:
                kind = UNCLEAN if unclean else PREFERRED
                admin = self._backend.admin
                await admin.run(admin.elect(topic, partition, kind, REQUEST_SECONDS))
            else:
                await self._backend.appoint(topic, partition, leader, unclean)
        deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
        while True:
            now = await self.partition(topic, partition)
            there = now.leader != NO_LEADER and leader in (None, now.leader)
            if there and await self._backend.is_led(now):
                return
            if asyncio.get_running_loop().time() > deadline:
                raise errors.WaitTimeoutError(f"nobody leads after the election: {now}")
            await asyncio.sleep(_POLL_SECONDS)

    async def wait_for(
        self,
        predicate: Callable[[Self], T | Awaitable[T]],
        timeout: float = 5.0,
    ) -> T:
        """The first true value of `predicate(cluster)`, which may be a coroutine function. `timeout`: seconds.

        Errors of brokers that do not answer, or not so yet, count as false. WaitTimeoutError tells what was waited for
        and what was seen last."""
        self.observations.check(self, predicate, timeout)
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            self.observations.begin()
            value: Any = None
            try:
                value = predicate(self)
                if inspect.isawaitable(value):
                    value = await value
            except errors.KwireError as error:
                self.observations.record_error(error)
            if value:
                found: T = value
                return found
            if asyncio.get_running_loop().time() >= deadline:
                raise self.observations.timeout_error(predicate, value, timeout)
            await asyncio.sleep(_POLL_SECONDS)

    async def describe(self) -> str:
        """Brokers and partitions as text, for people: leaders, ISR, offsets; the last requests, if they are kept."""
        if not self.started:
            return "the cluster is stopped"
        lines = [] if self.external else [repr(broker) for broker in self.brokers]
        if not self.external and len(self.controllers) > 1:
            lines += await self._describe_controllers()
        try:
            async for partition in self._all_partitions():
                lines.append(str(partition))
        except errors.BrokerNotAvailableError as error:  # no controller, say
            lines.append(str(error))
        if not self.external:
            lines += await self._describe_requests()
        return "\n".join(lines)

    async def _describe_requests(self) -> list[str]:
        kept = await self.inside.requests.by_broker()
        if not any(kept.values()):
            return []
        from kwire.recent import format_requests

        return ["last requests of clients:", *format_requests(kept)]

    async def _describe_controllers(self) -> list[str]:
        active = None
        with suppress(errors.KwireError):
            active = await self.active_controller()
        return [f"{each!r}{' active' if each is active else ''}" for each in self.controllers]

    async def _all_partitions(self) -> AsyncIterator[Partition]:
        for topic, count in (await self.topics()).items():
            for index in range(count):
                with suppress(errors.KwireError):
                    yield await self.partition(topic, index)

    # --- inside

    @property
    def inside(self) -> StartedBackend:
        """What was started here."""
        return self._require_inside("its inside")

    def node(self, node_id: int) -> NodeHandle:
        """What starts and ends a broker or a controller. ClusterStateError; NotSupportedError."""
        try:
            return self._require_inside("the network between brokers").node(node_id)
        except KeyError:
            raise self._no_broker(node_id) from None

    def _no_broker(self, broker_id: object) -> errors.ClusterStateError:
        text = f"there is no broker {broker_id!r}; the brokers are {list(self._brokers)}"
        return errors.ClusterStateError(text)

    def _require_inside(self, what: str) -> StartedBackend:
        if self._inside is not None:
            return self._inside
        raise errors.NotSupportedError(
            f"{what}: not possible with a cluster that somebody else has started"
            f" ({self._backend.bootstrap_servers})"
        )


async def _done(work: Awaitable[None] | None) -> None:
    if work is not None:
        await work
