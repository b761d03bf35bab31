"""A broker's logs that are copied while they are in use: as after a clean stop, and the broker goes on."""

from __future__ import annotations

from log_harness import NOW_MS, TOPIC_ID, batch
from test_log_manager import Managed

from kwire.replication.core.log_config import LogConfig
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.log.checkpoints import write_clean_shutdown
from kwire.replication.log.log import AppendOrigin, Log
from kwire.replication.log_dirs import copying

CONFIG = LogConfig(index_interval_bytes=100)


def append(log: Log, *values: bytes, sequence: int = 0, timestamp: int = NOW_MS) -> None:
    data = batch(*values, producer=(7, 0, sequence), timestamp=timestamp)
    log.append_as_leader(data, 0, origin=AppendOrigin.CLIENT)


def copied(managed: Managed) -> Managed:
    """A broker that starts with a copy of the files as they are, marked as cleanly stopped."""
    store = MemoryLogStore(lambda: NOW_MS)
    for path in sorted(managed.store._files):
        directory = path.rpartition("/")[0]
        if directory:
            store.make_dir(directory)
        store.write_file(path, managed.store.content(path))
    write_clean_shutdown(store, 5)
    return Managed(store)


def test_a_copy_is_as_after_a_clean_stop() -> None:
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, CONFIG)
    for number in range(3):
        append(log, b"x" * 200, sequence=number, timestamp=NOW_MS + number)
    log.update_high_watermark(3)
    copying.prepare(managed.manager)
    again = copied(managed)
    append(log, b"y", sequence=3)  # the broker goes on
    copying.release(managed.manager)
    assert log.log_end_offset == 4

    assert again.manager.previous_broker_epoch == 5
    (other,) = again.manager.logs()
    assert (other.log_end_offset, other.high_watermark) == (3, 3)
    assert other.producer_state.producers[7].last_sequence == 2
    assert [other.active.offset_index.entry(n) for n in range(other.active.offset_index.count)]
    assert other.active.time_index.last() == (NOW_MS + 2, 2)
    assert again.logged.events == []


def test_snapshots_of_producers_in_between_do_not_pile_up() -> None:
    managed = Managed()
    log = managed.manager.get_or_create("t", 0, TOPIC_ID, CONFIG)
    for number in range(5):
        append(log, b"x", sequence=number)
        copying.prepare(managed.manager)
        copying.prepare(managed.manager)
    found = [name for name in managed.store.list_dir("t-0") if name.endswith(".snapshot")]
    assert found == ["00000000000000000005.snapshot"]


def test_a_large_segment_is_rolled_and_a_small_one_is_not() -> None:
    managed = Managed()
    large = managed.manager.get_or_create("large", 0, TOPIC_ID, CONFIG)
    small = managed.manager.get_or_create("small", 0, TOPIC_ID, CONFIG)
    for number in range(3):
        append(large, b"x" * 500_000, sequence=number)
        append(small, b"x" * 1000, sequence=number)
    for _ in range(2):
        copying.prepare(managed.manager)
        assert [len(log.segments) for log in (large, small)] == [2, 1]
    append(large, b"x", sequence=3)
    assert large.active.base_offset == 3
