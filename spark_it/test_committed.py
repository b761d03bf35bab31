"""Spark reads with isolation.level=read_committed: rows, offsets and progress are those that Apache Kafka 3.9.1 gives.

What is expected here was seen on Kafka first; REAL=1 runs these tests on it."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_it import support
from spark_it.support import until

pytestmark = pytest.mark.timeout(400)

COMMITTED = {"kafka.isolation.level": "read_committed"}
UNCOMMITTED = {"kafka.isolation.level": "read_uncommitted"}


@pytest.fixture(scope="module")
def client(brokers: Any) -> support.StockClient:
    return support.StockClient(brokers.bootstrap_servers)


class Transactions:
    """One transactional producer; each transaction writes to one partition."""

    def __init__(self, client: support.StockClient, transactional_id: str) -> None:
        from confluent_kafka import Producer

        config = {"bootstrap.servers": client.bootstrap, "log_level": 0}
        config |= {"transactional.id": transactional_id, "transaction.timeout.ms": 900_000}
        self.client = client
        self.producer = Producer(config)
        self.producer.init_transactions(30)

    def write(self, topic: str, partition: int, *values: str, **fields: int) -> None:
        """Leaves the transaction open."""
        self.producer.begin_transaction()
        for value in values:
            self.producer.produce(topic, value, partition=partition, **fields)
        assert self.producer.flush(30) == 0

    def end(self, topic: str, partition: int, commit: bool = True) -> None:
        """Returns when the partition has the marker."""
        before = self.client.end(topic, partition)
        (self.producer.commit_transaction if commit else self.producer.abort_transaction)(30)
        until(lambda: self.client.end(topic, partition) > before, what="the marker")

    def commit(self, topic: str, partition: int, *values: str) -> None:
        self.write(topic, partition, *values)
        self.end(topic, partition)

    def abort(self, topic: str, partition: int, *values: str) -> None:
        self.write(topic, partition, *values)
        self.end(topic, partition, commit=False)


def some(word: str, first: int, end: int) -> list[str]:
    return [f"{word}{number}" for number in range(first, end)]


def placed(offset: int, values: list[str]) -> list[tuple[int, str]]:
    """The values with their offsets, from this one on."""
    return [*enumerate(values, offset)]


@pytest.fixture(scope="module")
def topic(client: support.StockClient) -> Iterator[str]:
    """What all tests read. (m: a marker)

    0: c0-c4 (offsets 0-4), m 5, aborted a0-a4 (6-10), m 11, c5-c9 (12-16), m 17
    1: without a transaction p0-p4 (0-4), aborted a0-a4 (5-9), m 10
    2: c0-c2 (0-2), m 3, open o0-o2 (4-6), behind it c3, c4 (7, 8), m 9
    3: aborted a0, a1 (0, 1), m 2"""
    name = client.create("committed", 4)
    one = Transactions(client, "one")
    one.commit(name, 0, *some("c", 0, 5))
    one.abort(name, 0, *some("a", 0, 5))
    one.commit(name, 0, *some("c", 5, 10))
    client.produce(name, [{"value": value, "partition": 1} for value in some("p", 0, 5)])
    one.abort(name, 1, *some("a", 0, 5))
    one.commit(name, 2, *some("c", 0, 3))
    other = Transactions(client, "other")
    other.write(name, 2, *some("o", 0, 3))
    one.commit(name, 2, *some("c", 3, 5))
    one.abort(name, 3, *some("a", 0, 2))
    yield name
    other.end(name, 2, commit=False)


ROWS = {
    0: [*placed(0, some("c", 0, 5)), *placed(12, some("c", 5, 10))],
    1: [*placed(0, some("p", 0, 5))],
    2: [*placed(0, some("c", 0, 3))],
}
EVERYTHING = {
    0: sorted([*ROWS[0], *placed(6, some("a", 0, 5))]),
    1: [*ROWS[1], *placed(5, some("a", 0, 5))],
    2: [*ROWS[2], *placed(4, some("o", 0, 3)), *placed(7, some("c", 3, 5))],
    3: [*placed(0, some("a", 0, 2))],
}
ENDS = {"0": 18, "1": 11, "2": 4, "3": 3}
HIGH_WATERMARKS = {**ENDS, "2": 10}


def rows(frame: Any) -> dict[int, list[tuple[int, str]]]:
    found: dict[int, list[tuple[int, str]]] = {}
    for row in frame.orderBy("partition", "offset").collect():
        found.setdefault(row.partition, []).append((row.offset, bytes(row.value).decode()))
    return found


def between(start: int, end: int) -> dict[int, list[tuple[int, str]]]:
    """The committed rows of partition 0 from an offset to before another."""
    found = [(offset, value) for offset, value in ROWS[0] if start <= offset < end]
    return {0: found} if found else {}


def test_a_batch_has_what_is_committed_before_the_first_open_transaction(
    read: Any, topic: str
) -> None:
    assert rows(read(COMMITTED, subscribe=topic)) == ROWS
    assert rows(read(COMMITTED, subscribe=topic, endingOffsets="latest")) == ROWS
    assert rows(read(UNCOMMITTED, subscribe=topic)) == EVERYTHING
    assert rows(read(subscribe=topic)) == EVERYTHING  # Spark's default, as all consumers'


@pytest.mark.slow
@pytest.mark.parametrize("minimum", [7, 20, 40])
def test_a_batch_that_is_cut_has_the_same_rows(read: Any, topic: str, minimum: int) -> None:
    """Some tasks have only records of aborted transactions and markers."""
    frame = read(COMMITTED, subscribe=topic, minPartitions=str(minimum))
    assert frame.rdd.getNumPartitions() == {7: 7, 20: 20, 40: 36}[minimum]
    assert rows(frame) == ROWS


@pytest.mark.slow
@pytest.mark.parametrize(
    "start, end",
    [(0, 6), (0, 5), (5, 6), (5, 12), (6, 11), (7, 9), (8, 14), (11, 12), (11, 13), (17, 18)],
)
def test_a_batch_may_begin_and_end_at_any_offset(
    read: Any, topic: str, start: int, end: int
) -> None:
    """In what is aborted, at a marker: there is no data loss, though no record has that offset."""
    frame = read(
        COMMITTED,
        assign=json.dumps({topic: [0]}),
        startingOffsets=json.dumps({topic: {"0": start}}),
        endingOffsets=json.dumps({topic: {"0": end}}),
        failOnDataLoss="true",
    )
    assert rows(frame) == between(start, end)


@pytest.mark.slow
def test_what_is_behind_the_last_stable_offset_counts_as_lost_for_a_batch_that_is_to_end_there(
    read: Any, topic: str
) -> None:
    options = {"assign": json.dumps({topic: [2]}), "kafkaConsumer.pollTimeoutMs": "1000"}
    frame = read({**COMMITTED, **options}, endingOffsets=json.dumps({topic: {"2": 9}}))
    with pytest.raises(Exception, match=r"Could not read records in offset \[4, 9\)"):
        frame.collect()


@pytest.mark.slow
def test_a_timestamp_finds_no_record_behind_the_last_stable_offset(
    read: Any, client: Any, fresh: Any
) -> None:
    name = client.create(fresh("times"))
    now_ms = int(time.time() * 1000)  # the markers have the time of their coordinator
    first, between, last = (now_ms + minutes * 60_000 for minutes in (10, 20, 30))
    one, other = Transactions(client, fresh("id")), Transactions(client, fresh("id"))
    one.write(name, 0, "a", timestamp=first)
    one.end(name, 0)
    other.write(name, 0, "b", timestamp=last)
    options = {"subscribe": name, "startingTimestamp": str(between)}
    assert rows(read(UNCOMMITTED, **options)) == {0: [(2, "b")]}
    with pytest.raises(Exception, match="No offset matched"):
        read(COMMITTED, **options).collect()
    latest = {**COMMITTED, "startingOffsetsByTimestampStrategy": "latest"}
    assert rows(read(latest, **options)) == {}
    other.end(name, 0)
    assert rows(read(COMMITTED, **options)) == {0: [(2, "b")]}


# --- streams


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    """`run(frame, sink)`: everything there is now, from the checkpoint on."""

    def run_once(frame: Any, sink: Any) -> Any:
        query = start(frame, sink, tmp_path, availableNow=True)
        assert query.awaitTermination(120)
        return query

    return run_once


def start(frame: Any, sink: Any, folder: Path, **trigger: Any) -> Any:
    writer = frame.writeStream.foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**(trigger or {"processingTime": "100 milliseconds"})).start()


def batches(query: Any, topic: str) -> list[tuple[dict[str, int], int]]:
    """End offsets and number of rows of each batch."""
    return [
        (progress["sources"][0]["endOffset"][topic], progress["sources"][0]["numInputRows"])
        for progress in map(json.loads, (each.json for each in query.recentProgress))
        if progress["sources"][0]["endOffset"] != progress["sources"][0]["startOffset"]
    ]


def test_a_stream_in_small_batches_passes_what_is_aborted(
    stream: Any, topic: str, sink: Any, run: Any
) -> None:
    options = {"assign": json.dumps({topic: [0]}), "failOnDataLoss": "true"}
    query = run(stream(COMMITTED, **options, maxOffsetsPerTrigger="6"), sink)
    assert batches(query, topic) == [({"0": 6}, 5), ({"0": 12}, 0), ({"0": 18}, 5)]
    assert sink.values == some("c", 0, 10)


def test_a_stream_ends_at_the_last_stable_offset_and_goes_on_when_the_transaction_ends(
    stream: Any, client: Any, fresh: Any, sink: Any, tmp_path: Path
) -> None:
    topic = client.create(fresh("blocked"))
    one, other = Transactions(client, fresh("id")), Transactions(client, fresh("id"))
    one.commit(topic, 0, "a")
    one.write(topic, 0, "b")
    other.commit(topic, 0, "c")
    query = start(stream(COMMITTED, subscribe=topic, failOnDataLoss="true"), sink, tmp_path)
    query.processAllAvailable()
    assert sink.values == ["a"]
    assert batches(query, topic) == [({"0": 2}, 1)]
    one.end(topic, 0)
    until(lambda: len(sink.rows) == 3, 60, "b and c are read")
    one.write(topic, 0, "never")
    other.commit(topic, 0, "d")
    query.processAllAvailable()
    assert sink.values == ["a", "b", "c"]
    one.end(topic, 0, commit=False)
    until(lambda: len(sink.rows) == 4, 60, "d is read")
    query.processAllAvailable()
    query.stop()
    assert sink.values == ["a", "b", "c", "d"]
    assert [row.offset for row in sink.rows] == [0, 2, 3, 7]
    assert batches(query, topic)[-1][0] == {"0": 10}


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_streams_offsets_are_those_of_its_isolation(
    stream: Any, topic: str, sink: Any, run: Any, isolation: str
) -> None:
    level = {"kafka.isolation.level": isolation}
    query = run(stream(level, subscribe=topic, failOnDataLoss="true"), sink)
    ends = ENDS if isolation == "read_committed" else HIGH_WATERMARKS
    expected = ROWS if isolation == "read_committed" else EVERYTHING
    count = sum(map(len, expected.values()))
    assert batches(query, topic) == [(ends, count)]
    last = json.loads(query.lastProgress.json)["sources"][0]
    assert last["latestOffset"][topic] == ends
    assert len(sink.rows) == count
    again = run(stream(level, subscribe=topic, failOnDataLoss="true"), sink)
    assert batches(again, topic) == [] and len(sink.rows) == count


@pytest.mark.slow
@pytest.mark.parametrize("maximum", ["1", "4", "9"])
def test_a_streams_small_batches_over_all_partitions(
    stream: Any, topic: str, sink: Any, run: Any, maximum: str
) -> None:
    query = run(stream(COMMITTED, subscribe=topic, maxOffsetsPerTrigger=maximum), sink)
    found = batches(query, topic)
    assert found[-1][0] == ENDS
    assert sorted(sink.values) == sorted(value for each in ROWS.values() for _, value in each)


@pytest.mark.slow
def test_a_stream_cut_into_tasks_reads_each_row_once(
    stream: Any, topic: str, sink: Any, run: Any
) -> None:
    query = run(stream(COMMITTED, subscribe=topic, minPartitions="30"), sink)
    assert batches(query, topic) == [(ENDS, sum(map(len, ROWS.values())))]
    found = sorted((row.partition, row.offset) for row in sink.rows)
    assert found == [(index, offset) for index, each in ROWS.items() for offset, _ in each]
