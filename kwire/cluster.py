"""`kwire.Cluster`: a cluster of brokers as an object, for code that reads from top to bottom.

The same as `kwire.aio.Cluster`, which it is built on: the brokers run on an event loop in a background thread (or as
processes), each call waits there for its end. Calls may come from any thread. What only passes on to that class is
generated from it, with its docstrings; by hand is what a thread needs: start, stop, contexts, `wait_for`.
"""

from __future__ import annotations

from kwire import aio, errors
from kwire.backends import running
from kwire.backends.clock.blocking import Clock
from kwire.backends.faults.blocking import Faults
from kwire.backends.faults.blocking_disks import HasDisk
from kwire.backends.loop_thread import LoopThread, acquire, release
from kwire.backends.loop_thread_network import Network
from kwire.backends.views import BrokerState, ControllerState, NodeState
from kwire.backends.waiting import first_true_blocking

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self, TypeVar

    from kwire.backends.contents import Data, Headers
    from kwire.backends.snapshots.verbs import Named
    from kwire.backends.views import Partition
    from kwire.client.views import Client, Event, Group, Record, Request, Transaction
    from kwire.snapshots.saved import Snapshot

    T = TypeVar("T")


class _Node(HasDisk, NodeState):
    """One node of a cluster that was started here."""

    def __init__(self, cluster: Cluster, inner: aio.Broker | aio.Controller) -> None:
        super().__init__(inner._handle)
        self._cluster = cluster
        self._inner = inner

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._cluster._run(work)

    # --- generated from kwire/aio.py by tools/sync_cluster.py

    def kill(self) -> None:
        """Kill it as `kill -9` does: nothing is flushed, nobody is notified. No-op if it is down, as of `stop`."""
        self._run(self._inner.kill())

    def stop(self) -> None:
        """Stop it cleanly. A broker shuts down controlled: its leaderships move, then its logs are closed. A controller
        releases its lease: a standby takes over immediately."""
        self._run(self._inner.stop())

    def start(self) -> None:
        """Restart it on its port and directory, unless it runs; a broker is registered when this returns."""
        self._run(self._inner.start())

    def pause(self) -> None:
        """Freeze it, unless it is paused, with its sockets open, as SIGSTOP does. Its session expires
        (broker.session.timeout.ms; a controller's lease: controller.quorum.fetch.timeout.ms)."""
        self._run(self._inner.pause())

    def resume(self) -> None:
        """Undo `pause`; no-op if it is not paused."""
        self._run(self._inner.resume())

    # --- end of what is generated


class Broker(BrokerState, _Node):
    """One broker of a cluster that was started here."""


class Controller(ControllerState, _Node):
    """One controller of a cluster that was started here. When none is active, no leader is elected, no topic made."""


