"""The controller: who leads what, and telling the brokers.

Answers to kafka.controller.KafkaController (3.9, ZooKeeper mode) and, for what clients ask, to KRaft's
ReplicationControlManager and ConfigurationControlManager. Pure: changes are records in a journal
(`state.py`), consequences are LeaderAndIsr, UpdateMetadata and StopReplica requests to a
`ControllerListener`: applied directly in a cluster of one (`replica/local_listener.py`), sent over sockets to many
(`channels.py`). This module holds the parts together; they are

    topics.py, configs.py     what clients ask of topics and configurations
    brokers.py                           registration, leases, failure and start, controlled shutdown
    partitions.py, election.py           elections, AlterPartition, ElectLeaders, preferred leaders
    reassignment.py, deletion.py         replicas on the move; topics that are deleted
    batch.py, changes.py      what brokers are told; what is journaled, and said to people
    table.py, refusals.py                which of them answers which request, and how it is refused

Invariants: a record is journaled, and flushed, before anybody hears of it: a step ends with one flush, its effects
leave when it has ended; a broker gets LeaderAndIsr, then UpdateMetadata, then
StopReplica, but a newly registered one gets UpdateMetadata first (it refuses leaders it does not know as alive). A
controller that finds another's records in the journal has resigned: it answers NOT_CONTROLLER and tells nobody
anything any more.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from kwire.protocol.api import ApiKey, key_of
from kwire.protocol.errors import ErrorCode, KafkaError, error_name
from kwire.replication.controller.batch import RequestBatch
from kwire.replication.controller.brokers import BrokerRegistry
from kwire.replication.controller.configs import ConfigControl
from kwire.replication.controller.partitions import PartitionControl
from kwire.replication.controller.state import (
    ControllerState,
    DeposedError,
    PartitionState,
    TopicState,
)
from kwire.replication.controller.table import BY_KEY, AskedBy, refusal
from kwire.replication.controller.topics import TopicControl
from kwire.replication.core.events import Event, ignore
from kwire.replication.core.metadata import BROKER_RESOURCE, NO_LEADER, Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from random import Random
    from typing import Any, Protocol

    from kwire.protocol.language.schema import Message
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.controller.brokers import LiveBroker
    from kwire.replication.controller.changes import PartitionEvent
    from kwire.replication.controller.reassignment import Reassignments
    from kwire.replication.controller.state import Journal, Record
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import EventType, LogEvent

    class ControllerListener(Protocol):
        """Who hears of the controller's decisions."""

        on_response: Callable[[int, Message, Any], None] | None
        """The controller's `response`: called with what a broker answered to a request of `send`."""

        def open(self, broker_id: int) -> None:
            """A broker has registered (anew): it gets all configurations first, then what is sent from now on."""
            ...

        def close(self, broker_id: int) -> None:
            """A broker is gone: what it was to be told is dropped."""
            ...

        def send(self, broker_id: int, request: Message) -> None:
            """A LeaderAndIsr, UpdateMetadata or StopReplica request, after all that was sent to the broker before."""
            ...

        def config_changed(
            self, resource_type: int, name: str, overrides: Mapping[str, str]
        ) -> None:
            """All overrides a resource has now, to all brokers. Before the LeaderAndIsr of a new topic."""
            ...

        def when_acknowledged(self, timeout_ms: int, callback: Callable[[], None]) -> None:
            """Calls back once every broker has answered all it was sent so far, or after the time."""
            ...


_REWRITE_ABOVE = 1000  # records
_EVENTS_KEPT = 1000

# Why a controller resigns.
DEPOSED, STORAGE_ERROR, ISOLATED, STOPPED = "deposed", "storage_error", "isolated", "stopped"

_Result = TypeVar("_Result")


