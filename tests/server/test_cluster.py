"""Three brokers and their controller, over TCP: stock clients, kills, restarts, cuts, in threads and in processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster_harness import METADATA_VERSION, RunningCluster, running_cluster, until

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.protocol.schemas.transactions import InitProducerIdRequest
from kwire.server.link_rules import LinkRule

BOTH = pytest.mark.parametrize("isolation", ["thread", "process"])
QUICK = {
    "log_level": 0,
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 20,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
}


def create(cluster: RunningCluster, name: str, partitions: int = 1, factor: int = 3) -> None:
    cluster.run(cluster.supervisor.create_topics([(name, partitions, factor)]))


def isr_is_full(cluster: RunningCluster, topic: str) -> bool:
    return all(
        sorted(cluster.partition(topic, by=broker).isr_nodes) == [1, 2, 3] for broker in (1, 2, 3)
    )


class Writer:
    """An idempotent confluent-kafka producer with acks=all; `acked` is what was acknowledged, in order."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True}
        self._producer = Producer({**QUICK, **settings, "linger.ms": 0})
        self.acked: list[int] = []
        self.errors: list[Any] = []

    def send(self, topic: str, *numbers: int) -> None:
        for number in numbers:
            self._producer.produce(topic, str(number).encode(), on_delivery=self._delivered)
        assert self._producer.flush(15) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acked.append(int(message.value()))
        else:
            self.errors.append(error)


def read_as_group(bootstrap: str, topic: str, count: int) -> list[int]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap.split(","),
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=15_000,
    )
    found: list[int] = []
    try:
        for message in consumer:
            found.append(int(message.value))
            if len(found) >= count:
                break
        consumer.commit()
    finally:
        consumer.close()
    return found


@BOTH
def test_a_killed_leader_costs_nothing_that_was_acknowledged(
    isolation: str, tmp_path: Path
) -> None:
    with running_cluster(tmp_path, isolation) as cluster:
        create(cluster, "t")
        writer = Writer(cluster.bootstrap)
        writer.send("t", *range(50))
        leader = cluster.partition("t").leader_id
        epoch = cluster.partition("t").leader_epoch
        victim = cluster.supervisor.brokers[leader]
        pid = victim.pid
        if isolation == "process":
            os.kill(pid, signal.SIGKILL)
            until(lambda: not victim.running)
        else:
            cluster.run(victim.kill())
        writer.send("t", *range(50, 100))
        after = cluster.partition("t")
        assert after.leader_id != leader and after.leader_epoch > epoch
        assert leader not in after.isr_nodes and len(after.isr_nodes) == 2
        cluster.run(victim.start())
        until(lambda: isr_is_full(cluster, "t"))
        assert isolation == "thread" or victim.pid != pid
        writer.send("t", *range(100, 110))
        assert writer.errors == [] and writer.acked == list(range(110))
        assert read_as_group(cluster.bootstrap, "t", 110) == list(range(110))
        first, second, third = cluster.logs("t")
        assert first == second == third and len(first) > 0


@BOTH
def test_a_cluster_stops_cleanly_and_comes_back_with_its_data_and_ports(
    isolation: str, tmp_path: Path
) -> None:
    with running_cluster(tmp_path, isolation) as cluster:
        bootstrap = cluster.bootstrap
        create(cluster, "t", 2)
        Writer(bootstrap).send("t", *range(10))
        cluster.run(cluster.supervisor.stop())
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == ["broker-1", "broker-2", "broker-3", "controller"]
        for number in (1, 2, 3):
            assert (tmp_path / f"broker-{number}" / ".kafka_cleanshutdown").exists()
        cluster.run(cluster.supervisor.start())
        assert cluster.bootstrap == bootstrap
        until(lambda: isr_is_full(cluster, "t"))
        assert sorted(read_as_group(bootstrap, "t", 10)) == list(range(10))


