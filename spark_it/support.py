"""What the Spark tests and the word count share: three brokers, Spark's jars, a stock client.

The stock client is confluent-kafka: Spark brings Kafka's Java client, so each fact is seen by two implementations.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kwire import Cluster

HERE = Path(__file__).resolve().parent
BUILD = HERE / ".build"
IS_REAL = os.environ.get("REAL") == "1"
"""The tests run on Apache Kafka (`spark_it.real`)."""
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # as kwire.spark's: these JVMs live for seconds
)
PATIENCE_S = 400.0
"""For a job that is submitted to a Spark cluster, on a busy machine, to come to its middle."""


def jars(spark_version: str) -> list[str]:
    """The jars of Spark's Kafka source that spark_it/setup.sh fetched."""
    found = sorted(str(path) for path in (BUILD / f"jars-{spark_version}").glob("*.jar"))
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


@contextmanager
def three_brokers(isolation: str = "thread") -> "Iterator[Cluster]":
    """Three brokers that acknowledge a record when two have it: "thread" in this process, "process" one each."""
    from kwire import Cluster

    with Cluster(3, {"min.insync.replicas": 2}, isolation=isolation) as cluster:
        yield cluster


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

    def end(self, topic: str, partition: int) -> int:
        """The high watermark."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        place = TopicPartition(topic, partition)
        return int(self.admin.list_offsets({place: OffsetSpec.latest()})[place].result(20).offset)

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


def use_fetched_jars() -> None:
    """Sessions of kwire.spark take the jars that spark_it/setup.sh fetched for this PySpark, where it has."""
    import pyspark

    folder = BUILD / f"jars-{pyspark.__version__}"
    if folder.is_dir():
        os.environ.setdefault("KWIRE_SPARK_JARS", str(folder))


def submit_command(script: Path, arguments: Sequence[str], *options: str) -> list[str]:
    """The command line of spark-submit for a script: on this machine, unless `options` say otherwise."""
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    conf = ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    conf += ["--conf", "spark.sql.shuffle.partitions=2", "--driver-memory", "1g"]
    conf += ["--driver-java-options", JAVA_OPTIONS]
    conf += ["--conf", f"spark.executor.extraJavaOptions={JAVA_OPTIONS}"]
    where = options or ("--master", "local[2]")
    jar_list = ",".join(jars(pyspark.__version__))
    return [str(submit), *where, "--jars", jar_list, *conf, str(script), *arguments]


def spark_environment() -> dict[str, str]:
    """The environment Spark's workers and spark-submit need: this Python, loopback."""
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**os.environ, **python, "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def few_tasks(session: Any) -> "Iterator[None]":
    """For tables of a few rows, with many plans. Afterwards the session is as it was: `unset` would not do, it leaves
    Spark's 200 partitions."""
    config = {"spark.sql.shuffle.partitions": "1", "spark.sql.codegen.wholeStage": "false"}
    before = {key: session.conf.get(key) for key in config}
    for key, value in config.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            session.conf.set(key, value)
