"""The image in a real engine: plain run, volume, clean stop, refusals, tools, three containers that replicate.

Skipped, with the reason, where no engine can run."""

import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from compat_tests import docker_engine

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(300)]

EXAMPLES = docker_engine.ROOT / "examples" / "compose"
MOST_BYTES_BEYOND_THE_BASE = 120 << 20
MOST_STOP_SECONDS = 2.0 * float(os.environ.get("KWIRE_SPEED_SLACK", "1"))


def produce(servers: str, topic: str, values: list[bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    try:
        for future in [producer.send(topic, value) for value in values]:
            future.get(20)
    finally:
        producer.close()


def consume(servers: str, topic: str, count: int, group: str | None = None) -> list[bytes]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    try:
        values = [record.value for record in islice(consumer, count)]
        if group:
            consumer.commit()
        return values
    finally:
        consumer.close()


def test_a_plain_run_serves_programs_of_this_machine() -> None:
    """docker run -p 9092:9092 kwire"""
    try:
        container = docker_engine.run(ports={"9092/tcp": 9092})
    except docker_engine.docker.errors.APIError as error:
        if "address already in use" in str(error) or "port is already allocated" in str(error):
            pytest.skip("port 9092 of this machine is taken")
        raise
    try:
        docker_engine.wait_ready(container)
        produce("localhost:9092", "words", [b"one", b"two"])
        assert sorted(consume("localhost:9092", "words", 2, group="readers")) == [b"one", b"two"]
    finally:
        container.remove(force=True, v=True)


def test_the_image_is_small_and_not_roots() -> None:
    client = docker_engine.engine()
    ours = client.images.get(docker_engine.image())
    base = client.images.get(docker_engine.base_image())
    beyond = ours.attrs["Size"] - base.attrs["Size"]
    print(f"\nimage: {beyond / 1e6:.0f} MB beyond {base.tags}")
    assert 0 < beyond < MOST_BYTES_BEYOND_THE_BASE
    assert ours.attrs["Config"]["User"] == "appuser"
    assert ours.attrs["Config"]["Healthcheck"]["Test"]
    assert "/var/lib/kafka/data" in ours.attrs["Config"]["Volumes"]


def test_topics_are_there_at_the_start_and_kafkas_tools_see_them() -> None:
    variables = {
        "KAFKA_CREATE_TOPICS": "orders:3:1,customers:1:1:compact",
        "KAFKA_NUM_PARTITIONS": "2",
    }
    with docker_engine.serving(variables) as (container, servers):
        assert run_inside(container, "kafka-topics.sh", "--list") == "customers\norders\n"
        described = run_inside(container, "kafka-topics", "--describe", "--topic", "customers")
        assert "cleanup.policy=compact" in described
        produce(servers, "made-by-writing", [b"x"])
        described = run_inside(
            container, "kafka-topics", "--describe", "--topic", "made-by-writing"
        )
        assert "PartitionCount: 2" in described
        read = ["kafka-console-consumer", "--topic", "made-by-writing", "--from-beginning"]
        assert run_inside(container, *read, "--max-messages", "1").startswith("x\n")
        run_inside(container, "cub", "kafka-ready", "1", "10")
        run_inside(container, "nc", "-z", "localhost", "9092")


def test_kafkas_tools_do_what_scripts_call_them_for() -> None:
    with docker_engine.serving({"KAFKA_CREATE_TOPICS": "words:5"}) as (container, servers):

        def tool(name: str, *arguments: str) -> str:
            return run_inside(container, name, "--bootstrap-server", "localhost:9092", *arguments)

        create = ["--create", "--if-not-exists", "--topic", "t", "--partitions", "3"]
        assert tool("kafka-topics", *create, "--replication-factor", "1") == "Created topic t.\n"
        assert tool("kafka-topics", *create, "--replication-factor", "1") == ""
        tool("kafka-topics", "--alter", "--topic", "t", "--partitions", "4")
        assert "PartitionCount: 4" in tool("kafka-topics.sh", "--describe", "--topic", "t")
        assert tool("kafka-topics", "--describe", "--under-replicated-partitions") == ""
        tool("kafka-topics", "--delete", "--topic", "t")
        assert tool("kafka-topics", "--list", "--exclude-internal") == "words\n"
        assert "Produce(0): 0 to " in tool("kafka-broker-api-versions")

        # Keys land where stock clients put them.
        lines = "".join(f"key{i}:{i}\n" for i in range(20))
        keyed = "--property parse.key=true --property key.separator=:"
        produce_keys = f"printf '{lines}' | kafka-console-producer --topic words {keyed} --broker-list localhost:9092"
        run_inside(container, "sh", "-c", produce_keys)
        producer = KafkaProducer(bootstrap_servers=servers)
        stock = {
            i: producer.send("words", b"", key=b"key%d" % i).get(20).partition for i in range(20)
        }
        producer.close()
        shown = [f"--property=print.{name}=true" for name in ("partition", "key")]
        read = ["--topic", "words", "--from-beginning", "--max-messages", "40", *shown]
        said = tool("kafka-console-consumer", *read, "--group", "readers")
        rows = [line.split("\t") for line in said.splitlines() if line.startswith("Partition:")]
        assert len(rows) == 40
        for place, key, _ in rows:
            assert place == f"Partition:{stock[int(key.removeprefix('key'))]}"

        # Everything was read: the group is at the end, and a second reading finds nothing.
        assert "readers" in tool("kafka-consumer-groups", "--list").split()
        table = tool("kafka-consumer-groups", "--describe", "--group", "readers").splitlines()
        assert all(row.split()[5] == "0" for row in table if row.startswith("readers"))
        again = ["--topic", "words", "--group", "readers", "--timeout-ms", "500"]
        assert "Processed a total of 0 messages" in tool("kafka-console-consumer", *again)
        back = ["--reset-offsets", "--group", "readers", "--topic", "words", "--to-earliest"]
        tool("kafka-consumer-groups", *back, "--execute")
        assert "Processed a total of 40 messages" in tool("kafka-console-consumer", *again)
        shell = ["kafka-run-class", "kafka.tools.GetOffsetShell", "--broker-list", "localhost:9092"]
        ends = run_inside(container, *shell, "--topic", "words").split()
        assert sum(int(each.split(":")[2]) for each in ends) == 40


def test_a_tool_waits_for_a_broker_that_does_not_listen_yet() -> None:
    late = "(sleep 1; exec /etc/kafka/docker/run >/dev/null) & exec kafka-topics"
    create = f"{late} --bootstrap-server localhost:9092 --create --topic t"
    container = docker_engine.run(command=["sh", "-c", create])
    try:
        assert container.wait(timeout=60)["StatusCode"] == 0, container.logs()
        assert container.logs(stderr=False) == b"Created topic t.\n"
    finally:
        container.remove(force=True, v=True)


def run_inside(container: Any, *command: str) -> str:
    """What it writes to stdout, then what to stderr: the engine brings the two in no certain order."""
    status, written = container.exec_run(list(command), demux=True)
    output = b"".join(stream for stream in written if stream is not None).decode()
    assert status == 0, output
    return output


def test_the_health_check_passes_once_it_is_ready() -> None:
    with docker_engine.running() as container:
        deadline = time.monotonic() + 20
        while container.attrs["State"].get("Health", {}).get("Status") != "healthy":
            assert time.monotonic() < deadline, container.attrs["State"]
            time.sleep(0.1)
            container.reload()


def test_a_second_start_in_a_container_that_runs_is_refused_and_does_no_harm() -> None:
    with docker_engine.running() as container:
        status, said = container.exec_run(["/etc/kafka/docker/run"])
        assert (status, b"port 9092 is in use by kwire up" in said) == (1, True), said
        assert container.exec_run(["kafka-server-start", "/nosuch"])[0] == 1
        run_inside(container, "/opt/kafka/bin/kwire-health")
        run_inside(container, "kafka-topics", "--list")


def test_each_ready_line_is_said_once_on_stdout() -> None:
    with docker_engine.running({"KAFKA_NODE_ID": "7"}) as container:
        said = container.logs(stderr=False).decode()
    for line in (
        "Transitioning from RECOVERY to RUNNING",
        "[KafkaServer id=7] started",
        "Kafka Server started",
    ):
        assert said.count(line) == 1, said


@pytest.fixture
def volume() -> Iterator[str]:
    made = docker_engine.engine().volumes.create(labels={docker_engine.LABEL: "1"})
    yield made.name
    made.remove(force=True)


def test_a_volume_keeps_records_and_offsets_over_clean_stops_and_kills(volume: str) -> None:
    volumes = {volume: {"bind": "/var/lib/kafka/data", "mode": "rw"}}
    with docker_engine.serving(volumes=volumes) as (container, servers):
        produce(servers, "words", [b"one", b"two"])
        assert consume(servers, "words", 2, group="readers") == [b"one", b"two"]
        assert docker_engine.stop_seconds(container) < MOST_STOP_SECONDS
        container.reload()
        assert container.attrs["State"]["ExitCode"] == 0
    with docker_engine.serving(volumes=volumes) as (container, servers):
        produce(servers, "words", [b"three"])
        container.kill()
    with docker_engine.serving(volumes=volumes) as (_, servers):
        assert consume(servers, "words", 1, group="readers") == [b"three"]
        assert consume(servers, "words", 3) == [b"one", b"two", b"three"]


def test_a_volume_of_another_cluster_is_refused(volume: str) -> None:
    volumes = {volume: {"bind": "/var/lib/kafka/data", "mode": "rw"}}
    with docker_engine.running({"CLUSTER_ID": "first"}, volumes=volumes):
        pass
    status, said = docker_engine.outcome({"CLUSTER_ID": "second"}, volumes=volumes)
    assert status == 1
    assert len(said) == 1
    assert "belongs to cluster first, not to second" in said[0]


def test_a_stop_is_clean_and_quick_with_clients_connected() -> None:
    with docker_engine.serving() as (container, servers):
        produce(servers, "words", [b"one"])
        consumer = KafkaConsumer("words", bootstrap_servers=servers, group_id="stays")

        def poll() -> None:
            with contextlib.suppress(KafkaError):  # the broker goes away under it
                consumer.poll(timeout_ms=3_000)

        polls = threading.Thread(target=poll)
        polls.start()
        seconds = docker_engine.stop_seconds(container)
        container.reload()
        assert container.attrs["State"]["ExitCode"] == 0
        assert b"stopped" in container.logs()
        polls.join()
        consumer.close(autocommit=False)
    print(f"\ndocker stop: {seconds:.2f} s")
    assert seconds < MOST_STOP_SECONDS


@pytest.mark.parametrize("command", [None, ["kafka-server-start", "/dev/null"]], ids=str)
@pytest.mark.parametrize("delay_ms", [0, 10, 50, 100, 200, 500])
def test_a_stop_at_any_moment_of_the_start_is_clean_and_quick(
    delay_ms: int, command: list[str] | None
) -> None:
    """Any moment from which on its shell hears signals: the kernel keeps an earlier one from process 1."""
    container = docker_engine.run(command=command)
    try:
        docker_engine.wait_handles_sigterm(container)
        time.sleep(delay_ms / 1000)  # the moment is what is tested
        seconds = docker_engine.stop_seconds(container)
        container.reload()
        assert (container.attrs["State"]["ExitCode"], seconds < MOST_STOP_SECONDS) == (0, True)
    finally:
        container.remove(force=True, v=True)


def test_a_container_tells_its_status_on_sigusr1_and_survives_an_early_one() -> None:
    with docker_engine.running() as container:
        container.kill("SIGUSR1")
        deadline = time.monotonic() + 20
        while b"PartitionCount=0" not in container.logs():
            assert time.monotonic() < deadline, container.logs()
            time.sleep(0.02)
        container.stop(timeout=10)
        container.start()
        container.kill("SIGUSR1")
        docker_engine.wait_ready(container, count=2)


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({"KAFKA_NUM_PARTITIONS": "many"}, "KAFKA_NUM_PARTITIONS: Invalid value many"),
        ({"KAFKA_LISTENERS": "9092"}, "listeners"),
        ({"KAFKA_LISTENERS": "A://:9092"}, "listener A has no protocol"),
        ({"KAFKA_NODE_ID": "-5"}, "KAFKA_NODE_ID=-5"),
        ({"KAFKA_PROCESS_ROLES": "broker"}, "KAFKA_CONTROLLER_QUORUM_VOTERS"),
        ({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://0.0.0.0:9092"}, "0.0.0.0"),
        ({"KAFKA_CREATE_TOPICS": "orders:none"}, "KAFKA_CREATE_TOPICS"),
        ({"KAFKA_CREATE_TOPICS": "orders:1:3"}, "orders"),
        ({"KAFKA_PROCESS_ROLES": "zookeeper"}, "KAFKA_PROCESS_ROLES"),
        ({"KAFKA_ADVERTISED_LISTENERS": "SSL://localhost:9093"}, "SSL"),
    ],
    ids=lambda value: next(iter(value.items()))[1] if isinstance(value, dict) else "",
)
def test_a_wrong_variable_is_refused_in_one_line(variables: dict[str, str], names: str) -> None:
    status, said = docker_engine.outcome({"KWIRE_LOG_LEVEL": "error", **variables})
    assert (status, len(said)) == (2, 1), said
    assert names in said[0]


def test_a_directory_that_cannot_be_written_or_is_in_use_is_refused(
    volume: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    quiet = {"KWIRE_LOG_LEVEL": "error"}
    for mode in ("rw", "ro"):
        binds = {str(tmp_path): {"bind": "/var/lib/kafka/data", "mode": mode}}
        status, said = docker_engine.outcome(quiet, volumes=binds, user="4711")
        assert (status, len(said)) == (1, 1), said
        assert "/var/lib/kafka/data is not writable for uid 4711" in said[0]
    assert list(tmp_path.iterdir()) == []
    volumes = {volume: {"bind": "/var/lib/kafka/data", "mode": "rw"}}
    with docker_engine.running(volumes=volumes):
        status, said = docker_engine.outcome(quiet, volumes=volumes)
        assert (status, len(said)) == (1, 1), said
        assert "in use" in said[0]


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        variables = {
            "KWIRE_LOG_LEVEL": "error",
            "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        }
        status, said = docker_engine.outcome(variables, network_mode="host")
    assert (status, len(said)) == (1, 1), said
    assert f"127.0.0.1:{port}" in said[0]


def test_a_read_only_container_with_a_volume_works(volume: str) -> None:
    volumes = {volume: {"bind": "/var/lib/kafka/data", "mode": "rw"}}
    with docker_engine.serving(volumes=volumes, read_only=True, tmpfs={"/tmp": ""}) as (_, servers):
        produce(servers, "words", [b"one"])


# -- compose files ---------------------------------------------------------------------------------------------------


def test_the_example_of_one_broker() -> None:
    with docker_engine.Compose(EXAMPLES / "one-broker.yml") as compose:
        compose.wait_ready()
        servers = f"localhost:{compose.ports['9092']}"
        produce(servers, "orders", [b"one"])
        read = ["kafka-console-consumer", "--bootstrap-server", "kafka:19092", "--topic", "orders"]
        beside = docker_engine.engine().containers.run(
            docker_engine.image(),
            [*read, "--from-beginning", "--max-messages", "1"],
            network=compose.name,
            detach=True,
        )
        try:
            assert beside.wait(timeout=60)["StatusCode"] == 0, beside.logs()
            assert beside.logs(stderr=False) == b"one\n"
        finally:
            beside.remove(force=True, v=True)


def leader_of(servers: str, topic: str) -> int:
    from confluent_kafka.admin import AdminClient

    found = AdminClient({"bootstrap.servers": servers}).list_topics(topic, timeout=20)
    return int(found.topics[topic].partitions[0].leader)


class SteadyProducer:
    """Writes numbered records with acks=all until told to stop; knows which were acknowledged."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {"bootstrap.servers": servers, "acks": "all", "linger.ms": 1, "log_level": 0}
        )
        self._topic = topic
        self.acknowledged: list[bytes] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "SteadyProducer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _work(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(
                self._topic, b"%d" % number, partition=0, on_delivery=self._delivered
            )
            number += 1
            self._producer.poll(0.001)
        self._producer.flush(30)

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value())

    def wait_for(self, more: int) -> None:
        """Until so many more records are acknowledged."""
        goal, deadline = len(self.acknowledged) + more, time.monotonic() + 60
        while len(self.acknowledged) < goal:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {goal} acknowledged"
            time.sleep(0.01)


def test_three_containers_lose_nothing_when_the_leaders_is_killed() -> None:
    with docker_engine.Compose(EXAMPLES / "three-brokers.yml") as compose:
        compose.wait_ready()
        servers = ",".join(f"localhost:{port}" for port in compose.ports.values())
        deadline = time.monotonic() + 20
        while "orders" not in run_inside(compose.containers["kafka-1"], "kafka-topics", "--list"):
            assert time.monotonic() < deadline, "the topic of KAFKA_CREATE_TOPICS is not made"
        # The coordinators' topic wants three brokers when it is made.
        produce(servers, "before", [b"one"])
        assert consume(servers, "before", 1, group="readers") == [b"one"]
        leader = leader_of(servers, "orders")
        with SteadyProducer(servers, "orders") as producer:
            producer.wait_for(300)
            start = time.monotonic()
            compose.containers[f"kafka-{leader}"].kill()
            producer.wait_for(300)
            seconds = time.monotonic() - start
        print(f"\nleader {leader} killed: 300 more records acknowledged {seconds:.2f} s later")
        assert leader_of(servers, "orders") != leader
        assert set(producer.acknowledged) <= set(read_all(servers, "orders"))

        compose.containers[f"kafka-{leader}"].start()
        docker_engine.wait_ready(compose.containers[f"kafka-{leader}"], count=2)
        produce(servers, "before", [b"two"])
        assert consume(servers, "before", 1, group="readers") == [b"two"]
        # The controller first, which nobody would do: who is left must not wait for it.
        for name, container in compose.containers.items():
            seconds = docker_engine.stop_seconds(container)
            print(f"docker stop of {name}: {seconds:.2f} s")
            assert seconds < MOST_STOP_SECONDS, name
            container.reload()
            assert container.attrs["State"]["ExitCode"] == 0


def test_a_second_broker_with_the_same_id_is_refused() -> None:
    with docker_engine.Compose(EXAMPLES / "three-brokers.yml") as compose:
        compose.wait_ready()
        variables = {
            "KWIRE_LOG_LEVEL": "error",
            "KAFKA_PROCESS_ROLES": "broker",
            "KAFKA_NODE_ID": "1",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "4@controller:9093",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://elsewhere:9092",
            "KAFKA_INITIAL_BROKER_REGISTRATION_TIMEOUT_MS": "2000",
        }
        status, said = docker_engine.outcome(variables, network=compose.name)
        assert (status, len(said)) == (1, 1), said
        assert "did not take up broker 1 within 2000 ms" in said[0]


@pytest.mark.parametrize("controllers", [1, 2])
def test_three_nodes_with_both_roles_are_one_cluster(tmp_path: Path, controllers: int) -> None:
    """As many compose files have it: each container broker and controller, the controllers a quorum.

    With two that share a directory the second takes over when the first one's container is killed."""
    import yaml

    example = yaml.safe_load((EXAMPLES / "three-brokers.yml").read_text())
    services = {name: each for name, each in example["services"].items() if name != "controller"}
    for service in services.values():
        del service["depends_on"]
        service["environment"].update(
            KAFKA_PROCESS_ROLES="broker,controller",
            KAFKA_CONTROLLER_QUORUM_VOTERS="1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093",
            KAFKA_LISTENERS="HOST://:9092,INSIDE://:19092,CONTROLLER://:9093",
        )
        if controllers > 1:
            service["environment"].update(
                KWIRE_CONTROLLERS=controllers, KWIRE_CONTROLLER_DIR="/var/lib/kafka/controller"
            )
            service["volumes"].append("controller:/var/lib/kafka/controller")
    path = tmp_path / "both-roles.yml"
    text = yaml.safe_dump({"services": services}, default_style=None)
    path.write_text(re.sub(r"- (\d+:9092)", r'- "\1"', text.replace("'", "")))
    with docker_engine.Compose(path) as compose:
        compose.wait_ready()
        servers = ",".join(f"localhost:{port}" for port in compose.ports.values())
        produce(servers, "words", [b"one"])
        described = run_inside(
            compose.containers["kafka-2"], "kafka-topics", "--describe", "--topic", "words"
        )
        assert sorted(described.split("Replicas: ")[1].split()[0].split(",")) == ["1", "2", "3"]
        if controllers > 1:
            compose.containers["kafka-1"].kill()
            run_inside(
                compose.containers["kafka-2"],
                *("kafka-topics", "--create", "--topic", "more", "--replication-factor", "2"),
            )
        for container in reversed(compose.containers.values()):
            assert docker_engine.stop_seconds(container) < MOST_STOP_SECONDS


def read_all(servers: str, topic: str) -> list[bytes]:
    """Everything in partition 0 up to its end."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "all",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                if message.error().name() == "_PARTITION_EOF":
                    return values
                continue
            values.append(message.value())
        raise AssertionError("the end of the partition was not reached")
    finally:
        consumer.close()
