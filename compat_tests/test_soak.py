"""The soak, short; and that its checks can fail."""

import random
from pathlib import Path

import pytest

from compat_tests import soak

pytestmark = pytest.mark.kwire_only


def one_writer() -> tuple[soak.Writer, dict[int, list[tuple[int, bytes]]]]:
    """A writer with four acknowledged records, all of them there."""
    writer = soak.Writer("w", sent=4)
    records = [(offset, f"w:{offset}:".encode()) for offset in range(4)]
    for offset, _ in records:
        writer.delivered(offset, 0, offset)
    return writer, {0: records}


def test_a_perfect_history_is_accepted() -> None:
    writer, found = one_writer()
    assert soak.faults_of([writer], found) == []


def test_a_lost_record_is_told() -> None:
    writer, found = one_writer()
    del found[0][2]
    assert soak.faults_of([writer], found) == ["LOST: w 2, acknowledged at (0, 2)"]


def test_a_record_that_is_there_twice_is_told() -> None:
    writer, found = one_writer()
    found[1] = [(0, b"w:2:")]
    assert soak.faults_of([writer], found) == ["w 2 is there 2 times: [(0, 2), (1, 0)]"]


def test_records_out_of_order_are_told() -> None:
    writer, found = one_writer()
    first, second, third, fourth = found[0]
    found[0] = [first, (1, third[1]), (2, second[1]), fourth]
    wrong = soak.faults_of([writer], found)
    assert "soak-0 at 2: w 1 after 2" in wrong
    assert "w 1 acknowledged at (0, 1), is at [(0, 2)]" in wrong


def test_a_record_without_any_answer_is_told() -> None:
    writer, found = one_writer()
    writer.sent = 5
    assert soak.faults_of([writer], found) == ["w: of 5 records 4 are acknowledged"]


def test_a_failed_delivery_is_told() -> None:
    writer, found = one_writer()
    writer.errors.append("timed out")
    assert soak.faults_of([writer], found) == ["w: timed out"]


def test_a_record_that_was_read_and_then_replaced_is_told() -> None:
    _, found = one_writer()
    reader = soak.Reader({(0, offset): value for offset, value in found[0]})
    assert reader.faults(found) == []
    reader.seen[0, 3] = b"w:9:"
    reader.seen[0, 4] = b"w:4:"
    assert reader.faults(found) == [
        "DIRTY READ: soak-0 at 3 was b'w:9:'",
        "DIRTY READ: soak-0 at 4 was b'w:4:'",
    ]


@pytest.mark.timeout(180)
def test_nothing_is_lost_in_half_a_minute_of_faults(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    wrong, summary = soak.soak(30, seed, tmp_path)
    assert wrong == [], summary
    assert summary.count("kafka-python") == 2 and "kill -9" in summary, summary


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost_in_ten_minutes_of_faults(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    wrong, summary = soak.soak(600, seed, tmp_path)
    print(summary)
    assert wrong == [], summary
