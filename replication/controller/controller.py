"""The active controller: elects leaders, changes ISRs and topics, and sends the results to brokers.

Answers to kafka.controller.KafkaController (3.9, ZooKeeper mode) and, for client requests, to KRaft's
ReplicationControlManager and ConfigurationControlManager. Pure: changes are records in a journal (`state.py`),
consequences are LeaderAndIsr, UpdateMetadata and StopReplica requests to a `ControllerListener`: applied directly in a
cluster of one (`replica/local_listener.py`), sent over sockets to many (`channels.py`). This module creates the parts
and runs them step by step; no part imports it. From the bottom up (pyproject.toml keeps the order):

    context.py                  shared by all parts: the journaled state and the live brokers
    election.py, placement.py, eligible_leaders.py      rules, as functions
    batch.py, changes.py        requests to brokers; changes to the journal, counted and logged
    reassignment.py             partition reassignment
    deletion.py                 topic deletion
    producer_ids.py             blocks of producer ids
    partitions.py               elections, AlterPartition, ElectLeaders, preferred leaders
    brokers/                    registration, leases, failure, controlled shutdown
    line.py                     long changes, one after the other
    configs.py                  dynamic configurations
    security/                   SCRAM credentials of users, delegation tokens, access rules
    topics.py                   creation, deletion, more partitions
    table.py, refusals.py       the part that handles each request, and error responses

Invariants: a record is journaled and flushed before its effects leave the controller: a step ends with one flush, its
effects leave after that. A broker gets LeaderAndIsr, then UpdateMetadata, then StopReplica; a newly registered broker
gets UpdateMetadata first (it refuses leaders that it does not know to be alive). A change of thousands of partitions is
several steps, between which nothing else is changed (`line.py`). A controller that finds another controller's records
in the journal resigns: it answers NOT_CONTROLLER and sends no more requests to brokers.
"""

from __future__ import annotations

from typing import TypeVar

