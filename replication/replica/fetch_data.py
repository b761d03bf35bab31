"""Parameters and results of a fetch: the whole request, one partition of it, its data.

Answers to FetchParams, FetchRequest.PartitionData and FetchPartitionData of Kafka. Plain slotted
classes, because every fetch makes some.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.language.primitives import ZERO_UUID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.log.log import AbortedTxn

CONSUMER_REPLICA_ID: Final = -1
DEBUGGING_REPLICA_ID: Final = -2
FUTURE_LOCAL_REPLICA_ID: Final = -3
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1


class FetchParams:
    """Parameters of a whole fetch. `replica_id`: >= 0 a follower, -3 reads to the log end too,
    all others are consumers.

    Kafka's tools send -2 and read as consumers (FetchIsolation.of); ListOffsets has its own rules.
    """

    __slots__ = (
        "fetch_only_leader",
        "is_consumer",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_epoch",
        "replica_id",
    )

    def __init__(
        self,
        *,
        replica_id: int = CONSUMER_REPLICA_ID,
        replica_epoch: int = -1,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 0x7FFFFFFF,
        isolation_level: int = READ_UNCOMMITTED,
        fetch_only_leader: bool = False,
        rack_id: str = "",
    ) -> None:
        """`fetch_only_leader`: for followers, and for consumers before v11."""
        self.replica_id = replica_id
        self.is_consumer = replica_id < 0 and replica_id != FUTURE_LOCAL_REPLICA_ID
        self.replica_epoch = replica_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.fetch_only_leader = fetch_only_leader
        self.rack_id = rack_id


class FetchPartition:
    """One partition of a fetch; an epoch of -1 is absent, an all-zero topic id is not checked.

    `answered_high_watermark`: the last one sent in the reader's session, -1: none.
    """

    __slots__ = (
        "answered_high_watermark",
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "topic_id",
    )

    def __init__(
        self,
        fetch_offset: int,
        max_bytes: int,
        *,
        topic_id: bytes = ZERO_UUID,
        log_start_offset: int = -1,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
    ) -> None:
        self.topic_id = topic_id
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.log_start_offset = log_start_offset
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.answered_high_watermark = -1


class FetchPartitionData:
    """One partition's result. With an error: offsets -1 and no records."""

    __slots__ = (
        "aborted_transactions",
        "bound",
        "diverging_epoch",
        "error",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
        "records",
    )

    def __init__(
        self,
        error: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        records: Buffer = b"",
        bound: int = -1,
    ) -> None:
        """`bound`: the reader's upper limit (exclusive offset) at the time of the read."""
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.bound = bound
        self.aborted_transactions: list[AbortedTxn] | None = None
        self.diverging_epoch: tuple[int, int] | None = None
        self.preferred_read_replica = -1
