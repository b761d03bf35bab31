"""What a step has left of a broker's partition: its state for comparisons, and as a line of a trace."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.replica.isr import IsrState
    from kwire.replication.replica.partition import Partition
    from kwire.sim.ghost import GhostPartition


class Seen:
    """The state of a broker's partition after the last step that changed it.

    `changed_us`: the time of that step; `isr_before`: the in-sync replicas that a leader had before it;
    `start_before`: where the log began before it."""

    __slots__ = (
        "changed_us",
        "epochs",
        "high_watermark",
        "is_leader",
        "isr_before",
        "isr_state",
        "leader_epoch",
        "log",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "partition_epoch",
        "start_before",
    )

    def __init__(
        self, partition: Partition, before: Seen | None = None, changed_us: int = 0
    ) -> None:
        self.log = log = partition.log
        self.changed_us = changed_us
        self.isr_before = frozenset[int]() if before is None else before.isr_state.isr
        self.partition = partition
        self.is_leader = partition.is_leader
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.isr_state: IsrState = partition.isr_state
        self.log_end_offset = log.log_end_offset
        self.log_start_offset = log.log_start_offset
        self.start_before = self.log_start_offset if before is None else before.log_start_offset
        self.high_watermark = log.high_watermark
        self.epochs = tuple(log.leader_epochs.entries)


def epochs_of(seen: Seen) -> str:
    return f"leader epoch {seen.leader_epoch}, partition epoch {seen.partition_epoch}"


def trace_line(node_id: int, ghost: GhostPartition, partition: Partition, new: Seen) -> str:
    role = "leader" if new.is_leader else f"follows {partition.leader_id}"
    isr = f" {new.isr_state}" if new.is_leader else ""
    return (
        f"broker-{node_id} {ghost.name} {role} @{new.leader_epoch}/{new.partition_epoch} [{new.log_start_offset}, "
        f"{new.high_watermark}, {new.log_end_offset}){isr} epochs {list(new.epochs)}"
    )
