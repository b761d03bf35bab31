"""A cluster's event log as rows: its events, and whatever else stands in the file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kwire import Cluster
from kwire.errors import ConfigurationError
from kwire.pipeline import event_files, event_lines
from kwire.pipeline.event_files import Span
from kwire.pipeline.schema import EVENTS

ELECTED = {
    "time": "2026-11-23T11:54:03.846Z",
    "level": "info",
    "logger": "kwire.events",
    "event": "LEADER_ELECTED",
    "message": "orders-0: leader 2 -> 1",
    "time_ms": 1795434843845,
    "topic": "orders",
    "partition": 0,
    "previous_leader": 2,
    "leader": 1,
    "isr": [1, 3],
    "leader_epoch": 2,
    "partition_epoch": 5,
    "reason": "offline",
    "node_id": 1000,
}


def read(path: Path, *names: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for table in event_files.tables(event_files.whole(str(path)), names or tuple(EVENTS)):
        table.validate(full=True)
        found += table.to_pylist()
    return found


def test_a_line_of_the_log_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_text(json.dumps(ELECTED) + "\n")
    (row,) = read(path)
    fields = json.loads(row.pop("fields"))
    assert fields["previous_leader"] == 2 and "message" not in fields
    assert row == {
        "file": str(path),
        "number": 1,
        "time": datetime(2026, 11, 23, 11, 54, 3, 845000, UTC),
        "level": "info",
        "event": "LEADER_ELECTED",
        "node": 1000,
        "message": "orders-0: leader 2 -> 1",
        "topic": "orders",
        "partition": 0,
        "leader": 1,
        "leader_epoch": 2,
        "partition_epoch": 5,
        "isr": [1, 3],
        "broker": None,
        "reason": "offline",
    }


def test_what_a_cluster_tells_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    with Cluster(3) as cluster:
        cluster.create_topic("orders", partitions=1, replication_factor=3)
        last = event_lines.write(cluster.events(), path)
        leader = cluster.partition("orders", 0).leader
        cluster.broker(leader).kill()
        cluster.wait_for(lambda each: any(e.name == "LEADER_ELECTED" for e in each.events()))
        events = cluster.events()
        event_lines.write(cluster.events(since=last), path)
    rows = read(path)
    assert [(row["event"], row["message"]) for row in rows] == [
        (each.name, each.text) for each in events
    ]
    asked = next(row for row in rows if row["event"] == "KILL_REQUESTED")
    assert (asked["node"], asked["broker"]) == (None, leader)
    elected = next(row for row in rows if row["event"] == "LEADER_ELECTED")
    assert (elected["topic"], elected["partition"], elected["node"]) == ("orders", 0, 1000)
    assert elected["leader"] != leader and elected["leader"] in elected["isr"]
    fenced = next(row for row in rows if row["event"] == "BROKER_FENCED")
    assert fenced["broker"] == leader


def test_an_object_of_the_control_api_is_the_same_row() -> None:
    fields = {
        name: value
        for name, value in ELECTED.items()
        if name not in ("time", "level", "logger", "event", "message", "time_ms", "node_id")
    }
    found = {
        "number": 7,
        "time_ms": ELECTED["time_ms"],
        "node": 1000,
        "event": "LEADER_ELECTED",
        "level": "info",
        "message": ELECTED["message"],
        "fields": fields,
    }
    of_log = event_lines.parse(json.dumps(ELECTED).encode())
    assert event_lines.parse(json.dumps(found).encode())._replace(fields=of_log.fields) == of_log


FOREIGN = [
    b"2026-11-23 [main] INFO org.apache.kafka: started",
    b"\xff\xfe\x00",
    b"[1, 2]",
    b"17",
    b"null",
    b'{"time": "2026',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"n": ' + b"9" * 5000 + b"}",
    b"x" * (event_lines.LINE_BYTES_MAX + 10),
]
ODD = [
    {"event": 5, "time_ms": -1, "time": "noon", "level": None, "isr": "1,2", "topic": ["a"]},
    {"event": "X", "time_ms": 1 << 62, "isr": [1, None], "leader": 1 << 40, "partition": True},
    {"event": "\ud800", "message": "\udfff", "time": "0001-01-01T00:00:00+23:00"},
    {"event": "X", "fields": "none", "node": {}, "time": "2026-11-23T11:54:03", "time_ms": 1.5},
    {"event": "X", "fields": {"broker_id": "1", "isr": [[1]]}, "node": "broker 1", "number": 1},
]


def test_foreign_and_odd_lines_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "mixed.log"
    lines = [*FOREIGN, b"", b"  ", *(json.dumps(each).encode() for each in ODD)]
    path.write_bytes(b"\n".join([json.dumps(ELECTED).encode(), *lines, b'{"event": "TORN']))
    rows = read(path)
    assert len(rows) == 1 + len(FOREIGN) + len(ODD) + 1
    assert [row["number"] for row in rows] == [*range(1, 12), *range(14, 20)]
    foreign = rows[1:11]
    assert {row["event"] for row in foreign} == {None} == {row["level"] for row in foreign}
    assert foreign[0]["message"] == FOREIGN[0].decode()
    assert all(len(row["message"]) <= 1000 for row in foreign)
    assert rows[-1]["message"] == '{"event": "TORN' and rows[-1]["event"] is None
    assert rows[0]["event"] == "LEADER_ELECTED"


def test_a_stream_reads_whole_lines_only_and_each_once(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_bytes(b"one\ntwo\nthr")
    place = event_files.end_of(str(path), (0, 0))
    assert place == (8, 2)
    (span,) = event_files.between({}, {str(path): place})
    assert span == Span(str(path), 0, 8, 0)
    with path.open("ab") as file:
        file.write(b"ee\n" + b"y" * (event_lines.LINE_BYTES_MAX * 2) + b"\nfo")
    later = event_files.end_of(str(path), place)
    (next_span,) = event_files.between({str(path): place}, {str(path): later})
    rows = [
        row
        for each in (span, next_span)
        for table in event_files.tables(each, ("number", "message"))
        for row in table.to_pylist()
    ]
    assert [(row["number"], row["message"][:5]) for row in rows] == [
        (1, "one"),
        (2, "two"),
        (3, "three"),
        (4, "yyyyy"),
    ]
    path.write_bytes(b"")  # begun afresh: nothing is read twice
    assert event_files.end_of(str(path), later) == later
    assert list(event_files.between({str(path): later}, {str(path): later})) == []


def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("")
    found = event_files.files((str(tmp_path / "*.json"), str(tmp_path / "a.json")))
    assert found == [str(tmp_path / "a.json")]
    for given, message in (
        ({}, "option path is missing"),
        ({"path": " , "}, "option path is missing"),
        ({"topic": "orders"}, "there is no option topic"),
        ({"path": str(tmp_path / "none")}, "nothing is at"),
        ({"path": str(tmp_path / "no*ne")}, "nothing is at"),
        ({"path": str(tmp_path)}, "is not a file"),
        ({"path": "[1"}, "kwire-events: path=[1: expected words"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            event_files.files(event_files.parse(given))
        assert message in str(caught.value) and "\n" not in str(caught.value)