def test_a_group_goes_on_with_its_offsets_when_its_coordinator_is_killed(tmp_path: Path) -> None:
    from confluent_kafka import Consumer, KafkaException

    with running_cluster(tmp_path) as cluster:
        create(cluster, "t")
        writer = Writer(cluster.bootstrap)
        writer.send("t", *range(20))
        group = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**QUICK, "bootstrap.servers": cluster.bootstrap, **group})
        consumer.subscribe(["t"])
        found: list[int] = []

        def poll() -> bool:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                found.append(int(message.value()))
            return len(found) == len(writer.acked)

        def commit() -> bool:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException:
                return False
            return True

        until(poll)
        assert commit()
        coordinator = cluster.ask(1, 3, FindCoordinatorRequest(key="g")).node_id
        cluster.run(cluster.supervisor.brokers[coordinator].kill())
        writer.send("t", *range(20, 40))
        until(poll)
        until(commit)
        consumer.close()
        assert found == list(range(40))
        cluster.run(cluster.supervisor.brokers[coordinator].start())


def test_a_broker_that_stops_hands_over_its_leaderships_before(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        create(cluster, "t", 6)
        leaders = [cluster.partition("t", index).leader_id for index in range(6)]
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
        cluster.run(cluster.supervisor.brokers[2].stop())
        for index in range(6):
            left = cluster.partition("t", index, by=1)
            assert left.leader_id in (1, 3) and sorted(left.isr_nodes) == [1, 3]


def test_what_one_broker_is_asked_every_broker_knows_at_the_answer(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        for round_ in range(5):
            name = f"t{round_}"
            topic = CreatableTopic(name=name, num_partitions=3, replication_factor=3)
            response = cluster.ask(2, 7, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
            assert response.topics[0].error_code == 0
            for broker in (1, 2, 3):
                assert len(cluster.partition(name, 2, by=broker).isr_nodes) == 3
            change = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
                        resource_type=2,
                        resource_name=name,
                        configs=[IncrementalAlterableConfig(name="retention.ms", value="77777")],
                    )
                ]
            )
            assert cluster.ask(3, 1, change).responses[0].error_code == 0
            describe = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=2, resource_name=name, configuration_keys=["retention.ms"]
                    )
                ]
            )
            for broker in (1, 2, 3):
                (result,) = cluster.ask(broker, 4, describe).results
                assert result.configs[0].value == "77777"
                assert (
                    cluster.core(broker)
                    .services.replica_manager.by_key[name, 0]
                    .log.config.retention_ms
                    == 77777
                )


