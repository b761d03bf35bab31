"""Check the answers of group coordinators: committed offsets are kept (I39), old generations refused (I40).

I39: the committed offset that a coordinator answers was committed by somebody, and is not older than the
last one that was acknowledged, or answered, before it was asked for. Commits are in the order in which they
arrived at brokers. A coordinator that has been deposed without knowing it may answer with old offsets, in
Kafka, too; so this is asked of the leader that the controller has named last. What may be lost with the
records of `__consumer_offsets` (I24), and offsets of topics that were deleted, are excepted.

I40: once a generation has its assignment, a commit of an earlier one that arrives later is refused.
"""

from __future__ import annotations

from typing import Any

from kwire.protocol import api
from kwire.replication.core.metadata import GROUP_METADATA_TOPIC
from kwire.sim.answers import offsets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.sim.answers.checker import Answer, Answers
    from kwire.sim.ghost import GhostPartition

_Place = tuple[str, str, int]  # group, topic, partition


class Committed:
    """What is known of one committed offset. Numbers are those of `Answers.events`."""

    __slots__ = ("arrived", "known")

    def __init__(self) -> None:
        self.arrived: dict[str | None, int] = {}  # metadata of a commit: when it arrived
        self.known: list[tuple[int, int]] = []  # when an answer told one; when that had arrived

    def at_least(self, event: int) -> int:
        """When the newest commit had arrived that was told before `event`; -1: none."""
        return max((arrived for told, arrived in self.known if told < event), default=-1)


class Commits:
    """The committed offsets of all groups, and the generations that have an assignment."""

    def __init__(self) -> None:
        self.offsets: dict[_Place, Committed] = {}
        self.generations: dict[str, tuple[int, int]] = {}  # group: generation, and since when
        self.refused: set[int] = set()  # arrivals of commits that may not be accepted
        self.forgotten_epoch: dict[bytes, int] = {}  # of a partition: the loss that was excused

    def of(self, place: _Place) -> Committed:
        return self.offsets.setdefault(place, Committed())

    def arrive(self, frame: bytes, event: int, broker: Broker) -> None:
        """Record an OffsetCommit that arrives at a broker, and whether its group may accept it."""
        header = api.parse_request_header(frame)
        request: Any
        request, _ = api.request_class(header.api_key).decode_from(
            frame, header.body_position, header.api_version
        )
        for topic in request.topics:
            for p in topic.partitions:
                place = request.group_id, topic.name, p.partition_index
                self.of(place).arrived[p.committed_metadata] = event
        if _is_foreign(broker, request):
            self.refused.add(event)


def _is_foreign(broker: Broker, request: Any) -> bool:
    """Whether a commit is of nobody in a group with members, or of a generation of a group that is gone."""
    coordinator = broker.services.group_coordinator
    context = coordinator.runtime.contexts.get(coordinator.partition_for(request.group_id))
    if context is None or context.is_loading:
        return False
    group = context.shard.classic.groups.get(request.group_id)
    if request.generation_id_or_member_epoch >= 0:
        return group is None
    return group is not None and bool(group.members) and not request.member_id


def check_commit(answers: Answers, answer: Answer) -> None:
    """Remember what is acknowledged; I40."""
    request, commits = answer.request, answers.commits
    ghost = _coordinating(answers, answer, request.group_id)
    for topic in request.topics:
        errors = {
            p.partition_index: p.error_code
            for t in answer.response.topics
            if t.name == topic.name
            for p in t.partitions
        }
        for p in topic.partitions:
            error = errors[p.partition_index]
            answers.reach("OFFSET_COMMIT", error)
            if error or ghost is None:
                continue
            answers.invariants.counts["offsets committed"] += 1
            committed = commits.of((request.group_id, topic.name, p.partition_index))
            arrived = committed.arrived[p.committed_metadata]
            if arrived in commits.refused:
                answers.invariants.violated(
                    "I40",
                    f"{answer.node_id} takes a commit of {request.member_id!r}, generation"
                    f" {request.generation_id_or_member_epoch}, to {request.group_id}",
                )
            committed.known.append((answers.events, arrived))
            _check_generation(answers, answer, arrived)


