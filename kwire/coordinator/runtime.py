"""Runs group shards on the log: load, append, respond once committed, timers, unload.

Answers to org.apache.kafka.coordinator.group.runtime.CoordinatorRuntime and Kafka's
CoordinatorLoaderImpl. A shard lives while this broker leads its partition of `__consumer_offsets`.
Loading is synchronous: it ends before the next request, so COORDINATOR_LOAD_IN_PROGRESS is never
returned.

Invariants: records are replayed in the order of their offsets, directly after their append and
before any response; a response is sent when the records it depends on are below the high watermark;
responses are sent after the operation that gave them, so a client's next request never sees a group
half changed.
"""

from __future__ import annotations

from typing import TypeVar

from kwire.coordinator.result import Deferred, Result
from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kwire.replication.core.events import ignore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from typing import Any

    from kwire.coordinator.config import GroupConfig
    from kwire.coordinator.group_records import CoordinatorRecord
    from kwire.coordinator.group_shard import GroupShard
    from kwire.protocol.records import BatchHeader
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.log.log import LogAppendInfo
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition

T = TypeVar("T")

LOAD_BUFFER_BYTES = 1024 * 1024
BATCH_BYTES_MAX = 512 * 1024
"""Size at which non-atomic records are split into batches; well below usual max.message.bytes."""

_RECORD_OVERHEAD_BYTES = 32  # lengths, deltas and attributes of a record, generously


def response_error(error: ErrorCode) -> ErrorCode:
    """The error for the client when an append failed with `error`."""
    if error in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    if error in (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
    ):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error


class _Append:
    """An appended batch that is not committed yet, and its waiting callbacks."""

    __slots__ = ("outcome", "waiters")

    def __init__(self) -> None:
        self.outcome: ErrorCode | None = None
        self.waiters: list[Callable[[ErrorCode], None]] = []

    def finish(self, error: ErrorCode) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter(error)


