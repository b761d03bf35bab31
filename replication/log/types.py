"""Arguments and results of a Log's methods; slotted, as every append and read makes one.

Answers to AppendOrigin, LogAppendInfo, FetchDataInfo, FileRecords.TimestampAndOffset and
UnexpectedAppendOffsetException.
"""

from __future__ import annotations

from enum import IntEnum

from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.log.verification import VerificationGuard


class AppendOrigin(IntEnum):
    """The source of an append. Clients may not append control batches nor set base offsets."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


class CheckedBatch:
    """A producer's batch that was validated before its append, or `error`: why it is refused.

    `append_time_ms`: -1 with CreateTime. `guard`: of a transactional batch that must be verified.
    """

    __slots__ = ("append_time_ms", "error", "guard", "view")

    def __init__(
        self, view: memoryview, append_time_ms: int = -1, error: KafkaError | None = None
    ) -> None:
        self.view = view
        self.append_time_ms = append_time_ms
        self.error = error
        self.guard: VerificationGuard | None = None

    def result(self) -> tuple[memoryview, int]:
        """The batch and its append time. Raises `error`."""
        if self.error is not None:
            raise self.error
        return self.view, self.append_time_ms


class LogAppendInfo:
    """The result of an append; for a duplicate the offsets of the stored batch, nothing written.

    The same object goes from the log to the Produce response. The ReplicaManager sets
    `required_offset`, the high watermark that an acks=all append waits for (-1: no wait), and then
    `error`, the outcome of the wait.
    """

    __slots__ = (
        "duplicate",
        "error",
        "first_offset",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "required_offset",
        "size_bytes",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        duplicate: bool,
        size_bytes: int,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate
        self.size_bytes = size_bytes
        self.error = ErrorCode.NONE
        self.required_offset = -1


class FetchedData:
    """Whole batches from the one that holds the requested offset (or the next one after a gap).

    `records`: the bytes of one read, or a view of them without a torn last batch. `next_offset`:
    the first offset after `records`; without records the requested offset.
    `first_batch_too_large`: the first batch exceeds the limit and the caller did not require one.
    """

    __slots__ = ("first_batch_too_large", "first_offset", "next_offset", "records")

    def __init__(
        self,
        records: bytes | memoryview,
        first_offset: int,
        next_offset: int,
        first_batch_too_large: bool = False,
    ) -> None:
        self.records = records
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.first_batch_too_large = first_batch_too_large


class TimestampAndOffset:
    """The result of a look-up by timestamp. `leader_epoch`: the batch's (-1: unknown)."""

    __slots__ = ("leader_epoch", "offset", "timestamp")

    def __init__(self, timestamp: int, offset: int, leader_epoch: int) -> None:
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch

    def __repr__(self) -> str:
        return f"TimestampAndOffset({self.timestamp}, {self.offset}, {self.leader_epoch})"


class UnexpectedAppendOffset(KafkaError):
    """Records for a follower begin below its log end. An empty log may restart at `first_offset`."""

    __slots__ = ("first_offset", "last_offset")

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.first_offset = first_offset
        self.last_offset = last_offset


def too_large(name: str, max_bytes: int, size: int) -> KafkaError:
    """The error for a batch above max.message.bytes. `name`: topic-partition."""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size in the append to {name} is {size} bytes "
        f"which exceeds the maximum configured value of {max_bytes}.",
    )
