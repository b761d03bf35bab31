"""One shard on the log: load, append, respond once committed, timers, unload.

Answers to CoordinatorRuntime.CoordinatorContext and CoordinatorLoaderImpl of Kafka; runtime.py has
the shards of a broker, and the invariants. Loading and unloading are done in parts
(replication/core/work.py): a hundred records at once, more while others have their turn.
"""

from __future__ import annotations

from enum import Enum
from typing import Generic

from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import NO_SEQUENCE, Record
from kwire.replication.log.log import AppendOrigin, CheckedBatch
from kwire.shards.runtime import ShardT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any

    from kwire.protocol.records import BatchHeader
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.core.work import Job, Steps
    from kwire.replication.log.log import LogAppendInfo
    from kwire.replication.replica.partition import Partition
    from kwire.shards.kind import ShardRecord
    from kwire.shards.result import Result
    from kwire.shards.runtime import CoordinatorRuntime


LOAD_BUFFER_BYTES = 1024 * 1024
BATCH_BYTES_MAX = 512 * 1024
"""Size at which non-atomic records are split into batches; well below usual max.message.bytes."""

_RECORDS_A_STEP = 25
_UNITS_A_RECORD = 20
_UNITS_A_BATCH = 10
_TIMERS_A_STEP = 200
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


class ShardState(Enum):
    """The life cycle of a shard."""

    LOADING = "loading"
    ACTIVE = "active"
    UNLOADED = "unloaded"


VALID_PREVIOUS_STATES: dict[ShardState, tuple[ShardState, ...]] = {
    ShardState.LOADING: (),
    ShardState.ACTIVE: (ShardState.LOADING,),
    ShardState.UNLOADED: (ShardState.LOADING, ShardState.ACTIVE),
}


