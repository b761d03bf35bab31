"""What the Spark tests and the word count share: kwire as a subprocess, Spark's jars, a stock client.

The stock client is confluent-kafka: Spark brings Kafka's Java client, so each fact is seen by two implementations.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
READY_TIMEOUT_S = 60.0


def jars(spark_version: str) -> list[str]:
    """The jars of Spark's Kafka source that spark_it/setup.sh fetched."""
    found = sorted(str(path) for path in (HERE / ".build" / f"jars-{spark_version}").glob("*.jar"))
    if not found:
        raise SystemExit(f"no jars for Spark {spark_version}: run `make spark` once")
    return found


def until(condition: Callable[[], Any], seconds: float = 30.0, what: str = "") -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what or condition}"
        time.sleep(0.05)
    return value


class KwireUp:
    """`kwire up --brokers 3` in a process of its own, until `stop`."""

    def __init__(
        self,
        folder: Path,
        isolation: str = "thread",
        brokers: int = 3,
        config: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "kwire.log"
        ready = folder / "ready.json"
        command = [sys.executable, "-m", "kwire", "up", "--port", "0", "--brokers", str(brokers)]
        command += ["--isolation", isolation, "--ready-file", str(ready)]
        for key, value in {"min.insync.replicas": "2", **(config or {})}.items():
            command += ["-c", f"{key}={value}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT
            )
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not ready.exists() or not ready.read_text().strip():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"kwire did not start\n{self.said()[-3000:]}")
            time.sleep(0.01)
        self.bootstrap: str = json.loads(ready.read_text())["bootstrap"]

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        """SIGTERM and the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


class StockClient:
    """confluent-kafka against one cluster, with calls that wait for their results."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        from confluent_kafka.admin import NewTopic

        values = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(topic, partitions, 3, config=values)
        self.admin.create_topics([new])[topic].result(20)
        until(lambda: self.partitions(topic) == partitions, what=f"{topic} is there")
        return topic

    def partitions(self, topic: str) -> int:
        """How many partitions with a leader the topic has."""
        found = self.admin.list_topics(topic, timeout=10).topics[topic]
        return sum(partition.leader >= 0 for partition in found.partitions.values())

    def add_partitions(self, topic: str, total: int) -> None:
        from confluent_kafka.admin import NewPartitions

        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(20)
        until(lambda: self.partitions(topic) == total, what=f"{topic} has {total} partitions")

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(20)
        until(lambda: topic not in self.admin.list_topics(timeout=10).topics, what="deleted")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        from confluent_kafka import TopicPartition

        asked = TopicPartition(topic, partition, before)
        for future in self.admin.delete_records([asked]).values():
            future.result(20)

    def groups(self) -> set[str]:
        return {group.group_id for group in self.admin.list_consumer_groups().result(20).valid}

    def produce(
        self, topic: str, records: Iterable[Mapping[str, Any] | str], **config: Any
    ) -> None:
        """Produces values, or keyword arguments of Producer.produce, with acks=all; waits for all acknowledgements."""
        from confluent_kafka import Producer

        failed: list[str] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **config})
        for record in records:
            arguments = {"value": record} if isinstance(record, str) else dict(record)
            producer.produce(
                topic,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
                **arguments,
            )
            producer.poll(0)
        assert producer.flush(60) == 0, "records were not acknowledged"
        assert not failed, failed[:3]

    def read(self, topic: str) -> list[Any]:
        """All records from the first to the present last, partition by partition."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "stock-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            messages: list[Any] = []
            for partition in sorted(
                consumer.list_topics(topic, timeout=20).topics[topic].partitions
            ):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 20)
                if low == high:
                    continue
                consumer.assign([TopicPartition(topic, partition, low)])
                position = low
                while position < high:
                    message = consumer.poll(30)
                    assert message is not None, (
                        f"{topic}-{partition} ends at {position}, not {high}"
                    )
                    if message.error():
                        raise KafkaException(message.error())
                    messages.append(message)
                    position = message.offset() + 1
            return messages
        finally:
            consumer.close()

    def values(self, topic: str) -> list[str]:
        return [(message.value() or b"").decode() for message in self.read(topic)]


def spark_options(spark_version: str, folder: Path) -> dict[str, str]:
    """A Spark small enough for two busy cores, on loopback only."""
    return {
        "spark.jars": ",".join(jars(spark_version)),
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -XX:+UseSerialGC",
    }


def submit_command(spark_version: str, script: Path, arguments: Sequence[str]) -> list[str]:
    """The command line of spark-submit, on this machine, for a script."""
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    conf = ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    conf += ["--conf", "spark.sql.shuffle.partitions=2", "--driver-memory", "1g"]
    local = ["--master", "local[2]", "--jars", ",".join(jars(spark_version))]
    return [str(submit), *local, *conf, str(script), *arguments]


def spark_environment() -> dict[str, str]:
    """The environment Spark's workers and spark-submit need: this Python, loopback."""
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**os.environ, **python, "SPARK_LOCAL_IP": "127.0.0.1"}
