"""What a coordinator's shards are: the shard, its records, and the kind that makes and reads them.

Answers to org.apache.kafka.coordinator.common.runtime.CoordinatorShard, CoordinatorShardBuilder and
the Deserializer of Kafka's CoordinatorLoaderImpl.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.replication.core.events import EventType
    from kwire.replication.replica.partition import Partition
    from kwire.shards.result import CoordinatorTimer, Result


class ShardRecord(Protocol):
    """One change of a shard's hard state. `key`: the message that names what changes."""

    key: Any

    def encode(self) -> tuple[bytes, bytes | None]:
        """Key and value bytes for the log; no value is a tombstone."""
        ...


class Shard(Protocol):
    """The state of one partition. Only `replay` and what follows from a commit change it."""

    def advance(self, high_watermark: int) -> None:
        """Mark records below `high_watermark` as committed."""
        ...

    def replay(self, offset: int, producer_id: int, record: Any) -> None:
        """Apply a record at `offset` of the log, loaded or just appended; `producer_id` -1: none."""
        ...

    def replay_end_transaction(self, offset: int, producer_id: int, committed: bool) -> None:
        """Apply a transaction marker at `offset` of the log, loaded or just appended."""
        ...

    def on_loaded(self) -> list[Result[None]]:
        """Start timers after the log is loaded; returns records to append."""
        ...

    def on_unloaded(self) -> None:
        """Answer parked requests: this broker lost the leadership. The runtime cancels timers."""
        ...


S_co = TypeVar("S_co", bound=Shard, covariant=True)


class ShardKind(Protocol[S_co]):
    """The shards of one internal topic."""

    timer_prefix: str
    """Keeps the timers of this kind apart from others'."""
    unreadable: EventType
    """Logged for the first batch of a partition that cannot be loaded."""

    @property
    def compression(self) -> str:
        """The codec of batches."""
        ...

    @property
    def append_timeout_ms(self) -> int:
        """How long an append may wait for the in-sync replicas."""
        ...

    def make(self, timer: CoordinatorTimer, partition: Partition) -> S_co:
        """Make the empty shard of a partition."""
        ...

    def decode(
        self, key: bytes | memoryview, value: bytes | memoryview | None
    ) -> ShardRecord | None:
        """Decode a record; None for those of no interest. MalformedMessage if invalid."""
        ...
