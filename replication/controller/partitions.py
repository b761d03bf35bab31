"""Partition leadership: elections, ISR changes, preferred leader balancing.

Answers to kafka.controller.ZkPartitionStateMachine and to KafkaController's alterPartitions,
processReplicaLeaderElection and checkAndTriggerAutoLeaderRebalance. AlterPartition 0-3: v1 recovery
state, v2 topic ids, new errors, v3 broker epochs (KIP-903). ElectLeaders 0-2: v1 election types.

Deliberate difference: AlterPartition also enforces KRaft's rules (the sender leads, the ISR is part
of the assignment and includes the leader). Invariant: an election raises the leader epoch, an
accepted AlterPartition only the partition epoch.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.config.broker_config import EPOCH_BUMP_KEY
from kwire.replication.controller import election
from kwire.replication.controller.context import SCANNED, UNITS_CHANGED, UNITS_SCANNED
from kwire.replication.core.types import NO_LEADER
from kwire.replication.core.work import at_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from kwire.protocol.schemas.control_plane import (
        AlterPartitionRequest,
        AlterPartitionResponse,
        AlterPartitionResponsePartitionData,
        PartitionData,
    )
    from kwire.protocol.schemas.metadata import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    )
    from kwire.protocol.schemas.topics import ElectLeadersRequest, ElectLeadersResponse
    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog, Changes
    from kwire.replication.controller.context import ControllerContext, LiveBroker
    from kwire.replication.controller.reassignment import Reassignments
    from kwire.replication.controller.state import TopicState
    from kwire.replication.core.clock import Timers

_PREFERRED, _UNCLEAN = 0, 1  # ElectLeaders' types
_FIRST_BALANCING_MS = 5000


class PartitionControl:
    """Handles elections and ISR changes."""

    def __init__(
        self,
        context: ControllerContext,
        changelog: ChangeLog,
        orders: Orders,
        timers: Timers | None,
        *,
        renew_lease: Callable[[LiveBroker], None],
        step_or_resign: Callable[[Callable[[], None]], None],
        reassignments: Callable[[], Reassignments],
    ) -> None:
        """`renew_lease`: for a broker that sends a request. `step_or_resign`: runs timers."""
        self._context = context
        self._changelog = changelog
        self._orders = orders
        self._timers = timers
        self._renew_lease = renew_lease
        self._step_or_resign = step_or_resign
        self._reassignments = reassignments

    # --- elections after failures

    def remove_from_isr(
        self, topic: TopicState, index: int, broker_id: int, changes: Changes
    ) -> None:
        """Remove a dead or offline replica from the ISR; elect another leader if it led.

        The caller has already made the replica unavailable (`ControllerContext.alive`)."""
        partition = changes.current(topic, index)
        if broker_id not in partition.isr:
            return
        if partition.leader == broker_id and self.elect(topic, index, changes):
            return  # the election has removed it from the ISR, as in Kafka
        isr = [b for b in partition.isr if b != broker_id]
        if not isr and not self._context.config.eligible_leader_replicas_enable:
            isr = partition.isr
        if partition.leader != broker_id and isr == partition.isr:
            return
        leader = NO_LEADER if partition.leader == broker_id else partition.leader
        bump = leader == NO_LEADER or self._context.config.own_flag(EPOCH_BUMP_KEY)
        epoch = partition.leader_epoch + bump
        state = partition.with_leader_and_isr(leader=leader, isr=isr, leader_epoch=epoch)
        changes.set_state(topic, index, state, "replica lost" if leader >= 0 else "leader lost")

    def elect(
        self, topic: TopicState, index: int, changes: Changes, *, force_unclean: bool = False
    ) -> bool:
        """Elect a leader, uncleanly where allowed or forced; False when no replica can lead."""
        context = self._context
        partition = changes.current(topic, index)
        alive = context.alive(topic.name, index)
        if partition.leader_epoch == 0 and not partition.isr:
            # Never had a leader: the live replicas become the ISR, as at its creation.
            isr = [broker for broker in partition.replicas if broker in alive]
            if isr:
                state = partition.with_leader_and_isr(leader=isr[0], isr=isr, leader_epoch=0)
                changes.set_state(topic, index, state, "new")
            return bool(isr)
        why = election.ONLINE_AGAIN if partition.leader == NO_LEADER else election.OFFLINE
        elected = election.offline(partition.replicas, partition.isr, alive, partition.recovering)
        if elected is None and context.config.eligible_leader_replicas_enable:
            from kwire.replication.controller import eligible_leaders

            found = eligible_leaders.elect_eligible(partition, alive)
            if found is not None:
                elected, why = found
        if elected is None and (force_unclean or self._unclean_allowed(topic.name)):
            why = election.UNCLEAN
            elected = election.unclean(partition.replicas, alive)
        return changes.elect(topic, index, elected, why)

    def _unclean_allowed(self, topic: str) -> bool:
        return self._context.topic_log_config(topic).unclean_leader_election_enable

    def elect_offline(self, *, is_rest: bool = False) -> Generator[int, None, Changes]:
        """Elect leaders for partitions without one; journal the changes, do not send them.

        `is_rest`: the first part of the decision is journaled."""
        changes = self._changelog.begin()
        for number, (topic, index, partition) in enumerate(self._context.partitions(), 1):
            if partition.leader == NO_LEADER:
                self.elect(topic, index, changes)
            if len(changes.records) >= self._context.piece:
                changes.commit(is_rest=is_rest)
                is_rest = True
                yield self._context.piece * UNITS_CHANGED
            elif not number % SCANNED:
                yield UNITS_SCANNED
        changes.commit(is_rest=is_rest)
        return changes

    def retry_offline_elections(self) -> None:
        """Run elections that a changed configuration may allow, and send the results."""
        self._announce(at_once(self.elect_offline()))

    # --- eligible leaders (KIP-966)

    def remove_from_elr(self, broker_id: int) -> None:
        """Make a broker ineligible after an unclean shutdown. Not sent: brokers have no ELR."""
        changes = self._changelog.begin()
        for topic, index, partition in self._context.partitions():
            if broker_id in partition.elr:
                changes.set_state(topic, index, partition, "unclean shutdown", unclean=(broker_id,))
        changes.commit(is_rest=True)  # of a registration

    def shrink_elr(self) -> None:
        """Clear the ELR where, by a changed min.insync.replicas, enough replicas are in sync."""
        if not self._context.config.eligible_leader_replicas_enable:
            return
        changes = self._changelog.begin()
        for topic, index, partition in self._context.partitions():
            if partition.elr:
                changes.set_state(topic, index, partition, "min.insync.replicas")
        changes.commit()

    def describe_eligible(
        self, request: DescribeTopicPartitionsRequest, version: int
    ) -> DescribeTopicPartitionsResponse:
        """Handle DescribeTopicPartitions v0: partitions with eligible or last known leaders
        only."""
        from kwire.replication.controller.eligible_leaders import describe_eligible

        return describe_eligible(self._context.state, request)

    def _announce(self, changes: Changes) -> None:
        if changes:
            batch = self._orders.batch()
            changes.add_to(batch)
            batch.send()

    # --- AlterPartition

    def alter_partition(
        self, request: AlterPartitionRequest, version: int
    ) -> AlterPartitionResponse:
        """Handle AlterPartition v0-3."""
        from kwire.protocol.schemas.control_plane import (
            AlterPartitionResponse,
            AlterPartitionResponsePartitionData,
            AlterPartitionResponseTopicData,
        )

        context = self._context
        broker = context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return AlterPartitionResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        self._renew_lease(broker)
        response = AlterPartitionResponse()
        changes = self._changelog.begin()
        answers: list[tuple[TopicState, int, AlterPartitionResponsePartitionData]] = []
        for data in request.topics:
            name = context.state.names_by_id.get(data.topic_id) if version >= 2 else data.topic_name
            topic = context.state.topics.get(name or "")
            answered = AlterPartitionResponseTopicData(
                topic_name=data.topic_name, topic_id=data.topic_id
            )
            response.topics.append(answered)
            for wanted in data.partitions:
                answer = AlterPartitionResponsePartitionData(partition_index=wanted.partition_index)
                answered.partitions.append(answer)
                try:
                    if topic is None or not 0 <= wanted.partition_index < len(topic.partitions):
                        raise KafkaError(
                            ErrorCode.UNKNOWN_TOPIC_ID
                            if version >= 2 and topic is None
                            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        )
                    self._alter_isr(request.broker_id, topic, wanted, version, changes)
                    answers.append((topic, wanted.partition_index, answer))
                except KafkaError as error:
                    answer.error_code = int(error.code)
        changes.commit()
        for topic, index, answer in answers:
            state = topic.partitions[index]
            answer.leader_id, answer.leader_epoch = state.leader, state.leader_epoch
            answer.isr, answer.partition_epoch = state.isr, state.partition_epoch
            answer.leader_recovery_state = int(state.recovering)
        if changes:
            batch = self._orders.batch()
            for topic, index, _ in answers:
                batch.add_metadata(topic, index)
            batch.send()
            for topic, index, _ in answers:
                if topic.partitions[index].reassigning:
                    self._reassignments().complete_if_ready(topic, index)
        return response

    def _alter_isr(
        self, sender: int, topic: TopicState, wanted: PartitionData, version: int, changes: Changes
    ) -> None:
        index = wanted.partition_index
        partition = changes.current(topic, index)
        if version >= 3:
            members = {state.broker_id: state.broker_epoch for state in wanted.new_isr_with_epochs}
            isr = [state.broker_id for state in wanted.new_isr_with_epochs]
        else:
            isr = list(wanted.new_isr)
            members = dict.fromkeys(isr, -1)
        recovering = wanted.leader_recovery_state == 1
        if (
            wanted.leader_epoch > partition.leader_epoch
            or wanted.partition_epoch > partition.partition_epoch
        ):
            raise KafkaError(ErrorCode.NOT_CONTROLLER)  # deposed: the sender has newer state
        if wanted.leader_epoch < partition.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if sender != partition.leader:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if isr == partition.isr and recovering == partition.recovering:
            self._check_isr(members, topic.name, index, version)
            return  # a retry: the first response was lost
        if wanted.partition_epoch < partition.partition_epoch:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
        if (
            (recovering and (len(isr) > 1 or not partition.recovering))
            or len(members) != len(isr)
            or not members.keys() <= set(partition.replicas)
            or sender not in members
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._check_isr(members, topic.name, index, version)
        state = partition.with_leader_and_isr(
            leader=partition.leader,
            isr=isr,
            leader_epoch=partition.leader_epoch,
            recovering=recovering,
        )
        changes.set_state(topic, index, state, "asked by the leader")

    def _check_isr(self, members: dict[int, int], topic: str, index: int, version: int) -> None:
        for member, epoch in members.items():
            broker = self._context.brokers.get(member)
            if (
                broker is None
                or not self._context.is_online(member, topic, index)
                or epoch not in (-1, broker.epoch)
            ):
                ineligible = ErrorCode.INELIGIBLE_REPLICA
                raise KafkaError(ineligible if version >= 2 else ErrorCode.OPERATION_NOT_ATTEMPTED)

    # --- ElectLeaders

    def elect_leaders(self, request: ElectLeadersRequest, version: int) -> ElectLeadersResponse:
        """Handle ElectLeaders v0-2."""
        from kwire.protocol.schemas.topics import (
            ElectLeadersResponse,
            PartitionResult,
            ReplicaElectionResult,
        )

        kind = request.election_type if version >= 1 else _PREFERRED
        if kind not in (_PREFERRED, _UNCLEAN):
            from kwire.replication.controller.refusals import Refusals

            code = int(ErrorCode.INVALID_REQUEST)
            return Refusals.elect_leaders(request, version, code, f"Unknown election type {kind}")
        wanted: Iterable[tuple[str, int]]
        if request.topic_partitions is None:
            wanted = ((topic.name, index) for topic, index, _ in self._context.partitions())
        else:
            wanted = dict.fromkeys(
                (named.topic, index)
                for named in request.topic_partitions
                for index in named.partitions
            )
        changes = self._changelog.begin()
        results: dict[str, ReplicaElectionResult] = {}
        for name, index in wanted:
            result = PartitionResult(partition_id=index, error_message=None)
            try:
                self._elect_requested(name, index, kind, changes)
            except KafkaError as error:
                if request.topic_partitions is None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                    continue  # for all partitions: only those elected or failed are listed
                result.error_code, result.error_message = int(error.code), error.message
            of_topic = results.setdefault(name, ReplicaElectionResult(topic=name))
            of_topic.partition_result.append(result)
        changes.commit()
        self._announce(changes)
        return ElectLeadersResponse(replica_election_results=list(results.values()))

    def _elect_requested(self, name: str, index: int, kind: int, changes: Changes) -> None:
        context = self._context
        topic = context.state.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        partition = changes.current(topic, index)
        alive = context.alive(name, index)
        if kind == _PREFERRED:
            needed = partition.leader != partition.replicas[0]
        else:
            needed = partition.leader == NO_LEADER
        if not needed:
            raise KafkaError(
                ErrorCode.ELECTION_NOT_NEEDED,
                f"Leader election not needed for topic partition {name}-{index}.",
            )
        if kind == _UNCLEAN:
            if not self.elect(topic, index, changes, force_unclean=True):
                raise KafkaError(
                    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                    f"No living replica of {name}-{index} could be elected.",
                )
            return
        elected = election.preferred(partition.replicas, partition.isr, alive, partition.recovering)
        if not changes.elect(topic, index, elected, election.PREFERRED):
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"The preferred leader of {name}-{index} is not alive and in sync.",
            )

    def appoint(self, name: str, index: int, leader: int, unclean: bool) -> None:
        """Make a given replica the leader, for tests; no-op when it already leads.

        Kafka has no request for that. A live member of the ISR takes over as in a preferred
        election; a live replica outside it only with `unclean`, and becomes the only member of
        the ISR. ELIGIBLE_LEADERS_NOT_AVAILABLE otherwise."""
        context = self._context
        topic = context.state.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}"
            )
        changes = self._changelog.begin()
        partition = changes.current(topic, index)
        if partition.leader == leader:
            return
        alive = context.alive(name, index)
        if leader not in partition.replicas or leader not in alive:
            why = "is not alive" if leader in partition.replicas else "is no replica"
            raise KafkaError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"broker {leader} cannot lead {name}-{index}, it {why}: the replicas are"
                f" {partition.replicas}, alive {sorted(set(partition.replicas) & set(alive))}",
            )
        if leader in partition.isr:
            elected = leader, list(partition.isr), partition.recovering
            why = election.APPOINTED
        elif unclean:
            elected, why = (leader, [leader], True), election.UNCLEAN
        else:
            raise KafkaError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"broker {leader} cannot lead {name}-{index} without loss: the ISR is {partition.isr}",
            )
        changes.elect(topic, index, elected, why)
        changes.commit()
        self._announce(changes)

    # --- balance

    def schedule_balancing(self) -> None:
        """Start preferred leader balancing, the first time after 5 s."""
        if self._context.config.auto_leader_rebalance_enable:
            self._schedule_balancing(_FIRST_BALANCING_MS)

    def _schedule_balancing(self, delay_ms: int) -> None:
        if self._timers is not None and self._context.active:
            due_ms = self._context.now_ms + delay_ms
            self._timers.schedule(("controller", "balance"), due_ms, self._run_balancing)

    def _run_balancing(self) -> None:
        self._step_or_resign(self.balance)
        seconds = self._context.config.leader_imbalance_check_interval_seconds
        self._schedule_balancing(seconds * 1000)

    def balance(self) -> None:
        """Run preferred elections for brokers above leader.imbalance.per.broker.percentage."""
        context = self._context
        should_lead: dict[int, list[tuple[TopicState, int]]] = {}
        for topic, index, partition in self._context.partitions():
            should_lead.setdefault(partition.replicas[0], []).append((topic, index))
        changes = self._changelog.begin()
        limit = context.config.leader_imbalance_per_broker_percentage
        for broker_id, partitions in should_lead.items():
            if broker_id not in context.eligible:
                continue
            others = [(t, i) for t, i in partitions if t.partitions[i].leader != broker_id]
            if 100 * len(others) <= limit * len(partitions):
                continue
            for topic, index in others:
                state = topic.partitions[index]
                alive = context.alive(topic.name, index)
                elected = election.preferred(state.replicas, state.isr, alive, state.recovering)
                changes.elect(topic, index, elected, election.PREFERRED)
        changes.commit()
        self._announce(changes)
