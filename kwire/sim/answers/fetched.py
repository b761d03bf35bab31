"""Check answers to Fetch: I17, I18, I31 of what is served; I32 to I34 of the answer as a whole.

I32: an answer in a fetch session (KIP-227) leaves out only partitions of which there is no news.
I33: the limits of size are kept, but for one batch (KIP-74), and an answer before max.wait.ms has
something to say. I34: a follower named to read from (KIP-392) is in sync, in the reader's rack.
"""

from __future__ import annotations

from typing import Any

from kwire.protocol.records import check_crc, iter_batches
from kwire.sim.transactions.fates import check_visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.records import BatchHeader
    from kwire.replication.replica.partition import Partition
    from kwire.sim.answers.checker import Answer, Answers
    from kwire.sim.ghost import Entry, GhostPartition


class Session:
    """A reader's session at a broker: its partitions, by topic id and index, as last requested, and
    the high watermark and log start last answered for each. `owed`: the changes
    of those left out."""

    __slots__ = ("answered", "asked", "owed")

    def __init__(self) -> None:
        self.asked: dict[tuple[bytes, int], Any] = {}
        self.answered: dict[tuple[bytes, int], tuple[int, int]] = {}
        self.owed: dict[tuple[bytes, int], tuple[int, int] | None] = {}


def check(answers: Answers, answer: Answer) -> None:
    """Check an answer to a Fetch request."""
    if answer.response.error_code:
        answers.reach("FETCH", answer.response.error_code)
        return
    for topic in answer.response.responses:
        for data in topic.partitions:
            answers.reach("FETCH", data.error_code)
            partition = answers.hosted(answer, topic.topic_id, data.partition_index)
            if not data.error_code and partition is None and not _was_hosted(answers, topic, data):
                answers.invariants.violated(
                    "I17", f"{answer.node_id} answers of topic {topic.topic_id.hex()}, not its own"
                )
            if data.preferred_read_replica >= 0:
                _check_preferred(answers, answer, topic.topic_id, data)
            if data.records and partition is not None:
                _check_records(answers, answer, partition, data)
    _check_sizes(answers, answer)
    _check_session(answers, answer)


def _was_hosted(answers: Answers, topic: Any, data: Any) -> bool:
    """Whether a partition is of a deleted topic, or went offline in the very step of the answer: one of several
    partitions may complete a Fetch before the order, or the append, that finds another one's disk broken."""
    invariants, place = answers.invariants, (topic.topic_id, data.partition_index)
    return topic.topic_id in invariants.gone or place in invariants.left


def _check_records(answers: Answers, answer: Answer, partition: Partition, data: Any) -> None:
    invariants, node_id, records = answers.invariants, answer.node_id, data.records
    ghost = answers.invariants.ghost_of(partition)
    if ghost.leaving:
        return
    high_watermark = partition.log.high_watermark
    if not partition.is_leader:
        invariants.counts["reads from followers"] += 1
    if ghost.compacted is not None:
        for header in iter_batches(records):
            if header.next_offset > high_watermark:
                invariants.violated("I17", f"{ghost.name}: {node_id} serves {header.last_offset}")
        check_visible(answers, answer, ghost, data)
        return
    for header in iter_batches(records):
        place = header.partition_leader_epoch, header.base_offset
        known = ghost.written.get(place)
        if known is None:
            invariants.violated("I31", f"{ghost.name}: {node_id} serves {place}, never written")
        entry: Entry = known[0]
        _check_content(answers, answer, entry, records, header)
        if entry.next > high_watermark:
            invariants.violated(
                "I17", f"{ghost.name}: {node_id} serves {entry}, high watermark {high_watermark}"
            )
        if _follows_election(ghost, node_id, partition) and not ghost.committed.holds(entry):
            invariants.violated("I18", f"{ghost.name}: {node_id} serves {entry}, not committed")
    check_visible(answers, answer, ghost, data)


def _follows_election(ghost: GhostPartition, node_id: int, partition: Partition) -> bool:
    """Whether what a replica serves is what was committed after the last election that could lose data.

    A follower knows of such an election by an order, before the new leader's first answer says what to cut."""
    if partition.leader_epoch < max(ghost.reset_epoch, 0):
        return False
    entries = ghost.logs[node_id].entries
    return partition.is_leader or not entries or entries[-1].epoch >= ghost.reset_epoch


def _check_content(
    answers: Answers, answer: Answer, entry: Entry, records: Any, header: BatchHeader
) -> None:
    """I3: what looks whole is what was written; damage shows by the CRC."""
    if records[header.position + 21 : header.position + header.size] == entry.body:
        return
    if check_crc(records, header):
        answers.invariants.violated(
            "I3", f"{answer.node_id} serves another {entry} than was written"
        )
    answers.invariants.counts["damaged batches served"] += 1


