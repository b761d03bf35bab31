"""The soak, short; and that its checks can fail."""

import random
from pathlib import Path

import pytest

from compat_tests import second_judge, soak
from compat_tests.soak_checks import Records, Sessions, faults_of
from compat_tests.soak_clients import Reader, Writer
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record

pytestmark = pytest.mark.kwire_only


def one_writer(name: str = "w") -> tuple[Writer, Records]:
    """A writer with four acknowledged records, all of them there."""
    writer = Writer(name, sent=4)
    records = [(offset, f"{name}:{offset}:".encode()) for offset in range(4)]
    for offset, _ in records:
        writer.delivered(offset, 0, offset)
    return writer, {0: records}


def test_a_perfect_history_is_accepted() -> None:
    writer, found = one_writer()
    assert faults_of([writer], found) == []


def test_a_lost_record_is_told() -> None:
    writer, found = one_writer()
    del found[0][2]
    assert faults_of([writer], found) == ["LOST: w 2, acknowledged at (0, 2)"]


def test_a_record_that_is_there_twice_is_told() -> None:
    writer, found = one_writer()
    found[1] = [(0, b"w:2:")]
    assert faults_of([writer], found) == ["w 2 is there 2 times: [(0, 2), (1, 0)]"]


def log_of(*batches: tuple[int, int, int, list[str]]) -> tuple[Records, dict[int, Sessions]]:
    """A partition of batches: producer id, producer epoch, first sequence, values."""
    log, found = b"", []
    for producer_id, producer_epoch, sequence, values in batches:
        first_offset = len(found)
        records = [Record(first_offset + i, 0, None, v.encode(), ()) for i, v in enumerate(values)]
        log += build_batch(
            records,
            base_offset=first_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        found += [(record.offset, record.value or b"") for record in records]
    return {0: found}, {0: Sessions.of(log)}


@pytest.mark.parametrize(
    ("name", "second", "told"),
    [
        ("confluent-2", (7, 1), False),
        ("confluent-2", (7, 0), True),  # the broker should have known it
        ("confluent-2", (8, 1), True),
        ("confluent-1", (7, 1), True),  # has one request in flight
        ("kafka-python-1", (7, 1), True),
    ],
)
def test_only_librdkafka_may_send_records_anew_under_a_later_epoch(
    name: str, second: tuple[int, int], told: bool
) -> None:
    writer = Writer(name, sent=3)
    for number in range(3):
        writer.delivered(number, 0, number)
    values = [f"{name}:{number}:" for number in range(3)]
    found, sessions = log_of((7, 0, 0, values), (*second, 0, values[1:]))
    wrong = faults_of([writer], found, sessions)
    assert bool(wrong) is told
    assert writer.sent_anew == (0 if told else 2)


def test_records_out_of_order_are_told() -> None:
    writer, found = one_writer()
    first, second, third, fourth = found[0]
    found[0] = [first, (1, third[1]), (2, second[1]), fourth]
    wrong = faults_of([writer], found)
    assert "soak-0 at 2: w 1 after 2" in wrong
    assert "w 1 acknowledged at (0, 1), is at [(0, 2)]" in wrong


def test_a_record_without_any_answer_is_told() -> None:
    writer, found = one_writer()
    writer.sent = 5
    assert faults_of([writer], found) == ["w: of 5 records 4 are acknowledged"]


def test_a_failed_delivery_is_told() -> None:
    writer, found = one_writer()
    writer.errors.append("timed out")
    assert faults_of([writer], found) == ["w: timed out"]


def test_a_record_that_was_read_and_then_replaced_is_told() -> None:
    _, found = one_writer()
    reader = Reader({(0, offset): value for offset, value in found[0]})
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
@pytest.mark.timeout(600)
def test_a_second_judge_on_spark_finds_the_same(tmp_path: Path) -> None:
    if reason := second_judge.missing():
        pytest.skip(reason)
    seed = random.SystemRandom().randrange(1 << 31)
    wrong, summary = soak.soak(60, seed, tmp_path, judged_twice=True)
    assert wrong == [], summary
    said = (tmp_path / "second-judge" / "said.txt").read_text()
    assert "nothing found" in said.splitlines()[-1] or "sent anew" in summary, said


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost_in_ten_minutes_of_faults(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    wrong, summary = soak.soak(600, seed, tmp_path)
    print(summary)
    assert wrong == [], summary
