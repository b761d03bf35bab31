"""Links that work in one direction only: who asks gets no further, who is asked answers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kwire import Cluster, errors

pytestmark = pytest.mark.timeout(120)
LAG = {"replica.lag.time.max.ms": 500}


@pytest.fixture(scope="module", params=["thread", "process"])
def shared(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(brokers=2, config=LAG, isolation=request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """ "led-by-1" and "led-by-2", each with a replica at both brokers."""
    shared.reset()
    shared.create_topic("led-by-1", assignment=[[1, 2]])
    shared.create_topic("led-by-2", assignment=[[2, 1]])
    shared.wait_in_sync()
    return shared


def test_a_follower_that_reaches_its_leader_no_more_still_leads(cluster: Cluster) -> None:
    with cluster.network.cut(1, 2, one_way=True):
        assert (cluster.network.cuts(), cluster.network.cuts(one_way=True)) == ([], [(1, 2)])
        assert "network: 1 → 2 cut" in cluster.describe().splitlines()
        cluster.produce("led-by-2", "a")  # is acknowledged when the follower has left the ISR
        assert cluster.partition("led-by-2", 0).isr == {2}
        cluster.produce("led-by-1", "a")  # broker 2 fetches from broker 1 as ever
        assert cluster.partition("led-by-1", 0).isr == {1, 2}
    assert cluster.network.cuts(one_way=True) == []
    cluster.wait_in_sync(timeout=20)
    assert "one_way" in [e.text for e in cluster.events(name="CUT_REQUESTED")][-1]


def test_a_broker_that_does_not_reach_the_controller_is_fenced(cluster: Cluster) -> None:
    """Its heartbeats do not arrive; that the controller would reach it does not help."""
    with cluster.network.cut(1, cluster.controller_id, one_way=True):
        cluster.wait_for(lambda c: c.partition("led-by-1", 0).leader == 2, timeout=30)
    cluster.wait_in_sync(timeout=30)


def test_a_delay_in_one_direction(cluster: Cluster) -> None:
    """Broker 2 fetches late, so what broker 1 leads waits for it; broker 1 does not."""
    network = cluster.network
    with network.delay(2, 1, milliseconds=150, one_way=True):
        assert (network.delays(), network.delays(one_way=True)) == ([], [(2, 1, 150)])
        cluster.produce("led-by-1", "a")
        started = time.monotonic()
        cluster.produce("led-by-1", "b")
        assert time.monotonic() - started >= 0.15
        cluster.produce("led-by-2", "a")
        started = time.monotonic()
        cluster.produce("led-by-2", "b")
        assert time.monotonic() - started < 0.15
    assert network.delays(one_way=True) == []


def test_both_directions_one_after_the_other_are_a_cut(cluster: Cluster) -> None:
    network = cluster.network
    network.cut(1, 2, one_way=True)
    network.cut(2, 1, one_way=True)
    assert (network.cuts(), network.cuts(one_way=True)) == ([(1, 2)], [])
    network.heal(2)
    assert (network.cuts(), network.cuts(one_way=True)) == ([], [])
    network.delay(1, 2, milliseconds=1)
    network.delay(1, 2, milliseconds=2, one_way=True)
    assert network.delays(one_way=True) == [(1, 2, 2), (2, 1, 1)] and network.delays() == []
    with network.cut(2, 1, one_way=True):
        network.cut(1, 2)
    assert network.cuts(one_way=True) == [(1, 2)]  # the end of a block lifts its own direction
    cluster.reset()
    assert network.cuts(one_way=True) == network.delays(one_way=True) == []


def test_bad_input(cluster: Cluster) -> None:
    with pytest.raises(errors.ConfigurationError):
        cluster.network.cut(1, 1, one_way=True)
    with pytest.raises(errors.ClusterStateError):
        cluster.network.delay(1, 7, 5, one_way=True)
