"""What becomes of appends and of deletions of records, partition by partition, until they are answered.

Answers to LogAppendResult / ProducePartitionStatus and DeleteRecordsPartitionStatus of kafka.server.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError


class PartitionAppendResult:
    """What became of one partition's records. `required_offset`: the high watermark that commits them, -1 none.

    `record_errors`: (index in the batch, text), for INVALID_RECORD and INVALID_TIMESTAMP.
    """

    __slots__ = (
        "base_offset",
        "error",
        "error_message",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
        "required_offset",
    )

    def __init__(
        self,
        error: ErrorCode,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        required_offset: int = -1,
    ) -> None:
        self.error = error
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.required_offset = required_offset
        self.record_errors: list[tuple[int, str]] = []
        self.error_message: str | None = None


class DeleteRecordsResult:
    """What became of one partition's DeleteRecords; `low_watermark` is -1 with an error, but after a time-out."""

    __slots__ = ("error", "low_watermark", "requested_offset")

    def __init__(self, error: ErrorCode, requested_offset: int, low_watermark: int) -> None:
        self.error = error
        self.requested_offset = requested_offset
        self.low_watermark = low_watermark


def refused(error: KafkaError) -> PartitionAppendResult:
    """The result of an append that did not happen."""
    result = PartitionAppendResult(error.code)
    result.error_message = error.message
    # Only what Log's validation raises knows which records were bad.
    result.record_errors = getattr(error, "record_errors", None) or []
    return result
