"""`kwire-log`, the brokers' log directories as a data source, beside Kafka's source on the same topic."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwire import Cluster
from kwire.errors import ConfigurationError
from kwire.spark import Spark
from kwire.spark_session import SparkError

pytestmark = pytest.mark.timeout(400)

AS_KAFKAS_SOURCE = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type as timestampType",
    "headers",
)


@pytest.fixture(scope="module")
def kwire_spark(spark: Any, brokers: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Spark:
    if spark.version.startswith("3."):
        pytest.skip("the Python data source is PySpark 4's")
    return Spark(spark, brokers, tmp_path_factory.mktemp("spark"))


@pytest.fixture(scope="module")
def filled(brokers: Cluster) -> str:
    """A topic of 3 partitions on 3 brokers with records of all codecs, nulls and headers, in many batches."""
    from confluent_kafka import Producer

    brokers.create_topic(
        "logged", partitions=3, replication_factor=3, config={"retention.ms": "-1"}
    )
    rng = random.Random(14)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": brokers.bootstrap_servers,
                "compression.type": codec,
                "batch.num.messages": 7,
                "linger.ms": 5,
            }
        )
        for number in range(200):
            producer.produce(
                "logged",
                rng.choice([None, b"", rng.randbytes(80), b"x" * 3000]),
                rng.choice([None, b"k%d" % number]),
                partition=number % 3,
                headers=rng.choice([None, [("h", b"1"), ("h", None), ("g", b"")]]),
                timestamp=1_700_000_000_000 + number,
            )
        assert producer.flush(30) == 0
    return "logged"


def test_rows_are_those_of_kafkas_source(kwire_spark: Spark, filled: str) -> None:
    wanted = kwire_spark.read(filled, includeHeaders=True).select(
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"
    )
    assert wanted.count() == 1000
    found = kwire_spark.log(filled, broker=2).selectExpr(*AS_KAFKAS_SOURCE)
    assert found.count() == 1000
    assert found.exceptAll(wanted).count() == 0


def test_replicas_and_batches_are_seen(kwire_spark: Spark, filled: str) -> None:
    columns = ["broker", "partition", "offset", "leader_epoch", "codec", "crc_ok"]
    log = kwire_spark.log(filled, columns=columns, verify="crc").cache()
    assert {(row.broker, row["count"]) for row in log.groupBy("broker").count().collect()} == {
        (1, 1000),
        (2, 1000),
        (3, 1000),
    }
    assert log.where("crc_ok").count() == 3000
    codecs = {row.codec for row in log.select("codec").distinct().collect()}
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert log.select("leader_epoch").distinct().count() == 1
    assert kwire_spark.log(filled, mode="damage").count() == 0
    assert (
        kwire_spark.log(
            filled, broker=1, partition=[1], startingOffset=100, endingOffset=110
        ).count()
        == 10
    )


def test_a_stream_of_a_log_goes_on_after_a_restart(
    kwire_spark: Spark, brokers: Cluster, sink: Any, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    topic = fresh("followed")
    brokers.create_topic(topic, partitions=2, replication_factor=1)

    def run_until_read() -> None:
        leaders = {brokers.partition(topic, number).leader for number in (0, 1)}
        assert len(leaders) == 2
        stream = kwire_spark.log_stream(topic, columns=["partition", "offset", "value"])
        query = (
            stream.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        query.stop()

    for number in range(10):
        brokers.produce(topic, str(number), partition=number % 2)
    run_until_read()
    for number in range(10, 15):
        brokers.produce(topic, str(number), partition=number % 2)
    run_until_read()
    assert sorted(int(value) for value in sink.values) == list(range(15))


def test_a_killed_brokers_log_is_read(
    kwire_spark: Spark, brokers: Cluster, fresh: Callable[[str], str]
) -> None:
    topic = fresh("post-mortem")
    brokers.create_topic(topic, partitions=1, replication_factor=1)
    for number in range(5):
        brokers.produce(topic, str(number))
    leader = brokers.partition(topic, 0).leader
    brokers.broker(leader).kill()
    try:
        rows = kwire_spark.log(topic, broker=leader, columns=["offset", "value"]).collect()
        assert [(row.offset, bytes(row.value)) for row in rows] == [
            (i, b"%d" % i) for i in range(5)
        ]
    finally:
        brokers.broker(leader).start()


def test_what_cannot_be_is_refused_in_one_line(kwire_spark: Spark, filled: str) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"startingOffsets": 3}, "there is no option startingOffsets: startingOffset?"),
        ({"columns": ["ofset"]}, "there is no column 'ofset'"),
        ({"partition": "first"}, "partition=first: expected a whole number"),
    ]
    for options, message in wrong:
        with pytest.raises(ConfigurationError) as caught:
            kwire_spark.log(filled, **options)
        assert message in str(caught.value) and "\n" not in str(caught.value)


def test_an_older_pyspark_is_named(kwire_spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kwire.spark_session.pyspark_version", lambda: "3.5.7")
    with pytest.raises(SparkError, match=r"kwire-log needs PySpark 4\.0 or later, this is 3\.5\.7"):
        kwire_spark.log("any")