class ShardContext:
    """A shard with its partition, timers and appends; implements CoordinatorTimer."""

    __slots__ = ("_appends", "_runtime", "_timer_keys", "partition", "shard", "unreadable_records")

    def __init__(self, runtime: CoordinatorRuntime, partition: Partition) -> None:
        # Start-up time: most brokers start without groups, so the import waits for the first.
        from kwire.coordinator.group_shard import GroupShard

        self._runtime = runtime
        self.partition = partition
        self._appends: list[_Append] = []
        self._timer_keys: dict[tuple[str, ...], None] = {}
        self.unreadable_records = 0
        self.shard = GroupShard(
            runtime.config, runtime.clock, self, runtime.random, runtime.log_event
        )

    # --- timers

    def schedule(
        self, key: tuple[str, ...], delay_ms: int, operation: Callable[[], Result[None]]
    ) -> None:
        self._timer_keys[key] = None
        runtime = self._runtime

        def fire() -> None:
            self._timer_keys.pop(key, None)
            runtime.run(lambda: self.append(operation(), _ignore))

        runtime.timers.schedule(self._timer_id(key), runtime.clock.now_ms + max(delay_ms, 0), fire)

    def cancel(self, key: tuple[str, ...]) -> None:
        if key in self._timer_keys:
            del self._timer_keys[key]
            self._runtime.timers.cancel(self._timer_id(key))

    def _timer_id(self, key: tuple[str, ...]) -> tuple[object, ...]:
        return ("group-coordinator", self.partition.index, key)

    # --- appends

    def append(self, result: Result[Any], done: Callable[[ErrorCode], None]) -> None:
        """Append and replay the result's records; `done` gets NONE once committed, or the error."""

        def finished(error: ErrorCode) -> None:
            error = response_error(error)
            if result.on_append is not None:
                result.on_append(error)
            done(error)

        if result.records:
            self._append_records(result, finished)
        elif self._appends:
            # No records, but the state read may not be committed yet: wait for the last append. Its
            # failure is mapped here, too (GroupCoordinatorService.handleOperationException).
            self._appends[-1].waiters.append(lambda error: done(response_error(error)))
        else:
            done(ErrorCode.NONE)

    def _append_records(self, result: Result[Any], finished: Callable[[ErrorCode], None]) -> None:
        batches: list[list[CoordinatorRecord]] = [[]]
        encoded: list[list[tuple[bytes, bytes | None]]] = [[]]
        size = 0
        for record in result.records:
            try:
                key, value = record.encode()
            except KafkaError as error:
                finished(error.code)  # a string too long for its record, say
                return
            size += len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
            if not result.atomic and size > BATCH_BYTES_MAX and batches[-1]:
                batches.append([])
                encoded.append([])
                size = 0
            batches[-1].append(record)
            encoded[-1].append((key, value))
        for index, batch in enumerate(batches):
            last = index == len(batches) - 1
            self._append_batch(batch, encoded[index], result.replay, finished if last else _ignore)

    def _append_batch(
        self,
        records: Sequence[CoordinatorRecord],
        encoded: Sequence[tuple[bytes, bytes | None]],
        replay: bool,
        finished: Callable[[ErrorCode], None],
    ) -> None:
        from kwire.protocol.records import Record, build_batch
        from kwire.replication.log.log import AppendOrigin

        runtime, partition = self._runtime, self.partition
        now_ms = runtime.clock.wall_ms
        batch = build_batch(
            [Record(-1, now_ms, key, value) for key, value in encoded],
            compression=runtime.config.offsets_topic_compression,
        )
        append = _Append()
        append.waiters.append(finished)
        key = (partition.topic, partition.index)

        def complete(results: dict[tuple[str, int], LogAppendInfo]) -> None:
            append.outcome = ErrorCode(results[key].error)
            if append in self._appends:
                self._appends.remove(append)
                self.shard.advance(partition.log.high_watermark)
                runtime.run(lambda: append.finish(append.outcome or ErrorCode.NONE))

        base_offset = partition.log.log_end_offset
        runtime.replica_manager.append_records(
            timeout_ms=runtime.config.offsets_commit_timeout_ms,
            required_acks=-1,
            entries={key: batch},
            origin=AppendOrigin.COORDINATOR,
            on_complete=complete,
        )
        if partition.log.log_end_offset > base_offset:
            self.shard.advance(partition.log.high_watermark)
            if replay:
                for index, record in enumerate(records):
                    self.shard.replay(base_offset + index, -1, record)
        # With one replica `complete` was called within append_records: only now add it as waiting.
        if append.outcome is None:
            self._appends.append(append)
        else:
            append.finish(append.outcome)

    # --- load and unload

    def load(self) -> None:
        """Replay the whole log, then start the shard's timers."""
        log = self.partition.log
        self.shard.advance(log.high_watermark)
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            next_offset = self._load_chunk(log.read(offset, LOAD_BUFFER_BYTES, end).records, offset)
            if next_offset == offset:
                break  # compaction may have removed the last batches
            offset = next_offset
        for result in self.shard.on_loaded():
            self.append(result, _ignore)

    def _load_chunk(self, records: Buffer, offset: int) -> int:
        from kwire.protocol.records import iter_batches

        for header in iter_batches(records):
            try:
                self._load_batch(records, header)
            except (KafkaError, MalformedMessage):
                self.unreadable_records += 1
            offset = max(offset, header.next_offset)
        return offset

    def _load_batch(self, records: Buffer, header: BatchHeader) -> None:
        from kwire.coordinator.group_records import decode_record
        from kwire.protocol.records import (
            CONTROL_ABORT,
            CONTROL_COMMIT,
            iter_records,
            parse_control_record,
        )

        shard = self.shard
        producer_id = header.producer_id if header.is_transactional else -1
        for record in iter_records(records, header):
            if header.is_control:
                marker = parse_control_record(record)
                if marker.type in (CONTROL_COMMIT, CONTROL_ABORT):
                    shard.replay_end_transaction(producer_id, marker.type == CONTROL_COMMIT)
            elif record.key is not None:
                decoded = decode_record(record.key, record.value)
                if decoded is not None:
                    shard.replay(record.offset, producer_id, decoded)

    def unload(self) -> None:
        """Cancel the timers and answer all waiting requests with NOT_COORDINATOR."""
        for key in list(self._timer_keys):
            self.cancel(key)
        self.shard.on_unloaded()
        appends, self._appends = self._appends, []
        for append in appends:
            append.finish(ErrorCode.NOT_COORDINATOR)