class Controller:
    """A controller of a cluster; the active one until it is deposed."""

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        journal: Journal,
        listener: ControllerListener,
        random: Random,
        *,
        clock: Clock | None = None,
        timers: Timers | None = None,
        log_event: LogEvent = ignore,
        cluster_id: str = "",
    ) -> None:
        """`node_id`: the controller's own. `timers`: for brokers in other processes, whose lives are leases.

        Call `start` before anything else."""
        self.node_id = node_id
        self.config = config
        self.random = random
        self.listener = listener
        self.clock = clock
        self.timers = timers
        self._log_event = log_event
        self.cluster_id = cluster_id
        self.active = True
        self.state = ControllerState()
        self.counts: dict[str, int] = {}
        self.events: deque[PartitionEvent] = deque(maxlen=_EVENTS_KEPT)
        self.stand_aside: Callable[[], None] | None = None
        """Lets another controller take over, where there may be one; called when no broker is heard any more."""
        self.registry = BrokerRegistry(self)
        self.brokers: dict[int, LiveBroker] = self.registry.brokers
        self.partitions = PartitionControl(self)
        self.topics = TopicControl(self)
        self.configs = ConfigControl(self)
        self._reassignments: Reassignments | None = None
        self._journal = journal
        self._busy = False
        self._told = 0  # requests and configurations given to the listener
        self._responses: deque[tuple[int, Message, Any]] = deque()
        listener.on_response = self.response

    def start(self) -> None:
        """Replays the journal and begins a new controller epoch. JournalError when the journal cannot be read.

        Brokers in other processes that the journal knows as alive are told everything again: what an earlier
        controller did not get round to telling them is repaired by that."""
        count = 0
        for record in self._journal.replay():
            self.state.replay(record)
            count += 1
        if count > _REWRITE_ABOVE:
            live = self.state.records()
            if count > 4 * len(live):  # mostly history: changed and deleted topics
                self._journal.rewrite(live)
        self.commit([self.state.cluster_record(self.state.controller_epoch + 1)])
        for (resource_type, name), overrides in self.state.configs.items():
            self.config_changed(resource_type, name, overrides)
        if self.timers is not None:
            self.step(self.registry.take_over)
            self.partitions.schedule_balancing()

    # --- requests -------------------------------------------------------------------------------------------------

    def handle(self, request: Message, version: int) -> Message:
        """Answers at once. `version` is the client's.

        A request that the journal cannot take raises KafkaError(KAFKA_STORAGE_ERROR)."""
        method = BY_KEY[key_of(request)].method(self)
        return self.step(lambda: method(request, version))

    def submit(
        self, request: Message, version: int, on_complete: Callable[[Message], None]
    ) -> None:
        """Answers by `on_complete`, exactly once, when every live broker knows what follows from the request.

        That may be before this returns, and is at most the request's own time-out later; what brokers ask is answered
        at once. KeyError for requests that no controller takes."""
        if not self.active:
            on_complete(refusal(request, version, ErrorCode.NOT_CONTROLLER))
            return
        told = self._told
        try:
            response = self.handle(request, version)
        except KafkaError as error:
            on_complete(refusal(request, version, error.code, error.message))
            return
        at_once = BY_KEY[key_of(request)].asked_by is AskedBy.BROKERS
        if at_once or told == self._told or not self.active:
            on_complete(response)
            return
        timeout_ms: int = getattr(request, "timeout_ms", self.config.request_timeout_ms)
        self.listener.when_acknowledged(timeout_ms, lambda: on_complete(response))

    def step(self, action: Callable[[], _Result]) -> _Result:
        """Runs what may journal and send, works off what was answered to it meanwhile, then flushes the journal.

        After the resignation: DeposedError when another controller has written to the journal, KafkaError when it
        cannot be flushed."""
        if self._busy:
            return action()
        self._busy = True
        try:
            result = action()
            while self._responses:
                self._take_response(*self._responses.popleft())
        finally:
            self._busy = False
            self._flush_journal()
        return result

    def _flush_journal(self) -> None:
        """What follows from records that may be lost must not be heard: a controller that cannot flush resigns."""
        try:
            self._journal.flush()
        except KafkaError as error:
            self.resign_after(error)
            raise

    def step_alone(self, action: Callable[[], None]) -> None:
        """A step that nobody asked for. A controller that cannot journal what has happened cannot go on: it resigns."""
        if not self.active:
            return
        try:
            self.step(action)
        except KafkaError as error:
            self.resign_after(error)

    def commit(self, records: list[Record]) -> None:
        """Journals the records, then makes them the state."""
        if not self.active:
            raise DeposedError
        try:
            self._journal.append(records)
        except DeposedError as error:
            self.resign_after(error)
            raise
        for record in records:
            self.state.replay(record)

    def resign_after(self, error: KafkaError) -> None:
        """The journal has refused a record: another controller has taken over, or the disk has failed."""
        reason = DEPOSED if isinstance(error, DeposedError) else STORAGE_ERROR
        self.resign(reason, str(error.message))

    def resign(self, reason: str, detail: str) -> None:
        """Another incarnation is the controller now: everything is answered with NOT_CONTROLLER."""
        if not self.active:
            return
        self.active = False
        self._responses.clear()
        if reason == STOPPED:
            self.log_event(Event.CONTROLLER_STOPPED)
        else:
            self.log_event(Event.CONTROLLER_RESIGNED, reason=reason, detail=detail)
        for broker_id in list(self.brokers):
            self.registry.forget(broker_id)

    def send(self, broker_id: int, request: Message) -> None:
        """An order to a broker, if this is still the controller."""
        if self.active:
            self._told += 1
            self.listener.send(broker_id, request)

    def response(self, broker_id: int, request: Message, response: Any) -> None:
        """What a broker answered to an order of this controller."""
        if self._busy:
            self._responses.append((broker_id, request, response))
        else:
            self.step_alone(lambda: self._take_response(broker_id, request, response))

    def _take_response(self, broker_id: int, request: Any, response: Any) -> None:
        broker = self.brokers.get(broker_id)
        if broker is None or getattr(request, "broker_epoch", broker.epoch) != broker.epoch:
            return  # of an incarnation that is gone
        self.registry.answered(broker)
        key = key_of(request)
        if key is ApiKey.LEADER_AND_ISR:
            self.registry.roles_answered(broker, response)
        elif key is ApiKey.STOP_REPLICA:
            from kwire.replication.controller.deletion import stop_answered

            stop_answered(self, broker_id, request, response)
        if response.error_code:
            self.log_event(
                Event.BROKER_REQUEST_FAILED,
                broker_id=broker_id,
                request=type(request).__name__,
                error=error_name(response.error_code),
            )

    # --- brokers --------------------------------------------------------------------------------------------------

    def register_broker(self, broker_id: int, rack: str | None, endpoints: list[Endpoint]) -> int:
        """A broker has started: returns its new broker epoch, after it was told everything it needs.

        One that was led to be alive (this run's or, after a restart, the journal's) fails first: its partitions lose
        their leader (leader epoch + 1) and are elected anew (+ 1), as in Kafka."""
        return self.step(lambda: self.registry.register(broker_id, rack, endpoints))

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """A registered broker's connection has ended: it fails unless it is heard of again within 30 ms."""
        self.registry.connection_lost(broker_id, broker_epoch)

    def unreachable(self, broker_id: int) -> None:
        """The controller's own connection to a broker has ended, or none could be made."""
        self.registry.unreachable(broker_id)

    def alive(self, topic: str, index: int) -> Collection[int]:
        """Who may be elected for a partition: live brokers that are not shutting down and can read its log."""
        return self.registry.alive(topic, index)

    def is_online(
        self, broker_id: int, topic: str, index: int, *, shutting_down: bool = False
    ) -> bool:
        """The broker lives and can read the partition's log. `shutting_down`: also while it is about to stop."""
        broker = self.brokers.get(broker_id)
        if broker is None or (broker.shutting_down and not shutting_down):
            return False
        return (topic, index) not in broker.offline

    def racks(self) -> list[tuple[int, str | None]]:
        """Brokers that can take new replicas, and their racks."""
        return [(b.id, b.rack) for b in self.brokers.values() if not b.shutting_down]

    # --- topics ---------------------------------------------------------------------------------------------------

    @property
    def reassignments(self) -> Reassignments:
        if self._reassignments is None:
            from kwire.replication.controller.reassignment import Reassignments

            self._reassignments = Reassignments(self)
        return self._reassignments

    def new_partition(self, replicas: list[int]) -> PartitionState:
        """The first state of a partition: leader and ISR are its live replicas."""
        alive = [broker for broker in replicas if broker in self.registry.eligible]
        return PartitionState(replicas, alive, alive[0] if alive else NO_LEADER)

    def announce_new(self, topics: list[TopicState], first_partition: int = 0) -> None:
        """New partitions (from `first_partition` on) to the brokers that host them, and to all the news."""
        if not topics:
            return
        batch = RequestBatch(self)
        for topic in topics:
            for index in range(first_partition, len(topic.partitions)):
                batch.partition(topic, index, is_new=True)
        batch.send()

    def create_auto(self, name: str) -> TopicState:
        """The topic, created if need be with defaults or, an internal one, with its own settings.

        For auto.create.topics.enable and the coordinators' topics. KafkaError says why it cannot be."""
        return self.step(lambda: self.topics.create_auto(name))

    def topic(self, name: str) -> TopicState:
        """The topic; KafkaError(UNKNOWN_TOPIC_OR_PARTITION) when there is none."""
        topic = self.state.topics.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        return topic

    def config_changed(self, resource_type: int, name: str, overrides: Mapping[str, str]) -> None:
        """Tells the brokers a resource's overrides; the cluster's own hold for this controller, too."""
        if self.timers is not None and resource_type == BROKER_RESOURCE and not name:
            self.config.set_dynamic(overrides, {})
        self._told += 1
        self.listener.config_changed(resource_type, name, overrides)

    # --- what people see --------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self.state.controller_epoch

    @property
    def now_ms(self) -> int:
        return 0 if self.clock is None else self.clock.now_ms

    def log_event(self, event: EventType, **fields: object) -> None:
        """Reports an event, with the controller epoch in which it happened."""
        self._log_event(event, controller_epoch=self.epoch, **fields)

    def note(self, event: PartitionEvent) -> None:
        """A partition has changed: counted, kept, logged."""
        if event.is_election:
            key = f"elections.{event.why}"
            self.counts[key] = self.counts.get(key, 0) + 1
        difference = len(event.after.isr) - len(event.before.isr)
        if difference:
            key = "isr.expands" if difference > 0 else "isr.shrinks"
            self.counts[key] = self.counts.get(key, 0) + 1
        self.events.append(event)
        self.log_event(event.event, **event.fields())

    def metrics(self) -> dict[str, int]:
        """Gauges by Kafka's names (kafka.controller:KafkaController), and counters of elections and ISR changes."""
        offline = imbalanced = partitions = 0
        for topic in self.state.topics.values():
            for p in topic.partitions:
                partitions += 1
                offline += p.leader == NO_LEADER
                imbalanced += p.leader != p.replicas[0]
        return {
            "ActiveControllerCount": int(self.active),
            "ActiveBrokerCount": len(self.brokers),
            "GlobalTopicCount": len(self.state.topics),
            "GlobalPartitionCount": partitions,
            "OfflinePartitionsCount": offline,
            "PreferredReplicaImbalanceCount": imbalanced,
            **self.counts,
        }
