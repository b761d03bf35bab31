"""What goes into a Log's methods and comes out of them. Plain slotted classes: every append and every read makes one.

Answers to AppendOrigin, LogAppendInfo, FetchDataInfo, FileRecords.TimestampAndOffset and
UnexpectedAppendOffsetException.
"""

from __future__ import annotations

from enum import IntEnum

from kwire.protocol.errors import ErrorCode, KafkaError


class AppendOrigin(IntEnum):
    """Who appends. What a client may not do (control batches, base offsets) a coordinator may."""

    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2


class LogAppendInfo:
    """What an append did. A duplicate of a batch that is in the log already: its offsets, and nothing was written.

    One object from the log to the answer. The ReplicaManager sets `required_offset`, the high watermark that commits
    the append where acks=all waits for it (-1: nothing to wait for), and then `error`, how the wait ended.
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
    """Whole batches from the one that holds the offset asked for (or the next one after a gap).

    `records` is the bytes of one read, or a view of them without the batch that was cut. `next_offset`: the first
    offset after `records`; without any, the offset asked for. `first_batch_too_large`: there is a batch, but it does
    not fit and the caller did not insist on one.
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
    """A record found by its timestamp. `leader_epoch` is its batch's (-1 unknown)."""

    __slots__ = ("leader_epoch", "offset", "timestamp")

    def __init__(self, timestamp: int, offset: int, leader_epoch: int) -> None:
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch

    def __repr__(self) -> str:
        return f"TimestampAndOffset({self.timestamp}, {self.offset}, {self.leader_epoch})"


class UnexpectedAppendOffset(KafkaError):
    """A follower is given records from before its log end. An empty log may start again at `first_offset`."""

    __slots__ = ("first_offset", "last_offset")

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.first_offset = first_offset
        self.last_offset = last_offset
