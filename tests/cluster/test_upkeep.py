"""`Cluster.compact` and `apply_retention`, and `fast=True`, with a client's records."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from plugin_run import run_pytest

from kwire import Cluster, errors

pytestmark = pytest.mark.timeout(90)
COMPACT = {"cleanup.policy": "compact"}


def send(cluster: Cluster, *pairs: tuple[str, str | None], acks: int = -1) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": acks})
    for key, value in pairs:
        producer.produce("t", key=key, value=value, partition=0)
    assert producer.flush(15) == 0


def pairs(cluster: Cluster) -> list[tuple[int, str, str | None]]:
    """Offset, key and value of each record, as the leader has them."""
    return [
        (each.offset, (each.key or b"").decode(), each.value and each.value.decode())
        for each in cluster.records("t")
    ]


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_compact_is_done_on_every_replica_when_it_returns(isolation: str) -> None:
    with Cluster(3, isolation=isolation) as cluster:
        cluster.create_topic("t", assignment=[[1, 2, 3]], config=COMPACT)
        send(cluster, ("a", "1"), ("b", "1"), ("a", "2"), ("b", "2"), ("a", "3"))
        cluster.compact("t")
        for broker in (1, 2, 3):
            cluster.elect("t", 0, leader=broker)
            assert pairs(cluster) == [(3, "b", "2"), (4, "a", "3")]


def test_compact_leaves_out_brokers_that_do_not_run() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic("t", assignment=[[1, 2, 3]], config=COMPACT)
        cluster.broker(3).kill()
        cluster.wait_for(lambda c: c.partition("t", 0).isr == {1, 2})
        send(cluster, ("a", "1"), ("a", "2"))
        cluster.compact("t")
        assert pairs(cluster) == [(1, "a", "2")]
        cluster.broker(3).start()
        cluster.wait_for(lambda c: c.partition("t", 0).isr == {1, 2, 3}, timeout=20)
        cluster.compact("t")
        cluster.elect("t", 0, leader=3)
        assert pairs(cluster) == [(1, "a", "2")]


def test_compact_says_which_follower_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.backends.upkeep._WAIT_SECONDS", 0.05)
    with Cluster(2) as cluster:
        cluster.create_topic("t", assignment=[[1, 2]], config=COMPACT)
        with cluster.network.cut(1, 2):
            send(cluster, ("a", "1"), acks=1)
            with pytest.raises(errors.WaitTimeoutError, match=r"t-0 is committed: .* ends at 1"):
                cluster.compact("t")
            with pytest.raises(errors.WaitTimeoutError, match=r"2 at 0"):
                cluster.apply_retention("t")


def test_apply_retention_deletes_old_records_of_one_topic_or_of_all() -> None:
    hour_ago = int((time.time() - 3600) * 1000)
    with Cluster(2) as cluster:
        for topic in ("a", "b"):
            cluster.create_topic(topic, assignment=[[1, 2]], config={"retention.ms": 60_000})
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            producer.produce(topic, "old", timestamp=hour_ago)
            assert producer.flush(15) == 0

        def starts(topic: str) -> list[int]:
            state = cluster.partition(topic, 0)
            return [state.replica(broker).log_start_offset for broker in (1, 2)]

        cluster.apply_retention("a")
        assert (starts("a"), starts("b")) == ([1, 1], [0, 0])
        cluster.apply_retention()
        assert starts("b") == [1, 1]


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda c: c.compact("deleted"), errors.RequestError, "its cleanup.policy is delete"),
        (lambda c: c.compact("nope"), errors.UnknownTopicOrPartitionError, "no topic nope"),
        (lambda c: c.compact(1), errors.ConfigurationError, "topic: expected a text"),
        (lambda c: c.apply_retention("nope"), errors.UnknownTopicOrPartitionError, "no topic"),
        (lambda c: c.apply_retention(1), errors.ConfigurationError, "topic: expected a text"),
    ],
)
def test_what_is_refused(call: Callable[[Cluster], None], kind: type[Exception], said: str) -> None:
    with Cluster(topics=["deleted"]) as cluster, pytest.raises(kind, match=said):
        call(cluster)


def test_from_outside_neither_is_possible() -> None:
    with Cluster(topics=["t"]) as cluster:
        outside = Cluster.connect(cluster.bootstrap_servers)
        with pytest.raises(errors.NotSupportedError, match="compact: not possible"):
            outside.compact("t")
        with pytest.raises(errors.NotSupportedError, match="apply_retention: not possible"):
            outside.apply_retention()
        outside.stop()


def test_a_stopped_cluster_says_so() -> None:
    cluster = Cluster()
    with pytest.raises(errors.ClusterStateError):
        cluster.compact("t")


# --- fast


def test_with_fast_a_compacted_topic_is_soon_compact() -> None:
    with Cluster(fast=True) as cluster:
        cluster.create_topic("t", config=COMPACT)
        send(cluster, ("a", "1"), ("b", "1"), ("a", "2"), ("b", "2"), ("a", "3"))
        cluster.wait_for(lambda c: len(pairs(c)) == 2)
        assert pairs(cluster) == [(3, "b", "2"), (4, "a", "3")]


def test_fast_is_a_flag() -> None:
    with pytest.raises(errors.ConfigurationError, match="fast: expected True or False, not 1"):
        Cluster(fast=1)  # type: ignore[arg-type]


def test_the_plugin_has_fast_at_each_of_its_places(tmp_path: Path) -> None:
    source = """
    import pytest

    def is_fast(cluster):
        return cluster._inner._backend.launcher.spec.node.fast

    def test_of_the_session(kwire):
        assert is_fast(kwire)

    @pytest.mark.kwire
    def test_of_its_own(kwire):
        assert is_fast(kwire)

    @pytest.mark.kwire(fast=False)
    def test_that_wants_kafkas_timers(kwire):
        assert not is_fast(kwire)
    """
    run = run_pytest(tmp_path, source, "--kwire-fast")
    assert run.counts == {"passed": 3}, run.text
    run = run_pytest(tmp_path, source, ini="kwire_fast = true")
    assert run.counts == {"passed": 3}, run.text
    run = run_pytest(tmp_path, source)
    assert run.counts == {"passed": 1, "failed": 2}, run.text
