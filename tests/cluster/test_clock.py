"""`cluster.clock` of live clusters: what nodes that are down, paused or cut off make of it; its edges."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

import kwire.aio
from kwire import Cluster, errors
from kwire.advance import amounts


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("8d", 691_200_000),
        ("1h30m", 5_400_000),
        ("45s", 45_000),
        ("250ms", 250),
        ("1.5s", 1500),
        ("1d1h1m1s1ms", 90_061_001),
    ],
)
def test_amounts(text: str, milliseconds: int) -> None:
    assert amounts.parse(text) == milliseconds
    assert amounts.parse(amounts.in_words(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("offset_ms", "words"),
    [(691_200_000, "8d ahead of real time"), (-153, "153ms behind real time")],
)
def test_how_far_a_clock_is_off(offset_ms: int, words: str) -> None:
    assert amounts.beside_real_time(offset_ms) == words


@pytest.mark.parametrize("text", ["", "8", "d", "8x", "-8d", "8d 1h", "40000d", "1e9d"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected an amount|0 to 36525 days"):
        amounts.parse(text)


@pytest.mark.parametrize("days", [-1, 36_526, float("inf"), float("nan")])
def test_time_goes_forward_only(days: float) -> None:
    with Cluster() as cluster:
        with pytest.raises(errors.ConfigurationError, match="0 to 36525 days, not back"):
            cluster.clock.advance(days=days)
        assert abs(cluster.clock.now().timestamp() - time.time()) < 5


def test_the_two_faces_show_the_same_time() -> None:
    async def in_a_loop() -> float:
        async with kwire.aio.Cluster() as cluster:
            now = await cluster.clock.advance(timedelta(hours=2), minutes=1)
            assert abs((cluster.clock.now() - now).total_seconds()) < 5
            await cluster.clock.freeze()
            assert cluster.clock.now() == cluster.clock.now()
            await cluster.clock.resume()
            return now.timestamp()

    assert 7255 < asyncio.run(in_a_loop()) - time.time() < 7261
    with Cluster() as cluster:
        now = cluster.clock.advance(timedelta(hours=2), minutes=1)
        assert 7255 < now.timestamp() - time.time() < 7261
        assert "clock: 2h1m ahead of real time" in cluster.describe()
        assert [each.fields for each in cluster.events(name="CLOCK_ADVANCED")] == [{"by": "2h1m"}]


def test_a_cluster_from_elsewhere_keeps_its_time() -> None:
    with Cluster() as cluster:
        outside = Cluster.connect(cluster.bootstrap_servers)
        for call in (outside.clock.freeze, outside.clock.resume, outside.clock.advance):
            with pytest.raises(errors.NotSupportedError, match="started elsewhere"):
                call()
        outside.stop()


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_nodes_that_are_down_or_paused_get_the_time_when_they_are_back(isolation: str) -> None:
    with Cluster(3, isolation=isolation, topics=["t:1:3"]) as cluster:
        cluster.broker(2).kill()
        cluster.broker(3).pause()
        now = cluster.clock.advance(days=2)
        assert cluster.partition("t", 0).isr == {1}  # the paused one has sent no heartbeats
        cluster.broker(2).start()
        cluster.broker(3).resume()
        cluster.wait_in_sync(timeout=20)
        expanded = cluster.events(name="ISR_EXPANDED")
        assert expanded and expanded[-1].time_ms / 1000 >= now.timestamp() - 1
        for broker in (1, 2, 3):
            offset = _clock_of(cluster, broker)["offset_ms"]
            assert abs(offset - 2 * 86_400_000) < 1000


def _clock_of(cluster: Cluster, broker: int) -> dict[str, int]:
    inner = cluster._inner
    return cluster._run(inner.inside.handles[broker].ask("GET", "/v1/clock"))  # type: ignore[no-any-return]


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_follower_that_cannot_fetch_leaves_the_isr(isolation: str) -> None:
    """Its lease stays: its heartbeats arrive."""
    with Cluster(3, isolation=isolation, topics=["t:1:3"]) as cluster:
        leader = cluster.partition("t", 0).leader
        others = [each for each in (1, 2, 3) if each != leader]
        with cluster.network.cut(leader, others[0]):
            _produce_without_waiting(cluster)
            cluster.clock.advance(seconds=50)
            assert cluster.partition("t", 0).isr == {leader, others[1]}
            assert not cluster.events(name="BROKER_FENCED")
        cluster.wait_in_sync(timeout=20)


def _produce_without_waiting(cluster: Cluster) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks=1)
    producer.send("t", b"one").get(timeout=20)
    producer.close()


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_broker_that_shows_no_life_is_fenced(isolation: str) -> None:
    """broker.session.timeout.ms is nine seconds."""
    with Cluster(2, isolation=isolation, topics=["t:1:2"]) as cluster:
        cluster.broker(2).pause()
        cluster.clock.advance(seconds=30)
        (fenced,) = cluster.wait_for(lambda c: c.events(name="BROKER_FENCED"))
        assert fenced.fields["reason"] == "session_timeout"
        assert cluster.partition("t", 0).isr == {1}
        cluster.broker(2).resume()
        cluster.wait_in_sync(timeout=20)


def test_leaderships_go_back() -> None:
    """leader.imbalance.check.interval.seconds is five minutes."""
    with Cluster(2) as cluster:
        cluster.create_topic("t", assignment=[[1, 2]])
        cluster.elect("t", 0, leader=2)
        cluster.clock.advance(minutes=10)
        cluster.wait_for(lambda c: c.partition("t", 0).leader == 1)


def test_a_frozen_clock() -> None:
    with Cluster(2, {"log.message.timestamp.type": "LogAppendTime"}, topics=["t:1:2"]) as cluster:
        cluster.clock.freeze()
        now = cluster.clock.now()
        first = cluster.produce("t", "one")
        assert cluster.records("t")[0].timestamp == pytest.approx(now.timestamp() * 1000, abs=100)
        time.sleep(0.7)  # longer than a follower's fetch waits
        cluster.produce("t", "two")
        assert len({each.timestamp for each in cluster.records("t")}) == 1
        assert cluster.clock.now() == now
        cluster.clock.advance(minutes=5)
        assert cluster.clock.now() - now == timedelta(minutes=5)
        assert "frozen" in cluster.describe()
        cluster.clock.resume()
        cluster.clock.resume()
        third = cluster.produce("t", "three")
        moved_ms = cluster.records("t")[2].timestamp - cluster.records("t")[0].timestamp
        assert 300_000 <= moved_ms < 310_000
        assert (first.offset, third.offset) == (0, 2)
        assert cluster.partition("t", 0).isr == {1, 2}


def test_a_reset_is_back_in_real_time() -> None:
    with Cluster(2) as cluster:
        cluster.clock.advance(days=100)
        cluster.clock.freeze()
        cluster.reset()
        assert abs(cluster.clock.now().timestamp() - time.time()) < 5
        assert _clock_of(cluster, 1)["offset_ms"] == 0
        cluster.create_topic("t", 1, 2)
        cluster.produce("t", "one")
        assert abs(cluster.records("t")[0].timestamp / 1000 - time.time()) < 5
        cluster.clock.advance(days=8)
        assert cluster.records("t") == []


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_snapshot_is_restored_in_real_time(isolation: str) -> None:
    with Cluster(2, isolation=isolation, topics=["t:1:2"]) as cluster:
        cluster.produce("t", "one")
        snapshot = cluster.snapshot("base")
        cluster.clock.advance(days=8)
        assert cluster.records("t") == []
        cluster.broker(2).kill()
        cluster.broker(2).start()
        cluster.restore(snapshot)
        assert [each.value for each in cluster.records("t")] == [b"one"]
        assert abs(cluster.clock.now().timestamp() - time.time()) < 5
        assert [abs(_clock_of(cluster, n)["offset_ms"]) for n in (1, 2)] == [0, 0]


def test_what_kwire_writes_has_the_clusters_time() -> None:
    with Cluster(topics=["t"]) as cluster:
        now = cluster.clock.advance(days=30)
        assert cluster.produce("t", "one").timestamp >= now.timestamp() * 1000 - 1
        cluster.clock.advance(days=6)
        assert len(cluster.records("t")) == 1
        cluster.clock.advance(days=2)
        assert cluster.records("t") == []
