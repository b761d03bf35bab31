"""`kwire.aio.Cluster`: a cluster of brokers as an object, for code that runs on an event loop.

With isolation "thread" the brokers run on the caller's own loop, each behind its own TCP port; with "process" each is a
process (`kill` is SIGKILL, `pause` is SIGSTOP). `Cluster.connect` takes one that somebody else has started, also a real
Kafka: then whatever needs a broker's inside raises NotSupportedError. `kwire.Cluster` is the same for code without a
loop. Nothing outlives `stop`: no task, socket, process or temporary directory.

Not here yet: faults, the clock, snapshots, recorded requests.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from kwire import errors
from kwire.network import Network
from kwire.options import NodeLauncher, config_texts, parse_topics, translated
from kwire.protocol.errors import KafkaError
from kwire.server.admin import (
    CONSUMER,
    DEBUGGING_CONSUMER,
    EARLIEST,
    LATEST,
    PREFERRED,
    UNCLEAN,
    Admin,
    NoBrokerError,
)
from kwire.server.settings import NodeError
from kwire.views import NO_LEADER, Partition, Replica
from kwire.waiting import Observations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from kwire.server.supervisor import Handle, Supervisor

    T = TypeVar("T")

REQUEST_SECONDS = 20.0
_POLL_SECONDS = 0.002
_SIGNALS_OF_USERS = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT}  # whoever sends them means it


class Broker:
    """One broker of a cluster that was started here."""

    def __init__(self, cluster: Cluster, handle: Handle) -> None:
        self._cluster = cluster
        self._handle = handle
        self.id = handle.node_id
        self.paused = False

    @property
    def running(self) -> bool:
        """Started and neither stopped nor killed; a paused broker runs."""
        return self._handle.running

    @property
    def address(self) -> str:
        """host:port, the same for all its runs."""
        return self._handle.advertised

    @property
    def log_dir(self) -> str:
        """The directory of its logs, in Kafka's format."""
        return self._handle.settings.data_dir

    async def kill(self) -> None:
        """Ends it as `kill -9` does: nothing is flushed, nobody is told. Others notice when they do: `wait_for`."""
        await self._cluster.keep_failures(self)
        self.paused = False
        await self._handle.kill()

    async def stop(self) -> None:
        """A controlled shutdown: leaderships move away first, then its logs are closed cleanly."""
        await self.resume()
        await self._cluster.keep_failures(self)
        with translated():
            await self._handle.stop()

    async def start(self) -> None:
        """Starts it again, with its port and its directory; returns when the controller has taken it up."""
        if self.running:
            raise errors.ClusterStateError(f"broker {self.id} runs already")
        self._handle.settings.network = self._cluster.network.commands_of(self.id)
        with translated():
            await self._handle.start()

    async def pause(self) -> None:
        """Lets it stand still, its sockets open, as SIGSTOP does. Its lease runs out (broker.session.timeout.ms)."""
        self.require_running()
        self.paused = True
        self._handle.pause()

    async def resume(self) -> None:
        """Undoes `pause`."""
        if self.paused:
            self.paused = False
            self._handle.resume()

    def require_running(self) -> None:
        """BrokerNotAvailableError when it would not answer."""
        if not self.running:
            raise errors.BrokerNotAvailableError(f"broker {self.id} does not run")
        if self.paused:
            raise errors.BrokerNotAvailableError(f"broker {self.id} is paused")

    async def ask(self, *question: object) -> Any:
        """A question of kwire.server.inside."""
        self.require_running()
        with translated():
            return await self._handle.ask(*question)

    def __repr__(self) -> str:
        state = "paused" if self.paused else "running" if self.running else "down"
        return f"<broker {self.id} {self.address} {state}>"


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
    ) -> None:
        """`config`: Kafka's keys, for every broker. `isolation`: "thread" or "process".

        `data_dir`: for data that stays; without it, a temporary directory that goes with the cluster. `topics`: made at
        the start: "NAME[:PARTITIONS[:REPLICATION]]" each, or names and numbers of partitions. `recent_requests`: each
        broker keeps the last 20 of its clients, for `describe`. ConfigurationError."""
        self._launcher: NodeLauncher | None = NodeLauncher(
            brokers, config_texts(config or {}), isolation, data_dir, recent_requests
        )
        self._topics = parse_topics(topics)
        self._supervisor: Supervisor | None = None
        self._brokers: dict[int, Broker] = {}
        self._bootstrap = ""
        self._admin = Admin(self._addresses)
        self._failures: list[str] = []
        self.network = Network(self)
        """`cut`, `heal` and `delay` between brokers."""
        self.observations = Observations()

    # -- start and stop ------------------------------------------------------------------------------------------

    @classmethod
    async def connect(cls, bootstrap_servers: str) -> Self:
        """A cluster that runs elsewhere. BrokerNotAvailableError when nobody answers there."""
        cluster = cls()
        cluster._launcher = None
        cluster._bootstrap = bootstrap_servers
        try:
            _parse_addresses(bootstrap_servers)
            with translated():
                await cluster._admin.metadata()
        except ValueError:
            raise errors.ConfigurationError(
                f"bootstrap servers: expected HOST:PORT[,HOST:PORT…], not {bootstrap_servers!r}"
            ) from None
        return cluster

    @property
    def external(self) -> bool:
        """Whether somebody else has started it."""
        return self._launcher is None

    @property
    def started(self) -> bool:
        """Between `start` and `stop`; always, for one that was started elsewhere."""
        return self._launcher is None or self._supervisor is not None

    async def start(self) -> None:
        """Starts all brokers; returns when each knows of all others. StartError, ConfigurationError: nothing runs."""
        if self._launcher is None or self._supervisor is not None:
            return
        supervisor = self._launcher.prepare()
        try:
            with translated():
                await supervisor.start()
            self._supervisor = supervisor
            self._brokers = {
                node_id: Broker(self, handle) for node_id, handle in supervisor.brokers.items()
            }
            for name, partitions, replication in self._topics:
                if name not in await self._topic_counts():
                    await self.create_topic(name, partitions, replication)
        except BaseException:
            self._supervisor = None
            await supervisor.kill()
            self._launcher.clean_up()
            raise

    async def stop(self) -> None:
        """Stops everything. InternalError when a broker has met an error of kwire's own, StartError when one cannot be
        stopped cleanly; in both cases nothing runs any more. What is stopped already stays so."""
        supervisor, launcher = self._supervisor, self._launcher
        if supervisor is None or launcher is None:
            return
        for broker in self._brokers.values():
            await broker.resume()
            await self.keep_failures(broker)
        if supervisor.controller.running:
            with suppress(NodeError):
                self._failures += await supervisor.controller.ask("failures")
        self._failures += [
            f"the process of {what} has ended by itself: {how}"
            for what, how, status in supervisor.deaths
            if -status not in _SIGNALS_OF_USERS
        ]
        self._supervisor = None
        try:
            with translated():
                await supervisor.stop()
        finally:
            await supervisor.kill()
            launcher.clean_up()
        self.raise_failures()

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

    async def keep_failures(self, broker: Broker) -> None:
        """Takes what a broker met, before it ends, so that `stop` can tell."""
        if broker.running and not broker.paused:
            with suppress(errors.BrokerNotAvailableError):
                self._failures += await broker.ask("failures")

    async def failures(self) -> list[str]:
        """Tracebacks of errors of kwire's own, so far; `stop` raises InternalError when there are any."""
        found = list(self._failures)
        for broker in self._brokers.values():
            if broker.running and not broker.paused:
                found += await broker.ask("failures")
        if self._supervisor is not None:
            found += await self._ask_controller("failures")
        return found

    def raise_failures(self) -> None:
        """InternalError when brokers that have ended had met errors of kwire's own."""
        failures, self._failures = self._failures, []
        if failures:
            from kwire import __version__

            assert self._launcher is not None
            raise errors.InternalError(
                f"kwire {__version__} has met an internal error ({len(failures)} in all; please"
                f" report the first).\n{failures[0].rstrip()}\n"
                f"To reproduce: the same calls on {self._launcher.call}.",
                failures,
            )

    # -- the cluster ---------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given: the addresses of all brokers."""
        if self._launcher is None:
            return self._bootstrap
        return self._require_started().bootstrap_servers

    @property
    def brokers(self) -> list[Broker]:
        """All brokers, also those that do not run. NotSupportedError from outside."""
        self._require_inside("its brokers")
        return list(self._brokers.values())

    @property
    def controller_id(self) -> int:
        """The controller's node id, for `network.cut`: no broker's."""
        self._require_inside("the controller")
        return self._require_started().controller_id

    def broker(self, broker_id: int) -> Broker:
        """One broker. ClusterStateError when there is none of this id."""
        self._require_inside(f"broker {broker_id}")
        self._require_started()
        if broker_id not in self._brokers:
            raise errors.ClusterStateError(
                f"there is no broker {broker_id}; the brokers are {list(self._brokers)}"
            )
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
        with translated(f"topic {name}"):
            await self._admin.create_topic(
                name,
                partitions,
                replication_factor,
                config_texts(config or {}),
                assignment,
                REQUEST_SECONDS,
            )

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic; returns when it is gone. UnknownTopicOrPartitionError."""
        with translated(f"topic {name}"):
            await self._admin.delete_topics([name], REQUEST_SECONDS)

    async def topics(self) -> dict[str, int]:
        """Every topic, those of the coordinators included, and how many partitions it has."""
        return dict(sorted((await self._topic_counts()).items()))

    async def _topic_counts(self) -> dict[str, int]:
        if self._launcher is not None:
            found: dict[str, int] = await self._ask_controller("topics")
            return found
        with translated():
            metadata = await self._admin.metadata(None)
        return {topic.name: len(topic.partitions) for topic in metadata.topics}

    async def reset(self) -> None:
        """Makes it as new: all brokers run, the network is whole, no topics, no groups, no dynamic configurations."""
        if self._launcher is not None:
            self._require_started()
            await self.network.heal()
            for broker in self._brokers.values():
                await broker.resume()
                if not broker.running:
                    await broker.start()
            await self._wait_for_all_brokers()
            overridden = await self._ask_controller("overridden")
            if overridden:
                with translated():
                    await self._admin.reset_configs([(kind, name) for kind, name in overridden])
        names = list(await self._topic_counts())
        if names:
            with translated():
                await self._admin.delete_topics(names, REQUEST_SECONDS)

    async def _wait_for_all_brokers(self) -> None:
        deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
        while await self._ask_controller("brokers") != sorted(self._brokers):
            if asyncio.get_running_loop().time() > deadline:
                raise errors.WaitTimeoutError("the controller does not take up all brokers")
            await asyncio.sleep(_POLL_SECONDS)

    # -- partitions ----------------------------------------------------------------------------------------------

    async def partition(self, topic: str, partition: int) -> Partition:
        """A partition as it is now. UnknownTopicOrPartitionError."""
        if self._launcher is not None:
            found = await self._partition_inside(topic, partition)
        else:
            found = await self._partition_outside(topic, partition)
        self.observations.saw(found)
        return found

    async def _partition_inside(self, topic: str, index: int) -> Partition:
        state = await self._ask_controller("partition", topic, index)
        found: dict[int, Replica] = {}
        missing: dict[int, str] = {}
        for broker_id in state["replicas"]:
            try:
                copy = await self._brokers[broker_id].ask("replica", topic, index)
            except errors.KwireError as error:
                missing[broker_id] = str(error)
                continue
            found[broker_id] = Replica(
                broker_id,
                copy["log_start_offset"],
                copy["log_end_offset"],
                copy["high_watermark"],
                tuple((epoch, start) for epoch, start in copy["epochs"]),
            )
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

    async def _partition_outside(self, topic: str, index: int) -> Partition:
        admin = self._admin
        with translated(f"{topic}-{index}"):
            metadata = await admin.metadata([topic])
        addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        of_index = [p for p in metadata.topics[0].partitions if p.partition_index == index]
        if not of_index:
            raise errors.UnknownTopicOrPartitionError(f"there is no partition {topic}-{index}")
        (state,) = of_index
        found: dict[int, Replica] = {}
        missing: dict[int, str] = {}
        for broker_id in state.replica_nodes:
            if broker_id not in addresses:
                missing[broker_id] = "the broker does not run"
                continue
            at = addresses[broker_id]
            try:
                start = await admin.offset(at, topic, index, EARLIEST, DEBUGGING_CONSUMER)
                end = await admin.offset(at, topic, index, LATEST, DEBUGGING_CONSUMER)
                found[broker_id] = Replica(broker_id, start, end)
            except (KafkaError, NoBrokerError) as error:
                missing[broker_id] = str(error)
        high_watermark = None
        if state.leader_id in addresses:
            with suppress(KafkaError, NoBrokerError):
                at = addresses[state.leader_id]
                high_watermark = await admin.offset(at, topic, index, LATEST, CONSUMER)
        return Partition(
            topic,
            index,
            state.leader_id,
            state.leader_epoch,
            frozenset(state.isr_nodes),
            tuple(state.replica_nodes),
            high_watermark,
            found,
            missing,
        )

    async def elect(
        self, topic: str, partition: int, leader: int | None = None, *, unclean: bool = False
    ) -> None:
        """Holds an election; returns when its winner leads. Nothing happens when it leads already.

        `leader`: this replica; None: the preferred one, or with `unclean` the first that lives of a partition without
        leader. `unclean`: also one that is not in the ISR, at the loss of what it lacks. RequestError
        (ELIGIBLE_LEADERS_NOT_AVAILABLE, PREFERRED_LEADER_NOT_AVAILABLE). From outside a given leader is first made the
        preferred one, by a reassignment to the same replicas in another order."""
        with translated(f"{topic}-{partition}"):
            if leader is None:
                kind = UNCLEAN if unclean else PREFERRED
                await self._admin.elect(topic, partition, kind, REQUEST_SECONDS)
            elif self._launcher is not None:
                await self._ask_controller("appoint", topic, partition, leader, unclean)
            else:
                await self._elect_outside(topic, partition, leader, unclean)
        await self._wait_for_leader(topic, partition, leader)

    async def _elect_outside(self, topic: str, index: int, leader: int, unclean: bool) -> None:
        now = await self.partition(topic, index)
        if now.leader == leader:
            return
        if leader not in now.replicas:
            raise errors.RequestError(
                f"broker {leader} cannot lead {topic}-{index}: the replicas are {now.replicas}",
                "ELIGIBLE_LEADERS_NOT_AVAILABLE",
            )
        others = [broker for broker in now.replicas if broker != leader]
        await self._admin.reassign(topic, index, [leader, *others], REQUEST_SECONDS)
        kind = UNCLEAN if unclean and leader not in now.isr else PREFERRED
        await self._admin.elect(topic, index, kind, REQUEST_SECONDS)

    async def _wait_for_leader(self, topic: str, index: int, leader: int | None) -> None:
        deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
        while True:
            now = await self.partition(topic, index)
            if now.leader != NO_LEADER and leader in (None, now.leader):
                if now.leader not in self._brokers:
                    return
                with suppress(errors.KwireError):
                    copy = await self._brokers[now.leader].ask("replica", topic, index)
                    if copy["leads"] and copy["leader_epoch"] >= now.leader_epoch:
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
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            self.observations.begin()
            value: Any = None
            try:
                value = predicate(self)
                if hasattr(value, "__await__"):
                    value = await value
            except errors.KwireError as error:
                self.observations.failed(error)
            if value:
                found: T = value
                return found
            if asyncio.get_running_loop().time() >= deadline:
                raise self.observations.in_vain(predicate, value, timeout)
            await asyncio.sleep(_POLL_SECONDS)

    async def describe(self) -> str:
        """Brokers and partitions as text, for people: leaders, ISR, offsets; the last requests, if they are kept."""
        lines = [repr(broker) for broker in self._brokers.values()]
        if self._launcher is not None and self._supervisor is None:
            return "the cluster is stopped"
        async for partition in self._all_partitions():
            lines.append(str(partition))
        return "\n".join(lines + await self._requests_told())

    async def _requests_told(self) -> list[str]:
        if self._launcher is None or not self._launcher.recent_requests:
            return []
        from kwire.recent import told

        found = {}
        for broker in self._brokers.values():
            with suppress(errors.KwireError):
                found[broker.id] = await broker.ask("requests")
        lines = told(found)
        return ["last requests of clients:", *lines] if lines else []

    async def _all_partitions(self) -> AsyncIterator[Partition]:
        for topic, count in (await self.topics()).items():
            for index in range(count):
                with suppress(errors.KwireError):
                    yield await self.partition(topic, index)

    # -- inside --------------------------------------------------------------------------------------------------

    def _addresses(self) -> list[tuple[str, int]]:
        if self._launcher is None:
            return _parse_addresses(self._bootstrap)
        handles = self._require_started().brokers
        return [
            handles[broker.id].address
            for broker in self._brokers.values()
            if broker.running and not broker.paused
        ]

    async def _ask_controller(self, *question: object) -> Any:
        with translated():
            return await self._require_started().controller.ask(*question)

    def node(self, node_id: int) -> Handle:
        """A broker's launcher, or the controller's. ClusterStateError."""
        if node_id == self.controller_id:
            return self._require_started().controller
        return self.broker(node_id)._handle

    async def command_network(self, node_id: int, command: str) -> None:
        """NodeRunner.network at a node; one that does not run hears of it when it starts."""
        handle = self.node(node_id)
        if not handle.running:
            return
        if node_id in self._brokers:
            self._brokers[node_id].require_running()  # a paused one cannot hear it
        with translated():
            await handle.network(command)

    def _require_started(self) -> Supervisor:
        if self._supervisor is None:
            raise errors.ClusterStateError(
                "the cluster does not run: start it, or use it as a context"
            )
        return self._supervisor

    def _require_inside(self, what: str) -> None:
        if self._launcher is None:
            raise errors.NotSupportedError(
                f"{what}: not possible with a cluster that somebody else has started ({self._bootstrap})"
            )


def _parse_addresses(bootstrap_servers: str) -> list[tuple[str, int]]:
    addresses = []
    for item in bootstrap_servers.split(","):
        host, _, port = item.strip().rpartition(":")
        if not host:
            raise ValueError(item)
        addresses.append((host.strip("[]"), int(port)))
    return addresses
