"""The controller's broker registry: registration, heartbeats, controlled shutdown.

Answers to KafkaController's onBrokerStartup (3.9, ZooKeeper mode), and to KRaft's ClusterControlManager and
BrokerHeartbeatManager for the way brokers register: BrokerRegistration 0-4, BrokerHeartbeat 0-1,
UnregisterBroker 0; ControlledShutdown 0-3. What follows when a broker leaves: departures.py.

A live broker holds a lease (leases.py) that its requests renew. A broker that answers
KAFKA_STORAGE_ERROR (56) for a partition counts as dead for this partition only.

Invariants: broker epochs rise strictly over all registrations; a broker that is shutting down is
never elected nor added to an ISR; registering an id that is live fences the old registration first.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.replication.controller.context import LiveBroker
from kwire.replication.core.events import Event
from kwire.replication.core.metadata import Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

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
    from kwire.replication.controller.brokers.departures import Departures
    from kwire.replication.controller.brokers.leases import Leases
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.partitions import PartitionControl
    from kwire.replication.controller.reassignment import Reassignments
    from kwire.replication.core.clock import Timers
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.work import Steps


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
        step_or_resign: Callable[[Callable[[], Steps]], None],
        log_event: LogEvent,
    ) -> None:
        """`timers`: None for a standalone broker, which needs no lease."""
        self._context = context
        self._changelog = changelog
        self._orders = orders
        self._listener = listener
        self._partitions = partitions
        self._reassignments = reassignments
        self._log_event = log_event
        self._departures_made: Departures | None = None
        self._resumed: set[int] = set()  # from a snapshot, and waiting for the others
        self.leases: Leases | None = None
        """None for a standalone broker."""
        if timers is not None:
            from kwire.replication.controller.brokers.leases import Leases

            self.leases = Leases(context, timers, self.fence, step_or_resign)

    # --- start

    def register(
        self,
        broker_id: int,
        rack: str | None,
        endpoints: list[Endpoint],
        incarnation: bytes = b"",
        *,
        unclean: bool = False,
    ) -> Generator[int, None, int]:
        """Register a started broker and send it full state; return the new broker epoch.

        `unclean`: it did not shut down cleanly and may have lost the ends of its logs (KIP-966)."""
        context = self._context
        yield from self.fence(broker_id, "registered_again")
        epoch = context.next_broker_epoch(incarnation)
        broker = LiveBroker(broker_id, epoch, rack, endpoints, incarnation)
        if context.is_standalone:  # only the epoch has to survive a restart
            self._changelog.commit([(f"broker/{broker_id}", {"epoch": epoch})])
        else:
            self._changelog.commit([broker.record(live=True)])
        context.brokers[broker_id] = broker
        context.brokers_changed()
        self._start_lease(broker)
        self._listener.open(broker_id, epoch)
        self._log_event(
            Event.BROKER_REGISTERED, broker_id=broker_id, broker_epoch=broker.number, rack=rack
        )
        if unclean and context.config.eligible_leader_replicas_enable:
            self._partitions.remove_from_elr(broker_id)
        elected = yield from self._partitions.elect_offline(is_rest=True)
        batch = self._orders.batch(exclude=broker_id)
        batch.send_broker_list(other for other in context.brokers if other != broker_id)
        yield from batch.send_everything(broker_id)
        elected.add_to(batch)
        batch.send()
        if self.leases is not None:
            self._reassignments().resume_for_broker(broker_id)
        return epoch

    def register_request(
        self, request: BrokerRegistrationRequest, version: int
    ) -> Generator[int, None, BrokerRegistrationResponse]:
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
            if not broker.endpoints:
                yield from self._take_endpoints(broker, endpoints)
            return BrokerRegistrationResponse(broker_epoch=broker.epoch)
        is_in_grace_period = self.leases is not None and self.leases.is_in_grace_period(broker)
        if broker is not None and broker.has_reported and not is_in_grace_period:
            return BrokerRegistrationResponse(
                error_code=int(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            )
        # KIP-966: after a clean shutdown a broker knows its last epoch (`.kafka_cleanshutdown`).
        last_epoch = context.state.broker_epochs.get(request.broker_id)
        epoch = yield from self.register(
            request.broker_id,
            request.rack,
            endpoints,
            request.incarnation_id,
            unclean=request.previous_broker_epoch != last_epoch,
        )
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def _take_endpoints(self, broker: LiveBroker, endpoints: list[Endpoint]) -> Steps:
        """Take the addresses of a broker that goes on from a snapshot. It has its logs of that moment, and the
        controller its journal: so it is the same incarnation, and keeps its epoch and its roles."""
        broker.endpoints = endpoints
        self._changelog.commit([broker.record(live=True)])
        self._context.brokers_changed()
        self._resumed.add(broker.id)
        yield from self._send_to_resumed()

    def _send_to_resumed(self) -> Steps:
        """Send full state to the brokers that go on from a snapshot, once every broker has addresses: a follower that
        cannot reach its leader would wait for replica.fetch.backoff.ms."""
        brokers = self._context.brokers
        if not all(broker.endpoints for broker in brokers.values()):
            return
        resumed, self._resumed = self._resumed, set()
        for broker_id in sorted(resumed & brokers.keys()):
            self._listener.open(broker_id, brokers[broker_id].epoch)
            everything = self._orders.batch()
            yield from everything.send_everything(broker_id)

    def take_over(self) -> Steps:
        """Give the live brokers of the journal a lease, and send them full state."""
        context = self._context
        for broker_id, value in context.state.registrations.items():
            if not value.get("live"):
                continue
            endpoints = [Endpoint(*each) for each in value["endpoints"]]
            incarnation = bytes.fromhex(value["incarnation"])
            broker = LiveBroker(broker_id, value["epoch"], value["rack"], endpoints, incarnation)
            context.brokers[broker_id] = broker
            self._start_lease(broker)
            broker.has_reported = False
            self._listener.open(broker_id, broker.epoch)
        context.brokers_changed()
        self._log_event(
            Event.CONTROLLER_ELECTED,
            controller_id=context.node_id,
            brokers=len(context.brokers),
            topics=len(context.state.topics),
        )
        yield from self._partitions.elect_offline(is_rest=True)
        for broker_id in context.brokers:
            yield from self._orders.batch().send_everything(broker_id)
        self._reassignments().resume()

    # --- leases

    def renew_lease(self, broker: LiveBroker) -> None:
        """Restart the broker's lease after a request of the broker; no-op for one that has waited."""
        if not self._context.is_late:
            self._start_lease(broker)

    def _start_lease(self, broker: LiveBroker) -> None:
        context = self._context
        context.has_survivors |= not broker.has_reported
        broker.has_reported = True
        broker.last_contact_ms = context.real_ms
        if self.leases is not None:
            self.leases.start(broker)

    def heartbeat(
        self, request: BrokerHeartbeatRequest, version: int
    ) -> BrokerHeartbeatResponse | Generator[int, None, BrokerHeartbeatResponse]:
        """Handle BrokerHeartbeat v0-1. A fenced broker (STALE_BROKER_EPOCH) registers again."""
        from kwire.protocol.schemas.nodes import BrokerHeartbeatResponse

        broker = self._context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return BrokerHeartbeatResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        self.renew_lease(broker)
        if _only_renews(request, broker):
            return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
        return self._heartbeat_with_news(request, broker)

    def _heartbeat_with_news(
        self, request: BrokerHeartbeatRequest, broker: LiveBroker
    ) -> Generator[int, None, BrokerHeartbeatResponse]:
        from kwire.protocol.schemas.nodes import BrokerHeartbeatResponse

        failed = set(request.offline_log_dirs) - broker.offline_log_dirs
        if failed:
            broker.offline_log_dirs |= failed
            # Unchanged roles: the response lists the partitions that the broker cannot read.
            yield from self._orders.batch().send_roles(broker.id)
        stopped = False
        if request.want_shut_down:
            stopped = not (yield from self._departures.shut_down(broker))
        return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, should_shut_down=stopped)

    def renew_while_waiting(self, request: Any) -> bool:
        """Renew the lease of a request's sender, as the request itself has to wait for others.

        True: that is all that the request is for (a heartbeat), so it need not wait."""
        from kwire.protocol.schemas.nodes import BrokerHeartbeatRequest, BrokerRegistrationRequest

        if isinstance(request, BrokerRegistrationRequest):
            broker = self._context.brokers.get(request.broker_id)
            is_sender = broker is not None and broker.incarnation == request.incarnation_id
        else:
            epoch = getattr(request, "broker_epoch", -1)
            broker = self._context.brokers.get(request.broker_id) if epoch >= 0 else None
            is_sender = broker is not None and broker.epoch == epoch
        if broker is not None and is_sender:
            self._start_lease(broker)
        return isinstance(request, BrokerHeartbeatRequest) and (
            broker is None or not is_sender or _only_renews(request, broker)
        )

    # --- departures

    @property
    def _departures(self) -> Departures:
        """Imported on first use: most standalone brokers start without any partition."""
        if self._departures_made is None:
            from kwire.replication.controller.brokers.departures import Departures

            self._departures_made = Departures(
                self._context,
                self._changelog,
                self._orders,
                self._partitions,
                is_standalone=self.leases is None,
                forget=self.forget,
                log_event=self._log_event,
            )
        return self._departures_made

    def fence(self, broker_id: int, reason: str) -> Steps:
        """Fence a broker for a reason of `departures.py`; its partitions get other leaders."""
        if broker_id in self._context.brokers or self._context.state.topics:
            yield from self._departures.fence(broker_id, reason)
        if self._resumed:
            yield from self._send_to_resumed()

    def forget(self, broker_id: int) -> None:
        """Drop a broker without elections: close its channel, cancel its timers."""
        context = self._context
        context.brokers.pop(broker_id, None)
        self._listener.close(broker_id)
        if self.leases is not None:
            self.leases.end(broker_id)

    def unregister_request(
        self, request: UnregisterBrokerRequest, version: int
    ) -> Generator[int, None, UnregisterBrokerResponse]:
        """Handle UnregisterBroker v0. A broker that is still running has to register again."""
        from kwire.protocol.schemas.nodes import UnregisterBrokerResponse

        context, broker_id = self._context, request.broker_id
        if broker_id not in context.state.broker_epochs:
            return UnregisterBrokerResponse(
                error_code=int(ErrorCode.BROKER_ID_NOT_REGISTERED),
                error_message=f"Broker ID {broker_id} is not currently registered",
            )
        broker = self._context.brokers.get(broker_id)
        yield from self.fence(broker_id, "unregistered")
        last_epoch = context.state.cluster_record()  # keeps the highest broker epoch
        self._changelog.commit([last_epoch, (f"broker/{broker_id}", None)])
        if self.leases is None and broker is not None:
            # This process's own broker registers again now; others do after their next heartbeat.
            yield from self.register(broker_id, broker.rack, broker.endpoints)
        return UnregisterBrokerResponse(error_message=None)

    # --- failed log directories

    def handle_role_response(self, broker: LiveBroker, response: LeaderAndIsrResponse) -> Steps:
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
            yield from self._departures.take_replicas_offline(broker, failed)

    # --- controlled shutdown

    def controlled_shutdown(
        self, request: ControlledShutdownRequest, version: int
    ) -> Generator[int, None, ControlledShutdownResponse]:
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
        remaining = yield from self._departures.shut_down(broker)
        return ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=topic, partition_index=index)
                for topic, index in remaining
            ]
        )


def _only_renews(request: BrokerHeartbeatRequest, broker: LiveBroker) -> bool:
    """Whether a heartbeat has no news of its broker: no stop, no failed log directory."""
    return not request.want_shut_down and broker.offline_log_dirs.issuperset(
        request.offline_log_dirs
    )
