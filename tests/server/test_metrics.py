"""`GET /metrics`: what Prometheus reads, and whether the numbers are what has happened."""

from __future__ import annotations

import asyncio
import gc
import http.client
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from metrics_text import Scrape
from server_harness import kwire_up

from kwire import aio
from kwire.client.streams import ask
from kwire.control.errors import ControlError
from kwire.control.lines import answer_line, answer_of, request_line
from kwire.control.metrics import api, counts
from kwire.control.metrics.table import BROKER, METRICS, OF_CLUSTER
from kwire.control.node_api import NodeControl
from kwire.control.routes import ask_cluster, node_handler
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.protocol.schemas.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

pytestmark = pytest.mark.timeout(90)

SLACK = float(os.environ.get("KWIRE_SPEED_SLACK", "1"))
TOOL = Path(__file__).parents[2] / "tools" / "metrics.py"
OF_DASHBOARDS = """
controller_controllerstats_uncleanleaderelections_total controller_kafkacontroller_activecontrollercount
controller_kafkacontroller_offlinepartitionscount cluster_partition_atminisr cluster_partition_replicascount
cluster_partition_underminisr log_log_size server_brokertopicmetrics_bytesin_total
server_brokertopicmetrics_bytesout_total server_brokertopicmetrics_failedproducerequests_total
server_brokertopicmetrics_messagesin_total server_brokertopicmetrics_totalfetchrequests_total
server_brokertopicmetrics_failedfetchrequests_total
server_brokertopicmetrics_totalproducerequests_total server_replicamanager_leadercount
server_replicamanager_partitioncount server_replicamanager_underreplicatedpartitions
server_socket_server_metrics_connection_count consumergroup_current_offset consumergroup_lag
topic_partition_current_offset topic_partition_in_sync_replica topic_partition_leader_is_preferred
topic_partition_oldest_offset topic_partition_replicas topic_partition_under_replicated_partition topic_partitions
"""
"""What Strimzi's dashboards of Kafka and of its exporter ask for, after `kafka_`, but for what a JVM or a pod has."""


async def scrape(cluster: aio.Cluster) -> Scrape:
    found = await ask_cluster(cluster, "GET", "/metrics", {})
    assert found.media_type == "text/plain; version=0.0.4; charset=utf-8"
    return Scrape(found.body.decode())


