"""The model of a report: marks, lanes and bars from events, first errors of clients, what is left out."""

from __future__ import annotations

from typing import Any

import pytest
from report_kit import NODES, Story, spans

import kwire
from kwire.coordinator.events import GroupEvent
from kwire.replication.core.events import Event, EventType
from kwire.replication.replica.events import ReplicaEvent
from kwire.report import marks, model, state
from kwire.server.events import NodeEvent


def only(found: dict[str, Any]) -> dict[str, Any]:
    (event,) = found["events"]
    assert isinstance(event, dict)
    return event


@pytest.mark.parametrize(
    ("name", "fields", "kind", "lanes", "label"),
    [
        ("LEADER_ELECTED", {"leader": 2, "leader_epoch": 3}, "leader", ["2"], "leads orders-0, e3"),
        (
            "UNCLEAN_LEADER_ELECTED",
            {"leader": 3, "leader_epoch": 4},
            "unclean",
            ["3"],
            "leads orders-0 (unclean), e4",
        ),
        (
            "PARTITION_OFFLINE",
            {"previous_leader": 1, "leader": None},
            "offline",
            ["1"],
            "orders-0 has no leader",
        ),
        ("ISR_SHRUNK", {"isr": [1]}, "isr_out", ["2", "3"], "out of ISR: orders-0"),
        ("ISR_EXPANDED", {"previous_isr": [1, 2]}, "isr_in", ["3"], "in ISR: orders-0"),
    ],
)
def test_changes_of_partitions_are_marked_at_the_broker_they_concern(
    name: str, fields: dict[str, Any], kind: str, lanes: list[str], label: str
) -> None:
    event = only(Story().change(name, 5, **fields).draw())
    assert (event["kind"], event["lanes"], event["label"]) == (kind, lanes, label)
    assert (event["t"], event["where"], event["name"]) == (5, "controller 1000", name)


def test_a_truncation_is_marked_at_the_follower_with_its_offsets() -> None:
    fields = {
        "topic": "orders",
        "partition": 0,
        "previous_log_end_offset": 17,
        "log_end_offset": 10,
    }
    event = only(Story().add(Event.LOG_TRUNCATED, 5, 3, **fields).draw())
    assert (event["kind"], event["lanes"]) == ("truncated", ["3"])
    assert event["label"] == "orders-0 truncated 17→10"


def test_a_long_name_keeps_both_ends() -> None:
    name = "a-rather-long-name-of-a-topic.events.v1"
    assert marks.shorten(name) == "a-rather-lo…ic.events.v1" and marks.shorten("orders") == "orders"


def all_events() -> list[EventType]:
    registries: tuple[type, ...] = (Event, GroupEvent, NodeEvent, ReplicaEvent)
    return [e for each in registries for e in vars(each).values() if isinstance(e, EventType)]


LISTS = ("isr", "previous_isr", "nodes", "others")


@pytest.mark.parametrize("kind", all_events(), ids=repr)
def test_every_event_has_a_mark(kind: EventType) -> None:
    """Of each kind, whatever its fields are."""
    fields = {name: [1] if name in LISTS else 1 for name in kind.fields}
    event = only(Story().add(kind, 5, 2, **fields).draw())
    assert event["lanes"] and event["text"] and event["kind"]
    lanes = {each["id"] for each in Story().add(kind, 5, 2, **fields).draw()["lanes"]}
    assert set(event["lanes"]) <= lanes


# --- bars


def test_a_killed_broker_is_down_until_it_is_started() -> None:
    story = Story().ask("KILL", 10, node_id=2).ask("START", 30, node_id=2)
    assert spans(story.draw(), "2") == [("down", 10, 30), ("up", 30, None)]
    story = Story().ask("RESET", 0).ask("KILL", 10, node_id=2)
    assert spans(story.draw(), "2") == [("up", 0, 10), ("down", 10, None)]


def test_a_process_that_dies_after_its_kill_is_down_once() -> None:
    story = Story().ask("RESET", 0).ask("KILL", 10, node_id=2)
    story.add(NodeEvent.NODE_DIED, 11, None, node_id=2)
    assert spans(story.draw(), "2") == [("up", 0, 10), ("down", 10, None)]


