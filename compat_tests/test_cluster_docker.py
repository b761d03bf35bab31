"""kwire.Cluster(isolation="docker"), and the pytest plugin in that mode: brokers are containers of the image."""

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from compat_tests import docker_engine
from kwire import Cluster, aio, errors
from kwire.backends.containers import Containers
from kwire.control.routes import ask_cluster
from kwire.server.temporary import sweep

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """kwire's own image; afterwards nothing of the test's clusters is in the engine."""
    monkeypatch.setenv("KWIRE_IMAGE", docker_engine.image())
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    client = docker_engine.engine()
    yield client
    assert ours(client, tmp_path) == [] and list(tmp_path.glob("kwire-*")) == []


def ours(client: Any, folder: Path) -> list[str]:
    """Containers and networks of clusters whose temporary directory is in this folder."""
    containers = client.containers.list(all=True, filters={"label": "kwire.owner"})
    found = [(each.name, each.labels) for each in containers]
    networks = client.networks.list(filters={"label": "kwire.owner"})
    found += [(each.name, each.attrs["Labels"]) for each in networks]
    return [name for name, labels in found if labels["kwire.owner"].startswith(str(folder))]


def produce(servers: str, *values: bytes) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})
    for value in values:
        producer.produce("t", value, callback=lambda e, _: failed.append(e) if e else None)
    assert producer.flush(30) == 0 and not failed