TOPIC = "kafka_server_brokertopicmetrics_"
MANAGER = "kafka_server_replicamanager_"


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_the_numbers_are_what_has_happened(isolation: str) -> None:
    async def main() -> None:
        async with aio.Cluster(3, isolation=isolation, topics=["orders:2:3"]) as cluster:
            await asyncio.to_thread(work, cluster.bootstrap_servers)
            await cluster.wait_in_sync()
            found = await scrape(cluster)
            leaders = [(await cluster.partition("orders", index)).leader for index in (0, 1)]
            for index, leader in enumerate(leaders):
                where = {"broker": leader, "topic": "orders", "partition": index}
                assert found("kafka_log_log_logendoffset", **where) == 30 + 10 * index
                assert found("kafka_cluster_partition_insyncreplicascount", **where) == 3
                sizes = found.total("kafka_log_log_size", topic="orders", partition=index)
                assert sizes == 3 * found("kafka_log_log_size", **where) > 0
            of_orders = {"topic": "orders"}
            assert found.total(f"{TOPIC}messagesin_total", **of_orders) == 70
            assert found.total(f"{TOPIC}bytesin_total", **of_orders) == sum(
                found("kafka_log_log_size", broker=leader, topic="orders", partition=index)
                for index, leader in enumerate(leaders)
            )
            in_, out = (
                found.total(f"{TOPIC}{n}_total", **of_orders) for n in ("bytesin", "bytesout")
            )
            assert out >= in_  # the consumer has read them all, some twice
            assert found.total(f"{TOPIC}replicationbytesout_total", **of_orders) == 2 * in_
            produced = found.total("kafka_network_requestmetrics_requests_total", request="Produce")
            assert 0 < produced <= found.total(f"{TOPIC}totalproducerequests_total", **of_orders)
            assert (
                found.total("kafka_consumergroup_lag", consumergroup="shop", topic="orders") == 65
            )
            shop = {"consumergroup": "shop", "topic": "orders", "partition": 0}
            assert found("kafka_consumergroup_current_offset", **shop) == 5
            assert found.total("kafka_coordinator_group_groupmetadatamanager_numgroups") == 1
            assert found.total("kwire_transactions", state="Ongoing") == 1
            assert found.total(f"{MANAGER}leadercount") * 3 == found.total(
                f"{MANAGER}partitioncount"
            )
            assert found.total("kafka_topic_partitions", topic="orders") == 2
            assert found("kafka_brokers") == 3
            assert found("kafka_controller_kafkacontroller_activecontrollercount", broker=1000) == 1
            for name in OF_DASHBOARDS.split():
                assert any(each == f"kafka_{name}" for each, _ in found.samples), name

    def work(bootstrap: str) -> None:
        common = {"bootstrap.servers": bootstrap, "log_level": 0}
        producer = Producer({**common, "linger.ms": 0, "transactional.id": "till"})
        producer.init_transactions(20)
        producer.begin_transaction()
        for number in range(70):
            producer.produce("orders", f"{number}", partition=int(number >= 30))
        assert producer.flush(20) == 0
        kinds = {"group.id": "shop", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**common, **kinds, "isolation.level": "read_uncommitted"})
        consumer.subscribe(["orders"])
        read = 0
        while read < 70:
            read += len(consumer.consume(100, 1))
        from confluent_kafka import TopicPartition

        offsets = [TopicPartition("orders", 0, 5), TopicPartition("orders", 1, 0)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()

    asyncio.run(main())


def test_every_metric_of_the_table_is_there_or_has_its_reason() -> None:
    async def main() -> None:
        async with aio.Cluster(2, topics=["t:1:2"]) as cluster:
            await cluster.produce("t", "v")
            await cluster.wait_in_sync()
            await cluster.elect("t", 0, leader=3 - (await cluster.partition("t", 0)).leader)
            await cluster.wait_for(has_fetched)
            found = {name: dict(labels) for name, labels in (await scrape(cluster)).samples}
            labels = {each.name: {BROKER, *each.labels} for each in METRICS}
            labels |= {each.name: set(each.labels) for each in OF_CLUSTER}
            for name, of in found.items():
                assert set(of) <= labels[name], name
            missing = labels.keys() - found.keys()
            assert {name for name in missing if not name.startswith("kafka_consumergroup")} == set()

    async def has_fetched(cluster: aio.Cluster) -> bool:
        samples = (await scrape(cluster)).samples
        return any(name == "kafka_server_fetcherlagmetrics_consumerlag" for name, _ in samples)

    asyncio.run(main())


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_nodes_that_are_down_paused_or_silent(
    isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PATIENCE_SECONDS", 0.3)

    async def main() -> None:
        async with aio.Cluster(3, isolation=isolation, topics=["t:3:3"]) as cluster:
            await cluster.broker(2).kill()
            await cluster.broker(3).pause()
            found = await scrape(cluster)
            assert found("kafka_brokers") == 1 == found("kwire_node_up", broker=1, role="broker")
            for broker in (2, 3):
                assert found("kwire_node_up", broker=broker, role="broker") == 0
                assert not found.total(f"{MANAGER}partitioncount", broker=broker)
            await cluster.broker(3).resume()
            if isolation == "process":
                handle: Any = cluster.node(1)
                handle.send_signal(19)  # kwire does not know
                assert (await scrape(cluster))("kwire_node_up", broker=1, role="broker") == 0
                handle.send_signal(18)
            assert (await scrape(cluster))("kafka_brokers") == 2

    asyncio.run(main())


def test_counts_of_a_topic_that_is_deleted_stay_in_the_brokers() -> None:
    async def main() -> None:
        async with aio.Cluster(1, topics=["t"]) as cluster:
            for _ in range(3):
                await cluster.produce("t", "v")
            await cluster.delete_topic("t")
            found = await scrape(cluster)
            assert not found.total(f"{TOPIC}messagesin_total", topic="t")
            assert found(f"{TOPIC}messagesin_total", broker=1) == 3
            await cluster.create_topic("t")
            await cluster.produce("t", "v")
            found = await scrape(cluster)
            assert found(f"{TOPIC}messagesin_total", broker=1, topic="t") == 1
            assert found(f"{TOPIC}messagesin_total", broker=1) == 4

    asyncio.run(main())


def test_requests_go_on_being_counted_when_faults_come_and_go() -> None:
    async def main() -> None:
        async with aio.Cluster(1, topics=["t"]) as cluster:
            for count in (1, 2, 3):
                await cluster.produce("t", "v")
                found = await scrape(cluster)
                name = "kafka_network_requestmetrics_requests_total"
                assert found.total(name, request="Produce") == count
                await cluster.faults.inject("Fetch", delay=0.001)
                await cluster.faults.clear()

    asyncio.run(main())


HOSTILE = [
    '"',
    "\\",
    "a\nb",
    '"} 1\nx{y="',
    "ü\u2028",
    "\x00\x1b[31m",
    "{}",
    "a" * 30_000,
    "# TYPE x",
]


def test_names_are_text_and_nothing_else() -> None:
    async def main() -> None:
        async with aio.Cluster(1, topics=["t"]) as cluster:
            await cluster.produce("t", "v")
            handle: Any = cluster.node(1)
            await ask(handle.address, FindCoordinatorRequest(key="g"), version=2)
            for group in HOSTILE:
                partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
                topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
                request = OffsetCommitRequest(group_id=group, topics=topics)
                await commit(cluster, request)
            found = await scrape(cluster)
            for group in HOSTILE:
                where = {"consumergroup": group, "topic": "t", "partition": 0}
                assert found("kafka_consumergroup_lag", **where) == 0
            assert len(found.families) == len({each.name for each in found.families})

    async def commit(cluster: aio.Cluster, request: OffsetCommitRequest) -> None:
        handle: Any = cluster.node(1)
        while True:
            answer = await ask(handle.address, request, version=7)
            code = answer.topics[0].partitions[0].error_code
            if code == 0:
                return
            assert code in (14, 15, 16), code  # the coordinator is not there yet
            await asyncio.sleep(0.01)

    asyncio.run(main())


def test_bytes_that_are_no_text_are_printed_as_question_marks() -> None:
    from kwire.control.metrics.table import Answer
    from kwire.control.metrics.text import text

    node = {"samples": [], "partitions": [], "topics": [], "members": [["\udcff", 2]]}
    page = {**node, "offsets": [["a\udc80", "t", 0, 5]]}
    found = Scrape(text([Answer(1, "broker", [page])]).decode())
    assert found("kafka_consumergroup_members", consumergroup="?") == 2
    assert found.total("kafka_consumergroup_current_offset", consumergroup="a?") == 5


# --- over HTTP


def get(url: str, path: str, method: str = "GET") -> tuple[int, str | None, str]:
    host, _, port = url.rpartition("/")[2].rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.request(method, path)
    response = connection.getresponse()
    found = response.status, response.getheader("Content-Type"), response.read().decode()
    connection.close()
    return found


def test_a_standalone_broker_is_scraped_over_http() -> None:
    with kwire_up("--topic", "t:2") as (_, line):
        url = line.split("control=")[1].split()[0]
        status, media_type, text = get(url, "/metrics")
        assert (status, media_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
        found = Scrape(text)
        assert found(f"{MANAGER}leadercount", broker=1) == 2
        assert found("kafka_controller_kafkacontroller_activecontrollercount", broker=1) == 1
        assert get(url, "/metrics", "HEAD")[2] == ""
        assert get(url, "/metrics", "POST")[0] == 405
        status, _, text = get(url, "/metrics?topic=t")
        assert status == 400 and "expected no keys" in text


def test_the_nodes_of_a_container_show_their_own() -> None:
    async def main() -> None:
        async with aio.Cluster(1, topics=["t"]) as cluster:
            await cluster.produce("t", "v")
            handle: Any = cluster.node(1)
            answer = await node_handler(handle.runner.control)("GET", "/metrics", {}, {})
            assert (
                Scrape(answer.body.decode())(f"{TOPIC}messagesin_total", broker=1, topic="t") == 1
            )
            line = answer_line(handle.runner.control, request_line("GET", "/metrics", None))
            with pytest.raises(ControlError, match="over HTTP only"):
                answer_of(line)

    asyncio.run(main())


# --- what it costs


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "prometheus_client.exposition", None)

    async def main() -> None:
        async with aio.Cluster(1) as cluster:
            with pytest.raises(ControlError, match=r"pip install prometheus-client$") as refused:
                await ask_cluster(cluster, "GET", "/metrics", {})
            assert refused.value.status == 409

    asyncio.run(main())


def test_prometheus_client_is_imported_by_the_first_scrape() -> None:
    code = """
import sys
import kwire.control.http, kwire.control.routes, kwire.aio, kwire.control.metrics.text
print([name for name in sys.modules if "prometheus" in name])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("partitions", [1500, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_scrape_of_many_partitions_does_not_hold_the_loop(partitions: int) -> None:
    """Neither by what the loop does, in time of the CPU, nor by the thread beside it: there the best of three, and
    much more, for others use this machine, too. With the garbage collector as `kwire up` sets it."""

    async def longest_pause(seen: list[tuple[float, float]]) -> None:
        while True:
            begun, worked = time.monotonic(), time.thread_time()
            await asyncio.sleep(0.001)
            seen.append((time.monotonic() - begun, time.thread_time() - worked))

    async def main() -> None:
        longest = []
        async with aio.Cluster(1, topics=[f"t:{partitions}"]) as cluster:
            await scrape(cluster)  # the first one imports
            gc.freeze()
            gc.disable()
            for _ in range(3):
                seen: list[tuple[float, float]] = []
                task = asyncio.create_task(longest_pause(seen))
                answer = await ask_cluster(cluster, "GET", "/metrics", {})
                task.cancel()
                assert answer.body.count(b"\nkafka_log_log_size{") == partitions
                longest.append(max(pause for pause, _ in seen))
                assert max(work for _, work in seen) < 0.05
            handle: Any = cluster.node(1)
            pages = list(rows(handle.runner.control))
            assert [len(each) for each in pages[:-1]] == [counts.ROWS_AT_ONCE] * (len(pages) - 1)
        assert min(longest) < 0.15 * SLACK

    def rows(control: NodeControl) -> Iterator[list[Any]]:
        start: int | None = 0
        while start is not None:
            page = counts.page(control, start)
            start = page["next"]
            (node,) = page["nodes"]
            yield node["partitions"] + node["topics"]

    try:
        asyncio.run(main())
    finally:
        gc.enable()
        gc.unfreeze()


def test_the_table_of_the_page_is_current() -> None:
    tool = runpy.run_path(str(TOOL))
    page = tool["PAGE"].read_text()
    assert page == tool["page"](page), "run .venv/bin/python tools/metrics.py"
