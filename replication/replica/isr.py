"""A leader's state of its followers, and the ISR with its pending changes.

Answers to Kafka's Replica / ReplicaState and to CommittedPartitionState, PendingExpandIsr,
PendingShrinkIsr of Partition.scala (KIP-497). Leaves out future (moving) replicas.

Invariants: the caught-up time of a follower never goes back; `maximal_isr` always contains the
committed ISR, and the joining replica of a proposed expansion too: the controller may have
committed it already, and then may elect it, so the high watermark must not pass its log end.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

UNKNOWN_OFFSET = -1
NEVER_MS = -(1 << 62)
"""Kafka uses 0 and compares with Unix time; a monotonic clock may be near 0, this is far below."""


class RemoteReplica:
    """A follower's state at its leader. Times are milliseconds of Clock.now_ms."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_time_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_time_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_time_ms = NEVER_MS
        self.last_caught_up_time_ms = NEVER_MS

    def reset(
        self, *, now_ms: int, leader_end_offset: int, is_new_leader: bool, in_isr: bool
    ) -> None:
        """Reset for a new epoch. A new leader has no offsets, a re-elected one keeps them."""
        caught_up_time_ms = now_ms if in_isr else NEVER_MS
        if is_new_leader:
            self.log_start_offset = UNKNOWN_OFFSET
            self.log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_time_ms = NEVER_MS
            self.broker_epoch = -1
        else:
            self.last_fetch_leader_log_end_offset = leader_end_offset
            self.last_fetch_time_ms = caught_up_time_ms
        self.last_caught_up_time_ms = caught_up_time_ms

    def update_fetch_state(
        self,
        *,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
        broker_epoch: int,
    ) -> None:
        """Record a served fetch by the caught-up rule (Replica.updateFetchStateOrThrow).

        A fetch at the leader's log end counts as caught up now; one at the log end as of the
        previous fetch counts as caught up then, so that a follower under constant load stays in
        sync.
        """
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_log_end_offset:
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, self.last_fetch_time_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_log_end_offset = leader_end_offset
        self.last_fetch_time_ms = now_ms
        self.broker_epoch = broker_epoch

    def defer(self, delay_ms: int) -> None:
        """Let no time have passed for this follower, though the clock was advanced by `delay_ms`."""
        if self.last_fetch_time_ms > NEVER_MS:
            self.last_fetch_time_ms += delay_ms
        if self.last_caught_up_time_ms > NEVER_MS:
            self.last_caught_up_time_ms += delay_ms

    def is_in_sync(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it is at the leader's log end, or caught up within replica.lag.time.max.ms."""
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_time_ms <= lag_time_max_ms
        )


class CommittedIsr:
    """The ISR of the controller, nothing proposed. States are values: replaced, never changed."""

    __slots__ = ("isr",)
    in_flight = False

    def __init__(self, isr: frozenset[int]) -> None:
        self.isr = isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommittedIsr) and self.isr == other.isr

    def __hash__(self) -> int:
        return hash(self.isr)

    def __repr__(self) -> str:
        return f"CommittedIsr({format_ids(self.isr)})"


class PendingExpandIsr:
    """`joining` is proposed as a member, and counts for the high watermark already."""

    __slots__ = ("isr", "joining")
    in_flight = True

    def __init__(self, isr: frozenset[int], joining: int) -> None:
        self.isr = isr
        self.joining = joining

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr | {self.joining}

    @property
    def proposed(self) -> frozenset[int]:
        return self.isr | {self.joining}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingExpandIsr) and (self.isr, self.joining) == (
            other.isr,
            other.joining,
        )

    def __hash__(self) -> int:
        return hash((self.isr, self.joining))

    def __repr__(self) -> str:
        return f"PendingExpandIsr({format_ids(self.isr)} + {self.joining})"


class PendingShrinkIsr:
    """`leaving` are proposed for removal; they count until the controller has committed it."""

    __slots__ = ("isr", "leaving")
    in_flight = True

    def __init__(self, isr: frozenset[int], leaving: frozenset[int]) -> None:
        self.isr = isr
        self.leaving = leaving

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr

    @property
    def proposed(self) -> frozenset[int]:
        return self.isr - self.leaving

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingShrinkIsr) and (self.isr, self.leaving) == (
            other.isr,
            other.leaving,
        )

    def __hash__(self) -> int:
        return hash((self.isr, self.leaving))

    def __repr__(self) -> str:
        return f"PendingShrinkIsr({format_ids(self.isr)} - {format_ids(self.leaving)})"


PendingIsr = PendingExpandIsr | PendingShrinkIsr
IsrState = CommittedIsr | PendingIsr


class IsrCounters:
    """Counts since the start: committed changes, and proposals that were not committed."""

    __slots__ = ("expands", "failed_updates", "shrinks")

    def __init__(self) -> None:
        self.shrinks = 0
        self.expands = 0
        self.failed_updates = 0


def format_ids(brokers: Iterable[int]) -> str:
    """Format broker ids as in Kafka's log lines: "1,2,3"."""
    return ",".join(map(str, sorted(brokers)))
