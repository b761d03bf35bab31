"""A replica's log by Fetch: the rows that its log directory has, below the high watermark."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire import Cluster
from kwire.errors import ConfigurationError
from kwire.pipeline import fetching, planning, reading, remote
from kwire.pipeline.options import parse
from kwire.pipeline.schema import COLUMNS
from kwire.protocol.records import iter_batches

OF_FILES = ("segment", "batch_position", "position")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        running.create_topic("orders", partitions=2, replication_factor=3)
        running.create_topic("single", partitions=1, replication_factor=1)
        running.produce("single", "one")
        fill(running)
        running.wait_for(
            lambda each: high_watermarks(each) == {0: 510, 1: 510}, 20
        )  # the last markers
        yield running


def fill(cluster: Cluster) -> None:
    from confluent_kafka import Producer

    rng = random.Random(14)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "compression.type": codec,
                "batch.num.messages": 7,
                "transactional.id": f"t-{codec}",
            }
        )
        producer.init_transactions(20)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            for number in range(100):
                producer.produce(
                    "orders",
                    rng.choice([None, b"", rng.randbytes(80)]),
                    rng.choice([None, b"k%d" % number]),
                    partition=number % 2,
                    headers=rng.choice([None, [("h", b"1"), ("h", None)]]),
                )
            producer.flush(20)  # an abort forgets what was not sent
            end(20)


def by_fetch(cluster: Cluster, *names: str, **options: Any) -> list[dict[str, Any]]:
    given = {"bootstrap": cluster.bootstrap_servers, "topic": "orders"}
    parsed = parse({**given, **{name: str(value) for name, value in options.items()}})
    columns = names or tuple(reading.columns_of(parsed))
    found: list[dict[str, Any]] = []
    for part in remote.plan(parsed):
        for table in reading.read(part, columns, parsed):
            table.validate(full=True)
            found += table.to_pylist()
    return found


def by_files(cluster: Cluster, broker: int, **options: Any) -> list[dict[str, Any]]:
    given = {"path": ",".join(cluster.broker(broker).log_dirs), "topic": "orders"}
    parsed = parse({**given, **{name: str(value) for name, value in options.items()}})
    return [
        {name: None if name in OF_FILES else value for name, value in row.items()}
        for part in planning.plan(parsed)
        for table in reading.read(part, tuple(reading.columns_of(parsed)), parsed)
        for row in table.to_pylist()
    ]


def high_watermarks(cluster: Cluster) -> dict[int, int]:
    return {number: cluster.partition("orders", number).high_watermark for number in (0, 1)}


def at_high_watermark(cluster: Cluster, replica: int) -> None:
    """Followers learn of the high watermark with their next fetch."""
    ends = high_watermarks(cluster)

    def is_there(_: Cluster) -> bool:
        options = parse({"bootstrap": cluster.bootstrap_servers, "topic": "orders"})
        found = remote.replicas(options._replace(replica=replica))
        return {each.where.partition: each.high_watermark for each in found} == ends

    cluster.wait_for(is_there, 20)


@pytest.mark.parametrize("replica", [1, 2, 3])
@pytest.mark.parametrize("split", [1000, 1 << 20])
def test_rows_are_those_of_the_log_directory(cluster: Cluster, replica: int, split: int) -> None:
    at_high_watermark(cluster, replica)
    found = by_fetch(cluster, replica=replica, splitBytes=split, verify="crc")
    assert len(found) == 1020 and sum(row["is_control"] for row in found) == 20
    assert found == by_files(cluster, replica, verify="crc")
    assert by_fetch(cluster, replica=replica, mode="damage") == []
    batches = by_fetch(cluster, replica=replica, splitBytes=split, mode="batches", verify="crc")
    assert batches == by_files(cluster, replica, mode="batches", verify="crc")


def test_leaders_are_read_without_a_replica(cluster: Cluster) -> None:
    found = by_fetch(cluster, "broker", "partition", "offset")
    assert {(row["partition"], row["broker"]) for row in found} == {
        (number, cluster.partition("orders", number).leader) for number in (0, 1)
    }


def test_offsets_and_times_bound_the_rows(cluster: Cluster) -> None:
    whole = by_fetch(cluster, "partition", "offset", "timestamp", replica=2)
    some = by_fetch(
        cluster, "offset", replica=2, partition=1, startingOffset=5, endingOffset=12, splitBytes=50
    )
    assert [row["offset"] for row in some] == list(range(5, 12))
    of_first = [row for row in whole if row["partition"] == 0]
    moment = of_first[300]["timestamp"]
    first = next(i for i, row in enumerate(of_first) if row["timestamp"] >= moment)
    young = by_fetch(
        cluster,
        "offset",
        replica=2,
        partition=0,
        startingTimestamp=round(moment.timestamp() * 1000),
    )
    assert [row["offset"] for row in young] == [row["offset"] for row in of_first[first:]]
    assert by_fetch(cluster, "offset", replica=2, startingTimestamp="2100-01-01T00:00:00Z") == []


def test_small_responses_change_no_row(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    at_high_watermark(cluster, 3)
    monkeypatch.setattr(fetching, "FETCH_BYTES", 1000)
    assert by_fetch(cluster, replica=3) == by_files(cluster, 3)


def test_a_stream_goes_on_where_it_was(cluster: Cluster) -> None:
    cluster.create_topic("followed", partitions=2, replication_factor=1)
    options = parse({"bootstrap": cluster.bootstrap_servers, "topic": "followed"})
    ends = remote.Ends(options)
    start = ends.latest()
    assert start == {"followed-0": 0, "followed-1": 0}
    seen: list[tuple[int, bytes]] = []
    for number in range(6):
        cluster.produce("followed", str(number), partition=number % 2)
        if number % 3 == 2:
            end = ends.latest()
            for part in remote.between(options, start, end):
                for table in reading.records(part, ("partition", "value")):
                    seen += [(row["partition"], row["value"]) for row in table.to_pylist()]
            start = end
    assert sorted(seen, key=lambda each: each[1]) == [(i % 2, b"%d" % i) for i in range(6)]
    assert list(remote.between(options, start, ends.latest())) == []


def test_a_broker_that_is_away_for_a_moment_is_waited_for(cluster: Cluster) -> None:
    at_high_watermark(cluster, 2)
    options = parse({"bootstrap": cluster.bootstrap_servers, "topic": "orders", "replica": "2"})
    parts = remote.plan(options)
    before = by_files(cluster, 2)
    cluster.broker(2).kill()
    cluster.broker(2).start()
    rows = [row for p in parts for t in reading.records(p, tuple(COLUMNS)) for row in t.to_pylist()]
    assert rows == before
    cluster.wait_in_sync()


@pytest.fixture
def http_server() -> Iterator[str]:
    """The address of a server that answers whatever comes in HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connected, _ = listening.accept()
            with connected:
                connected.recv(1000)
                connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


