"""A whole cluster in one container, ports published in the usual wrong way, and a container's health.

Skipped, with the reason, where no engine can run."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compat_tests import docker_engine
from compat_tests.brokers import free_port
from compat_tests.test_docker_image import (
    MOST_STOP_SECONDS,
    SteadyProducer,
    consume,
    leader_of,
    produce,
    read_all,
    run_inside,
    volume,
)

__all__ = ["volume"]  # a fixture

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(300)]

CONTROL_PORT = 9099
TOKEN = "tea-for-two"
HEALTHY_SECONDS = 20.0


def free_ports(count: int) -> int:
    """The first of so many ports in a row that are free."""
    import socket
    from contextlib import ExitStack

    for _ in range(50):
        first = free_port()
        try:
            with ExitStack() as stack:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
                return first
        except OSError:
            continue
    raise AssertionError("no free ports in a row")


@contextmanager
def cluster(**variables: str) -> Iterator[tuple[Any, str, str]]:
    """Three brokers in a container: it, their bootstrap servers, and the URL of the control API."""
    first, control = free_ports(3), free_port()
    ports = {f"{9092 + i}/tcp": ("127.0.0.1", first + i) for i in range(3)}
    ports[f"{CONTROL_PORT}/tcp"] = ("127.0.0.1", control)
    given = {
        "KWIRE_BROKERS": "3",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{first}",
        "KAFKA_CREATE_TOPICS": "orders:3:3",
        "KWIRE_CONTROL_TOKEN": TOKEN,
    }
    volumes = variables.pop("volumes", None)
    with docker_engine.running({**given, **variables}, ports=ports, volumes=volumes) as container:
        servers = ",".join(f"127.0.0.1:{first + i}" for i in range(3))
        yield container, servers, f"http://127.0.0.1:{control}"


def call(url: str, method: str, path: str, body: object = None, token: str = TOKEN) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url + path, data, {"Authorization": f"Bearer {token}"}, method=method
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def wait_healthy(container: Any) -> None:
    deadline = time.monotonic() + HEALTHY_SECONDS
    while container.attrs["State"].get("Health", {}).get("Status") != "healthy":
        assert time.monotonic() < deadline, container.attrs["State"]
        time.sleep(0.02)
        container.reload()


@pytest.mark.parametrize("command", [None, ["/etc/confluent/docker/run"]], ids=["apache", "cp"])
def test_a_port_published_to_9092_beside_another_advertised_one(command: list[str] | None) -> None:
    """docker run -p 19192:9092 -e KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:19192"""
    outer = free_port()
    variables = {"KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{outer}"}
    for inner in (9092, outer):
        ports = {f"{inner}/tcp": ("127.0.0.1", outer)}
        with docker_engine.running(variables, ports=ports, command=command) as container:
            servers = f"localhost:{outer}"
            produce(servers, "words", [b"one"])
            assert consume(servers, "words", 1, group="readers") == [b"one"]
            for server in ("localhost:9092", servers):
                tool = ["kafka-consumer-groups", "--bootstrap-server", server, "--list"]
                assert run_inside(container, *tool).split() == ["readers"]


def test_three_brokers_in_a_container_lose_nothing_when_the_leader_is_killed() -> None:
    with cluster(KAFKA_MIN_INSYNC_REPLICAS="2") as (container, servers, url):
        wait_healthy(container)
        leader = leader_of(servers, "orders")
        with SteadyProducer(servers, "orders") as producer:
            producer.wait_for(300)
            assert call(url, "POST", f"/v1/brokers/{leader}/kill")["running"] is False
            producer.wait_for(300)
        assert leader_of(servers, "orders") != leader
        assert set(producer.acknowledged) <= set(read_all(servers, "orders"))
        run_inside(container, "kwire-health")  # two of three are enough
        assert call(url, "POST", f"/v1/brokers/{leader}/start")["running"] is True
        assert call(url, "GET", "/v1/topics")["topics"]["orders"] == 3
        others = [each for each in (1, 2, 3) if each != leader]
        call(url, "POST", "/v1/network/cuts", {"a": leader, "b": others})
        call(url, "DELETE", "/v1/network/cuts")
        assert "Isr: " in run_inside(container, "kafka-topics", "--describe", "--topic", "orders")
        call(url, "POST", "/v1/reset")
        assert run_inside(container, "kafka-topics", "--list") == ""
        assert docker_engine.stop_seconds(container) < MOST_STOP_SECONDS
        container.reload()
        assert container.attrs["State"]["ExitCode"] == 0


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_volume_keeps_a_cluster_over_clean_stops_and_kills(volume: str, isolation: str) -> None:
    mounted: Any = {volume: {"bind": "/var/lib/kafka/data", "mode": "rw"}}
    with cluster(volumes=mounted, KWIRE_ISOLATION=isolation) as (container, servers, _):
        produce(servers, "orders", [b"one"])
        assert docker_engine.stop_seconds(container) < MOST_STOP_SECONDS
    with cluster(volumes=mounted, KWIRE_ISOLATION=isolation) as (container, servers, _):
        produce(servers, "orders", [b"two"])
        container.kill()
    with cluster(volumes=mounted, KWIRE_ISOLATION=isolation) as (_, servers, _url):
        assert sorted(consume(servers, "orders", 2)) == [b"one", b"two"]
    quiet = {"KWIRE_LOG_LEVEL": "error"}
    status, said = docker_engine.outcome(quiet, volumes=mounted)
    assert (status, len(said)) == (1, 1) and "start it with KWIRE_BROKERS=3" in said[0], said
    foreign = {**quiet, "KWIRE_BROKERS": "3", "CLUSTER_ID": "another"}
    status, said = docker_engine.outcome(foreign, volumes=mounted)
    assert (status, len(said)) == (1, 1) and "not to another" in said[0], said


def test_a_read_only_cluster_of_any_user_works(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    mounted: Any = {str(tmp_path): {"bind": "/var/lib/kafka/data", "mode": "rw"}}
    options = {"read_only": True, "user": "4711", "volumes": mounted}
    with docker_engine.running({"KWIRE_BROKERS": "3"}, **options) as container:
        create = ["kafka-topics", "--create", "--topic", "t", "--replication-factor", "3"]
        assert run_inside(container, *create) == "Created topic t.\n"
        assert docker_engine.stop_seconds(container) < MOST_STOP_SECONDS


def test_kwires_own_commands_work_inside() -> None:
    for brokers in ("1", "3"):
        with docker_engine.running({"KWIRE_BROKERS": brokers}) as container:
            run_inside(container, "sh", "-c", "echo tea | kwire produce orders")
            assert run_inside(container, "kwire", "consume", "orders") == "tea\n"
            assert "orders" in run_inside(container, "kwire", "topics")
            said = run_inside(container, "kwire", "ctl", "status")
            assert said.count("running") == (1 if brokers == "1" else 4), said


def test_kwire_up_in_a_container_is_healthy_and_published() -> None:
    first, control = free_ports(2), free_port()
    command = (
        f"kwire up --brokers 2 --host 0.0.0.0 --port {first} --advertise localhost"
        f" --control-host 0.0.0.0 --control-port {control}"
    )
    ports = {f"{port}/tcp": ("127.0.0.1", port) for port in (first, first + 1, control)}
    container = docker_engine.run(command=command.split(), ports=ports)
    try:
        docker_engine.wait_ready(container, b"ready bootstrap=")
        wait_healthy(container)
        produce(f"localhost:{first}", "words", [b"one"])
        url = f"http://127.0.0.1:{control}"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            call(url, "GET", "/v1/cluster")
        token = container.logs().partition(b" control=http://kwire:")[2].partition(b"@")[0].decode()
        found = call(url, "GET", "/v1/cluster", token=token)
        assert [each["running"] for each in found["brokers"]] == [True, True]
        assert docker_engine.stop_seconds(container) < MOST_STOP_SECONDS
    finally:
        container.remove(force=True, v=True)


def test_a_restarted_container_is_healthy_again() -> None:
    with docker_engine.running() as container:
        wait_healthy(container)
        container.restart(timeout=10)
        container.reload()
        assert container.attrs["State"]["Health"]["Status"] == "starting"
        wait_healthy(container)


def test_the_log_says_what_is_advertised_and_what_means_nothing() -> None:
    variables = {"KAFKA_NUM_PARTITION": "3", "KAFKA_PORT": "tcp://10.0.0.1:9092"}
    with docker_engine.running(variables) as container:
        said = container.logs(stdout=False).decode()
    assert (
        "KAFKA_NUM_PARTITION: unknown variable, ignored; did you mean KAFKA_NUM_PARTITIONS?" in said
    )
    assert "advertised to clients: localhost:9092; if you publish another port" in said
    assert said.count("WARNING") == 1, said


def test_tools_for_partitions_and_load_are_in_the_image() -> None:
    with docker_engine.running({"KAFKA_CREATE_TOPICS": "orders:1:1"}) as container:
        load = "kafka-producer-perf-test.sh --topic orders --num-records 100 --record-size 10"
        said = run_inside(container, *load.split(), "--throughput", "-1")
        assert "100 records sent, " in said
        described = run_inside(container, "kafka-log-dirs", "--describe").splitlines()[-1]
        (directory,) = json.loads(described)["brokers"][0]["logDirs"]
        assert directory["partitions"][0]["partition"] == "orders-0"
        first = f"{directory['logDir']}/orders-0/00000000000000000000.log"
        assert "count=100 " in run_inside(container, "kafka-dump-log", "--files", first)
        dump = ["kafka-run-class", "kafka.tools.DumpLogSegments", "--print-data-log", "--files"]
        assert run_inside(container, *dump, first).count("\n") > 100
        before = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 40}]}'
        delete = f"echo '{before}' >f.json; kafka-delete-records.sh --offset-json-file f.json"
        assert "orders-0\tlow_watermark: 40" in run_inside(container, "sh", "-c", delete)
        elect = "kafka-leader-election --election-type preferred --all-topic-partitions"
        assert run_inside(container, *elect.split()) == ""
        assert run_inside(container, "kafka-topics", "--version").startswith("3.9.1 (kwire ")
        status, said = container.exec_run(["kafka-acls", "--list"])
        assert status == 1
        assert b"No Authorizer is configured on the broker" in said