def _check_preferred(answers: Answers, answer: Answer, topic_id: bytes, data: Any) -> None:
    """I34: the replica that a leader names is another one, in sync, and in the reader's rack."""
    replica = data.preferred_read_replica
    partition = answers.hosted(answer, topic_id, data.partition_index)
    rack = answer.request.rack_id
    answers.invariants.counts["followers preferred"] += 1
    members = frozenset[int]()
    if partition is not None:
        members = partition.isr
        seen = answers.invariants.seen[answer.node_id][partition.topic, partition.index]
        if seen.changed_us == answers.invariants.schedule.now_us:
            # LeaderAndIsr changes one partition after another, and may answer a Fetch in between.
            members |= seen.isr_before
    if replica not in members or replica == answer.node_id or answers.racks.get(replica) != rack:
        answers.invariants.violated(
            "I34",
            f"{partition}: {answer.node_id} sends a reader in rack {rack!r} to {replica}, racks are "
            f"{answers.racks}",
        )


def _check_sizes(answers: Answers, answer: Answer) -> None:
    """I33."""
    request, found = answer.request, []
    news = False
    for topic in answer.response.responses:
        for data in topic.partitions:
            size = len(data.records or b"")
            if size:
                found.append((size, data.records))
            news |= (
                data.error_code != 0
                or data.preferred_read_replica >= 0
                or data.diverging_epoch.epoch >= 0
            )
    total = sum(size for size, _ in found)
    limit = max((p.partition_max_bytes for p in _asked(answers, answer).values()), default=0)
    too_large = [records for size, records in found if size > limit]
    if (total > request.max_bytes and len(found) > 1) or len(too_large) > 1:
        _too_much(answers, answer, total, limit)
    if too_large or total > request.max_bytes:
        batches = list(iter_batches((too_large or [found[0][1]])[0]))
        if len(batches) > 1:
            _too_much(answers, answer, total, limit)
        answers.invariants.counts["single batches beyond a limit"] += 1
    if answer.early and not news and not found and _asked(answers, answer):
        answers.invariants.violated(
            "I33",
            f"{answer.node_id} answers {answer.client.name} before {request.max_wait_ms} ms, with "
            f"nothing of at least {request.min_bytes} bytes",
        )


def _too_much(answers: Answers, answer: Answer, total: int, limit: int) -> None:
    answers.invariants.violated(
        "I33",
        f"{answer.node_id} sends {answer.client.name} {total} bytes; the limits are "
        f"{answer.request.max_bytes}, of a partition {limit}",
    )


def _asked(answers: Answers, answer: Answer) -> dict[tuple[bytes, int], Any]:
    """The partitions that a request reads, those of its session included."""
    request = answer.request
    asked = {(t.topic_id, p.partition): p for t in request.topics for p in t.partitions}
    if request.session_epoch > 0:
        session = answers.sessions.get((answer.client.name, answer.node_id))
        if session is not None:
            gone = {(t.topic_id, p) for t in request.forgotten_topics_data for p in t.partitions}
            kept = {key: p for key, p in session.asked.items() if key not in gone}
            return {**kept, **asked}
    return asked


def _check_session(answers: Answers, answer: Answer) -> None:
    """I32, and keep the session's state."""
    request, response = answer.request, answer.response
    place = answer.client.name, answer.node_id
    if request.session_epoch < 0 or not response.session_id:
        answers.sessions.pop(place, None)
        return
    asked = _asked(answers, answer)
    session = answers.sessions.get(place)
    if session is None or request.session_epoch == 0:
        session = answers.sessions[place] = Session()
    session.asked = asked
    listed = set()
    for topic in response.responses:
        for data in topic.partitions:
            key = topic.topic_id, data.partition_index
            listed.add(key)
            session.answered[key] = data.high_watermark, data.log_start_offset
    # What changes in the step of the answer, after the read, is news for the next one.
    owed, session.owed = session.owed, {}
    for key in asked:
        if key in listed:
            continue
        answers.invariants.counts["partitions without news"] += 1
        partition = answers.hosted(answer, *key)
        now = None
        if partition is not None:
            now = partition.log.high_watermark, partition.log.log_start_offset
        if session.answered.get(key) == now:
            continue
        if key in owed:
            answers.invariants.violated(
                "I32",
                f"{partition} at {answer.node_id} has (high watermark, log start) {now}, and had "
                f"{owed[key]} at the last answer; {answer.client.name} knows "
                f"{session.answered.get(key)} and gets nothing",
            )
        session.owed[key] = now