def _check_generation(answers: Answers, answer: Answer, arrived: int) -> None:
    """I40 of a commit that was taken."""
    request = answer.request
    generation, since = answers.commits.generations.get(request.group_id, (-1, -1))
    if request.generation_id_or_member_epoch < generation and arrived > since:
        answers.invariants.violated(
            "I40",
            f"{answer.node_id} takes a commit of generation {request.generation_id_or_member_epoch} "
            f"of {request.group_id}, which is in generation {generation}",
        )


def check_transactional(answers: Answers, answer: Answer) -> None:
    """I40 of offsets in a transaction."""
    ghost = _coordinating(answers, answer, answer.request.group_id)
    offsets.check_written(answers, answer, ghost)
    partitions = [p for topic in answer.response.topics for p in topic.partitions]
    if ghost is not None and not any(p.error_code for p in partitions):
        _check_generation(answers, answer, answer.event)


def check_sync(answers: Answers, answer: Answer) -> None:
    """Remember the generation that has its assignment."""
    answers.reach("SYNC_GROUP", answer.response.error_code)
    request = answer.request
    if not answer.response.error_code and _coordinating(answers, answer, request.group_id):
        answers.commits.generations[request.group_id] = request.generation_id, answers.events


def check_join(answers: Answers, answer: Answer) -> None:
    """I40: a new dynamic member is given its id before it joins (KIP-394)."""
    answers.reach("JOIN_GROUP", answer.response.error_code)
    request = answer.request
    is_new = not request.member_id and request.group_instance_id is None
    if is_new and not answer.response.error_code:
        answers.invariants.violated("I40", f"{answer.node_id} lets in a member without an id")


def check_fetch(answers: Answers, answer: Answer) -> None:
    """I39."""
    for group in answer.response.groups:
        answers.reach("OFFSET_FETCH", group.error_code)
        ghost = _coordinating(answers, answer, group.group_id)
        if group.error_code or ghost is None:
            continue
        for topic in group.topics:
            if topic.name in answers.invariants.gone_names:
                continue
            for p in topic.partitions:
                place = group.group_id, topic.name, p.partition_index
                if group.group_id in answers.offsets.groups:
                    offsets.check_read(answers, answer, ghost, place, p)
                elif not p.error_code:
                    _check_offset(answers, answer, place, p)


def _check_offset(answers: Answers, answer: Answer, place: _Place, data: Any) -> None:
    committed = answers.commits.of(place)
    wanted = committed.at_least(answer.event)
    found = committed.arrived.get(data.metadata, -1) if data.committed_offset >= 0 else -1
    answers.invariants.counts["committed offsets read"] += 1
    if found < wanted or (data.committed_offset >= 0 and found < 0):
        names = {event: name for name, event in committed.arrived.items()}
        answers.invariants.violated(
            "I39",
            f"{answer.node_id} answers {data.committed_offset} ({data.metadata!r}) as the committed offset of "
            f"{place}; {names.get(wanted)!r} was committed later",
        )
    if found >= 0:
        committed.known.append((answers.events, found))


def _coordinating(answers: Answers, answer: Answer, group: str) -> GhostPartition | None:
    """The partition of `__consumer_offsets` that keeps a group, if the broker is its leader by right.

    Forgets what was known before a loss that is permitted."""
    services = answer.broker.services
    index = services.group_coordinator.partition_for(group)
    partition = services.replica_manager.hosted((GROUP_METADATA_TOPIC, index or 0))
    if partition is None:
        return None
    ghost = answers.invariants.ghost_of(partition)
    commits = answers.commits
    if ghost.reset_epoch > commits.forgotten_epoch.get(ghost.key[0], -1):
        commits.forgotten_epoch[ghost.key[0]] = ghost.reset_epoch
        for committed in commits.offsets.values():
            committed.known.clear()
        commits.generations.clear()
        answers.offsets.forget()
    truth = ghost.truth
    is_right = (
        partition.is_leader
        and truth is not None
        and (truth.leader, truth.leader_epoch) == (answer.node_id, partition.leader_epoch)
    )
    return ghost if is_right else None
