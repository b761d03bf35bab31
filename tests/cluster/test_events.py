"""`Cluster.events`: what nodes have reported and what was asked of the cluster, in every mode alike."""

from __future__ import annotations

from typing import Any

import pytest

import kwire
from kwire.backends import history
from kwire.backends.history import EventHistory
from kwire.server.events import NodeEvent

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_events_of_nodes_that_have_ended_are_kept_and_in_order(isolation: str) -> None:
    with kwire.Cluster(brokers=3, isolation=isolation) as cluster:
        cluster.create_topic("orders", assignment=[[1, 2, 3]])
        cluster.create_topic("other", assignment=[[3]])
        with cluster.network.cut(2, 3):
            pass
        cluster.broker(1).kill()
        cluster.wait_for(lambda c: c.partition("orders", 0).leader == 2)
        elected = cluster.wait_for(lambda c: c.events("LEADER_ELECTED", topic="orders"))
        assert (elected[0].fields["leader"], elected[0].node) == (2, 1000)
        names = [each.name for each in cluster.events()]
        assert names[0] == "CONTROLLER_ELECTED"
        kept = ["TOPIC_CREATED", "CUT_REQUESTED", "HEAL_REQUESTED", "KILL_REQUESTED"]
        assert [name for name in names if name in kept] == ["TOPIC_CREATED", *kept]
        assert names.index("KILL_REQUESTED") < names.index("LEADER_ELECTED")
        times = [each.time_ms for each in cluster.events()]
        assert times == sorted(times)
        cluster.controller(1000).kill()  # and its events stay
        assert cluster.events("TOPIC_CREATED", topic="other")
        assert {"KILL_REQUESTED", "BROKER_REGISTERED"} <= {e.name for e in cluster.events(broker=1)}
        assert "kill broker 1" in str(cluster.events("KILL_REQUESTED")[0])
        last = max(each.number for each in cluster.events())
        cluster.network.heal()
        assert [each.name for each in cluster.events(since=last)] == ["HEAL_REQUESTED"]


def test_an_event_is_listed_once_however_often_it_is_asked_for() -> None:
    with kwire.Cluster(topics=["t"]) as cluster:
        for _ in range(3):
            assert len(cluster.events("TOPIC_CREATED")) == 1
        cluster.broker(1).kill()
        cluster.broker(1).start()
        assert len(cluster.events("BROKER_REGISTERED")) == 2


def test_a_process_that_was_killed_from_outside_has_died() -> None:
    with kwire.Cluster(brokers=2, isolation="process") as cluster:
        cluster._inner.node(2).send_signal(9)  # type: ignore[attr-defined]
        (died,) = cluster.wait_for(lambda c: c.events("NODE_DIED"))
        assert died.fields["node_id"] == 2
        cluster._inner.inside._failures.clear()  # type: ignore[attr-defined]
        cluster._inner.inside._supervisor.deaths.clear()  # type: ignore[attr-defined]


def test_the_newest_events_are_kept_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "KEPT", 3)
    events = EventHistory(list)
    for _ in range(5):
        events.log(NodeEvent.RESET_REQUESTED)
    assert [each["number"] for each in events.objects()] == [3, 4, 5]
    assert events.dropped == 2
    assert [each["number"] for each in events.objects(since=4)] == [5]


def test_events_by_the_control_api() -> None:
    with kwire.Cluster(topics=["t", "u"]) as cluster:
        found = ask(cluster, {"name": "TOPIC_CREATED", "topic": "u"})
        assert [each["fields"]["topic"] for each in found["events"]] == ["u"]
        assert found["dropped"] == 0
        assert ask(cluster, {"broker": 9})["events"] == []


def ask(cluster: kwire.Cluster, body: dict[str, Any]) -> Any:
    from kwire.control.routes import ask_cluster

    return cluster._run(ask_cluster(cluster._inner, "GET", "/v1/events", body))


def test_events_are_not_known_from_outside() -> None:
    with kwire.Cluster() as cluster:
        outside = kwire.Cluster.connect(cluster.bootstrap_servers)
        with pytest.raises(kwire.errors.NotSupportedError, match="events"):
            outside.events()
        outside.stop()