class CoordinatorRuntime:
    """The shards of the partitions that this broker leads, by partition index."""

    __slots__ = (
        "_answers",
        "_depth",
        "clock",
        "config",
        "contexts",
        "log_event",
        "random",
        "replica_manager",
        "timers",
    )

    def __init__(
        self,
        config: GroupConfig,
        clock: Clock,
        timers: Timers,
        random: Random,
        replica_manager: ReplicaManager,
        log_event: LogEvent = ignore,
    ) -> None:
        self.log_event = log_event
        self.config = config
        self.clock = clock
        self.timers = timers
        self.random = random
        self.replica_manager = replica_manager
        self.contexts: dict[int, ShardContext] = {}
        self._depth = 0
        self._answers: list[Callable[[], None]] = []

    def role_changed(self, partition: Partition, leads: bool) -> None:
        """Load the shard of `partition` if this broker leads it now, else unload it."""
        context = self.contexts.get(partition.index)
        if leads and context is not None and context.partition is partition:
            return  # a new epoch of the same leader: the state matches the log already
        if context is not None:
            del self.contexts[partition.index]
            self.run(context.unload)
        if leads:
            context = ShardContext(self, partition)
            self.contexts[partition.index] = context
            self.run(context.load)

    def _context(self, index: int) -> ShardContext:
        context = self.contexts.get(index)
        if context is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return context

    def read(self, index: int, operation: Callable[[GroupShard], T]) -> T:
        """Run a read-only operation; KafkaError(NOT_COORDINATOR) if another broker leads."""
        context = self._context(index)
        context.shard.advance(context.partition.log.high_watermark)
        return operation(context.shard)

    def write(
        self,
        index: int,
        operation: Callable[[GroupShard], Result[T]],
        respond: Callable[[T], None],
        fail: Callable[[ErrorCode], None],
    ) -> None:
        """Run `operation`; then call `respond` once its records are committed, or `fail`."""

        def run() -> None:
            try:
                context = self._context(index)
                result = operation(context.shard)
            except KafkaError as error:
                refusal = error.code
                self.defer(lambda: fail(refusal))
                return

            def done(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    self.defer(lambda: respond(result.response))
                else:
                    self.defer(lambda: fail(error))

            context.append(result, done)

        self.run(run)

    def write_all(self, operation: Callable[[GroupShard], Result[None]]) -> None:
        """Run `operation` on every shard; failed appends are ignored."""

        def run() -> None:
            for context in list(self.contexts.values()):
                context.append(operation(context.shard), _ignore)

        self.run(run)

    def deferred(self, deliver: Callable[[T], None]) -> Deferred[T]:
        """A response that a shard may complete in an operation; delivered when that has ended."""
        return Deferred(lambda value: self.defer(lambda: deliver(value)))

    def defer(self, answer: Callable[[], None]) -> None:
        self._answers.append(answer)

    def run(self, operation: Callable[[], None]) -> None:
        """Run an operation on shards, then send its responses in order."""
        self._depth += 1
        try:
            operation()
        finally:
            self._depth -= 1
        if self._depth:
            return
        while self._answers:
            answers, self._answers = self._answers, []
            for answer in answers:
                answer()


def _ignore(error: ErrorCode) -> None:
    """Ignore the outcome of an append."""
