"""What a leader and a follower take into a log, what they refuse and with which error."""

from __future__ import annotations

from struct import pack_into

import pytest
from fastcrc.crc32 import iscsi as crc32c
from log_harness import NOW_MS, TOPIC_ID, OneLog, batch, check_invariants, marker, stamped

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_builder import recompress
from kwire.protocol.record_validation import InvalidRecordsError
from kwire.protocol.records import iter_records, parse_header
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.log import validation
from kwire.replication.log.log import AppendOrigin, UnexpectedAppendOffset


def changed(data: bytes, form: str, position: int, value: int) -> bytes:
    """A batch with one header field changed and the CRC made right again."""
    buffer = bytearray(data)
    pack_into(form, buffer, position, value)
    pack_into(">I", buffer, 17, crc32c(memoryview(buffer)[21:]))
    return bytes(buffer)


def refused(one: OneLog, data: bytes, **kw: object) -> ErrorCode:
    """The error code; nothing may have been written."""
    size, end = one.log.size_bytes, one.log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        one.log.append_as_leader(data, 0, **kw)  # type: ignore[arg-type]
    assert (one.log.size_bytes, one.log.log_end_offset) == (size, end)
    return caught.value.code


def test_an_append_sets_offset_and_leader_epoch_and_nothing_else() -> None:
    one = OneLog()
    data = batch(b"a", b"b", b"c")
    first = one.log.append_as_leader(data, 3)
    second = one.log.append_as_leader(memoryview(b"--" + data)[2:], 3)
    assert (first.first_offset, first.last_offset, first.size_bytes) == (0, 2, len(data))
    assert (second.first_offset, second.last_offset, second.duplicate) == (3, 5, False)
    assert one.log.log_end_offset == 6
    assert one.read_all() == stamped(data, 0, 3) + stamped(data, 3, 3)
    assert one.log.leader_epochs.entries == [(3, 0)]
    assert data == batch(b"a", b"b", b"c")


def test_a_new_leader_epoch_begins_where_it_first_appends() -> None:
    one = OneLog()
    one.append(b"a", epoch=1)
    one.append(b"b", epoch=4)
    one.append(b"c", epoch=4)
    assert one.log.leader_epochs.entries == [(1, 0), (4, 1)]
    assert one.store.read_file("t-0/leader-epoch-checkpoint") == b"0\n2\n1 0\n4 1\n"


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("nothing", b"", 87),
        ("less than a header", batch(b"a")[:60], 87),
        ("a cut batch", batch(b"a")[:-1], 87),
        ("two batches", batch(b"a") * 2, 87),
        ("magic 1", changed(batch(b"a"), ">b", 16, 1), 87),
        ("magic 3", changed(batch(b"a"), ">b", 16, 3), 2),
        ("magic -1", changed(batch(b"a"), ">b", 16, -1), 2),
        ("an absurd length", changed(batch(b"a"), ">i", 8, 13), 2),
        ("a negative length", changed(batch(b"a"), ">i", 8, -1), 2),
        ("a length without room for the header", changed(batch(b"a"), ">i", 8, 48)[:60], 2),
        ("a huge length", changed(batch(b"a"), ">i", 8, 2**31 - 1), 87),
        ("a base offset", changed(batch(b"a"), ">q", 0, 1), 87),
        ("a wrong checksum", batch(b"a")[:-1] + b"\xff", 2),
        ("a negative last offset", changed(batch(b"a"), ">i", 23, -1), 87),
        ("no records", changed(batch(b"a"), ">i", 57, 0), 87),
        ("fewer records than offsets", changed(batch(b"a", b"b"), ">i", 57, 1), 87),
        ("a control batch", changed(batch(b"a"), ">h", 21, 0x20), 87),
        ("a producer without a sequence", batch(b"a", producer=(5, 0, -1)), 87),
        ("an unknown codec", changed(batch(b"a"), ">h", 21, 5), -1),
    ],
)
def test_invalid_client_batches_are_refused(name: str, data: bytes, code: int) -> None:
    one = OneLog()
    one.append(b"before")
    assert refused(one, data) == code
    one.append(b"after")
    assert [value for _, value in one.values()] == [b"before", b"after"]


