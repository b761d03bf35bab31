"""`kwire.aio.Cluster`: a cluster of brokers as an object, for code that runs on an event loop.

With isolation "thread" the brokers run on the caller's own loop, each behind its own TCP port; with "process" each is a
process (`kill` is SIGKILL, `pause` is SIGSTOP), with "docker" a container. `Cluster.connect` takes one that runs, also
a real Kafka: what needs a broker's inside then raises NotSupportedError. `kwire.Cluster` is the same for code without a
loop. Nothing outlives `stop`: no task, socket, process, container or temporary directory.
Backends do the work."""

from __future__ import annotations

from kwire import errors
from kwire.backends import running, views
from kwire.backends.clock.clock import Clock
from kwire.backends.contents import Contents
from kwire.backends.faults.faults import Faults, HasDisk
from kwire.backends.launched import backend_of
from kwire.backends.network import Network
from kwire.backends.options import (
    check_assignment,
    check_name,
    check_number,
    checked_racks,
    config_texts,
    kwire_errors,
    parse_topics,
    spec_of,
)
from kwire.backends.outside import Outside
from kwire.backends.snapshots.verbs import Snapshots
from kwire.backends.views import Partition, is_down, may_be_paused
from kwire.backends.waiting import Observations, done, first_true, refuse_paused, until_led
from kwire.client.admin import PREFERRED, REQUEST_SECONDS, UNCLEAN
from kwire.server.events import NodeEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self, TypeVar

    from kwire.backends.base import Backend, NodeHandle, StartedBackend
    from kwire.launch.node_runner import NodeRunner
    from kwire.launch.supervisor import Supervisor
    from kwire.replication.core.events import EventType

    T = TypeVar("T")

_NAME_CHARACTERS = 100  # of a topic, in what is said of it


class _Node(HasDisk, views.NodeState):
    """One node of a cluster that was started here."""

    def __init__(self, cluster: Cluster, handle: NodeHandle) -> None:
        super().__init__(handle)
        self._cluster = cluster

    async def kill(self) -> None:
        """Kill it as `kill -9` does: nothing is flushed, nobody is notified. No-op if it is down, as of `stop`."""
        if self.running:
            await self._cluster.faults.keep_failures(self._handle)
            self._log(NodeEvent.KILL_REQUESTED)
            with kwire_errors():
                await self._handle.kill()

    async def stop(self) -> None:
        """Stop it cleanly. A broker shuts down controlled: its leaderships move, then its logs are closed. A controller
        releases its lease: a standby takes over immediately."""
        if self.running:
            await self.resume()
            await self._cluster.faults.keep_failures(self._handle)
            self._log(NodeEvent.STOP_REQUESTED)
            with kwire_errors():
                await self._handle.stop()

    async def start(self) -> None:
        """Restart it on its port and directory, unless it runs; a broker is registered when this returns."""
        await self._handle.refresh_running()
        if is_down(self._handle, self._kind):
            self._handle.set_start_rules(self._cluster.network.rules_of(self.id))
            self._log(NodeEvent.START_REQUESTED)
            with kwire_errors():
                await self._handle.start()
            await self._cluster.faults.tell(self._handle)

    async def pause(self) -> None:
        """Freeze it, unless it is paused, with its sockets open, as SIGSTOP does. Its session expires
        (broker.session.timeout.ms; a controller's lease: controller.quorum.fetch.timeout.ms)."""
        if may_be_paused(self._handle, self._kind):
            await self._cluster.inside.events.keep(self._handle)
            self._log(NodeEvent.PAUSE_REQUESTED)
            await done(self._handle.pause())

    async def resume(self) -> None:
        """Undo `pause`; no-op if it is not paused."""
        if self.paused:
            self._log(NodeEvent.RESUME_REQUESTED)
            await done(self._handle.resume())
            await self._cluster.faults.tell(self._handle)

    def _log(self, kind: EventType) -> None:
        self._cluster.inside.events.log(kind, role=self._kind, node_id=self.id)


class Broker(views.BrokerState, _Node):
    """One broker of a cluster that was started here."""


class Controller(views.ControllerState, _Node):
    """One controller of a cluster that was started here. When none is active, no leader is elected, no topic made."""


