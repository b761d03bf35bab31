"""The newest events of a node: numbers, what is dropped, JSON; and the control API that lists them."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from cluster_harness import running_cluster

from kwire.replication.core.events import Event
from kwire.replication.core.outbox import Log
from kwire.server.event_history import NodeEvents


def reached(leader: int, time_ms: int = 5) -> Log:
    return Log(Event.LEADER_REACHABLE, {"leader": leader}, time_ms)


def test_events_are_numbered_one_after_the_other() -> None:
    events = NodeEvents(7)
    events.write(reached(1))
    events.write(reached(2, 6))
    (first, second), dropped = events.since()
    assert first == {
        "number": second["number"] - 1,
        "time_ms": 5,
        "node": 7,
        "event": "LEADER_REACHABLE",
        "level": "info",
        "message": "broker 1 is fetched from again",
        "fields": {"leader": 1},
    }
    assert dropped == 0
    assert events.since(first["number"]) == ([second], 0)
    assert events.since(second["number"]) == ([], 0)


def test_the_numbers_of_a_later_run_are_higher() -> None:
    earlier = NodeEvents(1)
    earlier.write(reached(1))
    ((last,), _) = earlier.since()
    later = NodeEvents(1)
    later.write(reached(2))
    assert [each["fields"]["leader"] for each in later.since(last["number"])[0]] == [2]
    assert later.since(last["number"])[1] == 0


def test_the_newest_are_kept_and_the_others_counted() -> None:
    events = NodeEvents(1, kept=3)
    events.write(reached(1))
    ((first,), _) = events.since()
    for leader in (2, 3, 4, 5, 6):
        events.write(reached(leader))
    found, dropped = events.since(first["number"])
    assert [each["fields"]["leader"] for each in found] == [4, 5, 6] and dropped == 2
    assert events.since()[1] == 3
    assert events.since(found[0]["number"])[1] == 0


def test_debugging_events_are_logged_but_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    events = NodeEvents(1)
    fields = dict.fromkeys(Event.FOLLOWER_FETCHER_STARTED.fields)
    with caplog.at_level(logging.DEBUG, "kwire.events"):
        events.write(Log(Event.FOLLOWER_FETCHER_STARTED, fields, 5))
    assert events.since() == ([], 0) and len(caplog.records) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (bytes(16), "AAAAAAAAAAAAAAAAAAAAAA"),
        ((1, 2), [1, 2]),
        ({3}, [3]),
        (None, None),
        (ValueError("x"), "x"),
    ],
)
def test_fields_are_json(value: object, expected: object) -> None:
    events = NodeEvents(1)
    events.write(Log(Event.LEADER_REACHABLE, {"leader": value}, 0))
    ((found,), _) = events.since()
    assert json.loads(json.dumps(found))["fields"]["leader"] == expected


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_node_lists_its_events(tmp_path: Path, isolation: str) -> None:
    with running_cluster(tmp_path, brokers=1, isolation=isolation) as cluster:
        controller = cluster.supervisor.controller
        found = cluster.run(controller.ask("GET", "/v1/events"))
        names = [each["event"] for each in found["events"]]
        assert names[0] == "CONTROLLER_ELECTED" and "BROKER_REGISTERED" in names
        assert found["dropped"] == 0 and {each["node"] for each in found["events"]} == {1000}
        last = found["events"][-1]["number"]
        assert cluster.run(controller.ask("GET", "/v1/events", {"since": last}))["events"] == []
