"""The compose files of examples/ run by compose itself, be it the plugin or the older program.

Skipped, with the reason, where no engine can run or no compose is to be had. What the containers do without compose
is in test_docker_image.py.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests import docker_engine, tooling
from compat_tests.brokers import free_port
from compat_tests.test_docker_image import (
    EXAMPLES,
    SteadyProducer,
    consume,
    leader_of,
    produce,
    read_all,
)

pytestmark = [pytest.mark.kwire_only, pytest.mark.timeout(400)]

CATCH_UP_SECONDS = 30


class Project:
    """A compose file as a project of its own, on free ports."""

    def __init__(self, path: Path, folder: Path, **variables: str) -> None:
        text, self.ports = docker_engine.with_free_ports(path.read_text())
        self._file = folder / path.name
        self._file.write_text(text)
        self.name = f"kwire-test-{os.getpid()}-{free_port()}"
        self._environment = {
            **os.environ,
            "KWIRE_IMAGE": docker_engine.image(),
            **variables,
        }
        self.servers = ",".join(f"localhost:{port}" for port in self.ports.values())

    def __enter__(self) -> "Project":
        return self

    def __exit__(self, *_: object) -> None:
        self("down", "--volumes", "--timeout", "5")

    def __call__(self, *arguments: str, timeout_s: int = 120) -> str:
        """Runs compose; what it said on stdout."""
        argv = [*tooling.compose(), "-p", self.name, "-f", str(self._file)]
        argv += ["--project-directory", str(EXAMPLES), *arguments]
        done = subprocess.run(
            argv,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    # Any: the SDK has no types.
    def container(self, service: str) -> Any:
        """The SDK's view of a service's container."""
        labels = [f"com.docker.compose.project={self.name}"]
        labels += [f"com.docker.compose.service={service}", "com.docker.compose.oneoff=False"]
        (found,) = docker_engine.engine().containers.list(all=True, filters={"label": labels})
        return found

    def wait_healthy(self, *services: str) -> None:
        """Until the health checks of services pass."""
        deadline = time.monotonic() + 60
        for service in services:
            while self.container(service).attrs["State"]["Health"]["Status"] != "healthy":
                assert time.monotonic() < deadline, self.container(service).logs().decode()[-2000:]
                time.sleep(0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    docker_engine.image()
    tooling.compose()
    yield tmp_path


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yml")), ids=lambda path: path.name)
def test_an_example_is_valid(path: Path, folder: Path) -> None:
    Project(path, folder)("config", "-q")


def test_one_broker_serves_this_machine_and_containers_beside_it_and_keeps_its_volume(
    folder: Path,
) -> None:
    with Project(EXAMPLES / "one-broker.yml", folder) as project:
        project("up", "-d")
        project.wait_healthy("kafka")
        produce(project.servers, "orders", [b"one", b"two"])
        read = ["kafka-console-consumer", "--bootstrap-server", "kafka:19092", "--topic", "orders"]
        read += ["--from-beginning", "--max-messages", "2"]
        said = project("run", "--rm", "--no-deps", "-T", "kafka", *read)
        assert sorted(said.split()) == ["one", "two"]
        assert project("exec", "-T", "kafka", "kafka-topics", "--list") == "customers\norders\n"

        project("down")  # and not its volume
        project("up", "-d")
        project.wait_healthy("kafka")
        assert sorted(consume(project.servers, "orders", 2)) == [b"one", b"two"]


def in_sync(servers: str, topic: str) -> list[int]:
    """The smallest set of in-sync replicas among the topic's partitions."""
    from confluent_kafka.admin import AdminClient

    found = AdminClient({"bootstrap.servers": servers}).list_topics(topic, timeout=20)
    return min((p.isrs for p in found.topics[topic].partitions.values()), key=len)


def wait_in_sync(servers: str, topic: str, count: int) -> None:
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while len(in_sync(servers, topic)) < count:
        assert time.monotonic() < deadline, in_sync(servers, topic)
        time.sleep(0.1)


def test_three_brokers_lose_nothing_when_the_leaders_container_is_killed(folder: Path) -> None:
    services = ["kafka-1", "kafka-2", "kafka-3"]
    with Project(EXAMPLES / "three-brokers.yml", folder) as project:
        start = time.monotonic()
        project("up", "-d")
        project.wait_healthy("controller", *services)
        print(f"\nup to healthy: {time.monotonic() - start:.1f} s")
        wait_in_sync(project.servers, "orders", 3)
        leader = leader_of(project.servers, "orders")

        with SteadyProducer(project.servers, "orders") as producer:
            producer.wait_for(300)
            start = time.monotonic()
            project("kill", f"kafka-{leader}")
            killed_s = time.monotonic() - start
            producer.wait_for(300)
            print(
                f"leader {leader} killed in {killed_s:.2f} s; 300 more acknowledged after", end=""
            )
            print(f" {time.monotonic() - start:.2f} s")
            assert project.container(f"kafka-{leader}").status == "exited"
            assert leader_of(project.servers, "orders") != leader
            assert leader not in in_sync(project.servers, "orders")
            # Back while others write: it catches up.
            project("start", f"kafka-{leader}")
            producer.wait_for(300)
            wait_in_sync(project.servers, "orders", 3)
        acknowledged = set(producer.acknowledged)
        assert acknowledged <= set(read_all(project.servers, "orders"))

        # Everything anew on its volumes.
        project("down", "--timeout", "10")
        project("up", "-d")
        project.wait_healthy("controller", *services)
        wait_in_sync(project.servers, "orders", 3)
        assert acknowledged <= set(read_all(project.servers, "orders"))
        produce(project.servers, "orders", [b"after"])
        project("stop")
        for service in ("controller", *services):
            assert project.container(service).attrs["State"]["ExitCode"] == 0, service


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_spark_job_beside_kwire_counts_words(folder: Path) -> None:
    """By spark-submit in a container, its connector by --packages; Spark is of an image made here if need be."""
    image = docker_engine.spark_image()
    with Project(EXAMPLES / "spark.yml", folder, SPARK_IMAGE=image) as project:
        wait = ["--abort-on-container-exit", "--exit-code-from", "spark"]
        said = project("up", *wait, timeout_s=600)
        assert "the same as counted without Kafka" in said
