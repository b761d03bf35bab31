"""One partition's log on a MemoryLogStore, and the batches that go into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from event_recorder import Recorder

from kwire.protocol.record_builder import build_batch, end_transaction_marker
from kwire.protocol.records import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    BatchHeader,
    Record,
    iter_batches,
    iter_records,
    stamp,
)
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.log_config import LogConfig
from kwire.replication.core.log_store import LogStore
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.work import at_once
from kwire.replication.log.log import AppendOrigin, Log, LogAppendInfo
from kwire.replication.log_dirs.cleaner import LogCleaner
from kwire.replication.log_dirs.manager import LogManager

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000


def batch(
    *values: bytes | None,
    key: bytes | None = b"k",
    timestamp: int = NOW_MS,
    timestamps: Iterable[int] | None = None,
    compression: str = "none",
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """A client's batch. `producer`: id, epoch, first sequence."""
    times = list(timestamps) if timestamps is not None else [timestamp] * len(values)
    producer_id, producer_epoch, base_sequence = producer
    return build_batch(
        [Record(-1, time, key, value, ()) for time, value in zip(times, values, strict=True)],
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=transactional,
    )


def stamped(data: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """The batch as a leader has it in its log."""
    buffer = bytearray(data)
    stamp(buffer, 0, base_offset, leader_epoch)
    return bytes(buffer)


def marker(producer_id: int, epoch: int, *, commit: bool) -> bytes:
    return end_transaction_marker(
        CONTROL_COMMIT if commit else CONTROL_ABORT,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=0,
        timestamp=NOW_MS,
    )


def clean_to_end(cleaner: LogCleaner, manager: Any) -> None:
    """All that is due, in one go (a broker takes a step at a time). `manager` may be a stand-in."""
    at_once(cleaner.clean_logs(manager))
    while cleaner._work is not None:
        cleaner._step(manager)


class OneLog:
    """A LogManager with one log, "t-0", that can be stopped, crashed and loaded again."""

    def __init__(self, store: LogStore | None = None, **config: object) -> None:
        self.clock = Clock(0, NOW_MS)
        self.store: LogStore = store or MemoryLogStore(lambda: self.clock.wall_ms)
        self.config = LogConfig(**config)  # type: ignore[arg-type]
        self.logged = Recorder()
        self.manager = self._load()
        self.log: Log = self.manager.get_or_create("t", 0, TOPIC_ID, self.config)

    def _load(self) -> LogManager:
        self.timers = Timers()
        manager = LogManager(
            self.store,
            self.clock,
            self.timers,
            BrokerConfig(),
            cluster_id="cluster",
            node_id=1,
            topic_config=lambda _: self.config,
            log_event=self.logged,
        )
        manager.load()
        return manager

    def append(
        self,
        *values: bytes,
        epoch: int = 0,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        **kw: object,
    ) -> LogAppendInfo:
        return self.log.append_as_leader(batch(*values, **kw), epoch, origin=origin)  # type: ignore[arg-type]

    def commit_all(self) -> None:
        """Moves the high watermark to the log end."""
        self.log.maybe_increment_high_watermark(self.log.log_end_offset)

    def restart(self) -> None:
        """A clean stop and a start."""
        self.manager.close()
        self.load_again()

    def kill(self) -> None:
        """The process dies; the system does not: everything written stays."""
        self.load_again()

    def crash(self, keep: Callable[[int], int] | None = None) -> None:
        """A power cut: what was not flushed is gone, but for `keep(n)` of each file's n bytes."""
        assert isinstance(self.store, MemoryLogStore)
        self.store.crash(keep)
        self.load_again()

    def load_again(self) -> None:
        self.manager = self._load()
        log = self.manager.get("t", 0)
        assert log is not None
        self.log = log

    def wait(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.clock.wall_ms += ms
        self.timers.fire(self.clock.now_ms)

    def files(self) -> list[str]:
        return self.store.list_dir("t-0")

    def read_all(self, end_offset: int | None = None, max_bytes: int = 1 << 20) -> bytes:
        """Everything from the log start, as a consumer gets it in fetches of `max_bytes`."""
        log = self.log
        end = log.log_end_offset if end_offset is None else end_offset
        offset, data = log.log_start_offset, b""
        while offset < end:
            fetched = log.read(offset, max_bytes, end)
            if not len(fetched.records):
                break
            assert fetched.next_offset > offset
            data += fetched.records
            offset = fetched.next_offset
        return data

    def values(self) -> list[tuple[int, bytes | None]]:
        """(offset, value) of every record in the log."""
        data = self.read_all()
        return [
            (record.offset, record.value)
            for header in iter_batches(data)
            for record in iter_records(data, header)
        ]

    def headers(self) -> list[BatchHeader]:
        return list(iter_batches(self.read_all()))


def check_invariants(log: Log) -> None:
    """What holds for a log whenever no operation is half way (I2, I5, I6 of the replication sheet)."""
    assert (
        log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
    )
    assert log.segments and log.active is log.segments[-1]
    bases = [segment.base_offset for segment in log.segments]
    assert bases == sorted(set(bases))
    assert bases[-1] <= log.log_end_offset
    entries = log.leader_epochs.entries
    assert entries == sorted(entries)
    assert (
        len({start for _, start in entries}) == len({epoch for epoch, _ in entries}) == len(entries)
    )
    last_offset, last_epoch = -1, -1
    for number, segment in enumerate(log.segments):
        limit = bases[number + 1] if number + 1 < len(bases) else log.log_end_offset
        position = 0
        for header in segment.batches(0):
            assert header.position == position
            assert header.base_offset > last_offset and header.base_offset >= segment.base_offset
            assert header.last_offset < limit
            assert header.partition_leader_epoch >= last_epoch
            if header.base_offset >= log.log_start_offset:
                epoch = log.leader_epochs.epoch_for_offset(header.base_offset)
                assert epoch == header.partition_leader_epoch
            position += header.size
            last_offset, last_epoch = header.last_offset, header.partition_leader_epoch
        assert position == segment.size
        check_indexes(log, number)


def check_indexes(log: Log, number: int) -> None:
    """Every index entry points at a batch's start and tells its last offset."""
    segment = log.segments[number]
    by_position = {header.position: header for header in segment.batches(0)}
    index, times = segment.offset_index, segment.time_index
    for entry_number in range(index.count):
        relative, position = index.entry(entry_number)
        assert by_position[position].last_offset == segment.base_offset + relative
    previous = -1
    by_last_offset = {header.last_offset: header for header in by_position.values()}
    for entry_number in range(times.count):
        timestamp, relative = times.entry(entry_number)
        assert timestamp > previous
        previous = timestamp
        assert by_last_offset[segment.base_offset + relative].max_timestamp == timestamp