def test_a_header_that_shows_an_error_is_refused_though_records_are_not_read() -> None:
    one = OneLog(record_validation="header")
    assert refused(one, changed(batch(b"a", b"b"), ">i", 57, 1)) == ErrorCode.INVALID_RECORD
    unknown_codec = changed(batch(b"a"), ">h", 21, 5)
    assert refused(one, unknown_codec) == ErrorCode.UNKNOWN_SERVER_ERROR
    one = OneLog(record_validation="header", message_timestamp_before_max_ms=1000)
    assert refused(one, batch(b"a", timestamp=NOW_MS - 1001)) == ErrorCode.INVALID_TIMESTAMP
    one.append(b"a", timestamp=NOW_MS - 1000)


def test_a_partial_batch_after_the_first_is_dropped() -> None:
    one = OneLog()
    one.log.append_as_leader(batch(b"a") + batch(b"b")[:40], 0)
    assert one.read_all() == stamped(batch(b"a"), 0, 0)


def test_size_limits() -> None:
    small = len(batch(b"x" * 100))
    one = OneLog(max_message_bytes=small, segment_bytes=small - 1)
    assert refused(one, batch(b"x" * 101)) == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(one, batch(b"x" * 101)[:-1] + b"!") == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(one, batch(b"x" * 100)) == ErrorCode.RECORD_LIST_TOO_LARGE
    one.append(b"x" * 99)


def test_a_changed_configuration_applies_from_the_next_append() -> None:
    one = OneLog()
    one.append(b"x" * 1000)
    one.log.config = one.config.but(max_message_bytes=100)
    assert refused(one, batch(b"x" * 1000)) == ErrorCode.MESSAGE_TOO_LARGE


def test_compacted_topics_need_keys() -> None:
    one = OneLog(cleanup_policy=frozenset({"compact"}))
    with pytest.raises(InvalidRecordsError) as caught:
        one.append(b"a", b"b", key=None)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [0, 1]
    one.append(b"a", key=b"")
    assert one.log.log_end_offset == 1


def test_create_time_must_be_in_the_window() -> None:
    one = OneLog(message_timestamp_after_max_ms=1000, message_timestamp_before_max_ms=5000)
    one.append(b"a", timestamp=NOW_MS + 1000)
    one.append(b"a", timestamp=NOW_MS - 5000)
    one.append(b"no time", timestamp=-1)
    with pytest.raises(InvalidRecordsError) as caught:
        one.append(b"a", b"b", b"c", timestamps=[NOW_MS, NOW_MS + 1001, NOW_MS - 5001])
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [1, 2]


def test_by_default_only_the_future_is_refused() -> None:
    one = OneLog()
    assert refused(one, batch(b"a", timestamp=NOW_MS + 3600_001)) == ErrorCode.INVALID_TIMESTAMP
    one.append(b"a", timestamp=0)
    one.append(b"a", timestamp=NOW_MS + 3600_000)


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_log_append_time_is_the_brokers_clock(compression: str) -> None:
    one = OneLog(message_timestamp_type="LogAppendTime")
    info = one.append(b"a", b"b", timestamp=5, compression=compression)
    assert info.log_append_time_ms == NOW_MS
    data = one.read_all()
    header = parse_header(data)
    assert (header.timestamp_type, header.max_timestamp) == ("LogAppendTime", NOW_MS)
    assert header.crc == crc32c(memoryview(data)[21:])
    assert [record.timestamp for record in iter_records(data, header)] == [NOW_MS, NOW_MS]


def test_the_brokers_own_batches_are_stamped_as_the_topic_is() -> None:
    one = OneLog(message_timestamp_type="LogAppendTime")
    one.append(b"a")
    end = marker(1, 0, commit=True)
    info = one.log.append_as_leader(end, 0, origin=AppendOrigin.COORDINATOR)
    header = parse_header(one.log.read(info.first_offset, 1000, info.last_offset + 1).records)
    assert (header.timestamp_type, header.max_timestamp) == ("LogAppendTime", NOW_MS)


