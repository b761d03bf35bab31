"""The invariants of design §6, checked after every step on the state that it changed.

This module checks brokers and their disks against the ghost of `ghost.py`: I1-I6, I8-I11, I14,
I18-I22, I25-I27. `decisions.py` checks the controller (I12, I13, I28), `histories.py` responses to
clients (I17, I18, I23, I31), `convergence.py` the end of a run (I7, I24, I30), `faults.py` replayed
control requests (I15). I16 shows as I3; I29 follows from I1: ghosts are keyed by topic id, so old
data under a new id has no author.

Permitted losses (I24): an unflushed tail lost by one broker is no violation; that broker counts as
`lossy` until it rejoins the ISR. A leader elected while the whole ISR is lossy, or from outside the
ISR, may lack committed data: the ghost's committed log is truncated to that leader's, and
acknowledged batches beyond it are excused. Everything else in §6 still holds.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import NoReturn

from kwire.protocol.language.primitives import ZERO_UUID
from kwire.replication.core.types import TopicPartition
from kwire.replication.replica.isr import PendingExpandIsr
from kwire.sim.ghost import Entry, GhostKey, GhostLog, GhostPartition, Loss, read_entries
from kwire.sim.reached import role_of
from kwire.sim.retention import check_deletion, check_move
from kwire.sim.seen import Seen, epochs_of, trace_line
from kwire.sim.state.removed import check_removed
from kwire.sim.state.rules import StateRules
from kwire.sim.transactions.fates import Transactions, check_sequence, check_stable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.replication.controller.state import PartitionState
    from kwire.replication.log.log import Log
    from kwire.replication.replica.partition import Partition
    from kwire.sim.schedule import Schedule


class InvariantViolation(Exception):
    """A violated invariant. `rule`: its number in design §6."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Invariants:
    """The checker of one run. Its methods raise InvariantViolation."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.partitions: dict[GhostKey, GhostPartition] = {}
        self.gone: set[bytes] = set()  # ids of topics that have been deleted
        self.gone_names: set[str] = set()
        self.left: set[GhostKey] = set()  # what the broker that has stepped hosted until this step
        self.seen: dict[int, dict[TopicPartition, Seen]] = {}
        self.brokers: dict[int, Broker] = {}
        self.starts: dict[int, list[bytes]] = {}  # the incarnation ids of each broker's processes
        self.transactions = Transactions(self)
        self.state = StateRules(self)
        self.transitions: set[str] = set()
        self.counts: Counter[str] = Counter()  # of what happened, so that tests can see that it did
        self.trace_lines: list[str] | None = None  # what the last step changed, for a trace

    def violated(self, rule: str, text: str) -> NoReturn:
        raise InvariantViolation(rule, text)

    def ghost(self, name: str, topic_id: bytes, index: int) -> GhostPartition:
        key = topic_id, index
        ghost = self.partitions.get(key)
        if ghost is None:
            ghost = self.partitions[key] = GhostPartition(f"{name}-{index}", key)
            # A broker may not know yet that the topic is deleted.
            ghost.leaving = topic_id in self.gone
        return ghost

    def ghost_of(self, partition: Partition) -> GhostPartition:
        """The ghost of a broker's partition."""
        return self.ghost(partition.topic, partition.topic_id, partition.index)

    def has_rot(self, node_id: int) -> bool:
        """Whether something on the broker's disks is damaged: it may lose more than its tails."""
        return any(n == node_id for ghost in self.partitions.values() for n, _ in ghost.rotten)

    # --- a broker's step

    def check_broker(self, node_id: int, broker: Broker) -> None:
        """Compare each partition with its last seen state and check the changes."""
        hosted = broker.services.replica_manager.by_key
        seen = self.seen[node_id]
        self.left.clear()
        for key, partition in hosted.items():
            old = seen.get(key)
            if old is not None:
                log = partition.log
                if (
                    (old.partition is partition and old.log is log)  # else it has moved
                    and old.log_end_offset == log.log_end_offset
                    and old.high_watermark == log.high_watermark
                    and old.isr_state is partition.isr_state
                    and old.leader_epoch == partition.leader_epoch
                    and old.is_leader == partition.is_leader
                    and old.log_start_offset == log.log_start_offset
                    and old.partition_epoch == partition.partition_epoch
                ):
                    continue
                if old.partition is not partition:
                    old = None
            new = seen[key] = Seen(partition, old, self.schedule.now_us)
            self._check_changes(node_id, broker, partition, old, new)
        if len(seen) != len(hosted):
            for key in [key for key in seen if key not in hosted]:
                gone = seen.pop(key).partition
                self.left.add((gone.topic_id, gone.index))
                check_removed(self, node_id, broker, key, gone)

    def check_offline(self, node_id: int, ghost: GhostPartition, gone: Partition) -> None:
        """A partition's disk has failed: earlier writes of the same step survive a restart."""
        self.counts["offline"] += 1
        log = ghost.logs.get(node_id)
        if log is None or ghost.leaving:
            return
        new = Seen(gone)
        if not gone.log.size_bytes and new.log_end_offset > log.end:
            # The disk failed while the log restarted, empty, at a later offset (§3.5).
            self._check_truncation(node_id, ghost, log.truncate(log.start), new)
            log.start = log.end = new.log_end_offset
            return
        self._follow_log(node_id, ghost, log, gone, new)

    def _check_changes(
        self, node_id: int, broker: Broker, partition: Partition, old: Seen | None, new: Seen
    ) -> None:
        ghost = self.ghost_of(partition)
        if old is not None:
            self.state.check_change(node_id, partition, old, new)
        self.transitions.add(f"partition {role_of(old)} -> {role_of(new)}")
        if self.trace_lines is not None:
            self.trace_lines.append(trace_line(node_id, ghost, partition, new))
        if ghost.leaving:
            return
        if ghost.compacted is not None:
            self._check_offsets(node_id, ghost, old, new)
            ghost.compacted.changed(self, node_id, ghost, old, new)
            return
        log = before = ghost.logs.get(node_id)
        if log is None or log.real is not partition.log:  # deleted, or set aside, and created again
            log = ghost.logs[node_id] = GhostLog(new.log_start_offset)
            log.real = partition.log
        self._follow_log(node_id, ghost, log, partition, new)
        if before is not None and before is not log and old is not None:
            check_move(self, f"{ghost.name} on {node_id}", before, log, new)
        self._check_offsets(node_id, ghost, old, new)
        check_stable(self, node_id, ghost, log, new)
        if old is None or old.epochs != new.epochs:
            self._check_epochs(node_id, ghost, log, new)
        if old is None or old.is_leader != new.is_leader or old.leader_epoch != new.leader_epoch:
            self._check_role(node_id, broker, ghost, partition, log, new)
        if new.is_leader:
            self._check_leader(node_id, ghost, partition, log, old, new)

    def _follow_log(
        self, node_id: int, ghost: GhostPartition, log: GhostLog, partition: Partition, new: Seen
    ) -> None:
        """Mirror the log: I1, I2, I3, I6, I22, I26; truncation removes no committed data (I19)."""
        where = f"{ghost.name} on {node_id}"
        if new.log_end_offset < log.end:
            removed = log.truncate(new.log_end_offset)
            self.counts["truncations"] += bool(removed)
            self.counts["transactions truncated"] += any(e.is_transactional for e in removed)
            self._check_truncation(node_id, ghost, removed, new)
        if new.log_start_offset > log.start:
            check_deletion(self, where, ghost, log, new)
            if new.is_leader and new.leader_epoch >= ghost.reset_epoch:
                self._commit(node_id, ghost, log, new)  # maybe in this very step
            log.advance_start(new.log_start_offset)
            ghost.deleted_until = max(ghost.deleted_until, new.log_start_offset)
        elif new.log_start_offset < log.start and not log.entries:
            # A batch that straddles its leader's log start (§3.5).
            log.start = log.end = new.log_start_offset
        if new.log_end_offset > log.end:
            real = partition.log
            for entry in read_entries(real, log.end, new.log_end_offset):
                self._check_append(node_id, ghost, log, partition, entry)
            if log.end != new.log_end_offset:
                self.violated(
                    "I26", f"{where} ends at {new.log_end_offset}, its last batch at {log.end}"
                )
        last = log.entries[-1] if log.entries else None
        if last is not None:
            epoch = partition.log.leader_epochs.epoch_for_offset(last.base)
            if epoch != last.epoch and last.base >= new.log_start_offset:
                self.violated(
                    "I6", f"{where}: {last} is in epoch {epoch} by the cache {new.epochs}"
                )

    def _check_append(
        self, node_id: int, ghost: GhostPartition, log: GhostLog, partition: Partition, entry: Entry
    ) -> None:
        where = f"{ghost.name} on {node_id}"
        if entry.base != log.end and log.entries:
            self.violated("I26", f"{where} ended at {log.end} and got {entry}")
        previous = log.entries[-1] if log.entries else None
        if previous is not None and entry.epoch < previous.epoch:
            self.violated("I2", f"{where} got {entry} after {previous}")
        place = entry.epoch, entry.base
        before = (previous.epoch, previous.base) if previous is not None else None
        known = ghost.written.get(place)
        if known is None:
            # A leader's last batch may be in the step of its next epoch: a marker, by a coordinator of its own.
            if ghost.named.get(entry.epoch) != node_id:
                self.violated("I1", f"{where} got {entry}, which no leader has written")
            author = ghost.authors.setdefault(entry.epoch, node_id)
            if author != node_id:
                self.violated(
                    "I1", f"{entry} of {ghost.name} written by {node_id} in the epoch of {author}"
                )
            ghost.written[place] = entry, before
        else:
            other, other_before = known
            if (node_id, place) in ghost.rotten:  # a log that has moved is read again
                entry = other
            if other.body != entry.body or other.next != entry.next:
                self.violated("I3", f"{where} got another {entry} than was written")
            if before is not None:
                if other_before is None:
                    ghost.written[place] = other, before
                elif other_before != before:
                    what = f"before {entry} comes {before}, elsewhere {other_before}"
                    self.violated("I3", f"{where}: {what}")
            entry = other
        if entry.producer[0] >= 0:
            check_sequence(self, where, log, entry)
        log.append(entry)

    def _check_truncation(
        self, node_id: int, ghost: GhostPartition, removed: list[Entry], new: Seen
    ) -> None:
        """I19: a follower's truncation removes no committed batch."""
        if not removed or node_id in ghost.lossy:
            return
        if new.leader_epoch < ghost.reset_epoch:
            return
        start = self._leader_start(ghost)
        for entry in removed:
            if entry.next > start and ghost.committed.holds(entry):
                self.violated("I19", f"{ghost.name} on {node_id}: committed {entry} was cut away")

    def _leader_start(self, ghost: GhostPartition) -> int:
        """The largest log start of any replica: all replicas may delete data below it."""
        return max((log.start for log in ghost.logs.values()), default=0)

    def _check_offsets(
        self, node_id: int, ghost: GhostPartition, old: Seen | None, new: Seen
    ) -> None:
        """I5, I8, I9, I11."""
        where = f"{ghost.name} on {node_id}"
        stable = new.partition.log.last_stable_offset
        if not (new.log_start_offset <= stable <= new.high_watermark <= new.log_end_offset):
            self.violated(
                "I5",
                f"{where}: log start {new.log_start_offset}, stable {stable}, "
                f"high watermark {new.high_watermark}, end {new.log_end_offset}",
            )
        if old is None:
            return
        if new.is_leader and new.high_watermark < old.high_watermark:
            rule = "I8" if old.is_leader and old.leader_epoch == new.leader_epoch else "I9"
            self.violated(
                rule,
                f"{where}: the high watermark of a leader went from {old.high_watermark} to {new.high_watermark}",
            )
        if (
            new.log_start_offset < old.log_start_offset
            and new.log_end_offset >= old.log_start_offset
            and old.log_end_offset > old.log_start_offset
        ):
            self.violated(
                "I11",
                f"{where}: the log start went from {old.log_start_offset} to {new.log_start_offset}",
            )
        if new.leader_epoch < old.leader_epoch or (
            new.leader_epoch == old.leader_epoch and new.partition_epoch < old.partition_epoch
        ):
            self.violated("I13", f"{where}: epochs fell from {epochs_of(old)} to {epochs_of(new)}")

    def _check_epochs(self, node_id: int, ghost: GhostPartition, log: GhostLog, new: Seen) -> None:
        """I6: the cache is ordered, and only its last entry may be without a record."""
        where = f"{ghost.name} on {node_id}"
        entries = new.epochs
        for (epoch, start), (later_epoch, later_start) in pairwise(entries):
            if not (epoch < later_epoch and start < later_start):
                self.violated("I6", f"{where}: epochs do not increase: {entries}")
            if start < later_start <= log.end and log.covering(max(start, log.start)) is None:
                self.violated("I6", f"{where}: epoch {epoch} has no record: {entries}")
        if entries and not (
            entries[0][1] >= new.log_start_offset and entries[-1][1] <= new.log_end_offset
        ):
            self.violated(
                "I6",
                f"{where}: {entries} outside [{new.log_start_offset}, {new.log_end_offset}]",
            )

    def _check_role(
        self,
        node_id: int,
        broker: Broker,
        ghost: GhostPartition,
        partition: Partition,
        log: GhostLog,
        new: Seen,
    ) -> None:
        """I1 (the controller named it), I19, I20, I27."""
        where = f"{ghost.name} on {node_id}"
        fetchers = broker.services.replica_manager.fetchers
        if fetchers is not None:
            state = fetchers.state(partition.key)
            if new.is_leader:
                if state is not None or partition.key in fetchers.failed:
                    self.violated("I27", f"{where} leads and is fetched from {state}")
            elif new.leader_epoch >= 0 and state is None and partition.key not in fetchers.failed:
                self.violated("I27", f"{where} follows {partition.leader_id} without a fetcher")
        if not new.is_leader:
            return
        named = ghost.named.get(new.leader_epoch)
        if named != node_id:
            self.violated("I1", f"{where} leads in epoch {new.leader_epoch}, named was {named}")
        if new.leader_epoch >= ghost.reset_epoch > ghost.forgotten_until:
            ghost.forgotten_until = ghost.reset_epoch
            self._forget_lost(ghost, log)
        elif new.leader_epoch > max(ghost.reset_epoch, ghost.committing_epoch - 1):
            for entry in ghost.committed.entries[-1:]:
                if ghost.lacks(log, entry):
                    self.violated(
                        "I20" if log.end < entry.next else "I19",
                        f"{where} was elected in epoch {new.leader_epoch} without the committed {entry}; "
                        f"it has {log.entries[-3:]}",
                    )

    def _forget_lost(self, ghost: GhostPartition, log: GhostLog) -> None:
        """Truncate the committed log to that of a new leader that may lack committed data."""
        committed = ghost.committed
        keep = committed.start
        for entry in committed.entries:
            if entry.next > log.start and not log.holds(entry):
                break
            keep = entry.next
        if keep < committed.end:
            ghost.given_up.update((entry.epoch, entry.base) for entry in committed.truncate(keep))

    def _check_leader(
        self,
        node_id: int,
        ghost: GhostPartition,
        partition: Partition,
        log: GhostLog,
        old: Seen | None,
        new: Seen,
    ) -> None:
        """I4, I10, I14, I21, and the committed log."""
        state = new.isr_state
        if isinstance(state, PendingExpandIsr) and (old is None or old.isr_state is not state):
            joining = partition.remote_replicas.get(state.joining)
            end = -1 if joining is None else joining.log_end_offset
            if end < new.high_watermark or end < partition.leader_epoch_start_offset:
                self.violated(
                    "I21",
                    f"{ghost.name}: {state.joining} at {end} proposed for the ISR by {node_id}, high watermark "
                    f"{new.high_watermark}, epoch begun at {partition.leader_epoch_start_offset}",
                )
        if new.leader_epoch < ghost.reset_epoch:
            return  # a leader from before a permitted loss
        if (
            old is None
            or new.high_watermark > old.high_watermark
            or not old.is_leader
            or old.leader_epoch != new.leader_epoch
        ):
            self._commit(node_id, ghost, log, new)
        truth = ghost.truth
        if truth is None or truth.leader_epoch != new.leader_epoch or truth.leader != node_id:
            return
        self.check_isr(node_id, ghost, truth, new)

    def check_isr(
        self, node_id: int, ghost: GhostPartition, truth: PartitionState, new: Seen
    ) -> None:
        """Of the leader in the controller's present epoch: I4, I10, I14."""
        maximal = new.isr_state.maximal_isr
        if not maximal.issuperset(truth.isr):
            self.violated(
                "I14",
                f"{ghost.name}: the controller's ISR {truth.isr}, the leader's ({node_id}) {sorted(maximal)}",
            )
        if ghost.compacted is not None:
            return
        high_watermark = new.high_watermark
        leader_log = ghost.logs[node_id]
        last = (
            leader_log.covering(high_watermark - 1) if high_watermark > leader_log.start else None
        )
        for member in maximal:
            if member == node_id or member in ghost.lossy:
                continue
            log = ghost.logs.get(member)
            end = 0 if log is None else log.end
            if end < high_watermark:
                self.violated(
                    "I10" if member in truth.isr else "I4",
                    f"{ghost.name}: ISR member {member} ends at {end}, high watermark {high_watermark} of {node_id}",
                )
            if (
                log is not None
                and last is not None
                and last.base >= log.start
                and not log.holds(last)
            ):
                self.violated(
                    "I4",
                    f"{ghost.name}: ISR member {member} does not have {last} of leader {node_id}",
                )

    def _commit(self, node_id: int, ghost: GhostPartition, log: GhostLog, new: Seen) -> None:
        committed = ghost.committed
        if new.high_watermark <= committed.end:
            return
        last = committed.entries[-1] if committed.entries else None
        if last is not None and last.next > log.start and not log.holds(last):
            self.violated(
                "I19",
                f"{ghost.name}: leader {node_id} commits beyond {last}, which it does not have",
            )
        for entry in log.between(committed.end, new.high_watermark):
            if entry.next > new.high_watermark:
                if self.state.may_split(node_id, new):
                    break
                self.violated(
                    "I5", f"{ghost.name}: high watermark {new.high_watermark} within {entry}"
                )
            committed.append(entry)
            if entry.is_transactional:
                self.transactions.committed(ghost, entry)
            ghost.committing_epoch = max(ghost.committing_epoch, new.leader_epoch)

    # --- disks

    def check_restart(self, node_id: int, broker: Broker, *, power_cut: bool) -> None:
        """I25: compare a restarted broker's logs with their mirrors; a kill loses nothing."""
        self.state.check_restart(node_id, broker, power_cut=power_cut)
        self.brokers[node_id], self.seen[node_id] = broker, {}
        number = self._watch_start(node_id, broker)
        logs: dict[tuple[str, bytes], Log] = {}
        for found in broker.services.log_manager.logs():
            logs[f"{found.topic}-{found.partition}", found.topic_id] = found
        for key, ghost in self.partitions.items():
            if ghost.compacted is not None and not ghost.leaving:
                found_log = logs.get((ghost.name, key[0]))
                end = 0 if found_log is None else found_log.log_end_offset
                if ghost.compacted.restarted(node_id, end):
                    if not power_cut and (ghost.truth is None or node_id in ghost.truth.replicas):
                        self.violated(
                            "I25", f"{ghost.name} on {node_id} ends at {end} after a restart"
                        )
                    ghost.lose(node_id, number)
            mirror = ghost.logs.get(node_id)
            if mirror is None or ghost.leaving:
                continue
            log = logs.get((ghost.name, key[0])) or logs.get((ghost.name, ZERO_UUID))
            if log is not None and self.state.lacks_id(node_id, log):
                self.violated("I25", f"{ghost.name} on {node_id}: data without the topic's id")
            start, end = (0, 0) if log is None else (log.log_start_offset, log.log_end_offset)
            where = f"{ghost.name} on {node_id}"
            if log is None or end < mirror.end or start > mirror.end:
                owed = ghost.truth is None or node_id in ghost.truth.replicas
                if not power_cut and mirror.entries and owed:
                    self.violated("I25", f"{where} ended at {mirror.end}, after a restart at {end}")
                ghost.lose(node_id, number)
                self.counts["tails lost"] += 1
                ghost.losses.append(
                    Loss("tail", node_id, end, mirror.end, f"{where} lost its tail")
                )
            real = [] if log is None else read_entries(log, start, end)
            fresh = GhostLog(start)
            fresh.real = log
            for entry in real:
                known = ghost.written_before(node_id, entry)
                damaged = (node_id, (entry.epoch, entry.base)) in ghost.rotten
                if known is None or (known[0].body != entry.body and not damaged):
                    self.violated("I3", f"{where}: {entry} on the disk was never written")
                fresh.append(known[0])
            fresh.reload(end)
            if log is None:
                del ghost.logs[node_id]
            else:
                ghost.logs[node_id] = fresh

    def _watch_start(self, node_id: int, broker: Broker) -> int:
        """Drop the mirror of a stray log when its broker renames it. Return the number of its starts before."""
        log_manager = broker.services.log_manager
        set_aside = log_manager.set_aside

        def set_aside_and_forget(topic: str, partition: int) -> None:
            log = log_manager.get(topic, partition)
            for ghost in self.partitions.values():
                mirror = ghost.logs.get(node_id)
                if mirror is not None and mirror.real is log:
                    del ghost.logs[node_id]
                same = log is not None and log.topic_id == ghost.key[0]
                if same and ghost.compacted is not None and partition == ghost.key[1]:
                    ghost.compacted.ends.pop(node_id, None)
            set_aside(topic, partition)

        log_manager.set_aside = set_aside_and_forget  # type: ignore[method-assign]
        starts = self.starts.setdefault(node_id, [])
        assert broker.member is not None
        starts.append(broker.member.link.incarnation_id)
        return len(starts) - 1