class Cluster(Contents, Snapshots):
    """A cluster: `async with Cluster(brokers=3) as cluster`, or `await start()` … `await stop()`."""

    _made_again: list[str] | tuple[()] = ()  # topics, during the last reset

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
        racks: Sequence[str] = (),
        fast: bool = False,
        sasl: str | None = None,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
        mtls: bool = False,
        acl: bool = False,
        super_users: Sequence[str] = (),
    ) -> None:
        """`config`: Kafka's keys, for every broker. `isolation`: "thread", "process" or "docker". ConfigurationError.

        `data_dir` (or log.dirs in `config`): is kept; default: a temporary one. `topics`: created at start, each
        "NAME[:PARTITIONS[:REPLICATION]]", or names with partition counts. `recent_requests`: the last 20 of each client
        are kept for `requests`. `controllers`: one is active, the others are standbys. `racks`: of the brokers in turn.
        `fast`: retention, compaction, sessions soon. `sasl`: "plain", "scram-sha-256", "scram-sha-512", "oauthbearer";
        `users`: secrets by name. `tls`: TLS; `mtls`: certificates. `acl`: rules for all but `super_users`."""
        self._topics = parse_topics(topics)
        spec = spec_of(
            brokers,
            controllers,
            isolation,
            checked_racks(racks, brokers),
            values=config_texts(config),
            locks=(sasl, users, tls, mtls, acl, super_users),
            recent_requests=recent_requests,
            fast=fast,
        )
        self._use(backend_of(spec, data_dir))
        self.network = Network(self)  # cut, heal and delay between brokers
        self.observations = Observations()

    def _use(self, backend: StartedBackend) -> None:
        self.faults, self.clock = Faults(self), Clock(self)
        self._backend: Backend = backend
        self._inside: StartedBackend | None = backend
        self._brokers: dict[int, Broker] = {}
        self._controllers: dict[int, Controller] = {}

    # --- start and stop

    @classmethod
    async def connect(cls, bootstrap_servers: str) -> Self:
        """Connect to a cluster that runs elsewhere. BrokerNotAvailableError when no broker answers."""
        cluster = cls()
        cluster._backend = outside = Outside(bootstrap_servers)
        cluster._inside = None
        await outside.connect()
        return cluster

    @classmethod
    def of(cls, running: Supervisor | NodeRunner) -> Self:
        """The cluster of a supervisor or standalone broker that runs on this loop; its owner stops it."""
        from kwire.backends.standalone import adopt

        cluster = cls()
        cluster._use(adopt(running))
        cluster._name_nodes()
        return cluster

    @property
    def external(self) -> bool:
        """Whether it was started elsewhere (`connect`)."""
        return self._inside is None

    @property
    def started(self) -> bool:
        """Between `start` and `stop`; always, for one that was started elsewhere."""
        return self.external or self.inside.started

    async def start(self) -> None:
        """Start all brokers; return when each knows all others. On StartError or ConfigurationError nothing runs."""
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
        running.add(self)

    def _name_nodes(self) -> None:
        inside = self.inside
        self._brokers = {id_: Broker(self, handle) for id_, handle in inside.handles.items()}
        self._controllers = {
            id_: Controller(self, handle) for id_, handle in inside.controllers.items()
        }

    async def stop(self) -> None:
        """Stop everything; no error when it is stopped already. InternalError if a broker met a bug of kwire,
        StartError if one could not be stopped cleanly; nothing runs afterwards in either case."""
        if self.started and not self.external:
            running.remove(self)
            self.faults.forget()
            await self.inside.stop()

    def __repr__(self) -> str:
        from kwire.backends.description import name_of

        return name_of(self, self._backend)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.started and running.wants_last_words(error):
            await running.keep_last_words(self)
        try:
            await self.stop()
        except errors.KwireError as failure:
            if error is None:
                raise
            error.add_note(str(failure))

    async def failures(self) -> list[str]:
        """Tracebacks of kwire's own errors so far; `stop` raises InternalError if there are any."""
        return [] if self.external else await self.inside.failures()

    # --- the cluster

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients' bootstrap.servers."""
        return self._backend.bootstrap_servers

    @property
    def brokers(self) -> list[Broker]:
        """All brokers, running or not. NotSupportedError from outside."""
        self._require_inside("its brokers")
        return [self._brokers[broker_id] for broker_id in self.inside.handles]

    @property
    def controller_id(self) -> int:
        """The controller's node id, for `network.cut`: no broker's. Of several controllers, the first one's."""
        return self._require_inside("the controller").controller_id

    @property
    def controllers(self) -> list[Controller]:
        """All controllers, running or not. NotSupportedError from outside."""
        return [self._controllers[each] for each in self._require_inside("controllers").controllers]

    def controller(self, controller_id: int) -> Controller:
        """The controller of this id. ClusterStateError if the cluster has no such controller."""
        controllers = self._require_inside(f"controller {controller_id}").controllers
        if controller_id not in controllers:
            raise errors.ClusterStateError(
                f"there is no controller {controller_id!r}; the controllers are {list(controllers)}"
            )
        return self._controllers[controller_id]

    async def active_controller(self) -> Controller:
        """The active controller. BrokerNotAvailableError while none is active."""
        return self._controllers[await self._require_inside("controllers").active_controller()]

    def broker(self, broker_id: int) -> Broker:
        """The broker of this id. ClusterStateError if the cluster has no such broker."""
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
        """Create a topic; return when all its partitions have leaders. -1: the brokers' defaults.

        `assignment`: the replicas of each partition, instead of the two numbers. RequestError (TOPIC_ALREADY_EXISTS,
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
        """Delete a topic; return when it is gone. UnknownTopicOrPartitionError."""
        check_name("topic", name)
        admin = self._backend.admin
        with kwire_errors(f"topic {name[:_NAME_CHARACTERS]}"):
            await admin.run(admin.delete_topics([name], REQUEST_SECONDS))

    async def topics(self, *, internal: bool = False) -> dict[str, int]:
        """Every topic with its partition count. `internal`: `__consumer_offsets` and the like, too."""
        from kwire.replication.core.metadata import INTERNAL_TOPICS

        found = sorted((await self._backend.topics()).items())
        return {name: count for name, count in found if internal or name not in INTERNAL_TOPICS}

    async def reset(self, *, keep_clients: bool = False) -> None:
        """Reset to a new cluster: all nodes up, no cuts, delays or faults, no topics, groups or dynamic configurations.

        Addresses stay. Clients that are connected are refused from now on: to them the cluster is empty, and they
        change nothing in it; new ones are welcome. `keep_clients`: they are served as before, and may make their
        topics and groups again. Clients that reconnect, and all clients of a cluster that was started elsewhere,
        are like new ones."""
        from kwire.backends.reset import reset

        self._backend.events.log(NodeEvent.RESET_REQUESTED)
        self._made_again = await reset(self, self._backend, keep_clients=keep_clients)

    async def leftovers(self) -> list[str]:
        """What earlier users have left behind, as sentences for people: clients that were connected before the last
        `reset` and still are, and topics that clients made again during it."""
        from kwire.backends.reset import leftovers

        return await leftovers(self, self._made_again)

    # --- partitions

    async def partition(self, topic: str, partition: int) -> Partition:
        """A snapshot of a partition. UnknownTopicOrPartitionError."""
        check_name("topic", topic)
        check_number("partition", partition)
        found = await self._read_partition(topic, partition)
        self.observations.record_partition(found)
        return found

    async def elect(
        self, topic: str, partition: int, leader: int | None = None, *, unclean: bool = False
    ) -> None:
        """Elect a leader; return when it leads. No election is held if it leads already.

        `leader`: this replica; None: the preferred one, or with `unclean` the first live replica of a partition
        without leader. `unclean`: allow one outside the ISR; what it lacks is lost. RequestError
        (ELIGIBLE_LEADERS_NOT_AVAILABLE, PREFERRED_LEADER_NOT_AVAILABLE). From outside, a given leader is first
        made the preferred one, by reassigning the same replicas in another order."""
        check_name("topic", topic)
        check_number("partition", partition)
        if leader is not None:
            check_number("leader", leader)
        await refuse_paused(self, topic, partition, leader)
        self._backend.events.log(
            NodeEvent.ELECTION_REQUESTED,
            topic=topic,
            partition=partition,
            leader=leader,
            unclean=unclean,
        )
        with kwire_errors(f"{topic}-{partition}"):
            if leader is None:
                rule = UNCLEAN if unclean else PREFERRED
                admin = self._backend.admin
                await admin.run(admin.elect(topic, partition, rule, REQUEST_SECONDS))
            else:
                await self._backend.appoint(topic, partition, leader, unclean)
        await until_led(self, self._backend, topic, partition, leader)

    async def wait_for(
        self,
        predicate: Callable[[Self], T | Awaitable[T]],
        timeout: float = 5.0,
    ) -> T:
        """The first true value of `predicate(cluster)`, which may be a coroutine function. `timeout`: seconds.

        Brokers that do not answer (yet) count as false. WaitTimeoutError says what was waited for and what was seen
        last."""
        __tracebackhide__ = True  # pytest shows the predicate
        found: T = await first_true(self, predicate, timeout, self.observations)
        return found

    async def compact(self, topic: str) -> None:
        """Compact a topic on all replicas that run; return when only the latest record of each key is left.

        Rolls the active segments; leaves records younger than min.compaction.lag.ms. RequestError unless cleanup.policy
        has "compact"; WaitTimeoutError when a follower does not get all records."""
        from kwire.backends import upkeep

        await upkeep.compact(self._require_inside("compact"), topic)

    async def apply_retention(self, topic: str | None = None) -> None:
        """Delete what retention.ms and retention.bytes do not keep, of one topic or all, on all replicas that run."""
        from kwire.backends import upkeep

        await upkeep.apply_retention(self._require_inside("apply_retention"), topic)

    async def describe(self) -> str:
        """Brokers and partitions as text, for people: leaders, ISR, offsets; the last requests, if they are kept."""
        from kwire.backends.description import describe

        return await describe(self)

    # --- inside

    @property
    def inside(self) -> StartedBackend:
        """What was started here."""
        return self._require_inside("its inside")

    def node(self, node_id: int) -> NodeHandle:
        """The handle that starts and stops a broker or controller. ClusterStateError; NotSupportedError."""
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
