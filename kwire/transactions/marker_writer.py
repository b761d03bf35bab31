"""Write transaction markers into the partitions that this broker leads: WriteTxnMarkers.

Answers to KafkaApis.handleWriteTxnMarkersRequest. A marker is a control batch, appended like the
records of a coordinator and waited for with acks=all. In `__consumer_offsets` the group coordinator
appends it, as it makes the transaction's offsets visible with it.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import end_transaction_marker
from kwire.protocol.records import CONTROL_ABORT, CONTROL_COMMIT
from kwire.protocol.schemas.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kwire.replication.core.metadata import GROUP_METADATA_TOPIC
from kwire.replication.log.log import AppendOrigin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.coordinator.transactional_offsets import TransactionalOffsets
    from kwire.protocol.schemas.transactions import WritableTxnMarker, WriteTxnMarkersRequest
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.log.log import LogAppendInfo
    from kwire.replication.log.producer_state import ProducerStateManager
    from kwire.replication.replica.manager import ReplicaManager

STRICT_EPOCH_VERSION = 2
"""Transaction version whose markers carry a larger epoch than the transaction's records (KIP-890)."""

_NOT_LOADED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class MarkerWriter:
    """Appends the markers of WriteTxnMarkers requests. `timeout_ms`: for replication."""

    __slots__ = ("_clock", "_offsets", "_replicas", "_timeout_ms")

    def __init__(
        self,
        replicas: ReplicaManager,
        offsets: TransactionalOffsets,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self._replicas = replicas
        self._offsets = offsets
        self._clock = clock
        self._timeout_ms = timeout_ms

    def write(
        self, request: WriteTxnMarkersRequest, reply: Callable[[WriteTxnMarkersResponse], None]
    ) -> None:
        """Append all markers; `reply`, now or later, once each is replicated or refused."""
        writing = _Writing(request, reply)
        for marker in request.markers:
            entries: dict[TopicPartition, bytes] = {}
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    self._begin((topic.name, index), marker, entries, writing)
            if entries:
                self._append(marker, entries, writing)
        writing.end_of_request()

    def _begin(
        self,
        key: TopicPartition,
        marker: WritableTxnMarker,
        entries: dict[TopicPartition, bytes],
        writing: _Writing,
    ) -> None:
        """Write one marker, or add it to `entries`, the batches of partitions without groups."""
        producer_id, producer_epoch = marker.producer_id, marker.producer_epoch
        written = writing.expect(producer_id, key)
        partition = self._replicas.hosted(key)
        if partition is None:
            written(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif partition.is_leader and _is_fenced(partition.log.producer_state, marker):
            written(ErrorCode.INVALID_PRODUCER_EPOCH)
        elif key[0] == GROUP_METADATA_TOPIC:
            self._offsets.complete_transaction(
                key[1],
                producer_id,
                producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
                # The transaction coordinator knows only the errors of partitions.
                lambda error: written(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _NOT_LOADED else error
                ),
            )
        else:
            entries[key] = end_transaction_marker(
                CONTROL_COMMIT if marker.transaction_result else CONTROL_ABORT,
                coordinator_epoch=marker.coordinator_epoch,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                timestamp=self._clock.wall_ms,
            )

    def _append(
        self, marker: WritableTxnMarker, entries: dict[TopicPartition, bytes], writing: _Writing
    ) -> None:
        def appended(results: dict[TopicPartition, LogAppendInfo]) -> None:
            for key, info in results.items():
                writing.written(marker.producer_id, key, ErrorCode(info.error))

        self._replicas.append_records(
            timeout_ms=self._timeout_ms,
            required_acks=-1,
            entries=entries,
            origin=AppendOrigin.COORDINATOR,
            on_complete=appended,
        )


def _is_fenced(producers: ProducerStateManager, marker: WritableTxnMarker) -> bool:
    """Whether a marker of transaction version 2 is too old: it must raise the epoch.

    A repeated one finds its own epoch, and no open transaction (KAFKA-19999)."""
    if marker.transaction_version < STRICT_EPOCH_VERSION:
        return False
    entry = producers.producers.get(marker.producer_id)
    return (
        entry is not None
        and marker.producer_epoch == entry.producer_epoch
        and entry.current_txn_first_offset is not None
    )


class _Writing:
    """One request: collects the outcomes by producer id and partition, then replies."""

    __slots__ = ("_errors", "_is_complete", "_reply", "_waiting")

    def __init__(
        self, request: WriteTxnMarkersRequest, reply: Callable[[WriteTxnMarkersResponse], None]
    ) -> None:
        self._reply = reply
        self._waiting = 0
        self._is_complete = False  # all markers of the request have been begun
        self._errors: dict[int, dict[TopicPartition, ErrorCode]] = {
            marker.producer_id: {} for marker in request.markers
        }

    def expect(self, producer_id: int, key: TopicPartition) -> Callable[[ErrorCode], None]:
        """The function that takes the outcome of one marker."""
        self._waiting += 1
        return lambda error: self.written(producer_id, key, error)

    def written(self, producer_id: int, key: TopicPartition, error: ErrorCode) -> None:
        self._errors[producer_id][key] = error
        self._waiting -= 1
        self._reply_if_done()

    def end_of_request(self) -> None:
        self._is_complete = True
        self._reply_if_done()

    def _reply_if_done(self) -> None:
        if self._is_complete and not self._waiting:
            self._reply(self._response())

    def _response(self) -> WriteTxnMarkersResponse:
        markers = []
        for producer_id, errors in self._errors.items():
            topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
            for (topic, index), error in errors.items():
                topics.setdefault(topic, []).append(
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                )
            markers.append(
                WritableTxnMarkerResult(
                    producer_id=producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(name=name, partitions=partitions)
                        for name, partitions in topics.items()
                    ],
                )
            )
        return WriteTxnMarkersResponse(markers=markers)