def test_the_brokers_own_batches_stay_uncompressed_where_the_topic_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in `__transaction_state`. One that is plain already takes no way through the validation."""
    one = OneLog(compression_type="uncompressed")
    one.log.append_as_leader(
        batch(b"a" * 100, compression="gzip"), 0, origin=AppendOrigin.COORDINATOR
    )
    with monkeypatch.context() as patched:
        patched.delattr(validation, "validated")
        one.log.append_as_leader(batch(b"b"), 0, origin=AppendOrigin.COORDINATOR)
    assert [header.compression for header in one.headers()] == ["none", "none"]
    assert one.values() == [(0, b"a" * 100), (1, b"b")]


def test_a_producer_may_not_claim_log_append_time() -> None:
    one = OneLog(message_timestamp_type="LogAppendTime")
    claimed = changed(batch(b"a"), ">h", 21, 0x08)
    assert refused(one, claimed) == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", ["none", "gzip", "zstd"])
def test_the_topics_compression_wins(source: str, target: str) -> None:
    one = OneLog(compression_type=target)
    one.append(b"a" * 100, b"b" * 100, compression=source, producer=(7, 0, 0))
    data = one.read_all()
    header = parse_header(data)
    assert header.compression == ("none" if target == "uncompressed" else target)
    assert header.crc == crc32c(memoryview(data)[21:])
    assert (header.producer_id, header.base_sequence) == (7, 0)
    values = [(r.offset, r.value, r.timestamp) for r in iter_records(data, header)]
    assert values == [(0, b"a" * 100, NOW_MS), (1, b"b" * 100, NOW_MS)]


def test_a_batch_of_the_topics_codec_is_not_recompressed() -> None:
    one = OneLog(compression_type="gzip")
    data = batch(b"a" * 100, compression="gzip")
    one.log.append_as_leader(data, 0)
    assert one.read_all() == stamped(data, 0, 0)


def test_a_batch_that_grew_by_recompression_may_be_too_large() -> None:
    one = OneLog(compression_type="uncompressed", max_message_bytes=2000)
    assert refused(one, batch(b"0" * 5000, compression="gzip")) == ErrorCode.MESSAGE_TOO_LARGE


def test_the_level_of_the_topics_codec_is_used() -> None:
    text = b"".join(b"%d, " % (n * n) for n in range(2000))
    sizes = []
    for level in (1, 9):
        one = OneLog(compression_type="gzip", compression_gzip_level=level)
        sizes.append(one.append(text).size_bytes)
    assert sizes[0] > sizes[1]


def test_a_recompressed_batch_has_consecutive_offsets() -> None:
    """Old clients sent others; a batch that is not compressed is stored as it came."""
    data = bytearray(batch(b"a", b"b"))
    second = data.rindex(b"\x02k") - 1  # the offset delta, before the key's length
    assert data[second] == 2  # 1, as a zigzag number
    data[second] = 0
    pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    compressed = recompress(memoryview(data), parse_header(data), "gzip")
    one = OneLog(compression_type="lz4")
    one.log.append_as_leader(compressed, 0)
    assert one.values() == [(0, b"a"), (1, b"b")]


def test_markers_are_not_compressed() -> None:
    one = OneLog(compression_type="gzip")
    one.append(b"t" * 100, producer=(1, 0, 0), transactional=True)
    one.log.append_as_leader(marker(1, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    assert [header.compression for header in one.headers()] == ["gzip", "none"]


def test_the_timestamps_of_a_header_are_made_those_of_its_records() -> None:
    one = OneLog(cleanup_policy="compact")
    wrong = changed(batch(b"a", timestamp=NOW_MS), ">q", 35, NOW_MS + 5)
    one.log.append_as_leader(wrong, 0)
    assert [header.max_timestamp for header in one.headers()] == [NOW_MS]


def test_a_claim_of_log_append_time_is_taken_back_in_a_topic_of_create_time() -> None:
    one = OneLog()
    one.log.append_as_leader(changed(batch(b"a", timestamp=NOW_MS), ">h", 21, 0x08), 0)
    assert [header.timestamp_type for header in one.headers()] == ["CreateTime"]


def test_a_duplicate_batch_is_answered_and_not_stored_twice() -> None:
    one = OneLog()
    one.append(b"other")
    first = one.append(b"a", b"b", producer=(9, 0, 0))
    again = one.append(b"a", b"b", producer=(9, 0, 0))
    assert (again.first_offset, again.last_offset, again.duplicate) == (1, 2, True)
    assert not first.duplicate
    assert one.log.log_end_offset == 3
    assert refused(one, batch(b"x", producer=(9, 0, 5))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    one.append(b"c", producer=(9, 1, 0))
    assert refused(one, batch(b"x", producer=(9, 0, 2))) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_coordinators_write_control_batches_clients_do_not() -> None:
    one = OneLog()
    one.append(b"a", producer=(9, 0, 0), transactional=True)
    end = marker(9, 0, commit=True)
    assert refused(one, end) == ErrorCode.INVALID_RECORD
    info = one.log.append_as_leader(end, 0, origin=AppendOrigin.COORDINATOR)
    assert (info.first_offset, info.last_offset) == (1, 1)


def test_transactions_hold_back_the_last_stable_offset_until_their_marker_is_replicated() -> None:
    one = OneLog()
    log = one.log
    one.append(b"before")
    one.append(b"a", producer=(1, 0, 0), transactional=True)
    one.append(b"b", producer=(2, 0, 0), transactional=True)
    one.commit_all()
    assert log.last_stable_offset == 1
    log.append_as_leader(marker(1, 0, commit=False), 0, origin=AppendOrigin.COORDINATOR)
    assert log.last_stable_offset == 1  # the marker is not below the high watermark
    one.commit_all()
    assert log.last_stable_offset == 2
    log.append_as_leader(marker(2, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    one.commit_all()
    assert log.last_stable_offset == log.log_end_offset == 5
    aborted = log.aborted_transactions(0, 5)
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in aborted] == [(1, 1, 3)]
    assert aborted[0].last_stable_offset == 2
    assert log.aborted_transactions(4, 5) == []
    assert log.aborted_transactions(0, 1) == []
    assert "00000000000000000000.txnindex" in one.files()
    check_invariants(log)


def test_a_transaction_of_several_batches_begins_with_the_first_and_ends_as_a_whole() -> None:
    one = OneLog()
    one.append(b"a", producer=(1, 0, 0), transactional=True)
    one.append(b"b", producer=(1, 0, 1), transactional=True)
    one.log.append_as_leader(marker(1, 0, commit=False), 0, origin=AppendOrigin.COORDINATOR)
    one.commit_all()
    assert one.log.last_stable_offset == one.log.log_end_offset == 3
    assert [txn.first_offset for txn in one.log.aborted_transactions(0, 3)] == [0]


def test_no_transaction_index_without_an_abort() -> None:
    one = OneLog()
    one.append(b"a", producer=(1, 0, 0), transactional=True)
    one.log.append_as_leader(marker(1, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    one.restart()
    assert not any(name.endswith(".txnindex") for name in one.files())


def test_a_full_disk_changes_nothing_and_the_next_append_works() -> None:
    one = OneLog()
    one.append(b"a")
    assert isinstance(one.store, MemoryLogStore)
    one.store.fail_next("append", OSError(28, "No space left on device"))
    assert refused(one, batch(b"b", producer=(3, 0, 0))) == ErrorCode.KAFKA_STORAGE_ERROR
    one.append(b"c", producer=(3, 0, 0))
    assert one.values() == [(0, b"a"), (1, b"c")]


def test_flush_messages_flushes() -> None:
    one = OneLog(flush_messages=3)
    one.append(b"a", b"b")
    assert one.log.recovery_point == 0
    one.append(b"c")
    assert one.log.recovery_point == 3
    one.crash()
    assert one.log.log_end_offset == 3


@pytest.mark.parametrize("follows", [False, True])
def test_data_is_kept_only_with_its_topic_id(follows: bool) -> None:
    """The first append starts the flush of the topic id. A power cut before its end takes both."""
    for is_flushed in (False, True):
        one = OneLog()
        if follows:
            one.log.append_as_follower(stamped(batch(b"x" * 100), 0, 3))
        else:
            one.append(b"x" * 100)
        if is_flushed:
            one.store.end_flushes()
        # The batch has made it to the disk, unflushed small files have not.
        one.crash(lambda size: size if size > 100 else 0)
        expected = (1, TOPIC_ID) if is_flushed else (0, bytes(16))
        assert (one.log.log_end_offset, one.log.topic_id) == expected


def test_flush_messages_flushes_on_a_follower_too() -> None:
    one = OneLog(flush_messages=2)
    one.log.append_as_follower(stamped(batch(b"a"), 0, 0))
    assert one.log.recovery_point == 0
    one.log.append_as_follower(stamped(batch(b"b"), 1, 0))
    assert one.log.recovery_point == 2


def test_flush_ms_counts_from_the_last_flush() -> None:
    one = OneLog(flush_ms=1000)
    one.append(b"a")
    one.clock.now_ms += 999
    one.log.maybe_flush()
    assert one.log.recovery_point == 0
    one.clock.now_ms += 1
    one.log.maybe_flush()
    assert one.log.recovery_point == 1


def test_a_topic_id_that_cannot_be_flushed_takes_the_directory_offline() -> None:
    one = OneLog()
    one.append(b"a")
    one.store.fail_next("flush", OSError(5, "Input/output error"))
    one.store.end_flushes()
    (directory,) = one.manager.directories
    assert directory.failure == "cannot flush or delete: [Errno 5] Input/output error"
    assert not one.log.is_topic_id_flushed


# ---- followers


def test_a_follower_appends_batches_unchanged_with_gaps_and_epochs() -> None:
    one = OneLog()
    data = (
        stamped(batch(b"a", b"b"), 0, 1) + stamped(batch(b"c"), 7, 1) + stamped(batch(b"d"), 8, 4)
    )
    info = one.log.append_as_follower(data)
    assert (info.first_offset, info.last_offset) == (0, 8)
    assert one.read_all() == data
    assert one.log.log_end_offset == 9
    assert one.log.leader_epochs.entries == [(1, 0), (4, 8)]
    one.commit_all()
    check_invariants(one.log)


def test_a_follower_skips_a_partial_batch_and_newer_epochs() -> None:
    one = OneLog()
    good, late = stamped(batch(b"a"), 0, 1), stamped(batch(b"b"), 1, 2)
    one.log.append_as_follower(good + late, leader_epoch=1)
    assert one.read_all() == good
    info = one.log.append_as_follower(late[:-1])
    assert (info.first_offset, info.last_offset, info.size_bytes) == (-1, -1, 0)
    assert one.read_all() == good


def test_a_follower_refuses_corrupt_or_unordered_batches_as_a_whole() -> None:
    one = OneLog()
    good = stamped(batch(b"a"), 0, 0)
    for bad, code in (
        (stamped(batch(b"b"), 1, 0)[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (stamped(batch(b"b"), 0, 0), ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        with pytest.raises(KafkaError) as caught:
            one.log.append_as_follower(good + bad)
        assert caught.value.code == code
        assert one.log.log_end_offset == 0


def test_records_below_the_log_end_report_where_an_empty_log_could_restart() -> None:
    one = OneLog()
    one.log.truncate_fully_and_start_at(5)
    straddling = stamped(batch(b"a", b"b", b"c"), 4, 0)
    with pytest.raises(UnexpectedAppendOffset) as caught:
        one.log.append_as_follower(straddling)
    assert (caught.value.first_offset, caught.value.last_offset) == (4, 6)
    one.log.truncate_fully_and_start_at(4)
    one.log.append_as_follower(straddling)
    assert (one.log.log_start_offset, one.log.log_end_offset) == (4, 7)


def test_a_follower_updates_producer_state_without_checks() -> None:
    one = OneLog()
    one.log.append_as_follower(stamped(batch(b"a", producer=(1, 5, 7)), 0, 0))
    one.log.append_as_follower(stamped(batch(b"b", producer=(1, 4, 0)), 1, 0))
    assert one.log.log_end_offset == 2
    one.append(b"c", producer=(1, 4, 1))
    assert one.log.log_end_offset == 3


def test_a_follower_reads_a_marker_that_is_not_the_first_of_the_fetched_batches() -> None:
    one = OneLog()
    open_batch = stamped(batch(b"a", producer=(1, 0, 0), transactional=True), 0, 0)
    abort = stamped(marker(1, 0, commit=False), 1, 0)
    one.log.append_as_follower(open_batch + abort + stamped(batch(b"b"), 2, 0))
    assert one.log.producer_state.ongoing == {}
    one.commit_all()
    assert one.log.last_stable_offset == 3
    aborted = one.log.aborted_transactions(0, 3)
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in aborted] == [(1, 0, 1)]
    check_invariants(one.log)
