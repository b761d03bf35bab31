"""Partition reassignment: moves replicas to other brokers without data loss.

Answers to KafkaController.onPartitionReassignment and KIP-455: AlterPartitionReassignments 0-1 (v1:
the replication factor may be protected), ListPartitionReassignments 0. The stages, in Kafka's
letters:

    U  the target is journaled; replicas that only a replaced target added are stopped and deleted
    A  until the target is part of the ISR: with a new leader epoch the leader gets all old and new
       replicas; the new ones follow until the leader adds them to the ISR (AlterPartition)
    B  the leader is in the target (elected, or the same one with a new leader epoch); each removed
       replica leaves the ISR (an epoch each), then is stopped and deleted

Invariants: no old replica is stopped before the target is in the ISR; no reassignment removes
the last member of an ISR. Deliberate differences: B's epochs are all journaled but only the last
is sent; a cancellation or replacement that would leave no in-sync replica is refused (39), as
KRaft does; the return of a new replica's broker raises no epoch.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.controller import election
from kwire.replication.controller.changes import (
    REASSIGNMENT_BEGUN,
    REASSIGNMENT_CANCELLED,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.schemas.topics import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.state import PartitionState, TopicState


class _Step:
    """The changes of a request, or of a reassignment's end, and the replicas to delete after
    them."""

    def __init__(self, changelog: ChangeLog, orders: Orders) -> None:
        self._orders = orders
        self.changes = changelog.begin()
        self._gone: list[tuple[TopicState, int, list[int]]] = []

    def remove(self, topic: TopicState, index: int, replicas: list[int], why: str) -> None:
        """Remove replicas from the ISR, with a new leader epoch each; `send` stops and deletes
        them."""
        for broker in replicas:
            state = self.changes.current(topic, index)
            if broker in state.isr:
                isr = [member for member in state.isr if member != broker]
                moved = state.with_leader_and_isr(
                    leader=state.leader, isr=isr, leader_epoch=state.leader_epoch + 1
                )
                self.changes.set_state(topic, index, moved, why)
        self._gone.append((topic, index, replicas))

    def send(self) -> None:
        self.changes.commit()
        batch = self._orders.batch()
        self.changes.add_to(batch)
        for topic, index, replicas in self._gone:
            leader_epoch = topic.partitions[index].leader_epoch
            for broker in replicas:
                batch.add_stop_replica(broker, topic.name, index, leader_epoch, delete=True)
        batch.send()


class Reassignments:
    """Starts, completes, cancels and lists reassignments."""

    def __init__(self, context: ControllerContext, changelog: ChangeLog, orders: Orders) -> None:
        self._context = context
        self._changelog = changelog
        self._orders = orders

    # --- requests

    def alter(
        self, request: AlterPartitionReassignmentsRequest, version: int
    ) -> AlterPartitionReassignmentsResponse:
        """Handle AlterPartitionReassignments v0-1."""
        from kwire.protocol.schemas.topics import (
            AlterPartitionReassignmentsResponse,
            ReassignablePartitionResponse,
            ReassignableTopicResponse,
        )

        response = AlterPartitionReassignmentsResponse(
            error_message=None,
            allow_replication_factor_change=request.allow_replication_factor_change,
        )
        step = _Step(self._changelog, self._orders)
        wanted = {
            (topic.name, partition.partition_index): partition.replicas
            for topic in request.topics
            for partition in topic.partitions
        }
        topics: dict[str, ReassignableTopicResponse] = {}
        done: list[tuple[TopicState, int]] = []
        for (name, index), target in wanted.items():
            result = ReassignablePartitionResponse(partition_index=index, error_message=None)
            try:
                topic = self._validate(name, index, target, request.allow_replication_factor_change)
                self._assign(topic, index, target, step)
                done.append((topic, index))
            except KafkaError as error:
                result.error_code, result.error_message = int(error.code), error.message
            of_topic = topics.setdefault(name, ReassignableTopicResponse(name=name))
            of_topic.partitions.append(result)
        step.send()
        response.responses = list(topics.values())
        return response

    def _validate(
        self, name: str, index: int, target: list[int] | None, any_factor: bool
    ) -> TopicState:
        """Return the topic if the partition can get the replicas `target` (None: cancel), or raise
        KafkaError."""
        topic = self._context.state.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        partition = topic.partitions[index]
        if target is None:
            if not partition.reassigning:
                raise KafkaError(
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                    "No partition reassignment is in progress.",
                )
            target = partition.original
        else:
            self._check_target(partition, target, any_factor)
        staying = {*target, *partition.original}
        if partition.isr and not staying & set(partition.isr):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Only replicas that would be removed are in sync for {name}-{index}: "
                "an unclean leader election would be needed.",
            )
        return topic

    def _check_target(self, partition: PartitionState, target: list[int], any_factor: bool) -> None:
        problem = None
        alive = self._context.eligible
        adding = [broker for broker in target if broker not in partition.original]
        if not target:
            problem = "Empty replica list specified in partition reassignment."
        elif len(set(target)) < len(target):
            problem = f"Duplicate replica ids in partition reassignment replica list: {target}"
        elif min(target) < 0:
            problem = f"Invalid broker id in replica list: {target}"
        elif not alive.issuperset(adding):
            problem = (
                "Replica assignment has brokers that are not alive. Replica list: "
                f"{adding}, live broker list: {sorted(alive)}"
            )
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        if not any_factor and len(target) != len(partition.original):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {len(partition.original)} to {len(target)}",
            )

    def list_ongoing(
        self, request: ListPartitionReassignmentsRequest, version: int
    ) -> ListPartitionReassignmentsResponse:
        """Handle ListPartitionReassignments v0."""
        from kwire.protocol.schemas.topics import (
            ListPartitionReassignmentsResponse,
            OngoingPartitionReassignment,
            OngoingTopicReassignment,
        )

        wanted = None
        if request.topics is not None:
            wanted = {(t.name, index) for t in request.topics for index in t.partition_indexes}
        topics: dict[str, OngoingTopicReassignment] = {}
        for topic in self._context.state.topics.values():
            for index, partition in enumerate(topic.partitions):
                if partition.reassigning and (wanted is None or (topic.name, index) in wanted):
                    of_topic = topics.setdefault(
                        topic.name, OngoingTopicReassignment(name=topic.name)
                    )
                    of_topic.partitions.append(
                        OngoingPartitionReassignment(
                            partition_index=index,
                            replicas=partition.replicas,
                            adding_replicas=partition.adding,
                            removing_replicas=partition.removing,
                        )
                    )
        return ListPartitionReassignmentsResponse(error_message=None, topics=[*topics.values()])

    # --- stages

    def _assign(self, topic: TopicState, index: int, target: list[int] | None, step: _Step) -> None:
        """Run stage U, then A, or B if no replica has to catch up. `target` None: cancel."""
        changes = step.changes
        before = changes.current(topic, index)
        original = before.original
        why = REASSIGNMENT_CANCELLED if target is None else REASSIGNMENT_BEGUN
        target = original if target is None else target
        replicas = [*target, *(broker for broker in original if broker not in target)]
        unneeded = [broker for broker in before.replicas if broker not in replicas]
        if before.leader in unneeded:
            # Move the leadership away before the replica is removed; if no other replica is live,
            # the partition goes offline, as if the leader had failed.
            alive = self._context.alive(topic.name, index)
            elected = election.reassignment(replicas, before.isr, alive, before.recovering)
            if not step.changes.elect(topic, index, elected, election.REASSIGNMENT):
                lost = before.with_leader_and_isr(
                    leader=-1, isr=before.isr, leader_epoch=before.leader_epoch + 1
                )
                changes.set_state(topic, index, lost, REASSIGNMENT_CANCELLED)
        step.remove(topic, index, unneeded, REASSIGNMENT_CANCELLED)
        state = changes.current(topic, index).with_assignment(
            replicas,
            [broker for broker in replicas if broker not in original],
            [broker for broker in replicas if broker not in target],
        )
        changes.set_state(topic, index, state, why)
        if self._is_ready(topic, index, state) or not state.reassigning:
            self._finish(topic, index, step)
        else:
            self._bump_leader_epoch(topic, index, why, step)

    def _bump_leader_epoch(self, topic: TopicState, index: int, why: str, step: _Step) -> None:
        """Keep leader and ISR, raise the leader epoch: so that all replicas apply the new
        assignment."""
        state = step.changes.current(topic, index)
        if state.isr:
            state = state.with_leader_and_isr(
                leader=state.leader, isr=state.isr, leader_epoch=state.leader_epoch + 1
            )
            step.changes.set_state(topic, index, state, why)

    def _is_ready(self, topic: TopicState, index: int, state: PartitionState) -> bool:
        """Whether stage A is complete: the target is in sync, and one of its replicas can lead."""
        alive = self._context.alive(topic.name, index)
        return (
            set(state.target) <= set(state.isr)
            and election.reassignment(state.target, state.isr, alive) is not None
        )

    def _finish(self, topic: TopicState, index: int, step: _Step) -> None:
        """Run stage B."""
        state = step.changes.current(topic, index)
        target, removing = state.target, state.removing
        elected = None
        if state.leader not in target:
            alive = self._context.alive(topic.name, index)
            elected = election.reassignment(target, state.isr, alive, state.recovering)
        if not step.changes.elect(topic, index, elected, election.REASSIGNMENT):
            self._bump_leader_epoch(topic, index, election.REASSIGNMENT, step)
        step.remove(topic, index, removing, election.REASSIGNMENT)
        done = step.changes.current(topic, index).with_assignment(target, [], [])
        step.changes.set_state(topic, index, done, "reassignment done")

    def complete_if_ready(self, topic: TopicState, index: int) -> None:
        """Run stage B if stage A is complete, after a replica has joined the ISR or its broker
        returned."""
        state = topic.partitions[index]
        if not state.reassigning or not self._is_ready(topic, index, state):
            return
        step = _Step(self._changelog, self._orders)
        self._finish(topic, index, step)
        step.send()

    def resume_for_broker(self, broker_id: int) -> None:
        """Complete the reassignments to a registered broker that are ready."""
        for topic in list(self._context.state.topics.values()):
            for index, partition in enumerate(topic.partitions):
                if partition.reassigning and broker_id in partition.target:
                    self.complete_if_ready(topic, index)

    def resume(self) -> None:
        """Complete all reassignments that are ready, at the start of a new controller."""
        for topic in list(self._context.state.topics.values()):
            for index in range(len(topic.partitions)):
                self.complete_if_ready(topic, index)
