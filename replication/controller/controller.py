"""The active controller: elects leaders, changes ISRs and topics, and sends the results to brokers.

Answers to kafka.controller.KafkaController (3.9, ZooKeeper mode) and, for client requests, to
KRaft's ReplicationControlManager and ConfigurationControlManager. Pure: changes are records in a
journal (`state.py`), consequences are LeaderAndIsr, UpdateMetadata and StopReplica requests to a
`ControllerListener`: applied directly in a cluster of one (`replica/local_listener.py`), sent over
sockets to many (`channels.py`). This module creates the parts and runs them step by step; no part
imports it. From the bottom up (an import contract in pyproject.toml keeps the order):

    context.py                  shared by all parts: the journaled state and the live brokers
    election.py, placement.py, eligible_leaders.py      rules, as functions
    batch.py, changes.py        requests to brokers; changes to the journal, counted and logged
    reassignment.py             partition reassignment
    deletion.py                 topic deletion
    producer_ids.py             blocks of producer ids
    partitions.py               elections, AlterPartition, ElectLeaders, preferred leaders
    brokers.py                  registration, leases, failure, controlled shutdown
    configs.py                  dynamic configurations
    topics.py                   creation, deletion, more partitions
    table.py, refusals.py       the part that handles each request, and error responses

Invariants: a record is journaled and flushed before its effects leave the controller: a step
ends with one flush, its effects leave after that. A broker gets LeaderAndIsr, then
UpdateMetadata, then StopReplica; a newly registered broker gets UpdateMetadata first (it refuses
leaders that it does not know to be alive). A controller that finds another controller's records
in the journal resigns: it answers NOT_CONTROLLER and sends no more requests to brokers.
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

# Reasons for a controller's resignation.
DEPOSED, STORAGE_ERROR, ISOLATED, STOPPED = "deposed", "storage_error", "isolated", "stopped"

_Result = TypeVar("_Result")


class Controller:
    """A controller of a cluster: the active one from `start` until it resigns."""

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
        """Create the parts; call `start` first. `node_id`: the controller's own.

        `timers`: for leases of brokers in other processes; None with a standalone broker."""
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
            renew_lease=lambda broker: self.registry.renew_lease(broker),
            step_or_resign=self.step_or_resign,
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
            step_or_resign=self.step_or_resign,
            log_event=self.log_event,
        )
        self.configs = ConfigControl(context, changelog, orders, self.partitions)
        self.topics = TopicControl(
            context, changelog, orders, self.configs, random, log_event=self.log_event
        )
        self.producer_ids = ProducerIdControl(
            context, changelog, renew_lease=self.registry.renew_lease
        )
        listener.on_response = self.handle_response

    @property
    def reassignments(self) -> Reassignments:
        """Imported on first use: most controllers never reassign a partition."""
        if self._reassignments is None:
            from kwire.replication.controller.reassignment import Reassignments

            self._reassignments = Reassignments(self.context, self.changelog, self._orders)
        return self._reassignments

    @property
    def active(self) -> bool:
        """Whether this is the active controller: true until it resigns."""
        return self.context.active

    @active.setter
    def active(self, active: bool) -> None:
        self.context.active = active

    @property
    def epoch(self) -> int:
        """The controller epoch."""
        return self.context.epoch

    def start(self) -> None:
        """Replay the journal and begin a new controller epoch.

        Brokers in other processes that the journal lists as alive get full metadata and roles
        again: that repairs what an earlier controller did not finish sending. JournalError when
        the journal cannot be read."""
        self.changelog.load()
        self.changelog.commit([self.state.cluster_record(self.epoch + 1)])
        for (resource_type, name), overrides in self.state.configs.items():
            self._orders.config_changed(resource_type, name, overrides)
        if not self.context.is_standalone:
            self.step(self.registry.take_over)
            self.partitions.schedule_balancing()

    # --- requests

    def handle(self, request: Message, version: int) -> Message:
        """Return the response to `request`, without waiting for brokers. `version`: the client's.

        KafkaError(KAFKA_STORAGE_ERROR) when the journal cannot be written."""
        method = BY_KEY[key_of(request)].method(self)
        return self.step(lambda: method(request, version))

    def submit(
        self, request: Message, version: int, on_complete: Callable[[Message], None]
    ) -> None:
        """Handle `request` and call `on_complete` once, when all live brokers have acknowledged its
        effects.

        That may be before this returns, and is at most the request's own time-out later;
        requests of brokers are answered immediately. KeyError for an API that controllers do not
        serve."""
        if not self.active:
            on_complete(refusal(request, version, ErrorCode.NOT_CONTROLLER))
            return
        given = self._orders.sent_count
        try:
            response = self.handle(request, version)
        except KafkaError as error:
            on_complete(refusal(request, version, error.code, error.message))
            return
        at_once = BY_KEY[key_of(request)].asked_by is AskedBy.BROKERS
        if at_once or given == self._orders.sent_count or not self.active:
            on_complete(response)
            return
        timeout_ms: int = getattr(request, "timeout_ms", self.config.request_timeout_ms)
        self._listener.when_acknowledged(timeout_ms, lambda: on_complete(response))

    def step(self, action: Callable[[], _Result]) -> _Result:
        """Run `action` as one step: then apply brokers' responses that arrived meanwhile, then
        flush.

        `action` may journal records and send requests; nested calls join the step. DeposedError
        when another controller has written to the journal, KafkaError when it cannot be flushed:
        this controller has resigned by then."""
        if self._busy:
            return action()
        self._busy = True
        try:
            result = action()
            while self._responses:
                self._apply_response(*self._responses.popleft())
        finally:
            self._busy = False
            self.changelog.flush()
        return result

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all changes so far survive a power cut; a response to them waits for it.

        That is before this returns, unless the journal flushes in the background."""
        self.changelog.when_flushed(callback)

    def step_or_resign(self, action: Callable[[], None]) -> None:
        """Run a step that no request caused; resign if the journal cannot take its records."""
        if not self.active:
            return
        try:
            self.step(action)
        except KafkaError as error:
            self.resign_after(error)

    def resign_after(self, error: KafkaError) -> None:
        """Resign because the journal refused a record: another controller took over or the disk
        failed."""
        reason = DEPOSED if isinstance(error, DeposedError) else STORAGE_ERROR
        self.resign(reason, str(error.message))

    def resign(self, reason: str, detail: str) -> None:
        """Stop being the active controller: answer all further requests with NOT_CONTROLLER."""
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

    def handle_response(self, broker_id: int, request: Message, response: Any) -> None:
        """Apply a broker's response to a request of this controller, in this step or one of its
        own."""
        if self._busy:
            self._responses.append((broker_id, request, response))
        else:
            self.step_or_resign(lambda: self._apply_response(broker_id, request, response))

    def _apply_response(self, broker_id: int, request: Any, response: Any) -> None:
        broker = self.brokers.get(broker_id)
        if broker is None or getattr(request, "broker_epoch", broker.epoch) != broker.epoch:
            return  # of an earlier incarnation of the broker
        self.registry.mark_reachable(broker)
        key = key_of(request)
        if key is ApiKey.LEADER_AND_ISR:
            self.registry.handle_role_response(broker, response)
        elif key is ApiKey.STOP_REPLICA:
            from kwire.replication.controller.deletion import handle_stop_replica_response

            handle_stop_replica_response(broker_id, request, response, self.log_event)
        if response.error_code:
            self.log_event(
                Event.BROKER_REQUEST_FAILED,
                broker_id=broker_id,
                request=type(request).__name__,
                error=error_name(response.error_code),
            )

    # --- brokers

    def register_broker(self, broker_id: int, rack: str | None, endpoints: list[Endpoint]) -> int:
        """Register a started broker, send it all metadata and roles, and return its new broker
        epoch.

        A live registration of the same id (of this run or, after a restart, of the journal) is
        fenced first: its partitions lose their leader (leader epoch + 1) and elect one (+ 1), as
        in Kafka."""
        return self.step(lambda: self.registry.register(broker_id, rack, endpoints))

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker whose connection has ended unless it sends a request within 30 ms."""
        self.registry.connection_lost(broker_id, broker_epoch)

    def unreachable(self, broker_id: int) -> None:
        """Report that the controller's own connection to a broker has ended or could not be
        made."""
        self.registry.unreachable(broker_id)

    def create_auto(self, name: str) -> TopicState:
        """Return the topic; create it first if missing (internal topics: with their own settings).

        For auto.create.topics.enable and the coordinators' topics. KafkaError when it is
        refused."""
        return self.step(lambda: self.topics.create_auto(name))

    # --- events and metrics

    @property
    def events(self) -> Sequence[PartitionEvent]:
        """The latest partition changes, oldest first."""
        return self.changelog.events

    def log_event(self, event: EventType, /, **fields: object) -> None:
        """Report an event with the current controller epoch."""
        self._log_event(event, controller_epoch=self.epoch, **fields)

    def metrics(self) -> dict[str, int]:
        """Return gauges by Kafka's names (kafka.controller:KafkaController), and election and ISR
        counters."""
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