class Cluster:
    """A cluster: `with Cluster(brokers=3) as cluster`, or `start()` … `stop()`."""

    # --- generated from kwire/aio.py by tools/sync_cluster.py

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
        self._wrap(
            aio.Cluster(
                brokers,
                config,
                isolation=isolation,
                data_dir=data_dir,
                topics=topics,
                recent_requests=recent_requests,
                controllers=controllers,
                racks=racks,
                fast=fast,
                sasl=sasl,
                users=users,
                tls=tls,
                mtls=mtls,
                acl=acl,
                super_users=super_users,
            )
        )

    @property
    def external(self) -> bool:
        """Whether it was started elsewhere (`connect`)."""
        return self._inner.external

    def start(self) -> None:
        """Start all brokers; return when each knows all others. On StartError or ConfigurationError nothing runs."""
        self._begin()

    def stop(self) -> None:
        """Stop everything; no error when it is stopped already. InternalError if a broker met a bug of kwire,
        StartError if one could not be stopped cleanly; nothing runs afterwards in either case."""
        self._end()

    def failures(self) -> list[str]:
        """Tracebacks of kwire's own errors so far; `stop` raises InternalError if there are any."""
        return self._run(self._inner.failures())

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients' bootstrap.servers."""
        return self._inner.bootstrap_servers

    @property
    def brokers(self) -> list[Broker]:
        """All brokers, running or not. NotSupportedError from outside."""
        return [Broker(self, each) for each in self._inner.brokers]

    @property
    def controller_id(self) -> int:
        """The controller's node id, for `network.cut`: no broker's. Of several controllers, the first one's."""
        return self._inner.controller_id

    @property
    def controllers(self) -> list[Controller]:
        """All controllers, running or not. NotSupportedError from outside."""
        return [Controller(self, each) for each in self._inner.controllers]

    def controller(self, controller_id: int) -> Controller:
        """The controller of this id. ClusterStateError if the cluster has no such controller."""
        return Controller(self, self._inner.controller(controller_id))

    def active_controller(self) -> Controller:
        """The active controller. BrokerNotAvailableError while none is active."""
        return Controller(self, self._run(self._inner.active_controller()))

    def broker(self, broker_id: int) -> Broker:
        """The broker of this id. ClusterStateError if the cluster has no such broker."""
        return Broker(self, self._inner.broker(broker_id))

    def create_topic(
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
        self._run(
            self._inner.create_topic(name, partitions, replication_factor, config, assignment)
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic; return when it is gone. UnknownTopicOrPartitionError."""
        self._run(self._inner.delete_topic(name))

    def topics(self, *, internal: bool = False) -> dict[str, int]:
        """Every topic with its partition count. `internal`: `__consumer_offsets` and the like, too."""
        return self._run(self._inner.topics(internal=internal))

    def reset(self, *, keep_clients: bool = False) -> None:
        """Reset to a new cluster: all nodes up, no cuts, delays or faults, no topics, groups or dynamic configurations.

        Addresses stay. Clients that are connected are refused from now on: to them the cluster is empty, and they
        change nothing in it; new ones are welcome. `keep_clients`: they are served as before, and may make their
        topics and groups again. Clients that reconnect, and all clients of a cluster that was started elsewhere,
        are like new ones."""
        self._run(self._inner.reset(keep_clients=keep_clients))

    def leftovers(self) -> list[str]:
        """What earlier users have left behind, as sentences for people: clients that were connected before the last
        `reset` and still are, and topics that clients made again during it."""
        return self._run(self._inner.leftovers())

    def partition(self, topic: str, partition: int) -> Partition:
        """A snapshot of a partition. UnknownTopicOrPartitionError."""
        return self._run(self._inner.partition(topic, partition))

    def elect(
        self, topic: str, partition: int, leader: int | None = None, *, unclean: bool = False
    ) -> None:
        """Elect a leader; return when it leads. No election is held if it leads already.

        `leader`: this replica; None: the preferred one, or with `unclean` the first live replica of a partition
        without leader. `unclean`: allow one outside the ISR; what it lacks is lost. RequestError
        (ELIGIBLE_LEADERS_NOT_AVAILABLE, PREFERRED_LEADER_NOT_AVAILABLE). From outside, a given leader is first
        made the preferred one, by reassigning the same replicas in another order."""
        self._run(self._inner.elect(topic, partition, leader, unclean=unclean))

    def compact(self, topic: str) -> None:
        """Compact a topic on all replicas that run; return when only the latest record of each key is left.

        Rolls the active segments; leaves records younger than min.compaction.lag.ms. RequestError unless cleanup.policy
        has "compact"; WaitTimeoutError when a follower does not get all records."""
        self._run(self._inner.compact(topic))

    def apply_retention(self, topic: str | None = None) -> None:
        """Delete what retention.ms and retention.bytes do not keep, of one topic or all, on all replicas that run."""
        self._run(self._inner.apply_retention(topic))

    def describe(self) -> str:
        """Brokers and partitions as text, for people: leaders, ISR, offsets; the last requests, if they are kept."""
        return self._run(self._inner.describe())

    def client_config(self, kind: str, user: str | None = None) -> dict[str, Any]:
        """The configuration of a client of the brokers, that logs in as `user` (default: the first one) if it has to.
        `kind`: "java", "librdkafka" (confluent-kafka, too), "kafka-python" or "aiokafka"."""
        return self._inner.client_config(kind, user)

    def groups(self) -> list[str]:
        """The ids of all groups. BrokerNotAvailableError while a broker is paused whose groups no other has
        taken over yet; it names those of the others."""
        return self._run(self._inner.groups())

    def group(self, group_id: str) -> Group:
        """A group: state, members, and for each partition the committed offset, the end and the lag.

        One that does not exist is Dead, without members, as for Kafka. `lag` is None, not 0, until a partition is
        assigned or has a committed offset."""
        return self._run(self._inner.group(group_id))

    def transactions(self) -> list[Transaction]:
        """All transactional ids: state, producer id and epoch, coordinator, start, time-out, and of an open transaction
        its partitions with the offsets that it holds. [] before any producer has had one.

        BrokerNotAvailableError while a broker is paused whose transactions no other has taken over yet."""
        return self._run(self._inner.transactions())

    def transaction(self, transactional_id: str) -> Transaction:
        """A transactional id, as `transactions` has it; one that does not exist is Dead."""
        return self._run(self._inner.transaction(transactional_id))

    def fence_producer(self, transactional_id: str) -> Transaction:
        """Fence the producer that has a transactional id, as another one with this id does that starts: its open
        transaction is aborted, and what it sends from then on refused. RequestError: there is no such id."""
        return self._run(self._inner.fence_producer(transactional_id))

    def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        """The records of a topic, or of one partition, by partition and offset: those that are there
        now, without a group and without waiting for more.

        `start`, `end`: of each partition, from this offset to before that one. `limit`: at most so
        many, in all. UnknownTopicOrPartitionError."""
        return self._run(self._inner.records(topic, partition, start=start, end=end, limit=limit))

    def produce(
        self,
        topic: str,
        value: Data | None,
        key: Data | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> Record:
        """Write a record; return it with its offset once all replicas in the ISR have it. A str is encoded
        as UTF-8, the value None is a tombstone.

        `partition`: None: by the key as Java's producer does, without a key one after the other.
        `timestamp`: milliseconds since 1970; None: now, by `clock`. RequestError (NOT_ENOUGH_REPLICAS, …)."""
        return self._run(
            self._inner.produce(
                topic, value, key, partition=partition, headers=headers, timestamp=timestamp
            )
        )

    def events(
        self,
        name: str | None = None,
        *,
        topic: str | None = None,
        broker: int | None = None,
        since: int = 0,
    ) -> list[Event]:
        """The newest events of all nodes in the order of time, also of nodes that have ended, and what was asked of the
        cluster. `name`: LEADER_ELECTED, …; `topic`, `broker`: about these. `since`: with a number above this one.

        NotSupportedError from outside."""
        return self._run(self._inner.events(name, topic=topic, broker=broker, since=since))

    def wait_in_sync(self, topic: str | None = None, timeout: float = 5.0) -> None:
        """Wait until each partition of a topic, or of all topics, has a leader and all its replicas in the ISR.

        `timeout`: seconds. WaitTimeoutError names the partitions that are not in sync."""
        self._run(self._inner.wait_in_sync(topic, timeout))

    def requests(
        self, *, api: str | None = None, client_id: str | None = None, broker: int | None = None
    ) -> list[Request]:
        """The last requests of clients at the brokers, oldest first: of each client 20 at each broker, repetitions
        counted as one. `api` ("Fetch"), `client_id`, `broker`: of these only.

        NotSupportedError when they are not kept (`recent_requests`), and from outside."""
        return self._run(self._inner.requests(api=api, client_id=client_id, broker=broker))

    def status(self, node: int) -> dict[str, Any]:
        """The state of one broker or controller, as SIGUSR1 logs it: `counts` with the names of Kafka's metrics; of a
        broker `partitions`, `fetchers`, `failed`, `truncations`, with lags in records and milliseconds.

        ClusterStateError for another id; BrokerNotAvailableError when it is down; NotSupportedError from outside."""
        return self._run(self._inner.status(node))

    def clients(self) -> list[Client]:
        """The open connections of clients, by broker; none of other nodes. NotSupportedError from outside."""
        return self._run(self._inner.clients())

    def snapshot(
        self, name: str | None = None, *, to: str | os.PathLike[str] | None = None
    ) -> Snapshot:
        """Save all that the cluster holds: topics, records, groups, transactions, producers, ACLs, users, quotas,
        dynamic configurations, epochs. No connection is closed; clients wait some milliseconds. An earlier one of that
        name is replaced.

        `name`: default: snapshot-1, …. It is kept in the data directory, and ends with a temporary one. `to`: a
        directory for it instead, that outlives the cluster. StartError: it could not be written."""
        return self._run(self._inner.snapshot(name, to=to))

    def restore(self, snapshot: Named) -> None:
        """Go back to a snapshot: all nodes are killed and start again, at their addresses, with its data; no cuts,
        delays or faults. Connections are closed: clients see brokers that were killed, then what was there at the
        snapshot.

        `snapshot`: itself, its name, or the path of a directory. ClusterStateError: unknown, or of another
        number of brokers."""
        self._run(self._inner.restore(snapshot))

    def snapshots(self) -> list[Snapshot]:
        """The snapshots in the data directory, by name."""
        return self._run(self._inner.snapshots())

    def delete_snapshot(self, snapshot: Named) -> None:
        """Delete a snapshot. ClusterStateError: no such snapshot."""
        self._run(self._inner.delete_snapshot(snapshot))

    # --- end of what is generated

    # --- by hand

    def _wrap(self, inner: aio.Cluster) -> None:
        self._inner = inner
        self._thread: LoopThread | None = None
        self.network = Network(self)
        """`cut`, `heal` and `delay` between brokers."""
        self.faults = Faults(self)
        """`inject`, `clear` and `list` faults on requests."""
        self.clock = Clock(self)
        """`now`, `advance`, `freeze` and `resume` the time of all nodes."""

    @classmethod
    def connect(cls, bootstrap_servers: str) -> Self:
        """A cluster that runs elsewhere, also a real Kafka. BrokerNotAvailableError when nobody answers there."""
        cluster = cls()
        cluster._thread = acquire(cluster, cluster.stop)
        try:
            cluster._inner = cluster._run(aio.Cluster.connect(bootstrap_servers))
        except BaseException:
            cluster._let_go()
            raise
        return cluster

    @classmethod
    def from_snapshot(
        cls,
        snapshot: Snapshot | str | os.PathLike[str],
        config: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Self:
        """A cluster that starts with what a snapshot holds (its path, or itself), with as many brokers and controllers.

        `config` and `options` as of `Cluster`: what was given there is not in a snapshot. ClusterStateError."""
        cluster = cls()
        cluster._wrap(aio.Cluster.from_snapshot(snapshot, config, **options))
        return cluster

    def fork(self, snapshot: Named | None = None) -> Self:
        """Start a second cluster, at other addresses, with what this one holds now, or with a snapshot of it.

        It has the same options, a temporary data directory, and its own life: stop it, or use it as a context."""
        forked = type(self)()
        forked._thread = acquire(forked, forked.stop)
        try:
            forked._inner = self._run(self._inner.fork(snapshot))
        except BaseException:
            forked._let_go()
            raise
        return forked

    @property
    def started(self) -> bool:
        """Between `start` or `connect` and `stop`."""
        return self._thread is not None

    def _begin(self) -> None:
        if self._thread is not None:
            return
        self._thread = acquire(self, self.stop)
        try:
            self._run(self._inner.start())
        except BaseException:
            self._let_go()
            raise

    def _end(self) -> None:
        if self._thread is None:
            return
        try:
            self._run(self._inner.stop())
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._thread = None
        release(self)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.started and running.wants_last_words(error):
            self._run(running.keep_last_words(self._inner))
        try:
            self.stop()
        except errors.KwireError as failure:
            if error is None:
                raise
            error.add_note(str(failure))

    def __repr__(self) -> str:
        return repr(self._inner)

    def wait_for(self, predicate: Callable[[Self], T], timeout: float = 5.0) -> T:
        """The first true value of `predicate(cluster)`, within `timeout` seconds.

        Errors of brokers that do not answer, or not so yet, count as false. WaitTimeoutError tells what was waited for
        and what was seen last."""
        __tracebackhide__ = True  # pytest shows the predicate
        found: T = first_true_blocking(self, predicate, timeout, self._inner.observations)
        return found

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None:
            work.close()
            raise errors.ClusterStateError(
                "the cluster does not run: start it, or use it as a context"
            )
        return self._thread.run(work)
