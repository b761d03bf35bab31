"""The replicas of this broker: appends, fetches, DeleteRecords and the controller's orders.

Answers to kafka.server.ReplicaManager in its ZooKeeper-era form (LeaderAndIsr, StopReplica,
UpdateMetadata). Leaves out tiered storage. A standalone broker has no `fetchers`, no `isr_proposer`.

Every method runs to completion on the caller's stack. An append or fetch that need not wait is
answered before the call returns; else it is parked in a purgatory and answered by the step that
satisfies it, or by its timer.

Invariants: a request with an older controller or broker epoch changes nothing; a partition is
hosted (`by_key`), in `offline` (its log or log directory failed) or unknown; requests parked on a
partition are answered in the step that drops or follows it, or in the next one if it goes offline.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.replication.config.broker_config import topic_log_config
from kwire.replication.core.events import Event
from kwire.replication.core.metadata import INTERNAL_TOPICS
from kwire.replication.core.types import RACK_AWARE, TopicPartition
from kwire.replication.log.log import AppendOrigin
from kwire.replication.replica import control as replica_control
from kwire.replication.replica.append_result import (
    BrokerTraffic,
    DeleteRecordsResult,
    RefusedAppend,
)
from kwire.replication.replica.delayed import (
    DelayedDeleteRecords,
    DelayedFetch,
    DelayedProduce,
    has_enough,
)
from kwire.replication.replica.fetch_data import FetchPartitionData
from kwire.replication.replica.isr import IsrCounters
from kwire.replication.replica.partition import Partition
from kwire.replication.replica.purgatory import Purgatory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Protocol

    from kwire.protocol.schemas.control_plane import (
        LeaderAndIsrRequest,
        LeaderAndIsrResponse,
        StopReplicaRequest,
        StopReplicaResponse,
        UpdateMetadataRequest,
        UpdateMetadataResponse,
    )
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.log_config import LogConfig
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.log.log import CheckedBatch, Log, LogAppendInfo
    from kwire.replication.log_dirs.directory import LogDirectory
    from kwire.replication.log_dirs.manager import LogManager
    from kwire.replication.replica.fetch_data import FetchParams, FetchPartition
    from kwire.replication.replica.moves import LogDirMoves
    from kwire.replication.replica.throttles import ReplicationThrottles

    class Fetchers(Protocol):
        """The interface of kwire.replication.fetcher.manager that the ReplicaManager uses."""

        failed: set[TopicPartition]

        def state(self, key: TopicPartition) -> object | None: ...
        def add_follower(self, partition: Partition) -> None: ...
        def remove(self, keys: Iterable[TopicPartition]) -> None: ...
        def close_idle(self) -> None: ...
        def shut_down(self) -> None: ...


__all__ = ["DeleteRecordsResult", "RefusedAppend", "ReplicaManager"]

# Errors of an append that Kafka answers without a log start offset (ReplicaManager.appendToLocalLog).
_WITHOUT_LOG_START = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
# Errors of a read that are no failures for the metrics (ReplicaManager.readFromLog).
_READ_REFUSALS = (
    *(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    *(ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE),
    *(ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID),
)


class ReplicaManager:
    """See the module. `broker_epoch` is set by the broker when it is registered (-1: not yet)."""

    __slots__ = (
        *("_config", "_moves", "_rack_aware", "broker_epoch", "by_key", "clock"),
        *("controller_epoch", "delete_records_purgatory", "deletion_listeners", "fetch_purgatory"),
        *("fetchers", "follower_epochs", "hw_ignores_min_isr", "isr_counters", "isr_proposer"),
        *("log_manager", "metadata", "node_id", "offline", "offline_listeners"),
        *("on_partition_lost", "produce_purgatory", "role_listeners", "throttles", "timers"),
        "traffic",
    )

    def __init__(
        self,
        *,
        node_id: int,
        clock: Clock,
        timers: Timers,
        config: BrokerConfig,
        log_manager: LogManager,
        metadata: MetadataCache,
    ) -> None:
        self.node_id = node_id
        self.clock = clock
        self.broker_epoch, self.controller_epoch = -1, 0
        self.role_listeners: list[Callable[[Partition, bool], None]] = []
        # Called with deleted partitions; the group coordinator deletes their offsets.
        self.deletion_listeners: list[Callable[[list[TopicPartition]], None]] = []
        # Called with an offline partition, (topic, index), and the reason, one tick later.
        self.offline_listeners: list[Callable[[TopicPartition, str], None]] = []
        # Called when a single partition went offline, and not its directory.
        self.on_partition_lost: Callable[[], None] | None = None
        self.isr_proposer: Callable[[Partition], None] | None = None
        self.fetchers: Fetchers | None = None  # None: a cluster of one broker
        # Other brokers' latest epochs that the controller has confirmed: what a Fetch claims may be a stranger's.
        self.follower_epochs: dict[int, int] = {}
        self.isr_counters = IsrCounters()
        self.hw_ignores_min_isr = False  # True: as before Kafka 3.7
        self.produce_purgatory = Purgatory(clock, timers)
        self.fetch_purgatory = Purgatory(clock, timers)
        self.delete_records_purgatory = Purgatory(clock, timers)
        self._config = config
        self._rack_aware = config.replica_selector_class == RACK_AWARE
        self.timers = timers
        self._moves: LogDirMoves | None = None
        self.throttles: ReplicationThrottles | None = None  # made with the first list of replicas
        self.log_manager = log_manager
        log_manager.failure_listeners.append(self._on_directory_failure)
        self.metadata = metadata
        self.by_key: dict[TopicPartition, Partition] = {}
        self.offline: set[TopicPartition] = set()
        self.traffic = BrokerTraffic()

    def start(self) -> None:
        """Start the periodic ISR check, if there is an `isr_proposer`."""
        if self.isr_proposer is not None:
            # As Kafka: every half lag time; a late follower leaves after 1 to 1.5 lag times.
            interval_ms = max(self.replica_lag_time_max_ms // 2, 1)
            self.timers.schedule(
                (self, "isr-expiration"), self.clock.now_ms + interval_ms, self._check_isrs
            )

    def shut_down(self) -> None:
        """Stop fetchers and timers; drop parked requests. The LogManager closes the logs."""
        self.timers.cancel((self, "isr-expiration"))
        if self.fetchers is not None:
            self.fetchers.shut_down()
        for purgatory in (
            self.produce_purgatory,
            self.fetch_purgatory,
            self.delete_records_purgatory,
        ):
            purgatory.cancel_all()

    def _check_isrs(self) -> None:
        """Propose ISR shrinks; high watermarks may move, as they do not wait for late joiners."""
        for partition in list(self.by_key.values()):
            if partition.is_leader and partition.remote_replicas:
                partition.maybe_shrink_isr()
                if partition.maybe_increment_high_watermark():
                    self.complete_waiting(partition.key)
        self.start()

    # --- PartitionHost

    @property
    def replica_lag_time_max_ms(self) -> int:
        return self._config.replica_lag_time_max_ms

    def is_alive(self, broker_id: int) -> bool:
        return self.metadata.is_alive(broker_id)

    def open_log(self, topic: str, index: int, topic_id: bytes, is_new: bool) -> Log:
        """Open or create a log; create none for an old partition while a directory is offline."""
        config = self._log_config(topic)
        return self.log_manager.get_or_create(topic, index, topic_id, config, is_new=is_new)

    def propose_isr(self, partition: Partition) -> None:
        if self.isr_proposer is not None:
            from kwire.replication.replica.status import log_proposal

            log_proposal(self.log_event, partition, self.clock.now_ms)
            self.isr_proposer(partition)

    @property
    def log_event(self) -> LogEvent:
        """The function that logs an event of this broker."""
        return self.log_manager.log_event

    # --- partitions

    def hosted(self, key: TopicPartition) -> Partition | None:
        """Return the partition if it is online here; else None, never an error."""
        return self.by_key.get(key)

    def partitions(self) -> Iterable[Partition]:
        """Return a view of all hosted partitions; do not keep it while roles change."""
        return self.by_key.values()

    def partition(self, topic: str, index: int) -> Partition:
        """Return a hosted partition. KAFKA_STORAGE_ERROR: offline; NOT_LEADER_OR_FOLLOWER: only
        others host it; UNKNOWN_TOPIC_OR_PARTITION."""
        partition = self.by_key.get((topic, index))
        if partition is not None:
            return partition
        if (topic, index) in self.offline:
            message = f"Partition {topic}-{index} is in an offline log directory"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        if self.metadata.partition(topic, index) is not None:
            # The client's metadata or this broker's is out of date: a retry helps with both.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def mark_offline(self, key: TopicPartition, reason: str, *, ordered: bool = False) -> None:
        """Take one partition offline: KAFKA_STORAGE_ERROR until the broker restarts.

        For logs that cannot be created and injected faults; a failed disk takes its whole directory
        offline. Fetchers, listeners and parked requests follow in the next tick: the caller may be
        in the middle of a change. `ordered`: called while an order is applied, whose response
        reports the error; the partition may not be hosted yet.
        """
        if ordered or key in self.by_key:
            self.log_event(Event.REPLICA_OFFLINE, topic=key[0], partition=key[1], detail=reason)
            self._take_offline(key, reason)
            if self.on_partition_lost is not None and not ordered:
                self.on_partition_lost()

    def _on_directory_failure(self, directory: LogDirectory) -> None:
        """Take every partition in a directory offline (ReplicaManager.handleLogDirFailure)."""
        reason = f"log directory {directory.path} has failed: {directory.failure}"
        keys = [key for key, found in self.by_key.items() if directory.holds(found.log)]
        if keys:
            names, path = [f"{topic}-{index}" for topic, index in keys], directory.path or None
            self.log_event(Event.LOG_DIR_REPLICAS_OFFLINE, log_dir=path, partitions=names)
        for key in keys:
            self._take_offline(key, reason)

    @property
    def moves(self) -> LogDirMoves:
        """The moves of replicas between log directories."""
        if self._moves is None:
            from kwire.replication.replica.moves import LogDirMoves

            self._moves = LogDirMoves(self)
        return self._moves

    def _take_offline(self, key: TopicPartition, reason: str) -> None:
        partition = self.by_key.pop(key, None)
        self.offline.add(key)
        if partition is not None:
            partition.log.is_offline = True
        self.timers.schedule(
            (self, "offline", key),
            self.clock.now_ms,
            lambda: self._notify_offline(key, partition, reason),
        )

    def _notify_offline(
        self, key: TopicPartition, partition: Partition | None, reason: str
    ) -> None:
        """Remove the fetcher, notify listeners. `partition` None: it never had a role."""
        if self.fetchers is not None:
            self.fetchers.remove([key])
            self.fetchers.close_idle()
        if partition is not None:
            for role_listener in self.role_listeners:
                role_listener(partition, False)
        for listener in self.offline_listeners:
            listener(key, reason)
        self.complete_waiting(key)

    def current_leader(self, topic: str, index: int) -> tuple[int, int]:
        """Return (leader id, leader epoch) as known to this broker; (-1, -1): unknown (KIP-951)."""
        partition = self.by_key.get((topic, index))
        if partition is not None and partition.leader_epoch >= 0:
            return partition.leader_id, partition.leader_epoch
        state = self.metadata.partition(topic, index)
        return (-1, -1) if state is None else (state.leader, state.leader_epoch)

    def topic_config_changed(self, topic: str) -> None:
        """Apply the topic's new overrides in the metadata cache to its logs."""
        known = self.metadata.topic(topic)
        if known is None:
            return
        config = self._log_config(topic)
        for index in known.partitions:
            partition = self.by_key.get((topic, index))
            if partition is not None:
                partition.log.config = config

    def broker_config_changed(self) -> None:
        """Apply new broker-wide defaults to every log."""
        for topic in {partition.topic: None for partition in self.by_key.values()}:
            self.topic_config_changed(topic)

    def _log_config(self, topic: str) -> LogConfig:
        overrides = self.metadata.topic_config(topic)
        return topic_log_config(overrides, self._config)

    # --- append

    def append_to_leader(
        self,
        topic: str,
        index: int,
        records: Buffer | CheckedBatch,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Append to one partition, or return a RefusedAppend; then call `complete_waiting`.

        With acks=all and followers `required_offset` is set, for `await_replication`.
        """
        partition = self.by_key.get((topic, index))
        try:
            if partition is None:
                partition = self.partition(topic, index)
            info = partition.append_records_to_leader(records, required_acks, origin)
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self.mark_offline((topic, index), error.message or "its log cannot be written")
            if partition is None or error.code in _WITHOUT_LOG_START:
                return RefusedAppend(error)
            partition.traffic.produces += 1
            partition.traffic.failed_produces += 1
            return RefusedAppend(error, partition.log.log_start_offset)
        traffic = partition.traffic
        traffic.produces += 1
        traffic.messages_in += info.last_offset - info.first_offset + 1
        traffic.bytes_in += info.size_bytes
        if required_acks == -1 and partition.remote_replicas:
            info.required_offset = info.last_offset + 1
        return info

    def append_records(
        self,
        *,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, Buffer | CheckedBatch],
        origin: AppendOrigin,
        on_complete: Callable[[dict[TopicPartition, LogAppendInfo]], None],
    ) -> None:
        """Append to several partitions; call `on_complete` when `required_acks` (-1, 0, 1) is met.

        On this stack, if no append has to wait.
        """
        results: dict[TopicPartition, LogAppendInfo] = {}
        if not -1 <= required_acks <= 1:
            refusal = KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
            on_complete({key: RefusedAppend(refusal) for key in entries})
            return
        pending: list[tuple[TopicPartition, LogAppendInfo]] = []
        for key, records in entries.items():
            result = self.append_to_leader(key[0], key[1], records, required_acks, origin)
            results[key] = result
            if result.required_offset >= 0:
                pending.append((key, result))
        if pending:
            self.await_replication(pending, timeout_ms, lambda: on_complete(results))
        else:
            on_complete(results)
        for key in entries:
            self.complete_waiting(key)

    def await_replication(
        self,
        pending: list[tuple[TopicPartition, LogAppendInfo]],
        timeout_ms: int,
        on_complete: Callable[[], None],
    ) -> DelayedProduce:
        """Call `on_complete` when all results are final: now, by a follower's fetch or time-out."""
        operation = DelayedProduce(self, pending, on_complete)
        keys = [key for key, _ in pending]
        self.produce_purgatory.try_complete_else_watch(operation, keys, timeout_ms)
        return operation

    def replication_outcome(self, key: TopicPartition, required_offset: int) -> ErrorCode | None:
        """Return the outcome of an append; None while it waits."""
        partition = self.by_key.get(key)
        if partition is not None:
            return partition.replication_outcome(required_offset)
        try:
            self.partition(*key)
        except KafkaError as error:
            return error.code
        return None

    def complete_waiting(self, key: TopicPartition) -> None:
        """Complete requests parked on a partition whose log end, high watermark or role changed."""
        if key in self.produce_purgatory.watchers:
            self.produce_purgatory.check_and_complete(key)
        if key in self.fetch_purgatory.watchers:
            self.fetch_purgatory.check_and_complete(key)
        if key in self.delete_records_purgatory.watchers:
            self.delete_records_purgatory.check_and_complete(key)

    # --- fetch

    def fetch_records(
        self,
        params: FetchParams,
        partitions: list[tuple[TopicPartition, FetchPartition]],
        on_complete: Callable[[list[FetchPartitionData]], None],
        early: list[FetchPartitionData] | None = None,
    ) -> DelayedFetch | None:
        """Read, if not `early`; answer now, with enough bytes or at the time-out: a result per partition.

        Return the operation if it is parked, so that its caller can cancel it."""
        if self.throttles is not None and params.replica_id >= 0:
            on_complete = self.throttles.counting(partitions, on_complete)
        results = early or self.read_from_log(params, partitions)
        moved = params.replica_id >= 0 and self._update_follower(params, partitions, results)
        # As Kafka: no wait without time or partitions, or with errors, redirections, enough bytes.
        if params.max_wait_ms <= 0 or not partitions:
            on_complete(results)
            return None
        size_bytes = 0
        for data in results:
            size_bytes += len(data.records)
            if data.error or data.diverging_epoch is not None or data.preferred_read_replica >= 0:
                on_complete(results)
                return None
        if size_bytes >= params.min_bytes or (
            params.min_bytes > 1 and has_enough(self, params, partitions, results)
        ):
            on_complete(results)
            return None
        operation = DelayedFetch(self, params, partitions, results, on_complete)
        moved = moved or early is not None  # what came since those steps has completed nothing
        self._park_fetch(operation, [key for key, _ in partitions], params.max_wait_ms, moved)
        return operation

    def _park_fetch(
        self, operation: DelayedFetch, keys: list[TopicPartition], max_wait_ms: int, moved: bool
    ) -> None:
        """Park a fetch, unless a high watermark that it moved or that is new to it completes it."""
        self.fetch_purgatory.watch(operation, keys, max_wait_ms)
        if moved or operation.is_behind:
            operation.try_complete()

    def read_from_log(
        self,
        params: FetchParams,
        partitions: list[tuple[TopicPartition, FetchPartition]],
        read_bytes: int = 0,
    ) -> list[FetchPartitionData]:
        """Read in order, up to `max_bytes` less `read_bytes`; the first batch of all may exceed it."""
        results: list[FetchPartitionData] = []
        left_bytes = max(params.max_bytes - read_bytes, 0)
        min_one_batch = not read_bytes
        hosted = self.by_key
        rack = params.rack_id if self._rack_aware and params.replica_id < 0 else ""
        throttles = self.throttles if params.replica_id >= 0 else None
        for key, request in partitions:
            partition, max_bytes = hosted.get(key), request.max_bytes
            if max_bytes > left_bytes:
                max_bytes = left_bytes
            try:
                if partition is None:
                    partition = self.partition(*key)
                partition.traffic.fetches += 1
                if request.topic_id != partition.topic_id and (
                    ZERO_UUID not in (request.topic_id, partition.topic_id)
                ):
                    raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
                preferred = self._preferred_read_replica(partition, request, rack) if rack else -1
                if preferred >= 0:
                    data = partition.redirect(preferred)
                elif throttles is not None and throttles.stops(partition, params.replica_id):
                    data = partition.read(request, params, 0, False)
                else:
                    data = partition.read(request, params, max_bytes, min_one_batch)
            except KafkaError as error:
                data = self._answer_failed_read(key, error)
            size_bytes = len(data.records)
            if size_bytes:
                min_one_batch = False  # KIP-74: only the first one may exceed the limit
                left_bytes = max(left_bytes - size_bytes, 0)
            results.append(data)
        return results

    def _answer_failed_read(self, key: TopicPartition, error: KafkaError) -> FetchPartitionData:
        """Return the result of a failed read; a storage error takes the partition offline."""
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            self.mark_offline(key, error.message or "its log cannot be read")
        if error.code not in _READ_REFUSALS and key[0] in self.traffic.by_topic:
            self.traffic.by_topic[key[0]].failed_fetches += 1
        return FetchPartitionData(error.code)

    def _preferred_read_replica(
        self, partition: Partition, request: FetchPartition, rack: str
    ) -> int:
        """Return a follower in the reader's rack; -1: none (KIP-392)."""
        if not partition.is_leader or not partition.remote_replicas:
            return -1
        from kwire.replication.replica.selector import preferred_read_replica

        partition.check_leader_epoch(request.current_leader_epoch, False)
        return preferred_read_replica(
            partition, self.metadata, self.node_id, rack, request.fetch_offset
        )

    def _update_follower(
        self,
        params: FetchParams,
        partitions: list[tuple[TopicPartition, FetchPartition]],
        results: list[FetchPartitionData],
    ) -> bool:
        """Record a follower's offsets, after the read: results have the earlier high watermark.

        True if a high watermark moved."""
        any_moved, epoch = False, params.replica_epoch
        hosted, deletions = self.by_key, self.delete_records_purgatory
        is_stale = 0 <= epoch < self.follower_epochs.get(params.replica_id, -1)
        for number, (key, request) in enumerate(partitions):
            data = results[number]
            if data.error or data.diverging_epoch is not None:
                continue
            if is_stale:  # an earlier incarnation, whose log may be lost (KIP-903)
                results[number] = FetchPartitionData(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            try:  # what an earlier one of these lets go on may have taken it offline
                partition = hosted.get(key) or self.partition(*key)
                moved = partition.update_follower_fetch_state(request, params)
            except KafkaError as error:
                results[number] = FetchPartitionData(error.code)
                continue
            if moved:
                any_moved = True
                self.complete_waiting(key)
            elif key in deletions.watchers:  # the follower's log start may have moved
                deletions.check_and_complete(key)
        return any_moved

    # --- DeleteRecords

    def delete_records(
        self,
        *,
        timeout_ms: int,
        offsets: Mapping[TopicPartition, int],
        on_complete: Callable[[dict[TopicPartition, DeleteRecordsResult]], None],
    ) -> None:
        """Advance log starts (-1: to the high watermark); answer when live replicas have, too."""
        results: dict[TopicPartition, DeleteRecordsResult] = {}
        pending: list[tuple[TopicPartition, DeleteRecordsResult]] = []
        for key, offset in offsets.items():
            try:
                if key[0] in INTERNAL_TOPICS and self.metadata.partition(*key) is not None:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                partition = self.partition(*key)
                target, low_watermark = partition.delete_records(offset)
            except KafkaError as error:
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    self.mark_offline(key, error.message or "its log start cannot be moved")
                results[key] = DeleteRecordsResult(error.code, -1, -1)
                continue
            results[key] = result = DeleteRecordsResult(ErrorCode.NONE, target, low_watermark)
            if low_watermark < target:
                pending.append((key, result))
        if pending:
            operation = DelayedDeleteRecords(self, pending, lambda: on_complete(results))
            keys = [key for key, _ in pending]
            self.delete_records_purgatory.try_complete_else_watch(operation, keys, timeout_ms)
        else:
            on_complete(results)
        for key in offsets:
            self.complete_waiting(key)

    def low_watermark(self, key: TopicPartition) -> tuple[ErrorCode, int]:
        """Return (NONE, smallest log start of the live replicas), or (error, -1)."""
        partition = self.by_key.get(key)
        if partition is None:
            if key in self.offline:
                return ErrorCode.KAFKA_STORAGE_ERROR, -1
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        if not partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        return ErrorCode.NONE, partition.low_watermark()

    # --- the controller's orders (control.py)

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, version: int = 7
    ) -> LeaderAndIsrResponse:
        """Apply a LeaderAndIsr. The response has the shape of `version`."""
        return replica_control.become_leader_or_follower(self, request, version)

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas of this broker, and delete those marked for it."""
        return replica_control.stop_replicas(self, request)

    def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Apply an UpdateMetadata to the metadata cache."""
        return replica_control.update_metadata(self, request)

    def check_epochs(self, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Fence old controllers, and requests for earlier incarnations of the broker (KIP-380)."""
        if broker_epoch != -1 and broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            self.log_event(
                Event.STALE_CONTROLLER_REFUSED,
                stale_controller_epoch=controller_epoch,
                controller_epoch=self.controller_epoch,
            )
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        return ErrorCode.NONE
