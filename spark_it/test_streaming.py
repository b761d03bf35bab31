"""Streaming reads and writes: triggers, rate limits, data loss, topics that change under a query, checkpoints."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from spark_it.support import until

pytestmark = pytest.mark.timeout(400)


def numbers(start: int, end: int) -> list[str]:
    return [str(index) for index in range(start, end)]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    """`run(frame, sink)`: everything there is now, from the checkpoint on, and back when it is done."""

    def run_once(frame: Any, sink: Any, checkpoint: str = "checkpoint") -> Any:
        query = start(frame, sink, tmp_path / checkpoint, availableNow=True)
        query.awaitTermination(120)
        assert not query.isActive
        return query

    return run_once


def start(frame: Any, sink: Any, checkpoint: Path, **trigger: Any) -> Any:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"processingTime": "100 milliseconds"})).start()


def wait_for(sink: Any, query: Any, count: int) -> None:
    """Until the sink has this many rows; a query that failed says why."""

    def there() -> bool:
        if query.exception() is not None:
            raise query.exception()
        return len(sink.rows) >= count

    until(there, 90, f"{count} rows in the sink")


def test_available_now_reads_what_is_there_and_ends(
    stream: Any, client: Any, fresh: Any, sink: Any, run: Any
) -> None:
    topic = client.create(fresh(), 2)
    client.produce(topic, [{"value": n, "partition": int(n) % 2} for n in numbers(0, 100)])
    run(stream(subscribe=topic, maxOffsetsPerTrigger="40"), sink)
    assert sorted(sink.values, key=int) == numbers(0, 100)
    assert sink.sizes == [40, 40, 20]


def test_a_checkpoint_goes_on_with_exactly_the_rest(
    stream: Any, client: Any, fresh: Any, sink: Any, run: Any
) -> None:
    topic = client.create(fresh(), 3)
    for start_at in (0, 50, 100):
        client.produce(topic, numbers(start_at, start_at + 50))
        before = len(sink.rows)
        run(stream(subscribe=topic), sink)
        new = sink.values[before:]
        assert sorted(new, key=int) == numbers(start_at, start_at + 50)
    before = len(sink.rows)
    run(stream(subscribe=topic), sink)
    assert len(sink.rows) == before


def test_a_stopped_query_goes_on_with_exactly_the_rest(
    stream: Any, client: Any, fresh: Any, sink: Any, tmp_path: Path
) -> None:
    topic = client.create(fresh(), 2)
    client.produce(topic, numbers(0, 200))
    frame = stream(subscribe=topic, maxOffsetsPerTrigger="25")
    query = start(frame, sink, tmp_path / "c")
    wait_for(sink, query, 75)
    query.stop()  # in the middle: batches are left
    client.produce(topic, numbers(200, 250))
    query = start(frame, sink, tmp_path / "c")
    wait_for(sink, query, 250)
    query.processAllAvailable()
    assert sorted(sink.values, key=int) == numbers(0, 250)


def test_processing_time_sees_records_as_they_come(
    stream: Any, client: Any, fresh: Any, sink: Any, tmp_path: Path
) -> None:
    topic = client.create(fresh(), 2)
    query = start(stream(subscribe=topic), sink, tmp_path / "c")
    for first in (0, 10, 20):
        client.produce(topic, numbers(first, first + 10))
        wait_for(sink, query, first + 10)
    assert sorted(sink.values, key=int) == numbers(0, 30)
    assert len(sink.sizes) >= 3


def test_a_stream_from_latest_sees_new_records_only(
    stream: Any, client: Any, fresh: Any, sink: Any, tmp_path: Path
) -> None:
    topic = client.create(fresh())
    client.produce(topic, numbers(0, 10))
    query = start(stream(subscribe=topic, startingOffsets="latest"), sink, tmp_path / "c")
    until(lambda: query.lastProgress, 60, "a first trigger")
    client.produce(topic, numbers(10, 15))
    wait_for(sink, query, 5)
    assert sink.values == numbers(10, 15)


def test_max_offsets_per_trigger_bounds_every_batch_and_lag_is_told(
    stream: Any, client: Any, fresh: Any, sink: Any, run: Any
) -> None:
    topic = client.create(fresh(), 2)
    client.produce(topic, [{"value": n, "partition": int(n) % 2} for n in numbers(0, 100)])
    query = run(stream(subscribe=topic, maxOffsetsPerTrigger="30"), sink)
    assert sink.sizes == [30, 30, 30, 10]
    lags = [
        int(progress["sources"][0]["metrics"]["maxOffsetsBehindLatest"])
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]
    assert lags == [35, 20, 5, 0]


def test_partitions_added_while_it_runs_are_read(
    stream: Any, client: Any, fresh: Any, sink: Any, tmp_path: Path
) -> None:
    topic = client.create(fresh(), 1)
    client.produce(topic, numbers(0, 10))
    query = start(stream(subscribe=topic), sink, tmp_path / "c")
    wait_for(sink, query, 10)
    client.add_partitions(topic, 3)
    added = [{"value": n, "partition": int(n) % 3} for n in numbers(10, 40)]
    client.produce(topic, added)
    wait_for(sink, query, 40)
    assert sorted(sink.values, key=int) == numbers(0, 40)
    assert {row.partition for row in sink.rows} == {0, 1, 2}


def test_topics_added_while_it_runs_are_read_by_pattern(
    stream: Any, client: Any, fresh: Any, sink: Any, tmp_path: Path
) -> None:
    word = fresh("pattern")
    client.create(f"{word}-a")
    client.produce(f"{word}-a", numbers(0, 10))
    query = start(stream(subscribePattern=f"{word}-.*"), sink, tmp_path / "c")
    wait_for(sink, query, 10)
    client.create(f"{word}-b", 2)
    client.produce(f"{word}-b", numbers(10, 20))
    wait_for(sink, query, 20)
    assert sorted(sink.values, key=int) == numbers(0, 20)


# --- data loss ---


def test_a_topic_deleted_and_made_again_is_data_loss(
    stream: Any, client: Any, fresh: Any, sink: Any, run: Any
) -> None:
    topic = client.create(fresh("again"))
    client.produce(topic, numbers(0, 50))
    run(stream(subscribe=topic), sink)
    client.delete(topic)
    client.create(topic)
    client.produce(topic, numbers(100, 110))
    with pytest.raises(StreamingQueryException) as failure:
        run(stream(subscribe=topic, failOnDataLoss="true"), sink)
    assert re.search(rf"{topic}-0('s)? offset was changed from 50 to 10", str(failure.value))
    assert sink.values == numbers(0, 50)


def test_a_topic_made_again_is_read_on_where_loss_is_tolerated(
    stream: Any, client: Any, fresh: Any, sink: Any, run: Any
) -> None:
    topic = client.create(fresh("tolerant"))
    client.produce(topic, numbers(0, 50))
    run(stream(subscribe=topic, failOnDataLoss="false"), sink)
    client.delete(topic)
    client.create(topic)
    client.produce(
        topic, numbers(100, 180)
    )  # the checkpoint says 50: what is before is passed over
    run(stream(subscribe=topic, failOnDataLoss="false"), sink)
    assert sink.values == numbers(0, 50) + numbers(150, 180)


def test_a_topic_made_again_under_a_running_query_is_read(
    stream: Any, client: Any, fresh: Any, sink: Any, tmp_path: Path
) -> None:
    word = fresh("running")
    topic, other = client.create(f"{word}-a"), client.create(f"{word}-b")
    client.produce(topic, numbers(0, 20))
    frame = stream(subscribePattern=f"{word}-.*", failOnDataLoss="false")
    query = start(frame, sink, tmp_path / "c")
    wait_for(sink, query, 20)
    client.delete(topic)
    client.produce(other, ["20"])  # where no topic is left, Spark keeps the old offsets
    wait_for(sink, query, 21)
    client.create(topic)
    client.produce(topic, numbers(100, 200))
    wait_for(sink, query, 121)
    query.processAllAvailable()
    assert sorted(sink.values, key=int) == numbers(0, 21) + numbers(100, 200)


def test_records_deleted_before_they_were_read_are_data_loss(
    stream: Any, client: Any, fresh: Any, sink: Any, run: Any
) -> None:
    topic = client.create(fresh("lost"))
    client.produce(topic, numbers(0, 10))
    run(stream(subscribe=topic), sink)
    client.produce(topic, numbers(10, 40))
    client.delete_records(topic, 0, 30)
    with pytest.raises(StreamingQueryException) as failure:
        run(stream(subscribe=topic, failOnDataLoss="true"), sink)
    assert re.search("may have been lost|KAFKA_DATA_LOSS|Cannot fetch", str(failure.value))
    assert sink.values == numbers(0, 10)
    run(stream(subscribe=topic, failOnDataLoss="false"), sink)
    assert sink.values == numbers(0, 10) + numbers(30, 40)


# --- groups ---


def test_the_group_id_is_the_one_asked_for_where_spark_uses_groups(
    spark: Any, stream: Any, client: Any, fresh: Any, sink: Any, tmp_path: Path
) -> None:
    topic, group = client.create(fresh(), 2), fresh("spark-group")
    client.produce(topic, numbers(0, 20))
    key = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(key, "true")  # a consumer in the driver that subscribes
    try:
        frame = stream({"kafka.group.id": group}, subscribe=topic)
        query = start(frame, sink, tmp_path / "c")
        wait_for(sink, query, 20)
        assert group in client.groups()
        client.produce(topic, numbers(20, 30))
        wait_for(sink, query, 30)
    finally:
        spark.conf.unset(key)
    assert sorted(sink.values, key=int) == numbers(0, 30)


def test_a_group_id_is_taken_by_batches_and_streams(
    read: Any, stream: Any, client: Any, fresh: Any, sink: Any, run: Any
) -> None:
    topic = client.create(fresh(), 2)
    client.produce(topic, numbers(0, 20))
    option = {"kafka.group.id": fresh("assigned")}
    run(stream(option, subscribe=topic), sink)
    assert sorted(sink.values, key=int) == numbers(0, 20)
    assert read(option, subscribe=topic).count() == 20


# --- writes ---


def test_a_stream_is_written_and_goes_on_from_its_checkpoint(
    stream: Any, client: Any, fresh: Any, brokers: Any, tmp_path: Path
) -> None:
    source, target = client.create(fresh(), 3), client.create(fresh(), 2)

    def copy() -> None:
        frame = stream(subscribe=source).selectExpr(
            "key", "concat('<', string(value), '>') as value", f"'{target}' as topic"
        )
        writer = frame.writeStream.format("kafka").trigger(availableNow=True)
        writer = writer.option("kafka.bootstrap.servers", brokers.bootstrap_servers)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
        assert query.awaitTermination(120)

    client.produce(source, numbers(0, 100))
    copy()
    assert sorted(client.values(target)) == sorted(f"<{n}>" for n in numbers(0, 100))
    client.produce(source, numbers(100, 150))
    copy()
    assert sorted(client.values(target)) == sorted(f"<{n}>" for n in numbers(0, 150))


def test_a_counting_stream_writes_its_updates(
    stream: Any, client: Any, fresh: Any, brokers: Any, tmp_path: Path
) -> None:
    source, target = client.create(fresh(), 2), client.create(fresh(), 2)
    client.produce(source, ["a", "b", "a", "c", "a", "b"])
    frame = stream(subscribe=source).selectExpr("string(value) as key").groupBy("key").count()
    writer = frame.selectExpr("key", "string(count) as value").writeStream.format("kafka")
    writer = writer.outputMode("update").trigger(availableNow=True)
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "topic": target}
    query = writer.options(**options, checkpointLocation=str(tmp_path / "c")).start()
    assert query.awaitTermination(120)
    assert {(m.key(), m.value()) for m in client.read(target)} == {
        (b"a", b"3"),
        (b"b", b"2"),
        (b"c", b"1"),
    }
