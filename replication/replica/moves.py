"""Moves of replicas between log directories of this broker (KIP-113).

Answers to alterReplicaLogDirs of kafka.server.ReplicaManager, ReplicaAlterLogDirsThread and
LogManager.replaceCurrentWithFutureLog (3.9). The future log, `<topic>-<partition>.<id>-future`,
follows the current log inside the broker: it is truncated like it, gets its batches unchanged, and
replaces it in the step in which it reaches its log end. Each step copies a piece of every moving
replica, as far as the throttle allows (ReplicationQuotaManager).

Invariants: a partition has at most one future log, in another directory than its current one; the
future log never brings back records that the current log has lost (truncation, DeleteRecords); a
failed move leaves the current log unchanged. A future log found at start-up is resumed when its
partition gets a role.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.varint import INT32_MAX
from kwire.replication.core.events import Event
from kwire.replication.core.types import MOVES, MOVES_THROTTLE_KEY
from kwire.replication.log.truncation import (
    append_replicated,
    apply_leader_offsets,
    truncation_point,
)
from kwire.replication.log_dirs.directory import DELETE_SUFFIX, FILE_NAME_BYTES_MAX, LogDirectory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.rates import SimpleRate
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.log.log import Log
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition

STEP_BYTES: Final = 1 << 20
_STEP_INTERVAL_MS: Final = 1
_RECHECK_MS: Final = 1000
"""As often a throttled move looks whether its throttle was changed."""
_SUFFIX_BYTES: Final = len(".") + 32 + len("-future")
_ANY_EPOCH: Final = INT32_MAX


class LogDirMoves:
    """The moves of one broker; created by the first one."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._logs = manager.log_manager
        self._moving: dict[TopicPartition, None] = {}
        self._rate: SimpleRate | None = None  # of bytes, while there is a throttle

    # --- AlterReplicaLogDirs

    def alter(self, key: TopicPartition, path: str) -> ErrorCode:
        """Move a replica to a directory, or prefer that for its creation. Return the error code."""
        try:
            self._alter(key, path)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return ErrorCode.REPLICA_NOT_AVAILABLE
            return error.code
        return ErrorCode.NONE

    def _alter(self, key: TopicPartition, path: str) -> None:
        name = f"{key[0]}-{key[1]}"
        if len(name) + _SUFFIX_BYTES > FILE_NAME_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        directory = self._logs.directory(path)
        if directory is None:
            raise KafkaError(
                ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config."
            )
        if not directory.is_online or key in self._manager.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} or {name} is offline")
        future = self._logs.future(*key)
        if future is not None and not directory.holds(future):
            self._cancel(key, future)
            future = None
        current = self._logs.get(*key)
        if current is None:
            self._logs.preferred[key] = directory
        partition = self._manager.partition(*key)
        if directory.holds(partition.log):
            return
        if future is None:
            if len(self._logs.online()) < len(self._logs.directories):
                # An offline directory may hold another future log of this partition.
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a log directory is offline")
            self._create_future(key, partition.log, directory)
        self.resume(key)

    def _create_future(self, key: TopicPartition, current: Log, directory: LogDirectory) -> None:
        try:
            directory.create(key, current.topic_id, current.config, future=True)
        except OSError as error:
            why = directory.handle_error(error, f"cannot make the future log of {current.name}")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error
        self._manager.log_event(
            Event.REPLICA_MOVE_STARTED, topic=key[0], partition=key[1], log_dir=directory.path
        )

    def _cancel(self, key: TopicPartition, future: Log) -> None:
        self._moving.pop(key, None)
        self._logs.directory_of(future).remove(future, DELETE_SUFFIX)

    # --- copying

    def resume(self, key: TopicPartition) -> None:
        """Start or resume copying, if the partition has a future log."""
        if self._logs.future(*key) is not None:
            self._moving[key] = None
            self._schedule()

    def _schedule(self, wait_ms: int = _STEP_INTERVAL_MS) -> None:
        due_ms = self._manager.clock.now_ms + wait_ms
        self._manager.timers.schedule_real(("log-dir-moves", id(self)), due_ms, self._step)

    def _step(self) -> None:
        """Copy a piece of every moving replica; above the throttle, of none, or of the first ones."""
        wait_ms = _STEP_INTERVAL_MS
        for key in list(self._moving):
            if throttle_ms := self._throttle_ms():
                wait_ms = min(throttle_ms, _RECHECK_MS)
                break
            partition, future = self._manager.hosted(key), self._logs.future(*key)
            if partition is None or future is None:
                del self._moving[key]  # deleted, or a directory has failed
                continue
            try:
                self._copy(partition.log, future)
                if future.log_end_offset == partition.log.log_end_offset:
                    del self._moving[key]
                    self._replace(partition, future)
            except KafkaError as error:
                self._moving.pop(key, None)
                self._manager.log_event(
                    Event.REPLICA_MOVE_FAILED, topic=key[0], partition=key[1], detail=str(error)
                )
        if self._moving:
            self._schedule(wait_ms)

    def _throttle_ms(self) -> int:
        """How long to wait until the rate of copying is down to the throttle; 0: it is not above, or not set."""
        config = self._logs.config
        text = config.text(MOVES_THROTTLE_KEY) if config.is_set(MOVES_THROTTLE_KEY) else None
        if text is None:
            self._rate = None
            return 0
        bound, now_ms = int(text), self._manager.clock.now_ms
        if self._rate is None:
            from kwire.replication.core.rates import SimpleRate

            samples, seconds = (int(config.text(key) or 1) for key in MOVES)
            self._rate = SimpleRate(samples, seconds * 1000)
        if bound <= 0:
            return _RECHECK_MS
        return self._rate.throttle_ms(bound, now_ms)

    def _copy(self, current: Log, future: Log) -> None:
        future.config = current.config
        if future.topic_id == ZERO_UUID != current.topic_id:
            # A power cut has taken it (LogManager.getOrCreateLog assigns it, too).
            future.assign_topic_id(current.topic_id)
        recovery_point = future.recovery_point
        if (
            future.log_end_offset < current.log_start_offset
            or future.log_start_offset > current.log_end_offset
        ):
            future.truncate_fully_and_start_at(current.log_start_offset)
        self._truncate(current, future)
        left_bytes = STEP_BYTES
        while left_bytes > 0 and future.log_end_offset < current.log_end_offset:
            data = current.read(future.log_end_offset, left_bytes, current.log_end_offset)
            if not data.records:  # a gap: the log was truncated where compaction had emptied it
                future.log_end_offset = current.log_end_offset
                break
            append_replicated(future, data.records, _ANY_EPOCH)
            left_bytes -= len(data.records)
            if self._rate is not None:
                self._rate.record(len(data.records), self._manager.clock.now_ms)
        apply_leader_offsets(future, current.high_watermark, current.log_start_offset)
        if future.recovery_point < recovery_point:
            # Else a recovery would skip records appended below the old recovery point.
            self._logs.checkpoint_recovery_points(flush=True)

    def _truncate(self, current: Log, future: Log) -> None:
        """Truncate the future log to its common prefix with the current log."""
        while (epoch := future.leader_epochs.latest_epoch) >= 0:
            found, end_offset = current.end_offset_for_epoch(epoch)
            point = truncation_point(future, found, end_offset, current.log_start_offset)
            if point.offset < future.log_end_offset:
                future.truncate_to(point.offset)
            if point.completed:
                break
        if future.log_end_offset > current.log_end_offset:
            future.truncate_to(current.log_end_offset)

    # --- completion

    def _replace(self, partition: Partition, future: Log) -> None:
        """Replace the current log by the future log; the old one is deleted after a delay."""
        current = partition.log
        source, target = self._logs.directory_of(current), self._logs.directory_of(future)
        try:
            partition.log = target.promote(future, current)
        except OSError as error:
            why = target.handle_error(
                error, f"cannot put the future log of {current.name} in its place"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error
        with suppress(KafkaError):  # the source directory has failed, which is reported
            source.remove(current, DELETE_SUFFIX)
        for directory in (source, target):
            if directory.is_online:
                try:
                    directory.checkpoint()
                except OSError as error:
                    directory.handle_error(error, "checkpoints after a move")
        self._manager.log_event(
            Event.REPLICA_MOVE_COMPLETED,
            topic=partition.topic,
            partition=partition.index,
            log_dir=target.path,
        )
        # A transaction of which retention has left nothing is not open in the new log: more is stable.
        self._manager.complete_waiting(partition.key)
