"""What is read: directories, partitions, ranges of offsets and times; and that cutting a segment changes no row."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from kwire.errors import ConfigurationError
from kwire.pipeline import planning
from kwire.pipeline.following import Ends, between
from kwire.pipeline.options import parse
from kwire.pipeline.reading import records
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record

from .log_kit import rows, write_index, write_segment


def one_record_batches(first: int, end: int) -> list[bytes]:
    """Batches of one record, its timestamp ten times its offset."""
    return [
        build_batch([Record(i, 10 * i, None, b"%d" % i)], base_offset=i) for i in range(first, end)
    ]


def indexed(
    root: Path, first: int, end: int, *, every: int = 3, partition: str = "orders-0"
) -> Path:
    """A segment of batches of one record, every third in its indexes."""
    parts = one_record_batches(first, end)
    path = write_segment(root, parts, base_offset=first, partition=partition)
    positions = [sum(map(len, parts[:i])) for i in range(len(parts))]
    chosen = range(every, len(parts), every)
    write_index(path, [(i, positions[i]) for i in chosen])
    last = len(parts) - 1
    write_index(
        path, [(10 * (first + i), i) for i in [*chosen, last]], kind="timeindex", form=">qi"
    )
    return path


@pytest.fixture
def three_segments(tmp_path: Path) -> Path:
    for first, end in ((0, 20), (20, 50), (50, 60)):
        indexed(tmp_path, first, end)
    return tmp_path


def offsets(root: Path, **options: object) -> list[int]:
    return [row["offset"] for row in rows(root, "offset", **options)]


@pytest.mark.parametrize("split", [1, 80, 100, 500, 1 << 20])
@pytest.mark.parametrize(
    ("first", "end"), [(0, 60), (3, 4), (19, 21), (20, 50), (33, 57), (59, 200), (70, 80), (7, 7)]
)
def test_any_cut_gives_the_same_rows(
    split: int, first: int, end: int, three_segments: Path
) -> None:
    found = offsets(three_segments, startingOffset=first, endingOffset=end, splitBytes=split)
    assert found == list(range(first, min(end, 60)))


def test_a_large_segment_is_cut_where_its_index_says(three_segments: Path) -> None:
    ranges = planning.plan(parse({"path": str(three_segments), "splitBytes": "200"}))
    of_second = [(part.start, part.end) for part in ranges if part.base_offset == 20]
    assert len(of_second) > 5
    assert all(end == start for (_, end), (start, _) in pairwise(of_second))


def test_an_index_that_lies_is_not_believed(tmp_path: Path) -> None:
    path = indexed(tmp_path, 0, 30)
    write_index(path, [(3, 100), (9, 333), (12, 1500)])
    assert offsets(tmp_path, splitBytes=50) == list(range(30))
    assert offsets(tmp_path, splitBytes=50, startingOffset=10) == list(range(10, 30))


def test_zeros_behind_an_index_are_no_entries(tmp_path: Path) -> None:
    path = indexed(tmp_path, 0, 30)
    index = path.with_suffix(".index")
    index.write_bytes(index.read_bytes() + bytes(8000))
    assert offsets(tmp_path, splitBytes=200) == list(range(30))


@pytest.mark.parametrize("moment", [0, 1, 10, 195, 200, 201, 333, 499, 500, 590])
def test_rows_begin_at_the_first_young_enough_record(moment: int, three_segments: Path) -> None:
    assert offsets(three_segments, startingTimestamp=moment) == list(range(-(-moment // 10), 60))


def test_no_record_is_young_enough(three_segments: Path) -> None:
    assert offsets(three_segments, startingTimestamp=591) == []
    assert offsets(three_segments, startingTimestamp="2026-11-22T10:00:00Z") == []


def test_up_to_the_high_watermark(three_segments: Path) -> None:
    with pytest.raises(
        ConfigurationError, match="has no replication-offset-checkpoint: its broker"
    ):
        offsets(three_segments, upTo="highWatermark")
    assert list(
        Ends(parse({"path": str(three_segments), "upTo": "highWatermark"})).latest().values()
    ) == [0]
    (three_segments / "replication-offset-checkpoint").write_text("0\n1\norders 0 42\n")
    assert offsets(three_segments, upTo="highWatermark") == list(range(42))
    assert offsets(three_segments, upTo="end") == list(range(60))
    (three_segments / "replication-offset-checkpoint").write_text("0\n1\norders zero 42\n")
    with pytest.raises(
        ConfigurationError, match="malformed replication-offset-checkpoint: malformed line"
    ):
        offsets(three_segments, upTo="highWatermark")


def test_what_lies_in_a_data_directory_is_found(tmp_path: Path) -> None:
    for broker in (1, 2):
        root = tmp_path / f"broker-{broker}"
        indexed(root, 0, 2, partition="orders-0")
        indexed(root, 0, 1, partition="a.b-c_d-11")
        indexed(root, 0, 3, partition="__consumer_offsets-7")
        indexed(root, 0, 4, partition="orders-1.0123456789abcdef0123456789abcdef-delete")
        indexed(root, 0, 5, partition="orders-2.0123456789abcdef0123456789abcdef-future")
        (root / "meta.properties").write_text(f"version=1\nnode.id={broker}\n")
        (root / "not a partition").mkdir()
        write_segment(root, one_record_batches(0, 6), base_offset=0, suffix=".deleted")
        write_segment(root, one_record_batches(0, 7), base_offset=0, suffix=".swap")

    def seen(**options: object) -> set[tuple[int, str, int, int]]:
        found = rows(tmp_path, "broker", "topic", "partition", "offset", "segment", **options)
        counts: dict[tuple[int, str, int], int] = {}
        for row in found:
            key = row["broker"], row["topic"], row["partition"]
            counts[key] = counts.get(key, 0) + 1
        return {(*key, count) for key, count in counts.items()}

    assert seen() == {(b, *rest) for b in (1, 2) for rest in (("orders", 0, 2), ("a.b-c_d", 11, 1))}
    assert seen(topic="__*") == {(b, "__consumer_offsets", 7, 3) for b in (1, 2)}
    assert seen(topic="a*,nope", partition="11") == {(b, "a.b-c_d", 11, 1) for b in (1, 2)}
    assert seen(topic="orders", include="deleted,swap,future") == {
        (b, "orders", *rest) for b in (1, 2) for rest in ((0, 15), (1, 4), (2, 5))
    }
    assert {row["broker"] for row in rows(tmp_path / "broker-2", "broker")} == {2}
    twice = parse({"path": f"{tmp_path},{tmp_path}/broker-*"})
    assert len(planning.plan(twice)) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option path is missing"),
        ({"path": "/nowhere/at/all"}, "nothing is at /nowhere/at/all"),
        ({"path": "/nowhere/*"}, "nothing is at /nowhere/\\*"),
        ({"path": "{root}"}, "no log directory \\(partitions in folders like orders-0\\) is at"),
        (
            {"path": "{root}", "startingOffsets": "3"},
            "there is no option startingOffsets: startingOffset\\?",
        ),
        (
            {"path": "{root}", "startingOffset": "latest"},
            "startingOffset=latest: expected a whole number, 0 or more",
        ),
        ({"path": "{root}", "splitBytes": "0"}, "splitBytes=0: expected a whole number, 1 or more"),
        (
            {"path": "{root}", "startingOffset": "5", "endingOffset": "3"},
            "startingOffset 5 is above endingOffset 3",
        ),
        ({"path": "{root}", "startingOffset": "5", "startingTimestamp": "3"}, "exclude each other"),
        ({"path": "{root}", "startingTimestamp": "yesterday"}, "expected milliseconds since 1970"),
        ({"path": "{root}", "upTo": "lso"}, "upTo=lso: expected highWatermark or end"),
        ({"path": "{root}", "mode": "all"}, "mode=all: expected records or batches or damage"),
        ({"path": "{root}", "include": "gone"}, "include=gone: expected words of deleted, swap"),
        ({"path": "{root}", "partition": '[1, "x"]'}, "expected a whole number"),
        (
            {"path": "[1", "topic": "a"},
            "path=\\[1: expected words separated by commas, or a JSON list of them",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    options: dict[str, str], message: str, tmp_path: Path
) -> None:
    given = {
        name: text.format(root=tmp_path) if "root" in text else text
        for name, text in options.items()
    }
    with pytest.raises(ConfigurationError, match=message) as caught:
        planning.plan(parse(given))
    assert "\n" not in str(caught.value)


def test_names_of_options_may_be_written_in_any_case(three_segments: Path) -> None:
    assert offsets(three_segments, STARTINGOFFSET=58) == [58, 59]


def test_a_stream_reads_each_record_once_while_the_log_grows(tmp_path: Path) -> None:
    options = parse({"path": str(tmp_path), "topic": "orders"})
    path = indexed(tmp_path, 0, 5)
    ends = Ends(options)
    states: list[dict[str, int]] = [{}, ends.latest()]
    torn = one_record_batches(7, 8)[0]
    with path.open("ab") as file:
        file.write(b"".join(one_record_batches(5, 7)) + torn[:30])
    states.append(ends.latest())
    with path.open("ab") as file:
        file.write(torn[30:])
    indexed(tmp_path, 8, 20)
    indexed(tmp_path, 0, 2, partition="orders-1")
    states.append(ends.latest())
    path.unlink()  # retention
    states.append(ends.latest())
    seen = []
    for start, end in pairwise(states):
        batch = []
        for part in between(options, start, end):
            for table in records(part, ("partition", "offset")):
                batch += [(row["partition"], row["offset"]) for row in table.to_pylist()]
        seen.append(batch)
    # What was read before the file went is not read again; what was planned, but is gone, is no error.
    assert [len(batch) for batch in seen] == [0, 0, 12 + 2, 0]
    restarted = Ends(options)
    assert restarted.latest() == states[-1]


def test_a_stream_does_not_go_back_when_a_follower_truncates(tmp_path: Path) -> None:
    options = parse({"path": str(tmp_path)})
    path = indexed(tmp_path, 0, 9)
    ends = Ends(options)
    before = ends.latest()
    path.write_bytes(b"".join(one_record_batches(0, 4)))
    assert ends.latest() == before
    (folder,) = before
    assert before[folder] == 9