def consume(servers: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    messages = consumer.consume(count, timeout=40)
    consumer.close()
    return [message.value() for message in messages]


def test_three_containers_replicate_and_lose_nothing_when_the_leaders_is_killed() -> None:
    config = {"min.insync.replicas": 2, "num.partitions": 2}
    with Cluster(3, config, isolation="docker", topics=["t:1:3"]) as cluster:
        servers = cluster.bootstrap_servers
        assert len(servers.split(",")) == 3 and not cluster.external
        produce(servers, b"1", b"2")
        old = cluster.partition("t", 0).leader
        cluster.broker(old).kill()
        assert not cluster.broker(old).running
        cluster.wait_for(lambda c: c.partition("t", 0).leader not in (-1, old), 20)
        produce(servers, b"3")
        assert consume(servers, 3) == [b"1", b"2", b"3"]  # a group that starts with a broker down
        cluster.broker(old).start()
        cluster.wait_for(lambda c: c.partition("t", 0).isr == {1, 2, 3}, 30)
        p = cluster.partition("t", 0)
        assert (p.high_watermark, p.replica(old).log_end_offset) == (3, 3)
        cluster.elect("t", 0, leader=old)
        assert cluster.partition("t", 0).leader == old

        cluster.broker(old).pause()
        assert cluster.broker(old).paused and "paused" in cluster.describe()
        cluster.wait_for(lambda c: c.partition("t", 0).leader not in (-1, old), 30)
        cluster.broker(old).kill()
        cluster.broker(old % 3 + 1).stop()
        cluster.create_topic("u")
        assert cluster.topics()["u"] == 2
        cluster.reset()
        assert cluster.topics(internal=True) == {} and all(
            broker.running for broker in cluster.brokers
        )

        with pytest.raises(errors.NotSupportedError) as found:
            _ = cluster.broker(1).log_dir
        assert "\n" not in str(found.value)
    assert not cluster.started


def test_cuts_hold_over_a_restart_and_controllers_take_over() -> None:
    config = {"controller.quorum.fetch.timeout.ms": 1000, "replica.lag.time.max.ms": 3000}
    with Cluster(3, config, isolation="docker", controllers=2, recent_requests=True) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topic("t", assignment=[[1, 2, 3]])
        old = cluster.active_controller()
        assert f"{old!r} active" in cluster.describe()
        old.kill()
        cluster.wait_for(lambda c: c.active_controller().id != old.id, 20)
        cluster.broker(1).kill()
        cluster.wait_for(lambda c: c.partition("t", 0).leader == 2, 20)
        old.start()
        assert old.running and cluster.active_controller().id != old.id

        with cluster.network.cut(2, 3):
            produce(servers, b"1")  # acks=all: waits until 3 is out of the ISR
            assert cluster.partition("t", 0).isr == {2}
            cluster.broker(1).start()
            cluster.wait_for(lambda c: c.partition("t", 0).isr == {1, 2}, 30)
            cluster.broker(3).kill()
            cluster.broker(3).start()
            produce(servers, b"2")
            p = cluster.partition("t", 0)
            assert p.isr == {1, 2} and p.replica(3).log_end_offset == 0
        cluster.wait_for(lambda c: c.partition("t", 0).isr == {1, 2, 3}, 30)
        assert re.search(r"broker 2  rdkafka  Produce v\d+  t-0: ok", cluster.describe())

        active = cluster.active_controller()
        cluster.network.cut(active.id, {1, 2, 3})
        cluster.wait_for(lambda c: c.active_controller().id != active.id, 30)
        subprocess.run(["docker", "kill", _container(cluster, 3)], check=True, capture_output=True)
        cluster.broker(3).start()  # it is noticed that somebody else has ended it
        cluster.controller(1001).kill()
        cluster.reset()
        assert cluster.topics(internal=True) == {}
        assert all(node.running for node in (*cluster.controllers, *cluster.brokers))


def _container(cluster: Cluster, node_id: int) -> str:
    handle: Any = cluster._inner.node(node_id)
    return str(handle.container.id)


@pytest.mark.parametrize("brokers", [3, 1])
def test_containers_are_scraped(brokers: int) -> None:
    async def scraped() -> str:
        topics = [f"t:1:{brokers}"]
        async with aio.Cluster(brokers, isolation="docker", topics=topics) as cluster:
            for _ in range(5):
                await cluster.produce("t", "v")
            found = await ask_cluster(cluster, "GET", "/metrics", {})
        return str(found.body.decode())

    samples = [
        sample
        for family in text_string_to_metric_families(asyncio.run(scraped()))
        for sample in family.samples
    ]
    values = {(each.name, each.labels.get("broker")): each.value for each in samples}
    assert all(values["kwire_node_up", str(broker)] == 1 for broker in range(1, brokers + 1))
    assert sum(value for (name, _), value in values.items() if "activecontrollercount" in name) == 1
    written = "kafka_server_brokertopicmetrics_messagesin_total"
    of_topic = [each.value for each in samples if each.name == written and "topic" in each.labels]
    assert sum(of_topic) == 5


@pytest.mark.parametrize(("brokers", "controllers"), [(1, 1), (3, 1), (2, 2)])
def test_containers_go_back_to_a_snapshot(brokers: int, controllers: int, tmp_path: Path) -> None:
    topics = [f"t:2:{brokers}"]
    with Cluster(brokers, isolation="docker", controllers=controllers, topics=topics) as cluster:
        written = [cluster.produce("t", f"{number}").value for number in range(5)]
        consume(cluster.bootstrap_servers, 5)
        base, bootstrap = cluster.snapshot("base"), cluster.bootstrap_servers
        assert (base.brokers, base.controllers) == (brokers, controllers if brokers > 1 else 0)
        for _ in range(2):
            cluster.produce("t", "later")
            cluster.create_topic("more")
            if brokers > 1:
                cluster.broker(2).kill()
            cluster.restore("base")
            assert cluster.topics() == {"t": 2} and cluster.bootstrap_servers == bootstrap
            assert sorted(each.value or b"" for each in cluster.records("t")) == written
            assert sum(each.committed or 0 for each in cluster.group("g").offsets) == 5
        with pytest.raises(errors.NotSupportedError, match="fork: not possible with containers"):
            cluster.fork()
        with pytest.raises(errors.ClusterStateError, match="is of containers, and goes back into"):
            Cluster.from_snapshot(base)
        with kwire_of_threads() as other, pytest.raises(errors.ClusterStateError, match="is of co"):
            other.restore(base.path)


def kwire_of_threads() -> Cluster:
    return Cluster(3)


def test_one_container_and_no_image(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(isolation="docker", topics={"t": 2}) as cluster:
        produce(cluster.bootstrap_servers, b"1")
        cluster.broker(1).kill()
        cluster.broker(1).start()
        assert consume(cluster.bootstrap_servers, 1) == [b"1"]
        assert cluster.controllers == []
        with pytest.raises(errors.NotSupportedError, match="that of a single broker is in its co"):
            cluster.active_controller()
    monkeypatch.setenv("KWIRE_IMAGE", "kwire-no-such-image")
    with pytest.raises(errors.StartError, match="no image kwire-no-such-image: docker build"):
        Cluster(isolation="docker").start()


def test_a_container_that_ends_at_its_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"KAFKA_NUM_PARTITIONS": "many"}  # Cluster itself would not let it through
    monkeypatch.setattr(Containers, "_broker_variables", lambda *_: wrong)
    for brokers in (1, 2):
        with pytest.raises(errors.StartError, match=r"broker \d: its container ended: .*NUM_PARTI"):
            Cluster(brokers, isolation="docker").start()


def test_what_a_killed_process_has_left_the_next_start_removes(engine: Any, tmp_path: Path) -> None:
    code = 'from kwire import Cluster\nCluster(2, isolation="docker").start()\nprint("ready", flush=True)\ninput()'
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    left = ours(engine, tmp_path)
    assert len(left) == 4  # two brokers, the controller, the network
    with Cluster(isolation="docker"):
        assert set(left) < set(ours(engine, tmp_path))  # the other one lives
    process.kill()
    process.communicate()
    with Cluster(isolation="docker"):
        assert not set(left) & set(ours(engine, tmp_path))
    assert (
        len(sweep(str(tmp_path))) == 1
    )  # its directory: once in a process, which may have been before


def test_the_plugin(tmp_path: Path) -> None:
    source = """
    import pytest
    from confluent_kafka import Producer

    def test_first(kwire):
        producer = Producer({"bootstrap.servers": kwire.bootstrap_servers})
        producer.produce("orders", b"tea")
        assert producer.flush(10) == 0
        assert kwire.topics() == {"orders": 1}

    def test_empty_again(kwire):
        assert kwire.topics() == {}
        kwire.broker(1).kill()

    def test_up_again(kwire):
        assert kwire.broker(1).running

    @pytest.mark.kwire(brokers=2, topics=["t:1:2"])
    def test_fails_with_a_section(kwire):
        producer = Producer({"bootstrap.servers": kwire.bootstrap_servers})
        producer.produce("t", b"tea")
        assert producer.flush(10) == 0
        assert kwire.partition("t", 0).isr == {1}

    @pytest.mark.kwire(mode="thread")
    def test_another_mode(kwire):
        assert kwire.broker(1).log_dir
    """
    (tmp_path / "test_it.py").write_text(textwrap.dedent(source))
    (tmp_path / "pytest.ini").write_text("[pytest]\nkwire_mode = docker\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert "1 failed, 4 passed" in done.stdout, done.stdout
    assert re.search(r" broker \d  rdkafka  Produce v\d+  t-0: ok", done.stdout)
    assert re.search(r"^t-0: leader \d, leader epoch 0, ISR \[1, 2\]", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("brokers", [1, 2])
def test_fast_timers_and_compaction_reach_into_containers(brokers: int) -> None:
    with Cluster(brokers, isolation="docker", fast=True) as cluster:
        cluster.create_topic("r", 1, brokers, config={"retention.ms": 100})
        cluster.create_topic("t", 1, brokers, config={"cleanup.policy": "compact"})
        cluster.produce("r", "tea")
        cluster.wait_for(lambda c: c.records("r") == [], timeout=20)
        for price in ("3", "4", "5"):
            cluster.produce("t", price, key="tea")
        cluster.compact("t")
        assert [record.value for record in cluster.records("t")] == [b"5"]
        cluster.apply_retention("t")
