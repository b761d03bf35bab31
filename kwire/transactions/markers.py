"""Send the markers of decided transactions to the leaders of their partitions.

Answers to TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler. Partitions
are grouped by leader, and markers that wait for the same broker share a request; one is in flight to
each. This broker's own partitions get theirs without a socket. A partition whose leader is unknown,
dead, or refuses for now is tried again with the newest metadata, for as long as the coordinator wants
it; a deleted one needs no marker.
"""

from __future__ import annotations

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kwire.transactions.in_flight import InFlight

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from kwire.protocol.schemas.transactions import WriteTxnMarkersResponse
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.core.peers import Peers
    from kwire.replication.core.types import TopicPartition

    Write = Callable[[WriteTxnMarkersRequest, Callable[[WriteTxnMarkersResponse], None]], None]

CHANNEL = "txn-markers"
NEWEST_VERSION = 2

_RETRY_MS = 20
_RETRY_MAX_MS = 640

# Errors after which Kafka's coordinator gives a transaction up: another one owns it.
_FATAL = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
# The partition cannot hold the transaction's records either.
_NEVER_WRITTEN = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)


class _Transaction:
    """A decided transaction and the partitions that still need its marker."""

    __slots__ = ("attempts", "done", "marker", "remaining", "retries", "shard")

    def __init__(
        self,
        shard: int,
        marker: WritableTxnMarker,
        partitions: Iterable[TopicPartition],
        done: Callable[[ErrorCode], None],
    ) -> None:
        self.shard = shard
        self.marker = marker  # without topics
        self.remaining = dict.fromkeys(partitions)
        self.retries: dict[TopicPartition, None] = {}  # the part of `remaining` that waits
        self.attempts = 0  # of retries in a row
        self.done: Callable[[ErrorCode], None] | None = done  # None: ended or cancelled

    def marker_for(self, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        marker = self.marker
        return WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            topics=[
                WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
        )


_Markers = dict[_Transaction, dict["TopicPartition", None]]


class MarkerSender:
    """The markers on their way from this broker's transaction coordinator."""

    __slots__ = (
        "_clock",
        "_in_flight",
        "_metadata",
        "_node_id",
        "_queues",
        "_shards",
        "_timers",
        "_write_locally",
    )

    def __init__(
        self,
        node_id: int,
        metadata: MetadataCache,
        clock: Clock,
        timers: Timers,
        peers: Peers | None,
        write_locally: Write,
        *,
        timeout_ms: int = 30_000,
        version: int = NEWEST_VERSION,
    ) -> None:
        """`peers` None: a standalone broker. `timeout_ms`: for the response of another broker.

        `version`: of WriteTxnMarkers between brokers; 1 in a cluster of Kafka 3.9."""
        self._node_id = node_id
        self._metadata = metadata
        self._clock = clock
        self._timers = timers
        self._write_locally = write_locally
        self._shards: dict[int, dict[_Transaction, None]] = {}
        self._queues: dict[int, _Markers] = {}  # by broker
        key = ApiKey.WRITE_TXN_MARKERS
        self._in_flight = InFlight(
            CHANNEL, key, version, metadata, clock, timers, peers, timeout_ms
        )

    def send(
        self,
        shard_partition: int,
        coordinator_epoch: int,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        partitions: Iterable[TopicPartition],
        done: Callable[[ErrorCode], None],
        transaction_version: int = 1,
    ) -> Collection[TopicPartition]:
        """Have the marker written into all `partitions`, then call `done`, now or later, once.

        The result has the partitions that lack the marker, now and later. Outcomes: NONE: each has its marker,
        or is deleted. INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED: given up, as a newer producer
        or coordinator has written.
        """
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=commit,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        transaction = _Transaction(shard_partition, marker, partitions, done)
        self._shards.setdefault(shard_partition, {})[transaction] = None
        self._route(transaction, list(transaction.remaining))
        return transaction.remaining

    def cancel(self, shard_partition: int) -> None:
        """Forget the transactions of a shard that is unloaded; their `done` is not called."""
        for transaction in self._shards.pop(shard_partition, ()):
            transaction.done = None
            self._timers.cancel((transaction, "retry"))

    # --- routes

    def _route(self, transaction: _Transaction, partitions: Iterable[TopicPartition]) -> None:
        """Queue the markers for the leaders of `partitions`, and send what can be sent."""
        metadata = self._metadata
        nodes: dict[int, None] = {}
        for key in partitions:
            state = metadata.partition(*key)
            if state is None and metadata.brokers:
                del transaction.remaining[key]  # deleted: nobody can read it
            elif state is None or not metadata.is_alive(state.leader):
                self._retry(transaction, key)
            else:
                queue = self._queues.setdefault(state.leader, {})
                queue.setdefault(transaction, {})[key] = None
                nodes[state.leader] = None
        self._end_if_written(transaction)
        for node in nodes:
            self._send_queued(node)

    def _send_queued(self, node: int) -> None:
        if self._in_flight.is_busy(node) or node not in self._queues:
            return
        queued = self._queues.pop(node)
        markers = {each: keys for each, keys in queued.items() if each.done is not None}
        if not markers:
            return
        request = WriteTxnMarkersRequest(
            markers=[transaction.marker_for(keys) for transaction, keys in markers.items()]
        )
        if node == self._node_id:
            self._write_locally(request, lambda response: self._written(markers, response))
            return
        self._in_flight.send(
            node, request, lambda response: self._responded(node, markers, response)
        )

    # --- responses

    def _responded(
        self, node: int, markers: _Markers, response: WriteTxnMarkersResponse | None
    ) -> None:
        self._written(markers, response)
        self._send_queued(node)

    def _written(self, markers: _Markers, response: WriteTxnMarkersResponse | None) -> None:
        """Take the outcomes of one request; None: the connection was lost, all are unknown."""
        errors: dict[tuple[int, str, int], int] = {
            (marker.producer_id, topic.name, partition.partition_index): partition.error_code
            for marker in (response.markers if response is not None else ())
            for topic in marker.topics
            for partition in topic.partitions
        }
        for transaction, keys in markers.items():
            producer_id = transaction.marker.producer_id
            for key in keys:
                if transaction.done is None:
                    break
                error = errors.get((producer_id, *key), ErrorCode.NETWORK_EXCEPTION)
                if error == ErrorCode.NONE or error in _NEVER_WRITTEN:
                    del transaction.remaining[key]
                elif error in _FATAL:
                    self._end(transaction, ErrorCode(error))
                else:
                    self._retry(transaction, key)
            self._end_if_written(transaction)

    def _retry(self, transaction: _Transaction, key: TopicPartition) -> None:
        """Route the partition again after a moment, longer each time."""
        if not transaction.retries:
            delay_ms = min(_RETRY_MS << transaction.attempts, _RETRY_MAX_MS)
            transaction.attempts += _RETRY_MS << transaction.attempts < _RETRY_MAX_MS

            def route() -> None:
                again, transaction.retries = transaction.retries, {}
                self._route(transaction, again)

            due_ms = self._clock.now_ms + delay_ms
            self._timers.schedule_real((transaction, "retry"), due_ms, route)
        transaction.retries[key] = None

    def _end_if_written(self, transaction: _Transaction) -> None:
        if not transaction.remaining and transaction.done is not None:
            self._end(transaction, ErrorCode.NONE)

    def _end(self, transaction: _Transaction, outcome: ErrorCode) -> None:
        done, transaction.done = transaction.done, None
        self._timers.cancel((transaction, "retry"))
        transactions = self._shards[transaction.shard]
        del transactions[transaction]
        if not transactions:
            del self._shards[transaction.shard]
        if done is not None:
            done(outcome)
