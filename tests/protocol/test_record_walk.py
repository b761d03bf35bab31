"""The fast pass over records: what it vouches for, the exact pass finds, too."""

from __future__ import annotations

from random import Random

import pytest
from fastcrc.crc32 import iscsi as crc32c

from kwire.protocol import record_validation as validation
from kwire.protocol.errors import KafkaError
from kwire.protocol.record_builder import build_batch
from kwire.protocol.record_validation import Reading, RecordRules, RecordsSummary
from kwire.protocol.record_walk import KEYLESS, NO_DELTA, UNORDERED, is_plain, walk
from kwire.protocol.records import HEADER, HEADER_SIZE, Record, parse_header

NOW_MS = 1_700_000_000_000


def drawn_batch(draw: Random) -> bytes:
    """Records as producers send them: alike or not, with headers, tombstones, times in any order."""
    count = draw.choice((1, 2, 15, 40, 70, 200, 300))
    key_bytes, value_bytes = draw.choice((None, 0, 4, 70)), draw.choice((None, 0, 9, 100, 9000))
    spread_ms = draw.choice((0, 1, 50, 5000, 10**6, 10**9))
    differ = draw.random() < 0.4
    records = []
    for i in range(count if value_bytes != 9000 else min(count, 20)):
        timestamp = NOW_MS + (
            i * spread_ms // 7 if draw.random() < 0.9 else -draw.randrange(spread_ms + 1)
        )
        value = None if value_bytes is None else b"v" * (value_bytes + differ * draw.randrange(90))
        headers = (("name", b"x"), ("", None)) if differ and draw.random() < 0.1 else ()
        key = None if key_bytes is None else b"k" * key_bytes
        records.append(Record(-1, timestamp, key, value, headers))
    return build_batch(records)


def exact(batch: bytes, reading: Reading = Reading.BUFFER) -> RecordsSummary | KafkaError:
    header = parse_header(batch)
    rules = RecordRules(NOW_MS)
    steps = validation._exact((batch[HEADER_SIZE:], True), header, rules, reading)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            summary: RecordsSummary = done.value
            return summary
        except KafkaError as error:
            return error


def plain(batch: bytes) -> bool:
    return is_plain(memoryview(batch), HEADER.unpack_from(batch))


@pytest.mark.parametrize("seed", range(60))
def test_batches_of_producers_are_plain(seed: int) -> None:
    batch = drawn_batch(Random(seed))
    header = parse_header(batch)
    assert plain(batch)
    summary = exact(batch)
    assert isinstance(summary, RecordsSummary) and summary.max_timestamp == header.max_timestamp
    position, delta, flags = walk(
        batch, HEADER_SIZE, 0, header.count, NO_DELTA, header.base_timestamp
    )
    assert position == len(batch) and not flags & UNORDERED
    assert header.base_timestamp + (delta >> 1) == header.max_timestamp


@pytest.mark.parametrize("seed", range(25))
def test_a_changed_batch_is_plain_only_if_it_is_valid(seed: int) -> None:
    draw = Random(seed)
    base = drawn_batch(draw)
    accepted = 0
    for _ in range(120):
        batch = bytearray(base)
        for _ in range(draw.randrange(1, 3)):
            # Mostly near the front of a record, where lengths are.
            at = draw.randrange(HEADER_SIZE, min(len(batch), draw.choice((80, 400, 10**6))))
            batch[at] ^= 1 << draw.randrange(8)
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        changed = bytes(batch)
        if plain(changed):
            accepted += 1
            for reading in (Reading.BUFFER, Reading.COPIED):
                summary = exact(changed, reading)
                assert isinstance(summary, RecordsSummary), changed.hex()
                assert summary.max_timestamp == parse_header(changed).max_timestamp
    assert accepted < 120


@pytest.mark.parametrize("count", [64, 65, 100, 8192, 8193, 20_000])
def test_offsets_of_any_width_are_in_order(count: int) -> None:
    batch = build_batch([Record(-1, NOW_MS, None, b"12345678")] * count)
    assert walk(batch, HEADER_SIZE, 0, count, NO_DELTA, NOW_MS) == (len(batch), 0, KEYLESS)
    # One offset of a long row of records that are alike is wrong.
    at = batch.rindex(b"\x01\x1012345678") - 1
    wrong = batch[:at] + bytes([batch[at] ^ 2]) + batch[at + 1 :]
    position, _, flags = walk(wrong, HEADER_SIZE, 0, count, NO_DELTA, NOW_MS)
    assert position == len(batch) and flags & UNORDERED


def test_a_walk_goes_on_where_it_stopped() -> None:
    batch = drawn_batch(Random(4))
    count = parse_header(batch).count
    base = parse_header(batch).base_timestamp
    whole = walk(batch, HEADER_SIZE, 0, count, NO_DELTA, base)
    position, delta, flags = HEADER_SIZE, NO_DELTA, 0
    for index in range(0, count, 7):
        position, delta, found = walk(batch, position, index, min(count, index + 7), delta, base)
        flags |= found
    assert (position, delta) == whole[:2] and flags & UNORDERED == whole[2] & UNORDERED
