"""The controller: who leads what, and telling the brokers.

Answers to kafka.controller.KafkaController (3.9, ZooKeeper mode) and, for what clients ask, to
KRaft's ReplicationControlManager and ConfigurationControlManager. Pure: changes are records in a
journal (`state.py`), consequences are LeaderAndIsr, UpdateMetadata and StopReplica requests to a
`ControllerListener`: applied directly in a cluster of one (`replica/local_listener.py`), sent over
sockets to many (`channels.py`). This module puts the parts together and runs them step by step; they
do not know it. From the bottom up (an import contract in pyproject.toml keeps the order):

    context.py                  what all parts know: the journaled state, and which brokers are alive
    election.py, placement.py, eligible_leaders.py      rules, as functions
    batch.py, changes.py        orders to brokers; decisions into the journal, counted and logged
    reassignment.py             replicas on the move
    deletion.py                 topics that are deleted
    producer_ids.py             blocks of producer ids
    partitions.py               elections, AlterPartition, ElectLeaders, preferred leaders
    brokers.py                  registration, leases, failure, controlled shutdown
    configs.py                  dynamic configurations
    topics.py                   creation, deletion, more partitions
    table.py, refusals.py       which part answers which request, and how a request is refused

Invariants: a record is journaled, and flushed, before anybody hears of it: a step ends with one
flush, its effects leave when it has ended; a broker gets LeaderAndIsr, then UpdateMetadata, then
StopReplica, but a newly registered one gets UpdateMetadata first (it refuses leaders it does not know
as alive). A controller that finds another's records in the journal has resigned: it answers
NOT_CONTROLLER and sends no more orders.
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from kwire.protocol.api import ApiKey, key_of
from kwire.protocol.errors import ErrorCode, KafkaError, error_name
from kwire.replication.controller.batch import Orders
from kwire.replication.controller.brokers import BrokerRegistry
from kwire.replication.controller.changes import ChangeLog
from kwire.replication.controller.configs import ConfigControl
from kwire.replication.controller.context import ControllerContext
from kwire.replication.controller.partitions import PartitionControl
from kwire.replication.controller.producer_ids import ProducerIdControl
from kwire.replication.controller.state import DeposedError
from kwire.replication.controller.table import BY_KEY, AskedBy, refusal
from kwire.replication.controller.topics import TopicControl
from kwire.replication.core.events import Event, ignore
from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.controller.batch import ControllerListener
    from kwire.replication.controller.changes import PartitionEvent
    from kwire.replication.controller.context import LiveBroker
    from kwire.replication.controller.reassignment import Reassignments
    from kwire.replication.controller.state import ControllerState, Journal, TopicState
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import EventType, LogEvent
    from kwire.replication.core.metadata import Endpoint

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
        self._listener = listener
        self._log_event = log_event
        self._reassignments: Reassignments | None = None
        self._busy = False
        self._responses: deque[tuple[int, Message, Any]] = deque()
        self.context = context = ControllerContext(
            node_id, config, clock, cluster_id=cluster_id, is_standalone=timers is None
        )
        self.state: ControllerState = context.state
        self.brokers: dict[int, LiveBroker] = context.brokers
        self.changelog = changelog = ChangeLog(
            context, journal, log_event=self.log_event, on_refused=self.resign_after
        )
        self._orders = orders = Orders(context, listener)
        self.partitions = PartitionControl(
            context,
            changelog,
            orders,
            timers,
            heard=lambda broker: self.registry.heard(broker),
            step_alone=self.step_alone,
            reassignments=lambda: self.reassignments,
        )
        self.registry = BrokerRegistry(
            context,
            changelog,
            orders,
            listener,
            timers,
            self.partitions,
            reassignments=lambda: self.reassignments,
            step_alone=self.step_alone,
            log_event=self.log_event,
        )
        self.configs = ConfigControl(context, changelog, orders, self.partitions)
        self.topics = TopicControl(
            context, changelog, orders, self.configs, random, log_event=self.log_event
        )
        self.producer_ids = ProducerIdControl(context, changelog, heard=self.registry.heard)
        listener.on_response = self.response

    @property
    def reassignments(self) -> Reassignments:
        """Loaded at the first use: most controllers never move a replica."""
        if self._reassignments is None:
            from kwire.replication.controller.reassignment import Reassignments

            self._reassignments = Reassignments(self.context, self.changelog, self._orders)
        return self._reassignments

    @property
    def active(self) -> bool:
        """Until it is deposed."""
        return self.context.active

    @active.setter
    def active(self, active: bool) -> None:
        self.context.active = active

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self.context.epoch

    def start(self) -> None:
        """Replays the journal and begins a new controller epoch. JournalError when the journal cannot be read.

        Brokers in other processes that the journal knows as alive are told everything again: what an earlier
        controller did not get round to telling them is repaired by that."""
        self.changelog.load()
        self.changelog.commit([self.state.cluster_record(self.epoch + 1)])
        for (resource_type, name), overrides in self.state.configs.items():
            self._orders.config_changed(resource_type, name, overrides)
        if not self.context.is_standalone:
            self.step(self.registry.take_over)
            self.partitions.schedule_balancing()

    # --- requests

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
        given = self._orders.given
        try:
            response = self.handle(request, version)
        except KafkaError as error:
            on_complete(refusal(request, version, error.code, error.message))
            return
        at_once = BY_KEY[key_of(request)].asked_by is AskedBy.BROKERS
        if at_once or given == self._orders.given or not self.active:
            on_complete(response)
            return
        timeout_ms: int = getattr(request, "timeout_ms", self.config.request_timeout_ms)
        self._listener.when_acknowledged(timeout_ms, lambda: on_complete(response))

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
            self.changelog.flush()
        return result

    def step_alone(self, action: Callable[[], None]) -> None:
        """A step that nobody asked for. A controller that cannot journal what has happened cannot go on: it resigns."""
        if not self.active:
            return
        try:
            self.step(action)
        except KafkaError as error:
            self.resign_after(error)

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

            stop_answered(broker_id, request, response, self.log_event)
        if response.error_code:
            self.log_event(
                Event.BROKER_REQUEST_FAILED,
                broker_id=broker_id,
                request=type(request).__name__,
                error=error_name(response.error_code),
            )

    # --- brokers

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

    def create_auto(self, name: str) -> TopicState:
        """The topic, created if need be with defaults or, an internal one, with its own settings.

        For auto.create.topics.enable and the coordinators' topics. KafkaError says why it cannot be."""
        return self.step(lambda: self.topics.create_auto(name))

    # --- what people see

    @property
    def events(self) -> Sequence[PartitionEvent]:
        """The last changes of partitions."""
        return self.changelog.events

    def log_event(self, event: EventType, /, **fields: object) -> None:
        """Reports an event, with the controller epoch in which it happened."""
        self._log_event(event, controller_epoch=self.epoch, **fields)

    def metrics(self) -> dict[str, int]:
        """Gauges by Kafka's names (kafka.controller:KafkaController), and counters of elections and ISR changes."""
        offline = imbalanced = partitions = 0
        for _, _, partition in self.context.partitions():
            partitions += 1
            offline += partition.leader == NO_LEADER
            imbalanced += partition.leader != partition.replicas[0]
        return {
            "ActiveControllerCount": int(self.active),
            "ActiveBrokerCount": len(self.brokers),
            "GlobalTopicCount": len(self.state.topics),
            "GlobalPartitionCount": partitions,
            "OfflinePartitionsCount": offline,
            "PreferredReplicaImbalanceCount": imbalanced,
            **self.changelog.counts,
        }