def test_a_topic_is_made_on_demand_and_asked_for_once(tmp_path: Path) -> None:
    with running_cluster(tmp_path, default_replication_factor="3") as cluster:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name="made"), MetadataRequestTopic(name="made too")]
        )
        answers = {t.name: t for t in cluster.ask(2, METADATA_VERSION, request).topics}
        assert answers["made"].error_code == 0
        assert len(answers["made"].partitions[0].isr_nodes) == 3
        assert answers["made too"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        given = []
        for broker in (1, 2, 3) * 3:
            response = cluster.ask(broker, 4, InitProducerIdRequest(transactional_id=None))
            assert response.error_code == 0
            given.append(response.producer_id)
        assert len(set(given)) == 9


def test_without_a_controller_admin_requests_time_out_and_with_it_all_goes_on(
    tmp_path: Path,
) -> None:
    with running_cluster(tmp_path) as cluster:
        create(cluster, "t")
        writer = Writer(cluster.bootstrap)
        writer.send("t", 1)
        epochs = {n: cluster.core(n).services.replica_manager.broker_epoch for n in (1, 2, 3)}
        cluster.run(cluster.supervisor.controller.kill())
        topic = CreatableTopic(name="u", num_partitions=1, replication_factor=3)
        response = cluster.ask(1, 7, CreateTopicsRequest(topics=[topic], timeout_ms=50))
        assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        writer.send("t", 2)  # what the brokers know they need not ask
        cluster.run(cluster.supervisor.controller.start())
        create(cluster, "u")
        until(lambda: isr_is_full(cluster, "t"))
        writer.send("t", 3)
        assert writer.acked == [1, 2, 3]
        assert set(epochs) == {1, 2, 3}


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    with running_cluster(
        tmp_path, replica_lag_time_max_ms="200", replica_fetch_wait_max_ms="100"
    ) as cluster:
        create(cluster, "t")
        leader = cluster.partition("t").leader_id
        follower = next(n for n in (1, 2, 3) if n != leader)
        writer = Writer(cluster.bootstrap)
        writer.send("t", 1)
        cluster.call(lambda: cluster.peers(follower).set_rules([LinkRule(leader)]))
        writer.send("t", 2)
        until(lambda: follower not in cluster.partition("t").isr_nodes)
        cluster.call(lambda: cluster.peers(follower).set_rules([]))
        until(lambda: isr_is_full(cluster, "t"))
        writer.send("t", 3)
        assert writer.acked == [1, 2, 3]
        first, second, third = cluster.logs("t")
        assert first == second == third


def test_a_broker_cut_off_from_the_controller_is_failed_and_registers_again(
    tmp_path: Path,
) -> None:
    with running_cluster(tmp_path) as cluster:
        create(cluster, "t")
        leader = cluster.partition("t").leader_id
        other = next(n for n in (1, 2, 3) if n != leader)
        before = cluster.core(leader).services.replica_manager.broker_epoch
        to_controller = [LinkRule(cluster.supervisor.controller_id)]
        cluster.call(lambda: cluster.peers(leader).set_rules(to_controller))
        until(lambda: cluster.partition("t", by=other).leader_id != leader)
        cluster.call(lambda: cluster.peers(leader).set_rules([]))
        until(lambda: isr_is_full(cluster, "t"))
        assert cluster.core(leader).services.replica_manager.broker_epoch > before


@BOTH
def test_a_last_stop_closes_no_logs(isolation: str, tmp_path: Path) -> None:
    """The directory of `running_cluster` counts as temporary, and would be deleted next."""
    with running_cluster(tmp_path, isolation) as cluster:
        create(cluster, "t", 2)
        Writer(cluster.bootstrap).send("t", *range(10))
        cluster.run(cluster.supervisor.stop(last=True))
        for number in (1, 2, 3):
            assert (tmp_path / f"broker-{number}" / "t-0" / "partition.metadata").exists()
            assert not (tmp_path / f"broker-{number}" / ".kafka_cleanshutdown").exists()


@BOTH
def test_a_paused_leader_is_replaced_when_its_lease_is_over_and_gives_way_when_it_goes_on(
    isolation: str, tmp_path: Path
) -> None:
    settings = {"broker_session_timeout_ms": "300", "broker_heartbeat_interval_ms": "50"}
    with running_cluster(tmp_path, isolation, **settings) as cluster:
        create(cluster, "t")
        writer = Writer(cluster.bootstrap)
        writer.send("t", *range(10))
        leader = cluster.partition("t").leader_id
        other = next(n for n in (1, 2, 3) if n != leader)
        cluster.call(cluster.supervisor.brokers[leader].pause)
        until(lambda: cluster.partition("t", by=other).leader_id != leader)
        cluster.call(cluster.supervisor.brokers[leader].resume)
        until(lambda: isr_is_full(cluster, "t"))
        writer.send("t", *range(10, 20))
        assert writer.acked == list(range(20)) and writer.errors == []
        first, second, third = cluster.logs("t")
        assert first == second == third


@pytest.mark.parametrize(
    "config",
    [
        {"advertised.listeners": "PLAINTEXT://nowhere.invalid:0"},
        {
            "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "inter.broker.listener.name": "OUT",
        },
    ],
    ids=["an address that only clients can reach", "a listener for brokers"],
)
def test_brokers_find_each_other_by_the_listener_that_is_theirs(
    tmp_path: Path, config: dict[str, str]
) -> None:
    with running_cluster(tmp_path, **config) as cluster:
        create(cluster, "t")
        assert sorted(cluster.partition("t", by=2).isr_nodes) == [1, 2, 3]
        for broker in (1, 2, 3):
            fetchers = cluster.core(broker).services.replica_manager.fetchers
            assert fetchers.failed == set()


def test_a_cluster_passes_for_an_old_release_and_speaks_the_newest_within(tmp_path: Path) -> None:
    with running_cluster(tmp_path, as_version="2.8") as cluster:
        create(cluster, "t")
        versions = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        ranges = {e.api_key: e.max_version for e in cluster.ask(1, 3, versions).api_keys}
        assert ranges[1] == 12
        writer = Writer(cluster.bootstrap)
        writer.send("t", *range(10))
        assert writer.acked == list(range(10))
        first, second, third = cluster.logs("t")
        assert first == second == third


# ---- the command line


def start_up(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kwire", "up", "--brokers", "3", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(item) for item in text.split()]


@BOTH
def test_kwire_up_lists_all_brokers_and_ends_with_status_0(isolation: str) -> None:
    process = start_up("--port", "0", "--isolation", isolation, "--topic", "t:2:3")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        addresses, control = line.removeprefix("ready bootstrap=").split(" ")
        assert addresses.count("127.0.0.1:") == 3
        assert control.startswith("control=http://127.0.0.1:")
        assert len(children_of(process.pid)) == (4 if isolation == "process" else 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_death_of_a_broker_process_is_told_in_one_line(tmp_path: Path) -> None:
    process = start_up("--port", "0", "--isolation", "process", "--log-level", "error")
    try:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        os.kill(children_of(process.pid)[2], signal.SIGKILL)
        line = process.stderr.readline()
        assert "broker 2 has ended (killed by SIGKILL)" in line
        assert process.poll() is None and len(children_of(process.pid)) == 3
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 0
    finally:
        process.kill()
        process.communicate()


def test_nodes_do_not_outlive_their_supervisor() -> None:
    process = start_up("--port", "0", "--isolation", "process")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        nodes = children_of(process.pid)
        process.kill()
        process.wait(10)
        until(lambda: not any(is_running(pid) for pid in nodes))
    finally:
        process.kill()
        process.communicate()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@BOTH
def test_a_port_that_is_taken_is_one_line_and_status_1(isolation: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start_up(
            "--port", str(port - 1), "--isolation", isolation, "--log-level", "error"
        )
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    (line,) = errors.strip().splitlines()
    assert f"cannot listen on 127.0.0.1:{port}" in line or f"127.0.0.1:{port - 1}" in line
    assert line.startswith("kwire up: broker ")


@BOTH
def test_a_configuration_that_is_refused_is_one_line_and_status_2(isolation: str) -> None:
    process = start_up("--port", "0", "--isolation", isolation, "-c", "num.partitions=many")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "num.partitions" in errors and "Traceback" not in errors


def test_a_single_node_says_what_it_lacks() -> None:
    arguments = ["node", "--id", "1", "--roles", "broker", "--data-dir", "/tmp/unused"]
    done = subprocess.run(
        [sys.executable, "-m", "kwire", *arguments],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 2
    assert done.stderr == "kwire node: --roles broker: --controller ID@HOST:PORT is needed\n"


def start_node(*arguments: str) -> tuple[subprocess.Popen[str], dict[str, str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "kwire", "node", "--log-level", "error", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    word, *items = process.stdout.readline().split()
    assert word == "ready"
    return process, dict(item.split("=", 1) for item in items)


def test_nodes_started_one_by_one_make_a_cluster(tmp_path: Path) -> None:
    processes = []
    try:
        arguments = ["--id", "1000", "--roles", "controller", "--data-dir", str(tmp_path / "c")]
        process, ready = start_node(*arguments)
        processes.append(process)
        controller = f"1000@{ready['bootstrap']}"
        for number in ("1", "2"):
            arguments = ["--id", number, "--roles", "broker", "--controller", controller]
            process, ready = start_node(*arguments, "--data-dir", str(tmp_path / number))
            processes.append(process)
            assert ready["id"] == number and ready["listeners"].startswith("PLAINTEXT://127.0.0.1:")
        cluster_ids = {
            next(
                line
                for line in (tmp_path / name / "meta.properties").read_text().splitlines()
                if line.startswith("cluster.id=")
            )
            for name in ("c", "1", "2")
        }
        assert len(cluster_ids) == 1
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_broker_under_a_foreign_controller_is_ready_without_it(tmp_path: Path) -> None:
    arguments = ["--id", "2", "--roles", "broker", "--controller", "1@127.0.0.1:1"]
    process, ready = start_node(*arguments, "--broker-epoch", "33", "--data-dir", str(tmp_path))
    try:
        assert ready["id"] == "2" and ready["roles"] == "broker"
    finally:
        process.kill()
        process.communicate()