class ShardContext(Generic[ShardT]):
    """A shard with its partition, timers and appends; implements CoordinatorTimer."""

    __slots__ = (
        "_appends",
        "_is_damaged",
        "_runtime",
        "_timer_keys",
        "deferred",
        "loading",
        "partition",
        "shard",
        "state",
    )

    def __init__(self, runtime: CoordinatorRuntime[ShardT], partition: Partition) -> None:
        self._runtime = runtime
        self.partition = partition
        self._appends: list[_Append] = []
        self._timer_keys: dict[tuple[str, ...], None] = {}
        self._is_damaged = False  # a batch could not be loaded
        self.state = ShardState.LOADING
        self.loading: Job | None = None
        self.deferred: list[Callable[[ShardT], Result[None]]] = []
        """Operations of `write_all` that wait for the end of loading."""
        self.shard = runtime.kind.make(self, partition)

    # --- timers

    def schedule(
        self, key: tuple[str, ...], delay_ms: int, operation: Callable[[], Result[None]]
    ) -> None:
        self._timer_keys[key] = None
        runtime = self._runtime

        def fire() -> None:
            self._timer_keys.pop(key, None)
            if self.state is not ShardState.ACTIVE:
                return  # unloaded, and its turn to be cancelled has not come
            runtime.run(lambda: self.append(operation(), _ignore))

        runtime.timers.schedule(self._timer_id(key), runtime.clock.now_ms + max(delay_ms, 0), fire)

    def cancel(self, key: tuple[str, ...]) -> None:
        if key in self._timer_keys:
            del self._timer_keys[key]
            self._runtime.timers.cancel(self._timer_id(key))

    def _timer_id(self, key: tuple[str, ...]) -> tuple[object, ...]:
        return (self._runtime.kind.timer_prefix, self.partition.index, key)

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
        batches: list[list[ShardRecord]] = [[]]
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
            self._append_batch(batch, encoded[index], result, finished if last else _ignore)

    def _append_batch(
        self,
        records: Sequence[ShardRecord],
        encoded: Sequence[tuple[bytes, bytes | None]],
        result: Result[Any],
        finished: Callable[[ErrorCode], None],
    ) -> None:
        producer_id, producer_epoch = result.producer or (-1, -1)
        now_ms = self._runtime.clock.wall_ms
        batch = build_batch(
            [Record(-1, now_ms, key, value) for key, value in encoded],
            compression=self._runtime.kind.compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=NO_SEQUENCE if result.producer is None else 0,
            is_transactional=result.producer is not None,
        )
        entry: Buffer | CheckedBatch = batch
        if result.guard is not None:
            entry = CheckedBatch(memoryview(batch))
            entry.guard = result.guard

        def replay(base_offset: int) -> None:
            if result.replay:
                for index, record in enumerate(records):
                    self.shard.replay(base_offset + index, producer_id, record)

        self._append_bytes(entry, replay, finished, result.timeout_ms)

    def complete_transaction(
        self, producer_id: int, is_commit: bool, marker: Buffer, done: Callable[[ErrorCode], None]
    ) -> None:
        """Append the marker of a transaction and end it in the shard; `done` as of `append`."""

        def replay(offset: int) -> None:
            self.shard.replay_end_transaction(offset, producer_id, is_commit)

        self._append_bytes(marker, replay, done)

    def _append_bytes(
        self,
        batch: Buffer | CheckedBatch,
        replay: Callable[[int], None],
        finished: Callable[[ErrorCode], None],
        timeout_ms: int | None = None,
    ) -> None:
        """Append a batch; `replay` gets its base offset, `finished` the outcome once it is final."""
        runtime, partition = self._runtime, self.partition
        append = _Append()
        append.waiters.append(finished)

        def complete(results: dict[tuple[str, int], LogAppendInfo]) -> None:
            append.outcome = ErrorCode(results[partition.key].error)
            if append in self._appends:
                self._appends.remove(append)
                self.shard.advance(partition.settled_offset())
                runtime.run(lambda: append.finish(append.outcome or ErrorCode.NONE))

        base_offset = partition.log.log_end_offset
        runtime.replica_manager.append_records(
            timeout_ms=runtime.kind.append_timeout_ms if timeout_ms is None else timeout_ms,
            required_acks=-1,
            entries={partition.key: batch},
            origin=AppendOrigin.COORDINATOR,
            on_complete=complete,
        )
        if partition.log.log_end_offset > base_offset:
            self.shard.advance(partition.settled_offset())
            replay(base_offset)
        # With one replica `complete` was called within append_records: only now add it as waiting.
        if append.outcome is None:
            self._appends.append(append)
        else:
            append.finish(append.outcome)

    # --- load and unload

    @property
    def is_loading(self) -> bool:
        """Whether requests must wait."""
        return self.state is ShardState.LOADING

    def _move(self, state: ShardState) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.state.value} -> {state.value}"
        self.state = state

    def load(self) -> Steps:
        """Replay the whole log, then start the shard's timers."""
        log = self.partition.log
        self.shard.advance(self.partition.settled_offset())
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            records = log.read(offset, LOAD_BUFFER_BYTES, log.log_end_offset).records
            next_offset = yield from self._load_chunk(records, offset)
            if next_offset == offset:
                break  # compaction may have removed the last batches
            offset = next_offset
        self._move(ShardState.ACTIVE)
        self._runtime.run(self._start)

    def _start(self) -> None:
        self.shard.advance(self.partition.settled_offset())
        deferred, self.deferred = self.deferred, []
        for operation in deferred:
            self.append(operation(self.shard), _ignore)
        for result in self.shard.on_loaded():
            self.append(result, _ignore)

    def _load_chunk(self, records: Buffer, offset: int) -> Generator[int, None, int]:
        from kwire.protocol.records import iter_batches

        for header in iter_batches(records):
            try:
                yield from self._load_batch(records, header)
            except (KafkaError, MalformedMessage) as error:
                self._log_unreadable(header.base_offset, str(error))
            offset = max(offset, header.next_offset)
        return offset

    def _log_unreadable(self, offset: int, detail: str) -> None:
        """Log the first batch that cannot be loaded."""
        if not self._is_damaged:
            self._is_damaged = True
            topic, index = self.partition.topic, self.partition.index
            fields = {"topic": topic, "partition": index, "offset": offset, "detail": detail}
            self._runtime.log_event(self._runtime.kind.unreadable, **fields)

    def _load_batch(self, records: Buffer, header: BatchHeader) -> Steps:
        from kwire.protocol.records import (
            CONTROL_ABORT,
            CONTROL_COMMIT,
            check_crc,
            iter_records,
            parse_control_record,
        )

        if not check_crc(records, header):
            raise MalformedMessage("the checksum is wrong")
        shard, decode = self.shard, self._runtime.kind.decode
        producer_id = header.producer_id if header.is_transactional else -1
        count = 0
        for count, record in enumerate(iter_records(records, header), 1):
            if not count % _RECORDS_A_STEP:
                yield _RECORDS_A_STEP * _UNITS_A_RECORD
            if header.is_control:
                marker = parse_control_record(record)
                if marker.type in (CONTROL_COMMIT, CONTROL_ABORT):
                    is_commit = marker.type == CONTROL_COMMIT
                    shard.replay_end_transaction(record.offset, producer_id, is_commit)
            elif record.key is not None:
                decoded = decode(record.key, record.value)
                if decoded is not None:
                    shard.replay(record.offset, producer_id, decoded)
        yield count % _RECORDS_A_STEP * _UNITS_A_RECORD + _UNITS_A_BATCH

    def unload(self) -> Steps:
        """Answer all waiting requests with NOT_COORDINATOR and cancel the timers."""
        self._move(ShardState.UNLOADED)
        if self.loading is not None:
            self.loading.cancel()
        self._runtime.run(self._answer_all)
        for count, key in enumerate(list(self._timer_keys), 1):
            self.cancel(key)
            if not count % _TIMERS_A_STEP:
                yield _TIMERS_A_STEP

    def _answer_all(self) -> None:
        self.shard.on_unloaded()
        appends, self._appends = self._appends, []
        for append in appends:
            append.finish(ErrorCode.NOT_COORDINATOR)


def _ignore(error: ErrorCode) -> None:
    """Ignore the outcome of an append."""
