"""What PySpark's own test helper does (SPARK-55306, pyspark/sql/tests/streaming/kafka_utils.py), on kwire's image.

Testcontainers' KafkaContainer in ZooKeeper mode under the name that Spark asks for, kafka-python's admin and producer
with the helper's short time-outs, then Spark's source and sink. Skipped, with the reason, where no engine can run.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # read at import

from compat_tests import docker_engine, tooling

pytestmark = [pytest.mark.kwire_only, pytest.mark.slow, pytest.mark.timeout(600)]

IMAGE = ("confluentinc/cp-kafka", "7.4.0")
SHORT = {"request_timeout_ms": 10_000}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """The address of a container's broker."""
    from testcontainers.community.kafka import KafkaContainer

    try:
        docker_engine.image()
    except tooling.ToolMissing as missing:
        if os.environ.get("COMPAT_STRICT") == "1":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(f"tool missing: {missing}")
    with docker_engine.tagged(*IMAGE) as name, KafkaContainer(name) as container:
        yield container.get_bootstrap_server()


@pytest.fixture
def topics(servers: str) -> Iterator[list[str]]:
    """Two topics made by kafka-python's admin, deleted at the end."""
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=servers, **SHORT)
    names = [f"{word}-{uuid.uuid4().hex[:8]}" for word in ("source", "sink")]
    admin.create_topics([NewTopic(name=n, num_partitions=2, replication_factor=1) for n in names])
    assert set(names) <= set(admin.list_topics())
    yield names
    admin.delete_topics(names)
    assert not set(names) & set(admin.list_topics())
    admin.close()


def send(servers: str, topic: str, records: dict[str, str]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=servers,
        key_serializer=str.encode,
        value_serializer=str.encode,
        max_block_ms=10_000,
        **SHORT,
    )
    for future in [producer.send(topic, key=k, value=v) for k, v in records.items()]:
        future.get(timeout=10)
    producer.flush()
    producer.close()


def records(spark: Any, servers: str, topic: str) -> dict[str, str]:
    """All records of a topic, read as the helper reads them."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    frame = spark.read.format("kafka").options(**options, startingOffsets="earliest").load()
    rows = frame.selectExpr("string(key) as key", "string(value) as value").collect()
    assert len(rows) == len({row.key for row in rows})
    return {row.key: row.value for row in rows}


def test_a_batch_reads_what_kafka_python_sent(spark: Any, servers: str, topics: list[str]) -> None:
    sent = {f"key{number}": f"value{number}" for number in range(50)}
    send(servers, topics[0], sent)
    assert records(spark, servers, topics[0]) == sent


def test_a_stream_goes_from_topic_to_topic(
    spark: Any, servers: str, topics: list[str], tmp_path: Path
) -> None:
    source, sink = topics
    options = {"kafka.bootstrap.servers": servers, "subscribe": source}
    frame = spark.readStream.format("kafka").options(**options, startingOffsets="earliest").load()
    upper = frame.selectExpr("key", "upper(string(value)) as value")
    writer = upper.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", sink).option("checkpointLocation", str(tmp_path / "c"))
    query = writer.start()
    try:
        send(servers, source, {"a": "one", "b": "two"})
        query.processAllAvailable()
        send(servers, source, {"c": "three"})
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
    assert records(spark, servers, sink) == {"a": "ONE", "b": "TWO", "c": "THREE"}
