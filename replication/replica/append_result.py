"""Results of one partition's append or DeleteRecords, until the request is answered; what is counted of a topic.

Answers to LogAppendResult / ProducePartitionStatus, DeleteRecordsPartitionStatus and BrokerTopicMetrics of
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


class Traffic:
    """What a broker has appended as leader, and read, of one topic: counts since its start, for metrics.

    As in Kafka a producer's batch that is sent twice counts twice."""

    __slots__ = (
        *("bytes_in", "bytes_out", "failed_fetches", "failed_produces", "fetches", "messages_in"),
        *("partitions", "produces", "replication_bytes_out"),
    )

    def __init__(self) -> None:
        """`partitions`: those that are hosted here."""
        self.partitions = 0
        self.messages_in = self.bytes_in = self.bytes_out = self.replication_bytes_out = 0
        self.produces = self.failed_produces = 0  # partitions of requests
        self.fetches = self.failed_fetches = 0

    def add(self, other: Traffic) -> None:
        """Add the counts of another topic."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTraffic:
    """The traffic of the topics that have partitions here, and of all those that had: `ended`."""

    __slots__ = ("by_topic", "ended")

    def __init__(self) -> None:
        self.by_topic: dict[str, Traffic] = {}
        self.ended = Traffic()

    def begin(self, topic: str) -> Traffic:
        """The counts for a new partition of a topic."""
        found = self.by_topic.setdefault(topic, Traffic())
        found.partitions += 1
        return found

    def end(self, topic: str) -> None:
        """Count a partition no more: it is deleted."""
        found = self.by_topic[topic]
        found.partitions -= 1
        if not found.partitions:
            self.ended.add(self.by_topic.pop(topic))
