"""Events of a cluster that has gone through an unclean election, as intervals and as causes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kwire import Cluster
from kwire.audit.causes import Finding, cause_of
from kwire.audit.evidence.happenings import Happening, happenings
from kwire.audit.evidence.intervals import Interval, Lag, intervals, of_epochs, told_lags
from kwire.audit.evidence.known import Known
from kwire.pipeline import event_lines

CONFIG = {
    "min.insync.replicas": 1,
    "unclean.leader.election.enable": "true",
    "replica.lag.time.max.ms": 500,
    "replica.fetch.wait.max.ms": 100,
}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Happening]]:
    """Broker 1 leads and acknowledges 3 records alone (5 to 7), is killed, and truncates when it is back."""
    file = tmp_path_factory.mktemp("events") / "events.json"
    with Cluster(2, CONFIG) as cluster:
        cluster.create_topic("orders", assignment=[[1, 2]])
        for number in range(5):
            cluster.produce("orders", f"{number}")
        with cluster.network.cut(1, 2):
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": 1})
            for number in range(5, 8):
                producer.produce("orders", f"{number}", partition=0)
            assert producer.flush(10) == 0
            cluster.wait_for(lambda c: c.partition("orders", 0).isr == {1}, timeout=10)
            cluster.broker(1).kill()
            cluster.wait_for(lambda c: c.partition("orders", 0).leader == 2, timeout=10)
        cluster.broker(1).start()
        cluster.wait_in_sync("orders", timeout=10)
        event_lines.write(cluster.events(), file)
    lines = file.read_bytes().splitlines()
    yield happenings(event_lines.parse(line) for line in lines)


def of(found: list[Interval], kind: str) -> list[Interval]:
    return [each for each in found if each.kind == kind]


def test_the_timeline_is_told(events: list[Happening]) -> None:
    found = intervals(events)
    assert {(each.topic, each.partition) for each in found} == {("orders", 0)}
    first, second = of(found, "leader")
    assert (first.broker, first.epoch, second.broker, second.epoch) == (1, 0, 2, 1)
    assert first.end == second.begin and second.end is None and second.detail == "unclean"
    assert [each.isr for each in of(found, "isr")] == [(1, 2), (1,), (2,), (1, 2)]
    (nobody,) = of(found, "leaderless")
    assert nobody.detail == "broker 1 was killed"
    assert nobody.begin is not None and nobody.end == second.begin > nobody.begin
    (unclean,) = of(found, "unclean")
    assert (unclean.broker, unclean.isr, unclean.begin) == (2, (2,), second.begin)
    (cut,) = of(found, "truncated")
    assert (cut.broker, cut.epoch) == (1, 1) and cut.begin == cut.end
    assert cut.detail == "from 8 to 5: the leader's epoch 0 ends at 5"


def test_lags_are_told(events: list[Happening]) -> None:
    shrunk = next(each for each in events if each.event == "ISR_SHRINK_PROPOSED")
    lags = list(told_lags(events))
    assert lags[0] == Lag("orders", 0, 2, shrunk.time, 3)
    assert lags[-1][:3] == ("orders", 0, 1) and lags[-1].lag == 0


def test_a_loss_is_explained(events: list[Happening]) -> None:
    known = Known.of(events)
    shrunk = next(each for each in events if each.event == "ISR_SHRUNK")
    election = next(each for each in events if each.event == "UNCLEAN_LEADER_ELECTED")
    finding = Finding("lost", "orders", 0, 6, "p", shrunk.time + timedelta(milliseconds=1), None)
    event, cause = cause_of(known, finding)
    assert event == election.number and cause is not None
    assert cause.startswith("orders-0 offset 6: acknowledged by broker 1 (epoch 0, ISR 1) at ")
    assert "; broker 2 was elected uncleanly in epoch 1 at " in cause
    assert cause.endswith(" with log end 5; broker 1 truncated to 5")


def test_what_the_new_leader_has_is_not_explained_by_its_election(events: list[Happening]) -> None:
    known = Known.of(events)
    finding = Finding("lost", "orders", 0, 3, "p", events[0].time, None)
    assert cause_of(known, finding) == (None, None)
    later = Finding("lost", "orders", 0, 6, "p", events[-1].time + timedelta(seconds=1), None)
    assert cause_of(known, later) == (None, None)


def at(second: float) -> datetime:
    return datetime(2026, 11, 23, 12, tzinfo=UTC) + timedelta(seconds=second)


def test_epochs_of_logs_are_a_timeline_where_there_are_no_events() -> None:
    rows = [
        ("orders", 0, 1, 0, 0, at(1)),
        ("orders", 0, 2, 0, 0, at(1)),
        ("orders", 0, 2, 3, 118, at(5)),
        ("orders", 0, 2, 4, 130, None),
        ("orders", 1, 2, 0, 0, at(2)),
    ]
    found = of_epochs(rows)
    assert [(each.partition, each.epoch, each.begin, each.end) for each in found] == [
        (0, 0, at(1), at(5)),
        (0, 3, at(5), None),
        (1, 0, at(2), None),
    ]
    assert found[1].detail == "begins at offset 118, at the latest with its first record"
    known = Known.of([], rows)
    lost = Finding("lost", "orders", 0, 120, "p", at(4), None)
    assert cause_of(known, lost).cause == (
        "orders-0 offset 120: epoch 3 begins at offset 118, with a record of 12:00:05.000:"
        " its leader did not have this one"
    )


def line(second: float, event: str, **fields: object) -> bytes:
    import json

    time_ms = int(at(second).timestamp() * 1000)
    asked = event.endswith("_REQUESTED")
    head = {"level": "info", "logger": "kwire.aio" if asked else "kwire.events", "event": event}
    return json.dumps({**head, "message": event.lower(), "time_ms": time_ms, **fields}).encode()


def change(
    second: float, event: str, leaders: tuple[int | None, int | None], **more: object
) -> bytes:
    fields: dict[str, object] = {
        "topic": "t",
        "partition": 0,
        "previous_isr": [1, 2],
        "isr": [1, 2],
    }
    fields |= {"previous_leader": leaders[0], "leader": leaders[1], "reason": "offline"}
    return line(second, event, **{**fields, "partition_epoch": 1, "node_id": 1000, **more})


def read(*lines: bytes) -> list[Happening]:
    return happenings(event_lines.parse(each) for each in lines)


def test_nobody_leads_from_the_end_of_a_leader_to_the_next_election() -> None:
    events = read(
        line(0, "TOPIC_CREATED", topic="t", node_id=1000),
        line(1, "PAUSE_REQUESTED", role="broker", node_id=1),
        line(2, "BROKER_FENCED", broker_id=1, node_id=1000),
        change(2, "PARTITION_OFFLINE", (1, None), leader_epoch=1, reason="leader_lost"),
        change(4, "LEADER_ELECTED", (None, 2), leader_epoch=2, reason="online_again"),
    )
    found = intervals(events)
    (nobody,) = of(found, "leaderless")
    assert (nobody.begin, nobody.end, nobody.detail) == (at(1), at(4), "broker 1 was paused")
    assert [(each.broker, each.epoch) for each in of(found, "leader")] == [(1, 0), (2, 2)]


def test_a_short_pause_ends_with_the_same_leader() -> None:
    events = read(
        line(0, "ROLES_ASSIGNED", led=["t-0 (epoch 0)"], node_id=1),
        line(1, "PAUSE_REQUESTED", role="broker", node_id=1),
        line(2, "RESUME_REQUESTED", role="broker", node_id=1),
    )
    found = intervals(events)
    (nobody,) = of(found, "leaderless")
    assert (nobody.begin, nobody.end) == (at(1), at(2))
    (leader,) = of(found, "leader")
    assert (leader.broker, leader.begin, leader.end) == (1, at(0), None)


def test_a_deleted_topic_ends_its_intervals() -> None:
    events = read(
        change(1, "LEADER_ELECTED", (1, 2), leader_epoch=1),
        line(3, "TOPIC_DELETED", topic="t", node_id=1000),
        line(4, "TOPIC_CREATED", topic="t", node_id=1000),
        change(5, "ISR_SHRUNK", (1, 1), leader_epoch=0, isr=[1]),
    )
    found = intervals(events)
    assert [(each.broker, each.begin, each.end) for each in of(found, "leader")] == [
        (1, at(1), at(1)),
        (2, at(1), at(3)),
        (1, at(4), None),
    ]
    lost = Finding("lost", "t", 0, 7, "p", at(2), None)
    cause = cause_of(Known.of(events), lost)
    assert cause == (2, "topic t was deleted at 12:00:03.000")


@pytest.mark.parametrize(
    "disturbance, words",
    [
        (
            line(1.5, "KILL_REQUESTED", role="broker", node_id=1),
            "broker 1, its leader, was killed at 12:00:01.500",
        ),
        (
            line(0.5, "CUT_REQUESTED", nodes=[1], others=[2]),
            "the links 1 | 2 were cut from 12:00:00.500 on, and broker 1, its leader, answered late",
        ),
    ],
)
def test_a_doubled_record_is_explained_by_what_kept_its_answer(
    disturbance: bytes, words: str
) -> None:
    events = read(line(0, "ROLES_ASSIGNED", led=["t-0 (epoch 0)"], node_id=1), disturbance)
    known = Known.of(events, [("t", 0, 1, 0, 0, at(0)), ("t", 0, 1, 1, 9, at(2))])
    finding = Finding("doubled", "t", 0, 9, "p", at(1), None, at(1), at(3), own_offset=4)
    assert cause_of(known, finding) == (
        2,
        f"t-0 offsets 4 (epoch 0) and 9 (epoch 1): its producer sent it again: {words}",
    )
    before = finding._replace(sent=at(0.1), acknowledged=at(0.2), time=at(0.1))
    assert cause_of(known, before) == (None, None)


def test_what_retention_removed_is_explained() -> None:
    fields = {"topic": "t", "partition": 0, "log": "t-0", "segments": 2, "node_id": 1}
    events = read(
        line(1, "SEGMENTS_DELETED", log_start_offset=10, detail="older than 1 s", **fields),
        line(2, "SEGMENTS_DELETED", log_start_offset=30, detail="older than 1 s", **fields),
    )
    finding = Finding("expired", "t", 0, 20, None, at(0), None)
    words = "t-0: broker 1 deleted segments before offset 30 at 12:00:02.000: older than 1 s"
    assert cause_of(Known.of(events), finding) == (2, words)


def test_a_transaction_is_explained_by_its_end() -> None:
    fields = {"producer_id": 7, "producer_epoch": 1, "node_id": 2}
    events = read(
        line(1, "TRANSACTION_TIMED_OUT", transactional_id="kwire-load-0a1b2c3d-p1", **fields),
        line(2, "PRODUCER_FENCED", transactional_id="other", **fields),
    )
    known = Known.of(events)
    finding = Finding("partly_visible", "t", 0, 4, "p1", at(0.5), None)
    assert cause_of(known, finding).event == 1
    assert cause_of(known, finding._replace(producer="p2")) == (None, None)


def test_a_replica_that_has_not_truncated_is_explained() -> None:
    more = {"leader_epoch": 5, "isr": [2], "reason": "unclean"}
    events = read(
        line(1, "KILL_REQUESTED", role="broker", node_id=1),
        change(2, "UNCLEAN_LEADER_ELECTED", (1, 2), **more),
    )
    known = Known.of(events, [("t", 0, 2, 5, 118, at(3))])
    finding = Finding("replica_differs", "t", 0, 118, None, None, 1)
    assert cause_of(known, finding) == (
        2,
        "t-0 offset 118: broker 2 was elected uncleanly in epoch 5 at 12:00:02.000 with log end 118;"
        " broker 1 was killed at 12:00:01.000 and has not truncated yet",
    )


def test_lines_that_are_no_events_are_passed_over(tmp_path: Path) -> None:
    assert read(b"Traceback", b"{}", b'{"event": "LEADER_ELECTED"}', line(1, "BROKER_FENCED")) != []
    assert intervals(read(b"Traceback", line(1, "BROKER_FENCED", broker_id=3))) == []
