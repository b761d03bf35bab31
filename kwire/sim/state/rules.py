"""What the rules of this room remember from step to step, and when each is looked at."""

from __future__ import annotations

from kwire.protocol.language.primitives import ZERO_UUID
from kwire.sim.compaction import is_broken
from kwire.sim.state.disks import (
    check_files,
    check_recovery_points,
    check_reloaded,
    check_snapshots,
)
from kwire.sim.state.groups import Generations, check_groups
from kwire.sim.state.leading import Late, check_change, check_progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.broker import Broker
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.log.log import Log
    from kwire.replication.replica.partition import Partition
    from kwire.sim.invariants import Invariants
    from kwire.sim.seen import Seen


class StateRules:
    """The rules of one run. `targets`: the assignments that an administrator has asked for."""

    def __init__(self, checker: Invariants) -> None:
        self._checker = checker
        self.targets: dict[TopicPartition, set[tuple[int, ...]]] = {}
        self._late: Late = {}
        self._recovery_points: dict[Log, int] = {}
        self._generations: Generations = {}
        self._power_cuts: set[int] = set()
        self.mended: set[int] = set()
        """Brokers whose disks have failed, and were repaired."""

    def check_broker(self, node_id: int, broker: Broker) -> None:
        """After a step of a broker: I48, I49, I50."""
        check_progress(self._checker, self._late, node_id, broker)
        logs = broker.services.log_manager.logs()
        check_recovery_points(self._checker, self._recovery_points, node_id, logs)
        check_groups(self._checker, self._generations, node_id, broker)

    def check_change(self, node_id: int, partition: Partition, old: Seen, new: Seen) -> None:
        """After a step that has changed a partition: I48, I49."""
        check_change(self._checker, partition, old, new)
        if new.log_end_offset < old.log_end_offset:
            self.check_files(node_id, [partition.log])

    def may_split(self, node_id: int, new: Seen) -> bool:
        """I5: whether a leader's high watermark may lie within a batch, as in Kafka.

        It is a log start that lies there; or a power cut has left the leader a checkpoint from before a truncation;
        or one has left a follower's log empty, from an offset within the batch on, which it fetches next."""
        ends = {x.broker_id: x.log_end_offset for x in new.partition.remote_replicas.values()}
        ends[node_id] = new.high_watermark
        cut = any(ends.get(each) == new.high_watermark for each in self._power_cuts)
        return cut or new.high_watermark == new.log_start_offset

    def lacks_id(self, node_id: int, log: Log) -> bool:
        """I25: whether the file with the topic's id is not there after a start, though there is data.

        A power cut may take it as long as there is none, or after its flush has failed."""
        return log.topic_id == ZERO_UUID and bool(log.size_bytes) and node_id not in self.mended

    def check_files(self, node_id: int, logs: Iterable[Log]) -> None:
        """I49: what is on a broker's disks, unless it is damaged."""
        if not self._checker.has_rot(node_id):
            for log in logs:
                if not is_broken(log):
                    check_files(self._checker, node_id, log)

    def check_restart(self, node_id: int, broker: Broker, *, power_cut: bool) -> None:
        """I49, after a start: the logs, and those of the killed process."""
        self._late = {place: late for place, late in self._late.items() if place[0] != node_id}
        if power_cut:
            self._power_cuts.add(node_id)
        before = self._checker.seen.get(node_id, {}).values()
        old = [] if power_cut else [seen.partition.log for seen in before]
        killed = {(log.directory, log.topic_id, log.store): log for log in old}
        for log in broker.services.log_manager.logs():
            self.check_files(node_id, [log])
            check_snapshots(self._checker, node_id, log)
            known = killed.get((log.directory, log.topic_id, log.store))
            if known is not None:
                check_reloaded(self._checker, node_id, known, log)
