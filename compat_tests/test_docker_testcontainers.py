"""Testcontainers as published, unchanged, against kwire's image under the names of Kafka's.

Without the reaper container, which cannot be pulled everywhere. Each prints the time from start() to ready, of which
the wait strategies' polling is a part. Skipped, with the reason, where no engine can run.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # read at import

from compat_tests import docker_engine, tooling
from compat_tests.test_docker_image import consume, produce

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(300)]

JAVA = tooling.HERE / "java" / "testcontainers"
MOST_SECONDS = 20.0
LOCKED = [
    *("ConfluentKafkaContainer/sasl", "Formatted/scram"),
    *("ConfluentKafkaContainer/tls", "OldKafkaContainer/sasl"),
]
"""Log-ins by environment variables and a JAAS file, as the examples of Testcontainers have them; "tls": by a key
store over TLS, too."""


@pytest.fixture(scope="module")
def names() -> Iterator[None]:
    """The names that the modules ask for."""
    with (
        docker_engine.tagged("confluentinc/cp-kafka", "7.4.0"),
        docker_engine.tagged("apache/kafka", "3.9.1"),
    ):
        yield


@pytest.mark.parametrize("mode", ["zookeeper", "kraft"])
@pytest.mark.usefixtures("names")
def test_pythons_kafka_container(mode: str) -> None:
    from testcontainers.community.kafka import KafkaContainer

    container = KafkaContainer("confluentinc/cp-kafka:7.4.0")
    if mode == "kraft":
        container.with_kraft()
    start = time.monotonic()
    with container:
        seconds = time.monotonic() - start
        print(f"\nPython KafkaContainer, {mode}: ready in {seconds * 1000:.0f} ms")
        servers = container.get_bootstrap_server()
        produce(servers, "words", [b"one", b"two"])
        assert sorted(consume(servers, "words", 2, group="readers")) == [b"one", b"two"]
    assert seconds < MOST_SECONDS


def java_jars() -> Path:
    """Testcontainers for Java and Kafka's client, by Maven."""
    folder = tooling.BUILD / "testcontainers-java"
    pom = JAVA / "pom.xml"

    def work() -> None:
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        argv = ["mvn", "-B", "-q", "-f", str(pom), *copy, f"-DoutputDirectory={folder}"]
        tooling._run("jars of Testcontainers", argv)

    tooling._once("testcontainers-java", pom.read_text(), work)  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="module")
def java_said(names: None) -> dict[str, str]:
    """One Java process for all classes: what it said of each."""
    java = tooling.java()
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60)
    if "jdk.compiler" not in modules.stdout:
        raise tooling.ToolMissing("a JDK is needed, and only a Java runtime is here")
    wanted = [
        *("KafkaContainer", "apache/kafka:3.9.1"),
        *("ConfluentKafkaContainer", "confluentinc/cp-kafka:7.4.0"),
        *("OldKafkaContainer", "confluentinc/cp-kafka:7.4.0"),
        *("OldKafkaContainer+kraft", "confluentinc/cp-kafka:7.4.0"),
        *(word for kind in LOCKED for word in (kind, "confluentinc/cp-kafka:7.4.0")),
    ]
    fast = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    quiet = [
        f"-Dorg.slf4j.simpleLogger.{name}=error"
        for name in ("defaultLogLevel", "log.org.testcontainers")
    ]
    environment = {
        **os.environ,
        "TESTCONTAINERS_RYUK_DISABLED": "true",
        "TESTCONTAINERS_CHECKS_DISABLE": "true",
        # In a container itself it would ask an alpine image for the way to the engine.
        "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
        "STORES": str(docker_engine.ROOT / "tests" / "data" / "tls"),
    }
    argv = [java, *fast, *quiet, "-cp", f"{java_jars()}/*", str(JAVA / "ContainerStart.java")]
    done = subprocess.run(
        [*argv, *wanted], env=environment, capture_output=True, text=True, timeout=200
    )
    found = dict(re.findall(r"^(\S+) (ready_ms=\d+ read=\d+)$", done.stdout, re.MULTILINE))
    if done.returncode:
        found["failure"] = (done.stdout + done.stderr)[-3000:]
    return found


@pytest.mark.parametrize(
    "kind",
    [
        *("KafkaContainer", "ConfluentKafkaContainer", "OldKafkaContainer"),
        *("OldKafkaContainer+kraft", *LOCKED),
    ],
)
def test_javas_containers(java_said: dict[str, str], kind: str) -> None:
    assert kind in java_said, java_said.get("failure", json.dumps(java_said))
    print(f"\nJava {kind}: {java_said[kind]}")
    ready_ms, read = (int(item.split("=")[1]) for item in java_said[kind].split())
    assert read == 10
    assert ready_ms / 1000 < MOST_SECONDS


@pytest.mark.parametrize("is_tls", [False, True], ids=["sasl", "tls"])
def test_gos_container_with_a_log_in(is_tls: bool) -> None:
    program = tooling.go_program(tooling.HERE / "go_containers", ".", "go-containers")
    environment = {
        **os.environ,
        "TESTCONTAINERS_RYUK_DISABLED": "true",
        "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",  # as for Java above
    }
    if is_tls:
        environment["STORES"] = str(docker_engine.ROOT / "tests" / "data" / "tls")
    with docker_engine.tagged("confluentinc/confluent-local", "7.5.0") as name:
        done = subprocess.run(
            [program, name], env=environment, capture_output=True, text=True, timeout=120
        )
    print(f"\nGo KafkaContainer: {done.stdout.strip()}")
    assert re.fullmatch(r"ready_ms=\d+ read=10\n", done.stdout), done.stdout + done.stderr[-3000:]


@pytest.mark.usefixtures("names")
def test_what_pyspark_asks_of_the_container() -> None:
    """As Spark's own test helper does (SPARK-55306): ZooKeeper mode, kafka-python's admin with short time-outs."""
    from kafka.admin import KafkaAdminClient, NewTopic
    from testcontainers.community.kafka import KafkaContainer

    with KafkaContainer("confluentinc/cp-kafka:7.4.0") as container:
        servers = container.get_bootstrap_server()
        admin = KafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=10_000)
        admin.create_topics([NewTopic(name="t", num_partitions=2, replication_factor=1)])
        produce(servers, "t", [b"x"])
        assert "t" in admin.list_topics()
        admin.delete_topics(["t"])
        assert "t" not in admin.list_topics()
        admin.close()
