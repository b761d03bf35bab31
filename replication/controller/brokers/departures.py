"""What follows when a broker leaves, fails in part or stops: elections, shrunk ISRs, requests to the others.

Answers to KafkaController's onBrokerFailure, onReplicasBecomeOffline and doControlledShutdown (3.9,
ZooKeeper mode). Each is one change, in pieces (`ControllerContext.piece`): a broker may have
thousands of partitions. A piece is journaled, then sent: LeaderAndIsr, then UpdateMetadata, then
StopReplica of its partitions. Nothing else changes the controller's state between two pieces
(`line.py`), and from the first one on the broker is elected for none of the others.

Invariants: the journal has a fenced broker as live until its last piece, so that a controller that
takes over in between fences it again; who cannot journal the rest of a change resigns.
"""

from __future__ import annotations

from kwire.protocol.errors import KafkaError
from kwire.replication.controller import election
from kwire.replication.controller.context import SCANNED, UNITS_CHANGED, UNITS_SCANNED
from kwire.replication.core.events import Event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog, Changes
    from kwire.replication.controller.context import ControllerContext, LiveBroker
    from kwire.replication.controller.partitions import PartitionControl
    from kwire.replication.controller.state import TopicState
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.work import Steps

# Reasons for fencing: the event's `reason`, and its `detail` for people.
_FAILURES = {
    "connection_lost": "its connection has ended",
    "session_timeout": "its lease has ended",
    "unreachable": "it cannot be reached",
    "registered_again": "registered again",
    "unregistered": "unregistered by request",
    "absent": "it is not started in this run",
}


class Departures:
    """Handles the failures and the controlled shutdowns of brokers."""

    def __init__(
        self,
        context: ControllerContext,
        changelog: ChangeLog,
        orders: Orders,
        partitions: PartitionControl,
        *,
        is_standalone: bool,
        forget: Callable[[int], None],
        log_event: LogEvent,
    ) -> None:
        """`forget`: `BrokerRegistry.forget`."""
        self._context = context
        self._changelog = changelog
        self._orders = orders
        self._partitions = partitions
        self._is_standalone = is_standalone
        self._forget = forget
        self._log_event = log_event

    # --- failures

    def fence(self, broker_id: int, reason: str) -> Steps:
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
        piece = _Piece(self, is_restart=is_restart)
        for number, (topic, index, partition) in enumerate(context.partitions(), 1):
            if broker_id in partition.replicas:
                piece.take_offline(topic, index, broker_id)
            if piece.size >= context.piece:
                self._end_piece(piece, broker)
                yield piece.size * UNITS_CHANGED
                piece = _Piece(self, is_restart=is_restart, follows=True)
            elif not number % SCANNED:
                yield UNITS_SCANNED
        if broker is not None and not self._is_standalone:
            piece.changes.records.append(broker.record(live=False))
        self._end_piece(piece, broker)

    def _end_piece(self, piece: _Piece, broker: LiveBroker | None) -> None:
        """Commit and send a piece of the failure of a broker, of which the first piece drops it."""
        context = self._context
        try:
            piece.commit()
        except KafkaError:
            if broker is not None and not piece.follows:
                # It keeps its lease, at whose end this is tried again.
                context.brokers[broker.id] = broker
                context.brokers_changed()
            raise
        if broker is not None and not piece.follows:
            self._forget(broker.id)
        if piece.changes or (broker is not None and (piece.size or not piece.follows)):
            piece.send(broker_list=True)

    def take_replicas_offline(self, broker: LiveBroker, failed: set[tuple[str, int]]) -> Steps:
        """Elect others for replicas on a failed disk of a live broker, and shrink their ISRs."""
        context = self._context
        broker.offline |= failed
        context.brokers_changed()
        piece = _Piece(self)
        for number, (topic, index, _) in enumerate(context.partitions(), 1):
            if (topic.name, index) in failed:
                self._log_event(
                    Event.BROKER_REPLICA_OFFLINE,
                    topic=topic.name,
                    partition=index,
                    broker_id=broker.id,
                )
                piece.take_offline(topic, index, broker.id)
            if piece.size >= context.piece:
                yield piece.end()
                piece = _Piece(self, follows=True)
            elif not number % SCANNED:
                yield UNITS_SCANNED
        piece.end()

    # --- controlled shutdown

    def shut_down(self, broker: LiveBroker) -> Generator[int, None, list[tuple[str, int]]]:
        """Move leaderships away and shrink ISRs; return the partitions that it still leads."""
        context = self._context
        if not broker.shutting_down:
            self._log_event(
                Event.BROKER_SHUTTING_DOWN, broker_id=broker.id, broker_epoch=broker.number
            )
        broker.shutting_down = True
        context.brokers_changed()
        stopping = {b.id for b in context.brokers.values() if b.shutting_down}
        remaining: list[tuple[str, int]] = []
        piece = _Piece(self)
        for number, (topic, index, partition) in enumerate(context.partitions(), 1):
            if broker.id in partition.replicas and len(partition.replicas) > 1:
                if partition.leader == broker.id:
                    if not piece.hand_over(topic, index, stopping):
                        remaining.append((topic.name, index))
                elif partition.leader >= 0:
                    piece.stop_following(topic, index, broker.id)
            if piece.size >= context.piece:
                yield piece.end()
                piece = _Piece(self, follows=True)
            elif not number % SCANNED:
                yield UNITS_SCANNED
        piece.end()
        return remaining


