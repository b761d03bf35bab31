"""Results of one partition's append or DeleteRecords, until the request is answered.

Answers to LogAppendResult / ProducePartitionStatus and DeleteRecordsPartitionStatus of
kafka.server. The result of a successful append is the log's own LogAppendInfo.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, InvalidRecordsError, KafkaError
from kwire.replication.log.log import LogAppendInfo


class RefusedAppend(LogAppendInfo):
    """A refused append and its error.

    `record_errors`: (index in the batch, text), for INVALID_RECORD and INVALID_TIMESTAMP.
    """

    __slots__ = ("error_message", "record_errors")

    def __init__(self, error: KafkaError, log_start_offset: int = -1) -> None:
        super().__init__(-1, -1, -1, log_start_offset, False, 0)
        self.error = error.code
        self.error_message = error.message
        self.record_errors: list[tuple[int, str]] = (
            error.record_errors if isinstance(error, InvalidRecordsError) else []
        )


class DeleteRecordsResult:
    """One partition's result; `low_watermark` is -1 after any error but a time-out."""

    __slots__ = ("error", "low_watermark", "requested_offset")

    def __init__(self, error: ErrorCode, requested_offset: int, low_watermark: int) -> None:
        self.error = error
        self.requested_offset = requested_offset
        self.low_watermark = low_watermark