def test_a_paused_controller_is_active_again_when_it_resumes() -> None:
    story = Story().add(Event.CONTROLLER_ELECTED, 0, 1000, controller_id=1000, controller_epoch=2)
    story.ask("PAUSE", 10, node_id=1000).ask("RESUME", 20, node_id=1000)
    kinds = [("active", 0, 10), ("paused", 10, 20), ("active", 20, None)]
    assert spans(story.draw(), "1000") == kinds


@pytest.mark.parametrize(
    ("heal", "end"),
    [
        ({"nodes": None, "others": None}, 20),
        ({"nodes": [1], "others": None}, 20),
        ({"nodes": [2], "others": None}, None),  # 1 and 3 are cut off still
        ({"nodes": [3, 2], "others": [1]}, 20),
        ({"nodes": [2], "others": [3]}, None),
    ],
)
def test_a_cut_lasts_until_all_its_links_are_healed(heal: dict[str, Any], end: int | None) -> None:
    story = Story().ask("CUT", 10, nodes=[1], others=[2, 3]).ask("HEAL", 20, **heal)
    found = story.draw()
    assert spans(found, "network") == [("cut", 10, end)]
    (link,) = found["links"]
    assert (link["nodes"], link["to"]) == (["1", "2", "3"], end)
    assert found["spans"][-1]["label"] == "cut 1 | 2,3"
    assert found["events"][0]["label"] == "cut 1 | 2,3"  # the bar may be too short for it


def test_a_link_has_a_cut_and_a_delay_each_with_its_own_end() -> None:
    story = Story().ask("CUT", 10, nodes=[1], others=[2])
    story.ask("DELAY", 20, nodes=[2], others=[1], delay_ms=50)
    story.ask("HEAL", 30, nodes=[1], others=[2], rules="cuts").ask("RESET", 40)
    assert spans(story.draw(), "network") == [("cut", 10, 30), ("delay", 20, 40)]
    story = Story().ask("DELAY", 10, nodes=[1], others=[2], delay_ms=5)
    story.ask("DELAY", 20, nodes=[1], others=[2], delay_ms=50).ask(
        "HEAL", 30, nodes=[1], others=[2]
    )
    assert spans(story.draw(), "network") == [("delay", 10, 20), ("delay", 20, 30)]


def test_generations_and_rebalances_of_a_group() -> None:
    story = Story().group("REBALANCE_STARTED", 5, reason="member_joined").group("STABLE", 7)
    story.group("MEMBER_FAILED", 9, client_id="c", member_id="m", reason="session_timeout")
    story.group("REBALANCE_STARTED", 9, reason="member_failed").group("REBALANCE_STARTED", 10)
    story.group("EMPTY", 12)
    found = story.draw()
    bars = [("rebalance", 5, 7), ("stable", 7, 9), ("rebalance", 9, 12), ("empty", 12, None)]
    assert spans(found, "group:shop") == bars
    assert [each["kind"] for each in found["events"]].count("failed") == 1


# --- time, and how much


TEST = {"id": "t.py::test_x", "outcome": "failed", "message": "", "start_ms": 100, "end_ms": 200}


def test_a_test_and_its_wait_are_bars() -> None:
    wait = {"seconds": 0.04, "text": "c.topics()"}
    found = Story().draw(test={**TEST, "wait": wait})
    assert spans(found, "test") == [("test", 100, 200), ("wait", 160, 200)]
    assert (found["from_ms"], found["to_ms"]) == (100, 200)


def test_states_may_be_older_than_what_is_shown_but_not_than_a_reset() -> None:
    story = Story().ask("KILL", 1, node_id=1).ask("RESET", 50).ask("KILL", 60, node_id=2)
    story.ask("ELECTION", 120, topic="orders", partition=0)
    found = story.draw(since_ms=100, test={**TEST, "wait": None})
    assert len(found["events"]) == 1
    assert spans(found, "1") == [("up", 100, None)]
    assert spans(found, "2") == [("down", 100, None)]


def test_many_events_are_cut_and_details_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "MAX_EVENTS", 3)
    story = Story()
    for at in range(5):
        story.ask("RESET", at)
        story.add(Event.LEADER_REACHABLE, at, 1, leader=2)
    found = story.draw()
    assert [(e["name"], e["t"]) for e in found["events"]] == [
        ("RESET_REQUESTED", 2),
        ("RESET_REQUESTED", 3),
        ("RESET_REQUESTED", 4),
    ]
    assert found["left_out"] == 7