def test_what_cannot_be_is_refused_in_one_line(cluster: Cluster, http_server: str) -> None:
    leader = cluster.partition("single", 0).leader
    other = next(each for each in (1, 2, 3) if each != leader)
    wrong: list[tuple[dict[str, str], str]] = [
        ({"replica": "9"}, "there is no broker 9, or it is not alive; there are 1, 2, 3"),
        ({"topic": "order"}, "there is no topic order; did you mean orders?"),
        ({"partition": "7"}, "no topic has a partition 7"),
        (
            {"topic": "single", "replica": str(other)},
            f"broker {other} has no replica of single-0: brokers {leader} have",
        ),
        ({"bootstrap": "127.0.0.1:1"}, "no broker answers: 127.0.0.1:1: cannot connect"),
        ({"bootstrap": "nowhere"}, "bootstrap: 'nowhere' is no HOST:PORT"),
        ({"bootstrap": http_server}, f"no broker answers: {http_server}: this is an HTTP server"),
        ({"upTo": "end"}, "upTo=end is for log directories"),
        ({"path": "/tmp"}, "path and bootstrap exclude each other"),
        ({"include": "deleted"}, "include is for log directories"),
    ]
    given = {"bootstrap": cluster.bootstrap_servers, "topic": "orders"}
    for options, message in wrong:
        with pytest.raises(ConfigurationError) as caught:
            remote.plan(parse({**given, **options}))
        assert message in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="replica needs bootstrap"):
        parse({"path": "/tmp", "replica": "1"})


@pytest.mark.parametrize(("at", "value"), [(16, 9), (8, 0x7F), (60, 0x55)])
def test_damage_is_told_and_stepped_over(
    cluster: Cluster, at: int, value: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong magic, a wrong length, a wrong number of records. A broker looks for an offset from the last indexed one
    on, so that more is missing by Fetch than on the disk; but what is missing is told."""
    topic = f"damaged-{at}"
    config = {"index.interval.bytes": "300"}
    cluster.create_topic(topic, partitions=1, replication_factor=1, config=config)
    for number in range(60):
        cluster.produce(topic, f"{number} " * 20)
    leader = cluster.broker(cluster.partition(topic, 0).leader)
    path = Path(leader.log_dirs[0]) / f"{topic}-0" / f"{0:020d}.log"
    starts = [batch.position for batch in iter_batches(path.read_bytes())]
    with path.open("r+b") as file:
        file.seek(starts[10] + at)
        file.write(bytes([value]))
    offsets = [row["offset"] for row in by_fetch(cluster, "offset", "value", topic=topic)]
    assert 10 not in offsets and offsets[:10] == list(range(10))
    assert offsets[-35:] == list(range(25, 60))
    assert "cannot be read, the first at" in caplog.text
    lost = by_fetch(cluster, topic=topic, mode="damage")
    assert lost and all(row["position"] is None for row in lost)