from kwire.protocol.api import ApiKey, key_of
from kwire.protocol.errors import ErrorCode, KafkaError, error_name
from kwire.replication.controller.batch import Orders
from kwire.replication.controller.brokers.registry import BrokerRegistry
from kwire.replication.controller.changes import ChangeLog
from kwire.replication.controller.configs import ConfigControl
from kwire.replication.controller.context import ControllerContext
from kwire.replication.controller.line import Line
from kwire.replication.controller.partitions import PartitionControl
from kwire.replication.controller.producer_ids import ProducerIdControl
from kwire.replication.controller.state import DeposedError
from kwire.replication.controller.table import BY_KEY, AskedBy, refusal
from kwire.replication.controller.topics import TopicControl
from kwire.replication.core.events import Event, ignore
from kwire.replication.core.types import SECURED_BY
from kwire.replication.core.work import at_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from random import Random
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.controller.batch import ControllerListener
    from kwire.replication.controller.changes import PartitionEvent
    from kwire.replication.controller.context import LiveBroker
    from kwire.replication.controller.reassignment import Reassignments
    from kwire.replication.controller.security.control import SecurityControl
    from kwire.replication.controller.state import ControllerState, Journal, TopicState
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import EventType, LogEvent
    from kwire.replication.core.metadata import Endpoint
    from kwire.replication.core.quotas import Client
    from kwire.replication.core.work import Steps, WorkQueue

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
        work: WorkQueue | None = None,
        log_event: LogEvent = ignore,
        cluster_id: str = "",
    ) -> None:
        """Create the parts; call `start` first. `node_id`: the controller's own.

        `timers`: for leases of brokers in other processes. `work`: for long changes; None: at once."""
        self.node_id = node_id
        self.config = config
        self._listener = listener
        self._log_event = log_event
        self._reassignments: Reassignments | None = None
        self._security: SecurityControl | None = None
        self._random = random
        self.context = context = ControllerContext(
            node_id, config, clock, cluster_id=cluster_id, timers=timers
        )
        self.state: ControllerState = context.state
        self.brokers: dict[int, LiveBroker] = context.brokers
        self.changelog = changelog = ChangeLog(
            context, journal, log_event=self.log_event, on_refused=self.resign_after
        )
        self.line = Line(context, changelog.flush, work)
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
        self.registry = registry = BrokerRegistry(
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
        self.producer_ids = ProducerIdControl(context, changelog, renew_lease=registry.renew_lease)
        listener.on_response = self.handle_response

    @property
    def reassignments(self) -> Reassignments:
        """Imported on first use: most controllers never reassign a partition."""
        if self._reassignments is None:
            from kwire.replication.controller.reassignment import Reassignments

            self._reassignments = Reassignments(self.context, self.changelog, self._orders)
        return self._reassignments

    @property
    def security(self) -> SecurityControl:
        """Imported on first use: most clusters have no users."""
        if self._security is None:
            from kwire.replication.controller.security.control import SecurityControl

            self._security = SecurityControl(
                self.context, self.changelog, self._orders, self._random, self.step_or_resign
            )
        return self._security

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
        """Replay the journal and begin a new controller epoch. JournalError when it cannot be read.

        Brokers in other processes that the journal lists as alive get full metadata and roles again: that repairs what
        an earlier controller did not finish sending."""
        self.changelog.load()
        self.changelog.commit([self.state.cluster_record(self.epoch + 1)])
        self.configs.start()
        if self.state.security or not self.config.static.keys().isdisjoint(SECURED_BY):
            self.security.start()
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
        self,
        request: Message,
        version: int,
        on_complete: Callable[[Message], None],
        on_undecided: Callable[[], None] | None = None,
        client: Client | None = None,
    ) -> None:
        """Handle `request` and call `on_complete` once, when all live brokers have acknowledged its
        effects. It waits for a change that is under way, but for heartbeats without news.

        That may be before this returns, and is at most the request's own time-out later than the decision; requests of
        brokers are answered immediately then. `on_undecided`: called instead if this controller resigns before it has
        decided, while it was the active one. KeyError for an API that controllers do not serve."""
        if not self.active:
            on_complete(refusal(request, version, ErrorCode.NOT_CONTROLLER))
            return
        line = self.line

        def work(**how: bool) -> Steps:
            return self._request(request, version, on_complete, on_undecided, client, **how)

        if not line.is_changing:
            line.begin(work())
        elif self.registry.renew_while_waiting(request):
            at_once(work(is_beside=True))
        else:
            line.add(work(is_late=True))

    def _request(
        self,
        request: Message,
        version: int,
        on_complete: Callable[[Message], None],
        on_undecided: Callable[[], None] | None,
        client: Client | None,
        *,
        is_late: bool = False,
        is_beside: bool = False,
    ) -> Steps:
        """The work of a request. `is_late`, `is_beside`: as for `Line.in_steps`."""
        given = self._orders.sent_count
        row = BY_KEY[key_of(request)]
        method = row.method(self)
        if client is not None and self.context.mutations is not None:
            charged = self.context.mutations.charged
            method, on_complete = charged(row.key, method, on_complete, client, version)

        def handle() -> Message | Generator[int, None, Message]:
            self.context.client = client
            return method(request, version)

        try:
            response = yield from self.line.in_steps(handle, is_late=is_late, is_beside=is_beside)
        except KafkaError as error:
            response, given = refusal(request, version, error.code, error.message), -1
        if not self.active and on_undecided is not None:
            on_undecided()
        elif (
            row.asked_by is AskedBy.BROKERS
            or given in (-1, self._orders.sent_count)
            or not self.active
        ):
            on_complete(response)
        else:
            timeout_ms: int = getattr(request, "timeout_ms", self.config.request_timeout_ms)
            self._listener.when_acknowledged(timeout_ms, lambda: on_complete(response))

    # --- steps

    def step(self, action: Callable[[], _Result | Generator[int, None, _Result]]) -> _Result:
        """Run `action` as one step; then apply brokers' responses that arrived meanwhile, and flush.

        `action` may journal records and send requests; nested calls join the step. A change that is under way is
        completed first. DeposedError when another controller has written to the journal, KafkaError when it cannot be
        flushed: this controller has resigned by then."""
        return self.line.step(action)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all changes so far survive a power cut; a response to them waits for it. That is
        before this returns, unless the journal flushes in the background."""
        self.changelog.when_flushed(callback)

    def step_or_resign(self, action: Callable[[], Steps | None]) -> None:
        """Run a step, or several, that no request caused; resign if the journal cannot take its
        records. It waits for a change that is under way."""
        if self.line.is_in_step:
            self.step(action)
        else:
            self.line.begin(self._resigning(action))

    def _resigning(self, action: Callable[[], Steps | None]) -> Steps:
        if not self.active:
            return
        try:
            yield from self.line.in_steps(action)
        except KafkaError as error:
            self.resign_after(error)

    def resign_after(self, error: KafkaError) -> None:
        """Resign as the journal refused a record: another controller took over, or the disk failed."""
        reason = DEPOSED if isinstance(error, DeposedError) else STORAGE_ERROR
        self.resign(reason, str(error.message))

    def resign(self, reason: str, detail: str) -> None:
        """Stop being the active controller: answer all further requests with NOT_CONTROLLER."""
        if not self.active:
            return
        self.active = False
        self.line.responses.clear()
        if reason == STOPPED:
            self.log_event(Event.CONTROLLER_STOPPED)
        else:
            self.log_event(Event.CONTROLLER_RESIGNED, reason=reason, detail=detail)
        for broker_id in list(self.brokers):
            self.registry.forget(broker_id)

    def handle_response(self, broker_id: int, request: Message, response: Any) -> None:
        """Apply a broker's response to this controller's request, in this step or one of its own."""
        broker, leases = self._sender(broker_id, request), self.registry.leases
        if broker is not None and leases is not None:
            leases.mark_reachable(broker)

        def apply() -> Steps | None:
            return self._apply_response(broker_id, request, response)

        if self.line.is_in_step:
            self.line.responses.append(apply)
        else:
            self.step_or_resign(apply)

    def _sender(self, broker_id: int, request: Any) -> LiveBroker | None:
        """The broker that has answered a request, unless it was an earlier incarnation."""
        broker = self.brokers.get(broker_id)
        is_it = broker and getattr(request, "broker_epoch", broker.epoch) == broker.epoch
        return broker if is_it else None

    def _apply_response(self, broker_id: int, request: Any, response: Any) -> Steps | None:
        broker = self._sender(broker_id, request)
        if broker is None:
            return None
        if response.error_code:
            self.log_event(
                Event.BROKER_REQUEST_FAILED,
                broker_id=broker_id,
                request=type(request).__name__,
                error=error_name(response.error_code),
            )
        key = key_of(request)
        if key is ApiKey.LEADER_AND_ISR:
            return self.registry.handle_role_response(broker, response)
        if key is ApiKey.STOP_REPLICA:
            from kwire.replication.controller.deletion import handle_stop_replica_response

            handle_stop_replica_response(broker_id, request, response, self.log_event)
        return None

    # --- brokers

    def register_broker(self, broker_id: int, rack: str | None, endpoints: list[Endpoint]) -> int:
        """Register a started broker, send it all metadata and roles, return its new broker epoch.

        A live registration of the same id (of this run or, after a restart, of the journal) is fenced first: its
        partitions lose their leader (leader epoch + 1) and elect one (+ 1), as in Kafka."""
        return self.step(lambda: at_once(self.registry.register(broker_id, rack, endpoints)))

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker whose connection has ended unless it sends a request within 30 ms."""
        if self.registry.leases is not None:
            self.registry.leases.connection_lost(broker_id, broker_epoch)

    def unreachable(self, broker_id: int) -> None:
        """Report that this controller's connection to a broker has ended or could not be made."""
        if self.registry.leases is not None:
            self.registry.leases.unreachable(broker_id)

    def create_auto(self, name: str, client: Client | None = None) -> TopicState:
        """Return the topic; create it first if missing (internal topics: with their own settings).

        For auto.create.topics.enable and the coordinators' topics. KafkaError when it is refused."""
        mutations = self.context.mutations
        if client is not None and mutations is not None:
            charge = mutations.charge(client, is_strict=True)
            made: TopicState = self.step(
                lambda: charge.during(lambda: self.topics.create_auto(name))
            )
            return made
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
        """Return gauges by Kafka's names (KafkaController), and election and ISR counters."""
        return self.changelog.metrics()
