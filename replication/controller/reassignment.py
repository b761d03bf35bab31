"""Replicas on the move: from one list of brokers to another without losing a record.

Answers to KafkaController.onPartitionReassignment and KIP-455: AlterPartitionReassignments 0-1 (v1: the replication
factor may be protected), ListPartitionReassignments 0. The stages, in Kafka's letters:

    U  the plan is journaled; replicas that only a replaced plan had added are stopped and deleted
    A  until the target is part of the ISR: a new leader epoch makes all old and new replicas known to the leader, and
       the new ones follow until the leader takes them into the ISR (AlterPartition)
    B  the leader is one of the target (elected, or announced with a new leader epoch); each replica that goes leaves
       the ISR (an epoch each), then is stopped and deleted

Invariants: no old replica is stopped before the target is in the ISR; no plan takes the last member out of an ISR.
Deliberate differences: B's epochs are all journaled but only the last is told; a cancellation or replacement that would
leave no in-sync replica is refused (39), as KRaft does; the return of a new replica's broker costs no epoch.
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
    """What a request, or the end of a reassignment, makes of partitions: states, then what to tell whom."""

    def __init__(self, changelog: ChangeLog, orders: Orders) -> None:
        self._orders = orders
        self.changes = changelog.begin()
        self._gone: list[tuple[TopicState, int, list[int]]] = []

    def remove(self, topic: TopicState, index: int, replicas: list[int], why: str) -> None:
        """Takes replicas out of the ISR, an epoch each; `send` has them stopped and deleted."""
        for broker in replicas:
            state = self.changes.current(topic, index)
            if broker in state.isr:
                isr = [member for member in state.isr if member != broker]
                moved = state.moved(
                    leader=state.leader, isr=isr, leader_epoch=state.leader_epoch + 1
                )
                self.changes.move(topic, index, moved, why)
        self._gone.append((topic, index, replicas))

    def send(self) -> None:
        self.changes.commit()
        batch = self._orders.batch()
        self.changes.add_to(batch)
        for topic, index, replicas in self._gone:
            leader_epoch = topic.partitions[index].leader_epoch
            for broker in replicas:
                batch.stop(broker, topic.name, index, leader_epoch, delete=True)
        batch.send()


class Reassignments:
    """Starts, carries on, cancels and lists reassignments."""

    def __init__(self, context: ControllerContext, changelog: ChangeLog, orders: Orders) -> None:
        self._context = context
        self._changelog = changelog
        self._orders = orders

    # --- what clients ask

    def alter(
        self, request: AlterPartitionReassignmentsRequest, version: int
    ) -> AlterPartitionReassignmentsResponse:
        """AlterPartitionReassignments v0-1."""
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
                topic = self._checked(name, index, target, request.allow_replication_factor_change)
                self._assign(topic, index, target, step)
                done.append((topic, index))
            except KafkaError as error:
                result.error_code, result.error_message = int(error.code), error.message
            of_topic = topics.setdefault(name, ReassignableTopicResponse(name=name))
            of_topic.partitions.append(result)
        step.send()
        response.responses = list(topics.values())
        return response

    def _checked(
        self, name: str, index: int, target: list[int] | None, any_factor: bool
    ) -> TopicState:
        """The topic, if the partition can be given these replicas (None: those it had before)."""
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
        """ListPartitionReassignments v0."""
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
        """Stage U, and then A or, when nothing has to be copied, B. `target` None: cancel."""
        changes = step.changes
        before = changes.current(topic, index)
        original = before.original
        why = REASSIGNMENT_CANCELLED if target is None else REASSIGNMENT_BEGUN
        target = original if target is None else target
        replicas = [*target, *(broker for broker in original if broker not in target)]
        unneeded = [broker for broker in before.replicas if broker not in replicas]
        if before.leader in unneeded:
            # Away from a replica that goes before it goes; nobody alive: the partition is offline, as by its death.
            alive = self._context.alive(topic.name, index)
            elected = election.reassignment(replicas, before.isr, alive, before.recovering)
            if not step.changes.elect(topic, index, elected, election.REASSIGNMENT):
                lost = before.moved(leader=-1, isr=before.isr, leader_epoch=before.leader_epoch + 1)
                changes.move(topic, index, lost, REASSIGNMENT_CANCELLED)
        step.remove(topic, index, unneeded, REASSIGNMENT_CANCELLED)
        state = changes.current(topic, index).assigned(
            replicas,
            [broker for broker in replicas if broker not in original],
            [broker for broker in replicas if broker not in target],
        )
        changes.move(topic, index, state, why)
        if self._is_ready(topic, index, state) or not state.reassigning:
            self._finish(topic, index, step)
        else:
            self._announce(topic, index, why, step)

    def _announce(self, topic: TopicState, index: int, why: str, step: _Step) -> None:
        """Leader and ISR as they are, with a new leader epoch: so that every replica takes notice."""
        state = step.changes.current(topic, index)
        if state.isr:
            state = state.moved(
                leader=state.leader, isr=state.isr, leader_epoch=state.leader_epoch + 1
            )
            step.changes.move(topic, index, state, why)

    def _is_ready(self, topic: TopicState, index: int, state: PartitionState) -> bool:
        """Stage A is over: the target is in sync, and one of it can lead."""
        alive = self._context.alive(topic.name, index)
        return (
            set(state.target) <= set(state.isr)
            and election.reassignment(state.target, state.isr, alive) is not None
        )

    def _finish(self, topic: TopicState, index: int, step: _Step) -> None:
        """Stage B."""
        state = step.changes.current(topic, index)
        target, removing = state.target, state.removing
        elected = None
        if state.leader not in target:
            alive = self._context.alive(topic.name, index)
            elected = election.reassignment(target, state.isr, alive, state.recovering)
        if not step.changes.elect(topic, index, elected, election.REASSIGNMENT):
            self._announce(topic, index, election.REASSIGNMENT, step)
        step.remove(topic, index, removing, election.REASSIGNMENT)
        done = step.changes.current(topic, index).assigned(target, [], [])
        step.changes.move(topic, index, done, "reassignment done")

    def check(self, topic: TopicState, index: int) -> None:
        """Something has joined or returned: ends the reassignment if its time has come."""
        state = topic.partitions[index]
        if not state.reassigning or not self._is_ready(topic, index, state):
            return
        step = _Step(self._changelog, self._orders)
        self._finish(topic, index, step)
        step.send()

    def broker_started(self, broker_id: int) -> None:
        """Reassignments that name the broker go on."""
        for topic in list(self._context.state.topics.values()):
            for index, partition in enumerate(topic.partitions):
                if partition.reassigning and broker_id in partition.target:
                    self.check(topic, index)

    def resume(self) -> None:
        """A new controller: what could have ended while there was none ends now."""
        for topic in list(self._context.state.topics.values()):
            for index in range(len(topic.partitions)):
                self.check(topic, index)
