"""The controller's broker registry: registration, leases, fencing, controlled shutdown.

Answers to KafkaController's onBrokerStartup, onBrokerFailure, onReplicasBecomeOffline and
doControlledShutdown (3.9, ZooKeeper mode), and to KRaft's ClusterControlManager and
BrokerHeartbeatManager for the way brokers register: BrokerRegistration 0-4, BrokerHeartbeat 0-1,
UnregisterBroker 0; ControlledShutdown 0-3.

 A live broker holds a lease of broker.session.timeout.ms that its requests renew. kwire notices the
end of a process sooner: a broker whose connection has ended and that does not return within 30 ms
is fenced. If it has sent nothing to a new controller yet, the controller's connection to it counts.
A broker that answers KAFKA_STORAGE_ERROR (56) for a partition counts as dead for this partition
only. If all brokers are silent, another controller may first take over (`on_isolated`).

Invariants: broker epochs rise strictly over all registrations; a broker that is shutting down is
never elected nor added to an ISR; registering an id that is live fences the old registration first.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
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

# Reasons for fencing: the event's `reason`, and its `detail` for people.
_FAILURES = {
    "connection_lost": "its connection has ended",
    "session_timeout": "its lease has ended",
    "unreachable": "it cannot be reached",
    "registered_again": "registered again",
    "unregistered": "unregistered by request",
    "absent": "it is not started in this run",
}


class BrokerRegistry:
    """The live brokers, and the elections and requests that follow when they change."""

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
        step_or_resign: Callable[[Callable[[], None]], None],
        log_event: LogEvent,
    ) -> None:
        """`timers`: None for a standalone broker, which needs no lease."""
        self._context = context
        self._changelog = changelog
        self._orders = orders
        self._listener = listener
        self._timers = timers
        self._partitions = partitions
        self._reassignments = reassignments
        self._step_or_resign = step_or_resign
        self._log_event = log_event
        self.on_isolated: Callable[[], None] | None = None
        """Called when all brokers are silent, if another controller may take over."""

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
        """Register a started broker and send it full state; return the new broker epoch.

        `unclean`: it did not shut down cleanly and may have lost the ends of its logs (KIP-966)."""
        context = self._context
        self.fence(broker_id, "registered_again")
        epoch = context.next_broker_epoch(incarnation)
        broker = LiveBroker(broker_id, epoch, rack, endpoints, incarnation)
        if context.is_standalone:  # only the epoch has to survive a restart
            self._changelog.commit([(f"broker/{broker_id}", {"epoch": epoch})])
        else:
            self._changelog.commit([broker.record(live=True)])
        context.brokers[broker_id] = broker
        context.brokers_changed()
        self.renew_lease(broker)
        self._listener.open(broker_id, epoch)
        self._log_event(
            Event.BROKER_REGISTERED, broker_id=broker_id, broker_epoch=broker.number, rack=rack
        )
        if unclean and context.config.eligible_leader_replicas_enable:
            self._partitions.remove_from_elr(broker_id)
        elected = self._partitions.elect_offline()
        batch = self._orders.batch(exclude=broker_id)
        batch.send_broker_list(other for other in context.brokers if other != broker_id)
        batch.send_everything(broker_id)
        elected.add_to(batch)
        batch.send()
        if self._timers is not None:
            self._reassignments().resume_for_broker(broker_id)
        return epoch

    def register_request(
        self, request: BrokerRegistrationRequest, version: int
    ) -> BrokerRegistrationResponse:
        """Handle BrokerRegistration v0-4."""
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
            # A retry: the first response was lost.
            self.renew_lease(broker)
            return BrokerRegistrationResponse(broker_epoch=broker.epoch)
        if broker is not None and broker.has_reported and not self._in_grace_period(broker):
            return BrokerRegistrationResponse(
                error_code=int(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            )
        # KIP-966: after a clean shutdown a broker knows its last epoch (`.kafka_cleanshutdown`).
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
        """Give the live brokers of the journal a lease, and send them full state."""
        context = self._context
        for broker_id, value in context.state.registrations.items():
            if not value.get("live"):
                continue
            endpoints = [Endpoint(*each) for each in value["endpoints"]]
            incarnation = bytes.fromhex(value["incarnation"])
            broker = LiveBroker(broker_id, value["epoch"], value["rack"], endpoints, incarnation)
            context.brokers[broker_id] = broker
            self.renew_lease(broker)
            broker.has_reported = False
            self._listener.open(broker_id, broker.epoch)
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

    # --- leases

    def renew_lease(self, broker: LiveBroker) -> None:
        """Restart the broker's lease after a request of the broker."""
        context = self._context
        context.has_survivors |= not broker.has_reported
        broker.has_reported = True
        broker.last_contact_ms = context.now_ms
        if self._timers is None:
            return
        self._timers.cancel(("controller", "grace", broker.id))
        self._timers.schedule(
            ("controller", "lease", broker.id),
            context.now_ms + context.config.broker_session_timeout_ms,
            lambda: self._expire(broker, "session_timeout"),
        )

    def _in_grace_period(self, broker: LiveBroker) -> bool:
        timers = self._timers
        return timers is not None and ("controller", "grace", broker.id) in timers

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """Start the grace period of a broker, unless it has a newer incarnation."""
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
        """Start the grace period of a broker that the controller's own connection cannot reach and
        that is known from the journal only: of others their own connections count."""
        broker = self._context.brokers.get(broker_id)
        timers = self._timers
        if broker is None or broker.has_reported or timers is None or self._in_grace_period(broker):
            return
        timers.schedule(
            ("controller", "grace", broker_id),
            self._context.now_ms + GRACE_MS,
            lambda: self._expire_unreachable(broker),
        )

    def mark_reachable(self, broker: LiveBroker) -> None:
        """End the grace period of an `unreachable` broker that has answered a request."""
        if not broker.has_reported and self._in_grace_period(broker):
            assert self._timers is not None
            self._timers.cancel(("controller", "grace", broker.id))

    def _expire_unreachable(self, broker: LiveBroker) -> None:
        if any(other.has_reported for other in self._context.brokers.values()):
            self._expire(broker, "unreachable")
        else:  # this controller may be cut off itself: let the lease decide
            self.unreachable(broker.id)

    def _expire(self, broker: LiveBroker, reason: str) -> None:
        if self._context.brokers.get(broker.id) is not broker:
            return
        is_surprise = broker.has_reported and not broker.shutting_down
        if self.on_isolated is not None and is_surprise and self._are_all_silent(broker):
            self.on_isolated()
        else:
            self._step_or_resign(lambda: self.fence(broker.id, reason))

    def _are_all_silent(self, missed: LiveBroker) -> bool:
        """Whether all other brokers are silent, too: this controller may be cut off."""
        context = self._context
        silence_ms = 2 * context.config.broker_heartbeat_interval_ms
        return all(
            broker is missed
            or self._in_grace_period(broker)
            or context.now_ms - broker.last_contact_ms > silence_ms
            for broker in context.brokers.values()
        )

    def heartbeat(self, request: BrokerHeartbeatRequest, version: int) -> BrokerHeartbeatResponse:
        """Handle BrokerHeartbeat v0-1. A fenced broker (STALE_BROKER_EPOCH) registers again."""
        from kwire.protocol.schemas.nodes import BrokerHeartbeatResponse

        broker = self._context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return BrokerHeartbeatResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        self.renew_lease(broker)
        failed = set(request.offline_log_dirs) - broker.offline_log_dirs
        if failed:
            broker.offline_log_dirs |= failed
            self._resend_roles(broker)
        stopped = False
        if request.want_shut_down:
            stopped = not self._shut_down(broker)
        return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, should_shut_down=stopped)

    # --- fencing

    def fence(self, broker_id: int, reason: str) -> None:
        """Fence a broker for a key of _FAILURES: elect others, remove it from ISRs but as the last
        member (with KIP-966 that one, too)."""
        context = self._context
        broker = context.brokers.pop(broker_id, None)
        is_restart = broker is not None and context.ended_with_previous_run(broker, reason)
        if broker is not None:
            event, number = broker.end_event(reason, is_restart=is_restart), broker.number
            why = _FAILURES[reason]
            self._log_event(
                event, broker_id=broker_id, broker_epoch=number, reason=reason, detail=why
            )
        context.brokers_changed()
        changes = self._changelog.begin(is_restart=is_restart)
        batch = self._orders.batch()
        unchanged = []
        for topic, index, partition in context.partitions():
            if broker_id in partition.replicas:
                self._partitions.remove_from_isr(topic, index, broker_id, changes)
                if changes.current(topic, index) is partition:
                    unchanged.append((topic, index))
        if broker is not None and self._timers is not None:
            changes.records.append(broker.record(live=False))
        try:
            changes.commit()
        except KafkaError:
            if broker is not None:  # it keeps its lease, at whose end this is tried again
                context.brokers[broker_id] = broker
                context.brokers_changed()
            raise
        if broker is not None:
            self.forget(broker_id)
        changes.add_to(batch)
        for topic, index in unchanged:  # the broker is one of their offline replicas now
            batch.add_metadata(topic, index)
        if broker is not None or changes:
            batch.send(broker_list=True)

    def forget(self, broker_id: int) -> None:
        """Drop a broker without elections: close its channel, cancel its timers."""
        context = self._context
        context.brokers.pop(broker_id, None)
        self._listener.close(broker_id)
        if self._timers is not None:
            self._timers.cancel(("controller", "lease", broker_id))
            self._timers.cancel(("controller", "grace", broker_id))

    def unregister_request(
        self, request: UnregisterBrokerRequest, version: int
    ) -> UnregisterBrokerResponse:
        """Handle UnregisterBroker v0. A broker that is still running has to register again."""
        from kwire.protocol.schemas.nodes import UnregisterBrokerResponse

        context, broker_id = self._context, request.broker_id
        if broker_id not in context.state.broker_epochs:
            return UnregisterBrokerResponse(
                error_code=int(ErrorCode.BROKER_ID_NOT_REGISTERED),
                error_message=f"Broker ID {broker_id} is not currently registered",
            )
        broker = self._context.brokers.get(broker_id)
        self.fence(broker_id, "unregistered")
        last_epoch = context.state.cluster_record()  # keeps the highest broker epoch
        self._changelog.commit([last_epoch, (f"broker/{broker_id}", None)])
        if self._timers is None and broker is not None:
            # This process's own broker registers again now; others do after their next heartbeat.
            self.register(broker_id, broker.rack, broker.endpoints)
        return UnregisterBrokerResponse(error_message=None)

    # --- failed log directories

    def _resend_roles(self, broker: LiveBroker) -> None:
        """Send unchanged roles: the response lists the partitions that the broker cannot read."""
        self._orders.batch().send_roles(broker.id)

    def handle_role_response(self, broker: LiveBroker, response: LeaderAndIsrResponse) -> None:
        """Take replicas offline that a LeaderAndIsr response reports with KAFKA_STORAGE_ERROR."""
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
            self._take_replicas_offline(broker, failed)

    def _take_replicas_offline(self, broker: LiveBroker, failed: set[tuple[str, int]]) -> None:
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
                self._partitions.remove_from_isr(topic, index, broker.id, changes)
                if changes.current(topic, index) is partition:
                    unchanged.append((topic, index))
        changes.commit()
        batch = self._orders.batch()
        changes.add_to(batch)
        for topic, index in unchanged:
            batch.add_metadata(topic, index)
        batch.send()

    # --- controlled shutdown

    def controlled_shutdown(
        self, request: ControlledShutdownRequest, version: int
    ) -> ControlledShutdownResponse:
        """Handle ControlledShutdown v0-3; respond with the partitions that it still leads."""
        from kwire.protocol.schemas.control_plane import (
            ControlledShutdownResponse,
            RemainingPartition,
        )

        broker = self._context.brokers.get(request.broker_id)
        if broker is None:
            return ControlledShutdownResponse(error_code=int(ErrorCode.BROKER_NOT_AVAILABLE))
        if request.broker_epoch != broker.epoch:  # Kafka takes -1, too: anybody could send that
            return ControlledShutdownResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        self.renew_lease(broker)
        return ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=topic, partition_index=index)
                for topic, index in self._shut_down(broker)
            ]
        )

    def _shut_down(self, broker: LiveBroker) -> list[tuple[str, int]]:
        """Move leaderships away and shrink ISRs; return the partitions that it still leads."""
        context = self._context
        if not broker.shutting_down:
            self._log_event(
                Event.BROKER_SHUTTING_DOWN, broker_id=broker.id, broker_epoch=broker.number
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
                changes.elect(topic, index, elected, election.CONTROLLED_SHUTDOWN)
            elif partition.leader >= 0:
                followed.append((topic, index))
                self._partitions.remove_from_isr(topic, index, broker.id, changes)
        changes.commit()
        batch = self._orders.batch()
        changes.add_to(batch, exclude={(topic.name, index): broker.id for topic, index in followed})
        for topic, index in followed:
            leader_epoch = topic.partitions[index].leader_epoch
            batch.add_stop_replica(broker.id, topic.name, index, leader_epoch)
        batch.send()
        return [
            (topic.name, index)
            for topic, index, partition in context.partitions()
            if partition.leader == broker.id and len(partition.replicas) > 1
        ]
