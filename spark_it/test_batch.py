"""Batch reads and writes of Spark's Kafka source and sink."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(400)

START_MS = 1_700_000_000_000
A_PARTITION = 10


@pytest.fixture(scope="module")
def filled(brokers: Any) -> str:
    """A topic of 3 partitions with 10 records each: value "p:i", one second from one to the next."""
    from spark_it.support import StockClient

    client = StockClient(brokers.bootstrap_servers)
    topic = client.create("filled", 3, retention_ms="-1")  # its records are years old
    records = [
        {
            "partition": partition,
            "key": f"k{partition}",
            "value": f"{partition}:{index}",
            "timestamp": START_MS + 1000 * index,
        }
        for partition in range(3)
        for index in range(A_PARTITION)
    ]
    client.produce(topic, records)
    return topic


def values(frame: Any) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def span(start: int, end: int, partitions: tuple[int, ...] = (0, 1, 2)) -> list[str]:
    return sorted(f"{p}:{i}" for p in partitions for i in range(start, end))


def test_a_batch_reads_all_by_default_with_all_columns(read: Any, filled: str) -> None:
    rows = read(subscribe=filled).orderBy("partition", "offset").collect()
    assert [bytes(row.value).decode() for row in rows] == [
        f"{p}:{i}" for p in range(3) for i in range(A_PARTITION)
    ]
    assert [row.offset for row in rows] == [*range(A_PARTITION)] * 3
    assert {row.topic for row in rows} == {filled}
    assert {bytes(row.key) for row in rows} == {b"k0", b"k1", b"k2"}
    assert {row.timestampType for row in rows} == {0}
    expected = [(START_MS + 1000 * i) // 1000 for i in range(A_PARTITION)] * 3
    frame = read(subscribe=filled).orderBy("partition", "offset")
    seconds = frame.selectExpr("unix_millis(timestamp) as ms").collect()
    assert [row.ms // 1000 for row in seconds] == expected


def test_earliest_to_latest_is_everything(read: Any, filled: str) -> None:
    frame = read(subscribe=filled, startingOffsets="earliest", endingOffsets="latest")
    assert values(frame) == span(0, A_PARTITION)


def test_explicit_offsets_bound_each_partition(read: Any, filled: str) -> None:
    frame = read(
        subscribe=filled,
        startingOffsets=json.dumps({filled: {"0": 4, "1": -2, "2": 9}}),
        endingOffsets=json.dumps({filled: {"0": 6, "1": 3, "2": -1}}),
    )
    assert values(frame) == sorted(["0:4", "0:5", "1:0", "1:1", "1:2", "2:9"])


def test_one_timestamp_bounds_all_partitions(read: Any, filled: str) -> None:
    frame = read(
        subscribe=filled,
        startingTimestamp=str(START_MS + 2500),  # between two records: the next one
        endingTimestamp=str(START_MS + 6000),
    )
    assert values(frame) == span(3, 6)


def test_timestamps_bound_each_partition(read: Any, filled: str) -> None:
    frame = read(
        subscribe=filled,
        startingOffsetsByTimestamp=json.dumps(
            {filled: {"0": START_MS, "1": START_MS + 5000, "2": START_MS + 8001}}
        ),
        endingOffsetsByTimestamp=json.dumps(
            {filled: {"0": START_MS + 1000, "1": START_MS + 7000, "2": START_MS + 99_000}}
        ),
    )
    assert values(frame) == sorted(["0:0", "1:5", "1:6", "2:9"])


def test_a_timestamp_after_the_last_record_fails_or_is_latest_as_asked(
    read: Any, filled: str
) -> None:
    late = {"subscribe": filled, "startingTimestamp": str(START_MS + 99_000)}
    with pytest.raises(Exception, match=r"(?i)timestamp"):
        read(**late).collect()
    assert values(read(**late, startingOffsetsByTimestampStrategy="latest")) == []


def test_min_partitions_cuts_partitions_into_smaller_tasks(read: Any, filled: str) -> None:
    frame = read(subscribe=filled, minPartitions="8")
    assert frame.rdd.getNumPartitions() >= 8
    assert values(frame) == span(0, A_PARTITION)


def test_headers_come_with_include_headers_only(read: Any, client: Any, fresh: Any) -> None:
    topic = client.create(fresh("headers"))
    headers = [("a", b"1"), ("b", None), ("a", b"2")]
    client.produce(topic, [{"value": "v", "headers": headers}, {"value": "w"}])
    assert "headers" not in read(subscribe=topic).columns
    first, second = read(subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    found = [(h.key, None if h.value is None else bytes(h.value)) for h in first.headers]
    assert found == headers
    assert second.headers is None


def test_topics_by_list_by_pattern_and_by_assignment(read: Any, client: Any, fresh: Any) -> None:
    word = fresh("choice")
    names = [f"{word}-{letter}" for letter in "abc"]
    for name in names:
        client.create(name, 2)
        client.produce(name, [{"value": f"{name}/{p}", "partition": p} for p in range(2)])
    both = sorted(f"{name}/{p}" for name in names[:2] for p in range(2))
    assert values(read(subscribe=",".join(names[:2]))) == both
    assert values(read(subscribePattern=f"{word}-[ab]")) == both
    assigned = json.dumps({names[0]: [1], names[2]: [0]})
    assert values(read(assign=assigned)) == [f"{names[0]}/1", f"{names[2]}/0"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read_and_written(
    codec: str, read: Any, client: Any, fresh: Any, brokers: Any
) -> None:
    source, target = client.create(fresh(codec), 2), client.create(fresh(codec), 2)
    expected = sorted(f"{index}" * 50 for index in range(200))
    client.produce(source, expected, **{"compression.type": codec})
    frame = read(subscribe=source).select("value")
    assert values(frame) == expected
    options = {
        "kafka.bootstrap.servers": brokers.bootstrap_servers,
        "kafka.compression.type": codec,
    }
    frame.write.format("kafka").options(**options, topic=target).save()
    assert sorted(client.values(target)) == expected


def test_a_topic_that_is_not_there_fails_and_is_not_made(
    read: Any, client: Any, fresh: Any
) -> None:
    topic = fresh("absent")
    with pytest.raises(Exception, match=r"(?i)UnknownTopicOrPartition|UNKNOWN_TOPIC|not host"):
        read(subscribe=topic).collect()
    assert topic not in client.admin.list_topics(timeout=10).topics


def test_deleted_records_are_not_read_and_fail_when_asked_for(
    read: Any, client: Any, fresh: Any
) -> None:
    topic = client.create(fresh("trimmed"))
    client.produce(topic, [str(index) for index in range(20)])
    client.delete_records(topic, 0, 15)
    assert values(read(subscribe=topic)) == sorted(str(index) for index in range(15, 20))
    gone = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 5}})}
    assert values(read(**gone, failOnDataLoss="false")) == sorted(map(str, range(15, 20)))
    with pytest.raises(Exception, match=r"(?i)data|offset"):
        read(**gone, failOnDataLoss="true").collect()


# --- writes ---


@pytest.fixture
def write(brokers: Any) -> Callable[..., None]:
    def save(frame: Any, **options: str) -> None:
        everything = {"kafka.bootstrap.servers": brokers.bootstrap_servers, **options}
        frame.write.format("kafka").options(**everything).save()

    return save


def test_a_written_batch_is_read_by_a_stock_client(
    spark: Any, client: Any, fresh: Any, write: Any
) -> None:
    topic = client.create(fresh("written"), 3)
    frame = spark.range(1000).selectExpr("string(id) as key", "concat('v', id) as value")
    write(frame, topic=topic)
    messages = client.read(topic)
    assert sorted((m.key(), m.value()) for m in messages) == sorted(
        (f"{i}".encode(), f"v{i}".encode()) for i in range(1000)
    )
    assert {m.partition() for m in messages} == {0, 1, 2}


def test_the_topic_column_sends_rows_to_their_topics(
    spark: Any, client: Any, fresh: Any, write: Any
) -> None:
    even, odd = client.create(fresh("even")), client.create(fresh("odd"))
    choice = f"if(id % 2 = 0, '{even}', '{odd}') as topic"
    write(spark.range(100).selectExpr(choice, "string(id) as value"))
    assert sorted(client.values(even), key=int) == [str(i) for i in range(0, 100, 2)]
    assert sorted(client.values(odd), key=int) == [str(i) for i in range(1, 100, 2)]


def test_headers_and_partition_are_written_as_the_columns_say(
    spark: Any, client: Any, fresh: Any, write: Any
) -> None:
    topic = client.create(fresh("columns"), 4)
    frame = spark.range(40).selectExpr(
        "string(id) as value",
        "int(3 - id % 4) as partition",
        "array(struct('n' as key, binary(string(id)) as value), struct('x' as key, binary('y') as value)) as headers",
    )
    write(frame, topic=topic, includeHeaders="true")
    messages = client.read(topic)
    assert len(messages) == 40
    for message in messages:
        assert message.partition() == 3 - int(message.value()) % 4
        assert message.headers() == [("n", message.value()), ("x", b"y")]


def test_nulls_are_written_as_nulls(spark: Any, client: Any, fresh: Any, write: Any) -> None:
    topic = client.create(fresh("nulls"))
    write(spark.sql("select 'k' as key, string(null) as value"), topic=topic)
    write(spark.sql("select string(null) as key, 'v' as value"), topic=topic)
    assert [(m.key(), m.value()) for m in client.read(topic)] == [(b"k", None), (None, b"v")]


def test_a_topic_is_made_by_the_first_write(
    spark: Any, client: Any, fresh: Any, write: Any
) -> None:
    topic = fresh("made")
    write(spark.sql("select 'v' as value"), topic=topic)
    assert client.values(topic) == ["v"]


def test_a_record_that_is_too_large_fails_the_write(
    spark: Any, client: Any, fresh: Any, write: Any
) -> None:
    topic = client.create(fresh("small"), 1, max_message_bytes="10000")
    with pytest.raises(Exception, match=r"(?i)RecordTooLarge|larger than"):
        write(spark.sql("select repeat('x', 50000) as value"), topic=topic)
    assert client.values(topic) == []
