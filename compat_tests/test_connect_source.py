"""Connect's exactly-once source: a worker is killed between its transactions, and each line of a file comes once."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from compat_tests import tooling
from compat_tests.brokers import Broker, free_port, mortal
from compat_tests.clients import eventually

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

CONNECTOR = "org.apache.kafka.connect.file.FileStreamSourceConnector"


class Worker:
    """One distributed worker of Connect."""

    def __init__(self, folder: Path, bootstrap: str, group: str) -> None:
        self.port = free_port()
        self.log = folder / "worker.log"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "exactly.once.source.support": "enabled",
            "listeners": f"http://127.0.0.1:{self.port}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "plugin.discovery": "service_load",
            "plugin.path": str(tooling.BUILD / f"connect-{tooling.KAFKA_BROKER}"),
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "offset.flush.interval.ms": "200",
            **{
                f"{what}.storage.{key}": value
                for what in ("config", "offset", "status")
                for key, value in (("topic", f"{group}-{what}"), ("replication.factor", "1"))
            },
        }
        file = folder / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        jars = tooling.connect_jars(tooling.KAFKA_BROKER)
        argv = tooling.java_argv(tooling.KAFKA_BROKER, main, str(file), jars=jars)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                mortal(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """The answer of the worker's REST interface; None while it is not ready."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return json.loads(response.read())
        except (urllib.error.URLError, OSError):
            return None

    def kill9(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start_worker(broker: Broker, tmp_path: Path, fresh: Any) -> Iterator[Callable[[], Worker]]:
    group, started = fresh("connect"), []

    def start() -> Worker:
        started.append(Worker(tmp_path, broker.bootstrap_servers, group))
        return started[-1]

    yield start
    for each in started:
        each.kill9()


def read(broker: Broker, topic: str, isolation: str) -> list[str]:
    """The values up to the last stable offset, or the high watermark."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "nobody", "log_level": 0}
    config |= {"isolation.level": isolation, "enable.auto.commit": "false"}
    consumer = Consumer({**config, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None, "neither a record nor the end"
            if message.error():
                if message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return []
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return values
            values.append(message.value().decode())
    finally:
        consumer.close()


def test_each_line_of_a_file_comes_once_though_the_worker_is_killed(
    broker: Broker, start_worker: Callable[[], Worker], tmp_path: Path, fresh: Any
) -> None:
    topic, source = fresh("lines"), tmp_path / "lines.txt"
    lines = [f"line-{number}" for number in range(2000)]
    source.touch()
    written = 0

    def append(count: int) -> bool:
        nonlocal written
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[written : written + count])
        written += count
        return True

    worker = start_worker()
    config = {
        "connector.class": CONNECTOR,
        "file": str(source),
        "topic": topic,
        "tasks.max": "1",
        "exactly.once.support": "required",
    }
    connector = {"name": "file", "config": config}
    eventually(lambda: worker.ask("/connectors", "POST", connector) is not None, 200)

    def is_running() -> bool:
        status = worker.ask("/connectors/file/status") or {"tasks": []}
        states = [status.get("connector"), *status["tasks"]]
        assert not any("FAILED" in str(each) for each in states), states
        return bool(status["tasks"]) and status["tasks"][0]["state"] == "RUNNING"

    eventually(is_running, 120)
    # Each poll of the connector is a transaction.
    eventually(lambda: append(5) and len(read(broker, topic, "read_committed")) > 100, 60)
    worker.kill9()
    assert written < len(lines)
    append(len(lines))
    worker = start_worker()
    eventually(lambda: len(read(broker, topic, "read_committed")) >= len(lines), 200)
    assert read(broker, topic, "read_committed") == lines