class _Piece:
    """Some partitions of a change. `follows`: it is not the first piece. `size`: how many there are."""

    __slots__ = ("_parts", "_stops", "_unchanged", "changes", "follows", "size")

    def __init__(
        self, parts: Departures, *, is_restart: bool = False, follows: bool = False
    ) -> None:
        self._parts = parts
        self.changes: Changes = parts._changelog.begin(is_restart=is_restart)
        self.follows = follows
        self.size = 0
        self._unchanged: list[tuple[TopicState, int]] = []
        self._stops: dict[tuple[str, int], tuple[TopicState, int]] = {}

    def take_offline(self, topic: TopicState, index: int, broker_id: int) -> None:
        """Remove a replica that is not available any more from the ISR."""
        self.size += 1
        before = self.changes.current(topic, index)
        self._parts._partitions.remove_from_isr(topic, index, broker_id, self.changes)
        if self.changes.current(topic, index) is before:
            self._unchanged.append((topic, index))  # the broker is an offline replica now

    def hand_over(self, topic: TopicState, index: int, stopping: set[int]) -> bool:
        """Elect another leader than one that is stopping; False when no other can lead."""
        partition = topic.partitions[index]
        alive = self._parts._context.alive(topic.name, index)
        elected = election.controlled_shutdown(
            partition.replicas, partition.isr, alive, stopping, partition.recovering
        )
        self.size += elected is not None
        return self.changes.elect(topic, index, elected, election.CONTROLLED_SHUTDOWN)

    def stop_following(self, topic: TopicState, index: int, broker_id: int) -> None:
        """Remove a follower that is stopping from the ISR, and tell it to stop fetching."""
        self.size += 1
        self._stops[topic.name, index] = topic, broker_id
        self._parts._partitions.remove_from_isr(topic, index, broker_id, self.changes)

    def end(self) -> int:
        """Journal and send the piece; return what it has cost, in units. KafkaError as `commit`."""
        self.commit()
        self.send()
        return self.size * UNITS_CHANGED

    def commit(self) -> None:
        """Journal the piece. KafkaError; when it follows another one, the controller has resigned."""
        self.changes.commit(is_rest=self.follows)

    def send(self, *, broker_list: bool = False) -> None:
        """Send the piece to the brokers."""
        batch = self._parts._orders.batch()
        excluded = {key: broker_id for key, (_, broker_id) in self._stops.items()}
        self.changes.add_to(batch, exclude=excluded)
        for topic, index in self._unchanged:
            batch.add_metadata(topic, index)
        for (name, index), (topic, broker_id) in self._stops.items():
            leader_epoch = topic.partitions[index].leader_epoch
            batch.add_stop_replica(broker_id, name, index, leader_epoch)
        batch.send(broker_list=broker_list)
