"""Eligible leader replicas (KIP-966): replicas outside the ISR that can lead without data loss.

Answers to PartitionChangeBuilder.populateTargetElr, canElectFromElr, canElectLastKnownLeader and
maybeUpdateLastKnownLeader of KRaft (3.9 to 4.0). On with `eligible.leader.replicas.enable`, which
is off by default.

While fewer than min.insync.replicas are in sync, the high watermark does not advance: a replica
that leaves the ISR then has all committed records and becomes eligible. The ISR may become empty;
then an eligible replica is elected, as cleanly as from the ISR. A replica whose broker stopped
uncleanly may have lost records and is no longer eligible. When no replica is eligible and the last
leader returns, it leads again, but has to recover, as after an unclean election.

Deliberate differences: a change of these lists alone raises no partition epoch, since leaders do
not get them; a last known leader is elected only when it is live (as in 4.x, not in 3.9).
Invariants: eligible replicas are part of the assignment and not in the ISR; the list is empty
when enough replicas are in sync; a last known leader is kept only while the partition has no
leader.
"""

from __future__ import annotations

from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from kwire.protocol.schemas.metadata import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    )
    from kwire.replication.controller.election import Elected
    from kwire.replication.controller.state import ControllerState, PartitionState

ELIGIBLE, LAST_KNOWN = "eligible leader replica", "last known leader"


def update_eligible(
    before: PartitionState,
    after: PartitionState,
    min_isr: int,
    unclean: Container[int] = (),
) -> PartitionState:
    """Return `after` with the eligible and last known leaders that follow from the change.

    `unclean`: brokers that may have lost records."""
    eligible: list[int] = []
    if len(after.isr) < min(min_isr, len(after.target)):
        eligible = [
            broker
            for broker in dict.fromkeys([*before.isr, *before.elr])
            if broker in after.replicas and broker not in after.isr and broker not in unclean
        ]
    last_known = before.last_known_elr
    if after.leader != NO_LEADER:
        last_known = []
    elif not after.isr and before.isr:  # offline by a broken disk: Kafka names none then
        last_known = [before.leader] if before.leader != NO_LEADER else before.isr[:1]
    if eligible == after.elr and last_known == after.last_known_elr:
        return after
    return after.with_eligible(eligible, last_known)


def elect_eligible(state: PartitionState, alive: Container[int]) -> tuple[Elected, str] | None:
    """Elect an eligible or the last known leader when no ISR member is alive; return its kind,
    too."""
    for broker in state.replicas:
        if broker in state.elr and broker in alive:
            return (broker, [broker], state.recovering), ELIGIBLE
    if not state.elr and not state.isr and len(state.last_known_elr) == 1:
        (broker,) = state.last_known_elr
        if broker in alive and broker in state.replicas:
            return (broker, [broker], True), LAST_KNOWN
    return None


def describe_eligible(
    state: ControllerState, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Partitions with eligible or last known leaders, of the named topics or all."""
    from kwire.protocol.schemas.metadata import (
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )

    response = DescribeTopicPartitionsResponse()
    names = {topic.name for topic in request.topics}
    for topic in state.topics.values():
        if names and topic.name not in names:
            continue
        partitions = [
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                eligible_leader_replicas=partition.elr,
                last_known_elr=partition.last_known_elr,
            )
            for index, partition in enumerate(topic.partitions)
            if partition.elr or partition.last_known_elr
        ]
        if partitions:
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=partitions
                )
            )
    return response
