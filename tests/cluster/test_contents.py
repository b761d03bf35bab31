"""Groups and records, as `kwire.Cluster` shows them beside real clients."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from cluster_clients import consume, produce
from confluent_kafka import Consumer

import kwire
from kwire import Cluster, errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_what_is_written_is_read_and_the_lag_of_a_group(isolation: str) -> None:
    with Cluster(brokers=2, isolation=isolation, topics=["t:2:2"]) as cluster:
        first = cluster.produce("t", "tea", "k1", headers={"h": "1", "none": None}, timestamp=5)
        second = cluster.produce("t", b"\x00\xff", partition=1 - first.partition)
        assert cluster.records("t") == sorted((first, second), key=lambda r: r.partition)
        assert (first.value, first.key, first.timestamp) == (b"tea", b"k1", 5)
        assert first.headers == [("h", b"1"), ("none", None)]
        assert cluster.records("t", second.partition) == [second]

        assert (cluster.groups(), cluster.group("shop").state) == ([], "Dead")
        assert cluster.group("shop").lag is None
        assert list(cluster.topics(internal=True)) == ["t"]  # a look has created nothing
        cluster.delete_topic("t")
        cluster.create_topic("t", 2, 2)
        produce(cluster.bootstrap_servers, "t", ["a", "b", "c"], partition=1)
        assert consume(cluster.bootstrap_servers, "t", 3, "shop") == ["a", "b", "c"]
        produce(cluster.bootstrap_servers, "t", ["d"], partition=1)
        assert cluster.groups() == ["shop"]
        group = cluster.group("shop")
        assert (group.state, group.members, group.lag) == ("Empty", [], 1)
        assert [(o.partition, o.committed, o.end, o.lag) for o in group.offsets][-1] == (1, 3, 4, 1)
        assert cluster.group("shopp").lag is None  # with a coordinator, too
        assert cluster.topics() == {"t": 2}
        assert "__consumer_offsets" in cluster.topics(internal=True)


def test_members_and_their_partitions(shared: Cluster) -> None:
    shared.create_topic("watched", 2, 3)
    consumer = Consumer(
        {
            "bootstrap.servers": shared.bootstrap_servers,
            "group.id": "watchers",
            "client.id": "tester",
            "group.instance.id": "static-1",
        }
    )
    consumer.subscribe(["watched"])
    try:

        def assigned(cluster: Cluster) -> bool:
            consumer.poll(0.05)
            # Closing with an assignment that was not polled yet, confluent-kafka waits for the broker
            # with the GIL, which the broker needs.
            return len(consumer.assignment()) == len(cluster.group("watchers").offsets) == 2

        assert shared.wait_for(assigned, 30)
        group = shared.group("watchers")
        (member,) = group.members
        assert (group.state, group.protocol_type, group.assignor) == ("Stable", "consumer", "range")
        assert (member.client_id, member.host, member.instance_id) == (
            "tester",
            "127.0.0.1",
            "static-1",
        )
        assert member.partitions == [("watched", 0), ("watched", 1)]
        assert {each.member_id for each in group.offsets} == {member.id}
        assert group.coordinator in (1, 2, 3)
        assert "watchers: Stable (range)" in str(group) and "tester at 127.0.0.1" in str(group)
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec(shared: Cluster, codec: str) -> None:
    topic, values = f"codec-{codec}", [f"{codec} {index}" * 20 for index in range(50)]
    produce(shared.bootstrap_servers, topic, values, **{"compression.type": codec})
    assert [record.value.decode() for record in shared.records(topic) if record.value] == values


def test_a_look_goes_on_while_leaders_move() -> None:
    with Cluster(brokers=3, topics=["t:3:3"]) as cluster:
        written = [cluster.produce("t", str(number)) for number in range(3)]
        consume(cluster.bootstrap_servers, "t", 3, "g")
        cluster.broker(cluster.group("g").coordinator).kill()
        assert cluster.group("g").lag == 0 and cluster.groups() == ["g"]
        assert cluster.records("t") == written
        assert cluster.produce("t", "4", partition=0).offset == 1


def test_what_is_refused(shared: Cluster) -> None:
    def refused(kind: type[errors.KwireError], call: Callable[[], object]) -> str:
        with pytest.raises(kind) as caught:
            call()
        return str(caught.value)

    shared.create_topic("small", 1, 3, {"min.insync.replicas": 3})
    unknown = errors.UnknownTopicOrPartitionError
    assert "no topic absent" in refused(unknown, lambda: shared.records("absent"))
    assert "no partition small-7" in refused(unknown, lambda: shared.records("small", 7))
    refused(unknown, lambda: shared.produce("small", "v", partition=7))
    wrong = errors.ConfigurationError
    assert "value: expected a text or bytes, not 5" in refused(
        wrong,
        lambda: shared.produce("small", 5),  # type: ignore[arg-type]
    )
    refused(wrong, lambda: shared.produce("small", "v", headers=[("h",)]))  # type: ignore[list-item]
    refused(wrong, lambda: shared.records("small", start=-1))
    refused(wrong, lambda: shared.records("small", True))
    refused(wrong, lambda: shared.group(b"g"))  # type: ignore[arg-type]
    assert "INVALID_TOPIC_EXCEPTION" in refused(
        errors.RequestError, lambda: shared.produce("no topic", "v")
    )
    with Cluster(config={"auto.create.topics.enable": False}) as strict:
        refused(unknown, lambda: strict.produce("t", "v"))
        strict.broker(1).kill()
        refused(errors.BrokerNotAvailableError, lambda: strict.groups())


def test_a_look_from_outside_is_the_same(shared: Cluster) -> None:
    shared.create_topic("outside", 2, 3)
    outside = Cluster.connect(shared.bootstrap_servers)
    try:
        written = outside.produce("outside", "v", "k")
        assert outside.records("outside") == shared.records("outside") == [written]
        consume(shared.bootstrap_servers, "outside", 1, "outsiders")
        assert outside.group("outsiders") == shared.group("outsiders")
        assert "outsiders" in outside.groups()
    finally:
        outside.stop()


def test_the_types_have_names() -> None:
    assert {"Cluster", "Group", "Record", "Partition"} <= set(dir(kwire))
    for name in kwire.__all__:
        assert getattr(kwire, name) is not None


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_connections_and_kept_requests(isolation: str) -> None:
    with Cluster(brokers=2, isolation=isolation, topics=["t:1:2"], recent_requests=True) as cluster:
        cluster.produce("t", "v")
        assert (cluster.clients(), cluster.requests()) == ([], [])  # nor those of the nodes
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "shop",
                "client.id": "till",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        try:
            cluster.wait_for(lambda _: consumer.poll(0.05), 30)
            found = cluster.clients()
            assert {each.client_id for each in found} == {"till"}
            assert all("rdkafka" in each.software for each in found)
            assert "shop" in {each.group for each in found}
            assert all(each.address.startswith("127.0.0.1:") for each in found)
            assert {each.broker for each in found} <= {1, 2}
            assert any(each.api for each in found) and all(each.idle_ms >= 0 for each in found)
            (joined,) = cluster.requests(api="JoinGroup")[-1:]
            assert (joined.client_id, joined.outcome) == ("till", "ok")
            assert {each.api for each in cluster.requests(broker=joined.broker)} >= {"JoinGroup"}
            assert cluster.requests(client_id="nobody") == cluster.requests(broker=9) == []
            assert "JoinGroup v" in str(joined) and "rdkafka" in str(found[0])
        finally:
            consumer.close()
        cluster.wait_for(lambda c: c.clients() == [])


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_the_state_of_a_node(isolation: str) -> None:
    with Cluster(brokers=2, isolation=isolation, topics=["t:1:2"]) as cluster:
        cluster.produce("t", "v")
        leader = cluster.partition("t", 0).leader

        def caught_up(cluster: Cluster) -> dict[str, Any] | None:
            (found,) = cluster.status(3 - leader)["partitions"]
            has_all = found["log_end_offset"] == 1 and (found["lag"], found["lag_ms"]) == (0, 0)
            return found if has_all else None

        assert not cluster.wait_for(caught_up, timeout=30)["leads"]
        follower = cluster.status(3 - leader)
        (fetcher,) = follower["fetchers"]
        assert (fetcher["leader"], fetcher["partitions"], fetcher["failures"]) == (leader, 1, 0)
        assert fetcher["answers"] > 0 and fetcher["latency_max_ms"] >= fetcher["latency_ms"]
        counts = follower["counts"]
        assert counts["DeadThreadCount"] == counts["MaxLag"] == 0 and counts["MinFetchRate"] > 0
        assert "ActiveControllerCount" in cluster.status(1000)["counts"]
        with pytest.raises(errors.ClusterStateError, match=r"no node 7; the brokers are \[1, 2"):
            cluster.status(7)
        cluster.broker(1).stop()
        with pytest.raises(errors.BrokerNotAvailableError, match="node 1 does not run"):
            cluster.status(1)


def test_what_is_known_inside_only(shared: Cluster) -> None:
    with pytest.raises(errors.NotSupportedError, match="requests are not kept: Cluster"):
        shared.requests()
    outside = Cluster.connect(shared.bootstrap_servers)
    for call in (outside.clients, outside.requests, lambda: outside.status(1)):
        with pytest.raises(errors.NotSupportedError, match="somebody else"):
            call()
    outside.wait_in_sync()
    outside.stop()


def test_cuts_and_delays_in_force(shared: Cluster) -> None:
    network = shared.network
    assert (network.cuts(), network.delays()) == ([], [])
    with network.cut({3, 2}, 1):
        network.delay(2, 3, milliseconds=20)
        assert (network.cuts(), network.delays()) == ([(1, 2), (1, 3)], [(2, 3, 20)])
    assert (network.cuts(), network.delays()) == ([], [(2, 3, 20)])
    text = "2 | 3 delayed by 20 ms"
    assert repr(network) == f"<Network: {text}>"
    with network.cut(1, 2):
        assert f"network: 1 | 2 cut, {text}" in shared.describe().splitlines()
    network.heal()
    assert network.delays() == []
    assert repr(network) == "<Network: no cuts or delays>" and "network:" not in shared.describe()


def test_replicas_are_waited_for() -> None:
    with Cluster(brokers=3, topics=["t:2:3", "u:1:1"]) as cluster:
        cluster.wait_in_sync()
        cluster.broker(3).kill()
        cluster.wait_for(lambda c: all(3 not in c.partition("t", i).isr for i in (0, 1)))
        with pytest.raises(errors.WaitTimeoutError, match="replicas in sync\nt-0: leader"):
            cluster.wait_in_sync("t", timeout=0.01)
        cluster.broker(3).start()
        cluster.wait_in_sync("t", timeout=20)
        assert cluster.partition("t", 1).isr == {1, 2, 3}
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            cluster.wait_in_sync("v")
        with pytest.raises(errors.ConfigurationError, match="timeout: expected seconds"):
            cluster.wait_in_sync(timeout=-1)


def test_a_mistyped_topic_is_answered_with_the_one_that_may_be_meant(shared: Cluster) -> None:
    shared.create_topic("orders", 2, 1)
    outside = Cluster.connect(shared.bootstrap_servers)
    try:
        for cluster in (shared, outside):
            for call, said in (
                (lambda c: c.records("order"), "topic order; did you mean orders?"),
                (lambda c: c.records("order", 1), "partition order-1; did you mean orders?"),
                (lambda c: c.partition("order", 0), "partition order-0; did you mean orders?"),
                (lambda c: c.partition("orders", 7), "partition orders-7"),
                (lambda c: c.records("orders", 7), "partition orders-7"),
                (lambda c: c.records("payments"), "topic payments"),
                (lambda c: c.wait_in_sync("order"), "topic order; did you mean orders?"),
            ):
                with pytest.raises(errors.UnknownTopicOrPartitionError) as caught:
                    call(cluster)
                assert str(caught.value) == f"there is no {said} (UNKNOWN_TOPIC_OR_PARTITION)"
    finally:
        outside.stop()
    with pytest.raises(errors.UnknownTopicOrPartitionError, match="did you mean orders"):
        shared.apply_retention("order")
    with Cluster(config={"auto.create.topics.enable": False}, topics=["orders"]) as cluster:
        with pytest.raises(errors.UnknownTopicOrPartitionError) as caught:
            cluster.produce("order", "tea")
        assert str(caught.value).startswith("there is no topic order; did you mean orders? (")


def test_a_description_says_that_no_client_has_come_if_that_is_known() -> None:
    said = "no client has connected to this cluster"
    with Cluster(brokers=2, topics=["t"], recent_requests=True) as cluster:
        cluster.produce("t", "by the test itself")
        assert said in cluster.describe().splitlines()
        cluster.broker(2).pause()
        assert said not in cluster.describe()
        cluster.broker(2).resume()
        assert said in cluster.describe().splitlines()
        with socket.create_connection(cluster.bootstrap_servers.split(",")[0].split(":")):
            cluster.wait_for(lambda c: c.clients())
            assert said not in cluster.describe()
        produce(cluster.bootstrap_servers, "t", ["a"])
        assert said not in cluster.describe()
    with Cluster(topics=["t"]) as cluster:
        assert said not in cluster.describe()


def test_groups_of_a_paused_broker_are_not_waited_for() -> None:
    with Cluster(brokers=2, topics=["t:1:2"]) as cluster:
        produce(cluster.bootstrap_servers, "t", ["a"])
        consume(cluster.bootstrap_servers, "t", 1, "shop")
        coordinator = cluster.group("shop").coordinator
        other = cluster.broker(3 - coordinator)
        other.pause()
        begin = time.monotonic()
        said = f"broker {other.id} is paused and not yet fenced: its groups are unknown; the others have shop"
        with pytest.raises(errors.BrokerNotAvailableError, match=f"^{said}$"):
            cluster.groups()
        assert time.monotonic() - begin < 2
        other.resume()
        assert cluster.groups() == ["shop"]


def test_a_description_begins_with_what_is_the_users() -> None:
    with Cluster(brokers=2, topics=["t:1:2"], recent_requests=True) as cluster:
        assert "__consumer_offsets" not in cluster.describe()
        produce(cluster.bootstrap_servers, "t", ["a", "b"])
        consume(cluster.bootstrap_servers, "t", 2, "shop")
        produce(cluster.bootstrap_servers, "t", ["c"])
        cluster.wait_in_sync()
        heads = [line for line in cluster.describe().splitlines() if not line.startswith("  ")]
        assert heads[2].startswith("t-0: leader")
        assert heads[3].startswith("group shop: Empty, coordinator ") and ", lag 1" in heads[3]
        assert heads[4] == "last requests of clients:"
        assert heads[-1] == "__consumer_offsets: 4 partitions, all in sync"
        cluster.broker(2).kill()
        cluster.wait_for(lambda c: c.partition("t", 0).isr == {1})
        assert "has ISR [1]" in cluster.describe().splitlines()[-1]
        cluster.broker(1).pause()
        assert "groups: " in cluster.describe()
        cluster.broker(1).resume()
