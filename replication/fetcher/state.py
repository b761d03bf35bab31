"""State of one followed partition in its fetcher, and meters of fetchers' throughput.

Answers to kafka.server.PartitionFetchState, and to FetcherStats and FetcherLagMetrics with what they leave
out: how long answers take, how many there were, and how long a replica has been behind.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.fetcher.session import RequestedPartition
    from kwire.replication.replica.partition import Partition


class Phase(Enum):
    """The subject of the next request: org.apache.kafka.server.ReplicaState, and one more."""

    TRUNCATING = "truncating"
    """The end offset of the log's last epoch: the truncation point is not known yet."""
    FETCHING = "fetching"
    """Records."""
    OUT_OF_RANGE = "out of range"
    """The leader's log end, then maybe its log start: the fetch offset is out of range. Kafka does
    this within the handling of the response, so its states do not show it."""


# By these names: reading a member of an Enum costs more than reading a global.
TRUNCATING, FETCHING, OUT_OF_RANGE = Phase
VALID_PREVIOUS_PHASES: Final[dict[Phase, tuple[Phase, ...]]] = {
    TRUNCATING: (),  # only by a new leader epoch, which replaces the state
    FETCHING: (TRUNCATING, OUT_OF_RANGE, FETCHING),  # itself: a diverging epoch in a Fetch response
    OUT_OF_RANGE: (FETCHING,),
}

UNKNOWN_LAG: Final = -1
_WINDOW_MS: Final = 60_000


class PartitionFetchState:
    """One partition. `phase` changes by `move` only.

    `fetch_offset` -1: unknown before a look-up. `last_fetched_epoch` -1: none."""

    __slots__ = (
        "behind_since_ms",
        "current_leader_epoch",
        "delay_until_ms",
        "fetch_offset",
        "lag",
        "last_fetched_epoch",
        "leader_end_offset",
        "partition",
        "phase",
        "retries",
    )

    def __init__(
        self, partition: Partition, phase: Phase, fetch_offset: int, last_fetched_epoch: int
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = partition.leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.phase = phase
        self.delay_until_ms: int | None = None
        self.lag = UNKNOWN_LAG  # change it by `set_lag`
        self.behind_since_ms: int | None = None  # None: caught up at the last answer, or not known
        self.leader_end_offset = -1  # known only between the two look-ups of OUT_OF_RANGE
        self.retries = 0  # since the last success; they double the backoff

    def move(self, phase: Phase) -> None:
        """Enter another phase."""
        assert self.phase in VALID_PREVIOUS_PHASES[phase], f"{self.phase.value} -> {phase.value}"
        self.phase = phase

    def set_lag(self, lag: int, now_ms: int) -> None:
        """Note how many records the leader's high watermark is ahead."""
        self.lag = lag
        if not lag:
            self.behind_since_ms = None
        elif self.behind_since_ms is None:
            self.behind_since_ms = now_ms

    @property
    def is_ready(self) -> bool:
        """Whether the partition may be part of a fetch."""
        return self.phase is FETCHING and self.delay_until_ms is None

    def matches(self, asked: RequestedPartition) -> bool:
        """Whether a response to `asked` still fits: truncations or orders may have come in between.

        Kafka compares the offset only. The topic id is compared too, so that no records of a
        deleted topic of the same name are appended.
        """
        return (
            self.is_ready
            and self.fetch_offset == asked.wire.fetch_offset
            and self.partition.topic_id == asked.topic_id
        )

    def __repr__(self) -> str:
        delayed = "" if self.delay_until_ms is None else f", delayed until {self.delay_until_ms}"
        return (
            f"PartitionFetchState({self.partition.topic}-{self.partition.index}, {self.phase.value}{delayed}, "
            f"offset {self.fetch_offset}, epoch {self.current_leader_epoch}, "
            f"last fetched epoch {self.last_fetched_epoch}, lag {self.lag})"
        )


class FetcherStats:
    """What a fetcher has done since its start. Latencies include the leader's wait for data."""

    __slots__ = (
        "answered_at_ms",
        "answers",
        "bytes",
        "failures",
        "latency_max_ms",
        "latency_sum_ms",
        "requests",
    )

    def __init__(self, now_ms: int) -> None:
        self.requests = Meter(now_ms)
        self.bytes = Meter(now_ms)
        self.answers = 0  # fetches whose answer could be used
        self.failures = 0  # lost connections, time-outs, answers that could not be used
        self.latency_sum_ms = 0
        self.latency_max_ms = 0
        self.answered_at_ms = now_ms  # of the last usable answer; before it, the fetcher's start

    def mark_answer(self, sent_ms: int, now_ms: int) -> None:
        """Count a usable answer to a fetch. Both are real times, which no test advances."""
        latency_ms = now_ms - sent_ms
        self.answers += 1
        self.latency_sum_ms += latency_ms
        self.latency_max_ms = max(self.latency_max_ms, latency_ms)
        self.answered_at_ms = now_ms

    @property
    def latency_ms(self) -> float:
        """The mean; 0.0 before the first answer."""
        return self.latency_sum_ms / self.answers if self.answers else 0.0


class Meter:
    """Events per second over about the last minute; Kafka weighs them exponentially."""

    __slots__ = ("_before", "_count", "_since_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.total = 0
        self._since_ms = now_ms
        self._count = 0
        self._before: float | None = None

    def mark(self, count: int, now_ms: int) -> None:
        self._roll(now_ms)
        self.total += count
        self._count += count

    def per_second(self, now_ms: int) -> float:
        """Return the rate of the last full window, weighted with the part of a window since."""
        self._roll(now_ms)
        elapsed_ms = now_ms - self._since_ms
        if self._before is None:
            return self._count * 1000 / elapsed_ms if elapsed_ms else float(self._count)
        return self._count / 60 + self._before * (1 - elapsed_ms / _WINDOW_MS)

    def _roll(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms >= _WINDOW_MS:
            self._before = self._count / 60 if elapsed_ms < 2 * _WINDOW_MS else 0.0
            self._since_ms = now_ms - elapsed_ms % _WINDOW_MS
            self._count = 0
