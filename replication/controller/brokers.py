"""Brokers at the controller: registration, leases, failure, start, controlled shutdown.

Answers to KafkaController's onBrokerStartup, onBrokerFailure, onReplicasBecomeOffline and doControlledShutdown (3.9,
ZooKeeper mode), and to KRaft's ClusterControlManager and BrokerHeartbeatManager for how brokers make themselves known:
BrokerRegistration 0-4, BrokerHeartbeat 0-1, UnregisterBroker 0; ControlledShutdown 0-3.

A broker's life is a lease of broker.session.timeout.ms that heartbeats renew. kwire notices the end of a process
sooner, by the end of its connection: who does not come back within 30 ms has failed; of brokers that a new controller
has not heard of yet, its own connection to them tells. A broker that serves no disk any more of a partition (error 56)
counts as dead for this partition alone. A controller that hears of no broker any more lets another have a try, if there
is one (`stand_aside`), before it declares all of them dead.

Invariants: broker epochs rise strictly over all registrations; a broker that is shutting down is never elected nor
taken into an ISR; a registration over a living broker's is its failure and then its start.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.replication.controller import election
from kwire.replication.controller.context import LiveBroker
from kwire.replication.core.events import Event
from kwire.replication.core.metadata import Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.protocol.schemas.control_plane import (
        ControlledShutdownRequest,
        ControlledShutdownResponse,
        LeaderAndIsrResponse,
    )
    from kwire.protocol.schemas.nodes import (
        BrokerHeartbeatRequest,
        BrokerHeartbeatResponse,
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
    )
    from kwire.replication.controller.batch import ControllerListener, Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.partitions import PartitionControl
    from kwire.replication.controller.reassignment import Reassignments
    from kwire.replication.core.clock import Timers
    from kwire.replication.core.events import LogEvent

GRACE_MS = 30

# Why a broker counts as dead, for programs and for people.
_FAILURES = {
    "connection_lost": "its connection has ended",
    "session_timeout": "its lease has ended",
    "unreachable": "it cannot be reached",
    "registered_again": "registered again",
    "unregistered": "unregistered by request",
    "absent": "it is not started in this run",
}


class BrokerRegistry:
    """Who is alive, and what follows when that changes."""

    def __init__(
        self,
        context: ControllerContext,
        changelog: ChangeLog,
        orders: Orders,
        listener: ControllerListener,
        timers: Timers | None,
        partitions: PartitionControl,
        *,
        reassignments: Callable[[], Reassignments],
        step_alone: Callable[[Callable[[], None]], None],
        log_event: LogEvent,
    ) -> None:
        """`timers`: None for a standalone broker, whose life needs no lease."""
        self._context = context
        self._changelog = changelog
        self._orders = orders
        self._listener = listener
        self._timers = timers
        self._partitions = partitions
        self._reassignments = reassignments
        self._step_alone = step_alone
        self._log_event = log_event
        self.stand_aside: Callable[[], None] | None = None
        """Lets another controller take over, where there may be one; called when no broker is heard any more."""

    # --- start

    def register(
        self,
        broker_id: int,
        rack: str | None,
        endpoints: list[Endpoint],
        incarnation: bytes = b"",
        *,
        unclean: bool = False,
    ) -> int:
        """A broker has started: failure of its former life, then a new epoch and all it has to know.

        `unclean`: it did not stop in order, and may have lost the ends of its logs."""
        context = self._context
        self.fail(broker_id, "registered_again")
        epoch = context.state.last_broker_epoch + 1
        broker = LiveBroker(broker_id, epoch, rack, endpoints, incarnation)
        if context.is_standalone:  # its record need not outlive it
            self._changelog.commit([(f"broker/{broker_id}", {"epoch": epoch})])
        else:
            self._changelog.commit([broker.record(live=True)])
        context.brokers[broker_id] = broker
        context.brokers_changed()
        self.heard(broker)
        self._listener.open(broker_id)
        self._log_event(Event.BROKER_REGISTERED, broker_id=broker_id, broker_epoch=epoch, rack=rack)
        if unclean and context.config.eligible_leader_replicas_enable:
            self._partitions.forget_eligible(broker_id)
        elected = self._partitions.elect_offline()
        batch = self._orders.batch(but=broker_id)
        batch.send_broker_list(other for other in context.brokers if other != broker_id)
        batch.send_everything(broker_id)
        elected.add_to(batch)
        batch.send()
        if self._timers is not None:
            self._reassignments().broker_started(broker_id)
        return epoch

    def register_request(
        self, request: BrokerRegistrationRequest, version: int
    ) -> BrokerRegistrationResponse:
        """BrokerRegistration v0-4."""
        from kwire.protocol.schemas.nodes import BrokerRegistrationResponse

        context = self._context
        if context.cluster_id and request.cluster_id != context.cluster_id:
            return BrokerRegistrationResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
        if request.broker_id < 0 or request.broker_id == context.node_id:
            return BrokerRegistrationResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        endpoints = [
            Endpoint(each.name, each.host, each.port, each.security_protocol)
            for each in request.listeners
        ]
        broker = context.brokers.get(request.broker_id)
        if broker is not None and broker.incarnation == request.incarnation_id:
            # It did not get the first answer.
            self.heard(broker)
            return BrokerRegistrationResponse(broker_epoch=broker.epoch)
        if broker is not None and broker.heard and not self._is_missed(broker):
            return BrokerRegistrationResponse(
                error_code=int(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            )
        # KIP-966: who stopped in order knows the epoch it then had (`.kafka_cleanshutdown`).
        last_epoch = context.state.broker_epochs.get(request.broker_id)
        epoch = self.register(
            request.broker_id,
            request.rack,
            endpoints,
            request.incarnation_id,
            unclean=request.previous_broker_epoch != last_epoch,
        )
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def take_over(self) -> None:
        """A new controller: brokers that its predecessor knew as alive are so for a lease, and are told everything."""
        context = self._context
        for broker_id, value in context.state.registrations.items():
            if not value.get("live"):
                continue
            endpoints = [Endpoint(*each) for each in value["endpoints"]]
            incarnation = bytes.fromhex(value["incarnation"])
            broker = LiveBroker(broker_id, value["epoch"], value["rack"], endpoints, incarnation)
            context.brokers[broker_id] = broker
            self.heard(broker)
            broker.heard = False
            self._listener.open(broker_id)
        context.brokers_changed()
        self._log_event(
            Event.CONTROLLER_ELECTED,
            controller_id=context.node_id,
            brokers=len(context.brokers),
            topics=len(context.state.topics),
        )
        self._partitions.elect_offline()
        for broker_id in context.brokers:
            self._orders.batch().send_everything(broker_id)
        self._reassignments().resume()

    # --- life

    def heard(self, broker: LiveBroker) -> None:
        """A sign of life: the lease begins anew."""
        context = self._context
        broker.heard = True
        broker.heard_ms = context.now_ms
        if self._timers is None:
            return
        self._timers.cancel(("controller", "grace", broker.id))
        self._timers.schedule(
            ("controller", "lease", broker.id),
            context.now_ms + context.config.broker_session_timeout_ms,
            lambda: self._expire(broker, "session_timeout"),
        )

    def _is_missed(self, broker: LiveBroker) -> bool:
        timers = self._timers
        return timers is not None and ("controller", "grace", broker.id) in timers

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """The broker's connection has ended. Epochs other than its own are of an earlier life."""
        broker = self._context.brokers.get(broker_id)
        timers = self._timers
        if broker is None or broker.epoch != broker_epoch or timers is None:
            return
        timers.schedule(
            ("controller", "grace", broker_id),
            self._context.now_ms + GRACE_MS,
            lambda: self._expire(broker, "connection_lost"),
        )

    def unreachable(self, broker_id: int) -> None:
        """The controller's own connection to a broker has ended, or none could be made.

        It counts for a broker that was taken over and has not said anything yet: it may have died together with the
        former controller. All others' own connections tell."""
        broker = self._context.brokers.get(broker_id)
        timers = self._timers
        if broker is None or broker.heard or timers is None or self._is_missed(broker):
            return
        timers.schedule(
            ("controller", "grace", broker_id),
            self._context.now_ms + GRACE_MS,
            lambda: self._expire_unheard(broker),
        )

    def answered(self, broker: LiveBroker) -> None:
        """A broker has answered an order: it can be reached."""
        if not broker.heard and self._is_missed(broker):
            assert self._timers is not None
            self._timers.cancel(("controller", "grace", broker.id))

    def _expire_unheard(self, broker: LiveBroker) -> None:
        if any(other.heard for other in self._context.brokers.values()):
            self._expire(broker, "unreachable")
        else:  # a controller that hears of nobody may be cut off itself: a lease is to show it
            self.unreachable(broker.id)

    def _expire(self, broker: LiveBroker, reason: str) -> None:
        if self._context.brokers.get(broker.id) is not broker:
            return
        is_surprise = broker.heard and not broker.shutting_down
        if self.stand_aside is not None and is_surprise and self._misses_all_with(broker):
            self.stand_aside()
        else:
            self._step_alone(lambda: self.fail(broker.id, reason))

    def _misses_all_with(self, missed: LiveBroker) -> bool:
        """Every other broker is missed, too: it may be this controller that is cut off, not all of them dead."""
        context = self._context
        silence_ms = 2 * context.config.broker_heartbeat_interval_ms
        return all(
            broker is missed
            or self._is_missed(broker)
            or context.now_ms - broker.heard_ms > silence_ms
            for broker in context.brokers.values()
        )

    def heartbeat(self, request: BrokerHeartbeatRequest, version: int) -> BrokerHeartbeatResponse:
        """BrokerHeartbeat v0-2. Brokers are never fenced: who is not alive has to register again."""
        from kwire.protocol.schemas.nodes import BrokerHeartbeatResponse

        broker = self._context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return BrokerHeartbeatResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        self.heard(broker)
        failed = set(request.offline_log_dirs) - broker.offline_log_dirs
        if failed:
            broker.offline_log_dirs |= failed
            self._ask_for_roles(broker)
        stopped = False
        if request.want_shut_down:
            stopped = not self._shut_down(broker)
        return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, should_shut_down=stopped)

    # --- failure

    def fail(self, broker_id: int, reason: str) -> None:
        """A broker is dead: other leaders or none, out of every ISR but its own last ones. `reason`: of _FAILURES."""
        context = self._context
        broker = context.brokers.pop(broker_id, None)
        if broker is not None:
            self.forget(broker_id)
            event = Event.BROKER_FENCED
            if broker.shutting_down:
                event = Event.BROKER_SHUT_DOWN
            elif reason == "unregistered":
                event = Event.BROKER_UNREGISTERED
            self._log_event(
                event,
                broker_id=broker_id,
                broker_epoch=broker.epoch,
                reason=reason,
                detail=_FAILURES[reason],
            )
        context.brokers_changed()
        changes = self._changelog.begin()
        batch = self._orders.batch()
        unchanged = []
        for topic, index, partition in context.partitions():
            if broker_id in partition.replicas:
                self._partitions.without(topic, index, broker_id, changes)
                if changes.current(topic, index) is partition:
                    unchanged.append((topic, index))
        if broker is not None and self._timers is not None:
            changes.records.append(broker.record(live=False))
        changes.commit()
        changes.add_to(batch)
        for topic, index in unchanged:  # it is among the offline replicas now
            batch.news(topic, index)
        if broker is not None or changes:
            batch.send(broker_list=True)

    def forget(self, broker_id: int) -> None:
        """Nothing is sent to the broker any more, and none of its timers fires."""
        context = self._context
        context.brokers.pop(broker_id, None)
        self._listener.close(broker_id)
        if self._timers is not None:
            self._timers.cancel(("controller", "lease", broker_id))
            self._timers.cancel(("controller", "grace", broker_id))

    def unregister_request(
        self, request: UnregisterBrokerRequest, version: int
    ) -> UnregisterBrokerResponse:
        """UnregisterBroker v0: a broker that will not come back; one that lives has to register again."""
        from kwire.protocol.schemas.nodes import UnregisterBrokerResponse

        context, broker_id = self._context, request.broker_id
        if broker_id not in context.state.broker_epochs:
            return UnregisterBrokerResponse(
                error_code=int(ErrorCode.BROKER_ID_NOT_REGISTERED),
                error_message=f"Broker ID {broker_id} is not currently registered",
            )
        broker = self._context.brokers.get(broker_id)
        self.fail(broker_id, "unregistered")
        last_epoch = context.state.cluster_record()  # outlives the broker's own record
        self._changelog.commit([last_epoch, (f"broker/{broker_id}", None)])
        if self._timers is None and broker is not None:
            # The broker of this very process: it registers again at once, as another would after its next heartbeat.
            self.register(broker_id, broker.rack, broker.endpoints)
        return UnregisterBrokerResponse(error_message=None)

    # --- failed disks

    def _ask_for_roles(self, broker: LiveBroker) -> None:
        """Its roles once more, unchanged: the answer tells which partitions it can still serve."""
        self._orders.batch().send_roles(broker.id)

    def roles_answered(self, broker: LiveBroker, response: LeaderAndIsrResponse) -> None:
        """What a broker said to LeaderAndIsr: partitions with error 56 are on a disk that failed."""
        if response.error_code:
            return
        failed: set[tuple[str, int]] = set()
        names = self._context.state.names_by_id
        storage_error = int(ErrorCode.KAFKA_STORAGE_ERROR)
        for topic in response.topics:
            for error in topic.partition_errors:
                if error.error_code == storage_error and topic.topic_id in names:
                    failed.add((names[topic.topic_id], error.partition_index))
        for error in response.partition_errors:
            if error.error_code == storage_error:
                failed.add((error.topic_name, error.partition_index))
        failed -= broker.offline
        if failed:
            self._replicas_failed(broker, failed)

    def _replicas_failed(self, broker: LiveBroker, failed: set[tuple[str, int]]) -> None:
        context = self._context
        broker.offline |= failed
        context.brokers_changed()
        changes = self._changelog.begin()
        unchanged = []
        for topic, index, partition in context.partitions():
            if (topic.name, index) in failed:
                self._log_event(
                    Event.BROKER_REPLICA_OFFLINE,
                    topic=topic.name,
                    partition=index,
                    broker_id=broker.id,
                )
                self._partitions.without(topic, index, broker.id, changes)
                if changes.current(topic, index) is partition:
                    unchanged.append((topic, index))
        changes.commit()
        batch = self._orders.batch()
        changes.add_to(batch)
        for topic, index in unchanged:
            batch.news(topic, index)
        batch.send()

    # --- controlled shutdown

    def controlled_shutdown(
        self, request: ControlledShutdownRequest, version: int
    ) -> ControlledShutdownResponse:
        """ControlledShutdown v0-3: answers with what the broker still leads."""
        from kwire.protocol.schemas.control_plane import (
            ControlledShutdownResponse,
            RemainingPartition,
        )

        broker = self._context.brokers.get(request.broker_id)
        if broker is None:
            return ControlledShutdownResponse(error_code=int(ErrorCode.BROKER_NOT_AVAILABLE))
        if request.broker_epoch != -1 and request.broker_epoch < broker.epoch:
            return ControlledShutdownResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        self.heard(broker)
        return ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=topic, partition_index=index)
                for topic, index in self._shut_down(broker)
            ]
        )

    def _shut_down(self, broker: LiveBroker) -> list[tuple[str, int]]:
        """Takes leaderships and ISR memberships away where others are left; returns what the broker leads still."""
        context = self._context
        if not broker.shutting_down:
            self._log_event(
                Event.BROKER_SHUTTING_DOWN, broker_id=broker.id, broker_epoch=broker.epoch
            )
        broker.shutting_down = True
        context.brokers_changed()
        shutting_down = {b.id for b in context.brokers.values() if b.shutting_down}
        changes = self._changelog.begin()
        followed = []
        for topic, index, partition in context.partitions():
            if broker.id not in partition.replicas or len(partition.replicas) == 1:
                continue
            if partition.leader == broker.id:
                elected = election.controlled_shutdown(
                    partition.replicas,
                    partition.isr,
                    context.alive(topic.name, index),
                    shutting_down,
                    partition.recovering,
                )
                why = election.CONTROLLED_SHUTDOWN
                changes.elect(topic, index, elected, why)
            elif partition.leader >= 0:
                followed.append((topic, index))
                self._partitions.without(topic, index, broker.id, changes)
        changes.commit()
        batch = self._orders.batch()
        changes.add_to(batch, but={(topic.name, index): broker.id for topic, index in followed})
        for topic, index in followed:
            leader_epoch = topic.partitions[index].leader_epoch
            batch.stop(broker.id, topic.name, index, leader_epoch)
        batch.send()
        return [
            (topic.name, index)
            for topic, index, partition in context.partitions()
            if partition.leader == broker.id and len(partition.replicas) > 1
        ]