def test_many_groups_and_clients_share_a_lane() -> None:
    story = Story()
    for number in range(20):
        story.group("STABLE", number, group=f"g{number}")
    found = story.draw()
    labels = [each["label"] for each in found["lanes"] if each["kind"] == "group"]
    assert len(labels) == model.MAX_GROUP_LANES + 1 and labels[-1] == "12 more groups"
    lanes = {each["id"] for each in found["lanes"]}
    assert all(set(each["lanes"]) <= lanes for each in found["events"])


# --- clients


def request(
    outcome: str, t: int | None = 5, api: str = "Produce v9", **more: Any
) -> dict[str, Any]:
    found = {"t": t, "broker": 1, "client_id": "shop", "api": api, "outcome": outcome}
    return {**found, "count": 1, "error": bool(state.errors_in(outcome)), **more}


@pytest.mark.parametrize(
    ("outcome", "names"),
    [
        ("ok", []),
        ("orders-0: ok", []),
        ("wants no answer", []),
        ("not answered yet", []),
        ("NOT_CONTROLLER", ["NOT_CONTROLLER"]),
        ("orders-0: NOT_ENOUGH_REPLICAS; orders-1: ok", ["NOT_ENOUGH_REPLICAS"]),
        ("MEMBER_ID_REQUIRED", []),
        ("shop: REBALANCE_IN_PROGRESS", []),
        ("NOT_ENOUGH_REPLICAS-0: ok", []),
        ("NO_SUCH_ERROR", []),
    ],
)
def test_errors_in_the_outcome_of_a_request(outcome: str, names: list[str]) -> None:
    assert state.errors_in(outcome) == names


def test_the_first_error_of_each_client_api_and_kind_is_marked() -> None:
    requests = [
        request("orders-0: NOT_ENOUGH_REPLICAS", 5),
        request("orders-0: NOT_ENOUGH_REPLICAS", 6),
        request("orders-0: NOT_LEADER_OR_FOLLOWER", 7),
        request("orders-0: NOT_ENOUGH_REPLICAS", 8, client_id="other"),
        request("orders-0: NOT_ENOUGH_REPLICAS", None),
        request("orders-0: ok", 9),
        request("too large", 10, "connection closed", error=True),
    ]
    found = Story().draw(requests=requests)
    assert [(e["t"], e["lanes"], e["label"]) for e in found["events"]] == [
        (5, ["client:shop"], "Produce NOT_ENOUGH_REPLICAS"),
        (7, ["client:shop"], "Produce NOT_LEADER_OR_FOLLOWER"),
        (8, ["client:other"], "Produce NOT_ENOUGH_REPLICAS"),
        (10, ["client:shop"], "connection closed closed"),
    ]


# --- a real cluster


def test_a_cluster_after_a_kill() -> None:
    with kwire.Cluster(brokers=3, recent_requests=True) as cluster:
        cluster.create_topic("orders", assignment=[[1, 2, 3]])
        cluster.produce("orders", "tea")
        cluster.broker(1).kill()
        cluster.wait_for(lambda c: c.partition("orders", 0).leader == 2)
        found = cluster._run(model.describe(cluster._inner))
        assert found["title"] == "3 brokers, 1 controller" and found["notes"] == []
        assert [each["state"] for each in found["brokers"]] == ["down", "running", "running"]
        (partition,) = found["partitions"]
        assert (partition["leader"], partition["isr"]) == (2, [2, 3])
        ends = [each.get("end") for each in partition["replicas"]]
        assert ends == [None, 1, 1]
        assert {"kill", "leader", "topic"} <= {each["kind"] for each in found["events"]}
        assert found["groups"] == []
        outside = kwire.Cluster.connect(cluster.bootstrap_servers.split(",")[1])
        seen = outside._run(model.describe(outside._inner))
        assert "started elsewhere" in seen["notes"][0] and seen["events"] == []
        assert seen["partitions"][0]["leader"] == 2 and seen["requests"] is None
        outside.stop()


def test_nodes_have_lanes_in_their_order() -> None:
    lanes = [each["label"] for each in Story().draw()["lanes"]]
    assert lanes == ["cluster", "controller 1000", "broker 1", "broker 2", "broker 3"]
    assert len(NODES) == 4
