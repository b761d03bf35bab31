"""Disasters staged on three brokers, with a ledger of what the producers were told: the truth is known.

One topic a disaster, all on one cluster, so that one audit has to tell them apart:

    unclean     broker 1 acknowledges 5 records alone and is killed; broker 2 is elected uncleanly: these 5 are lost
    doubled     the answer to one record is late, and a producer without idempotence sends it again
    truncated   broker 3 appends 2 records that it never acknowledges, is killed, and truncates when it is back
    aborted     a transaction of 5 records is aborted between two that are committed
    expired     retention removes 10 records
    calm        idempotent producers with acks=all and min.insync.replicas=2 go on through all that: nothing happens
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kwire import Cluster
from kwire.pipeline import event_lines, ledger
from spark_it.support import until

RUN = "d15a57e5"
CONFIG = {
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 1000,
    "3:replica.lag.time.max.ms": 60_000,  # as a leader it keeps its ISR
    "replica.fetch.wait.max.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 100,
    "transaction.state.log.min.isr": 2,
}
LOSSY = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
TOPICS: dict[str, tuple[list[list[int]], dict[str, str]]] = {
    "unclean": ([[1, 2]], LOSSY),
    "doubled": ([[3, 1, 2]], {}),
    "truncated": ([[3, 2]], {"min.insync.replicas": "1"}),
    "aborted": ([[2, 1, 3]], {}),
    "expired": ([[2, 3]], {"segment.bytes": "300", "retention.ms": "3600000"}),
    "calm": ([[1, 2, 3], [2, 3, 1], [3, 1, 2]], {}),
}
SMALL = ("unclean", "doubled")
"""What fits into 20 s with its audit."""
LONG_AGO_MS = 2 * 3_600_000


class Book:
    """The ledger of all producers, written at the end."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._numbers: Counter[str] = Counter()

    def send(
        self, producer: Any, name: str, topic: str, partition: int = 0, **more: Any
    ) -> dict[str, Any]:
        """Give a producer its next record; its row has the outcome when it has been delivered."""
        number = self._numbers[name]
        self._numbers[name] += 1
        value = ledger.value_prefix(RUN, name) + b"%d " % number + b"x" * 20
        row = dict.fromkeys(ledger.COLUMNS[ledger.SENT])
        row |= {
            "run": RUN,
            "producer": name,
            "number": number,
            "topic": topic,
            "partition": partition,
        }
        row |= {"hash": zlib.crc32(value), "size": len(value), "outcome": ledger.UNKNOWN}
        row |= {"sent": datetime.now(UTC), "transaction": more.pop("transaction", None)}
        self.rows.append(row)

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                row["error"] = str(error)
                return
            row["offset"], row["acknowledged"] = message.offset(), datetime.now(UTC)
            row["outcome"] = ledger.ACKNOWLEDGED

        producer.produce(topic, value, partition=partition, on_delivery=delivered, **more)
        return row

    def write(self, folder: Path, bootstrap: str) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        (folder / ledger.SENT).mkdir(parents=True)
        (folder / ledger.SEEN).mkdir()
        topics = tuple(sorted({row["topic"] for row in self.rows}))
        run = ledger.Run(
            RUN, bootstrap, topics, "tests", "transactional", "all", 0, 1, len(self.rows)
        )
        ledger.write_run(folder, run)
        table = pa.Table.from_pylist(self.rows, ledger.schema(ledger.SENT))
        pq.write_table(table, folder / ledger.SENT / "part-0.parquet")
        return folder


def producer(cluster: Any, **config: Any) -> Any:
    from confluent_kafka import Producer

    given = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "log_level": 0}
    return Producer({**given, **config})


class Steady:
    """Goes on sending to partitions of a topic in turn, until it is stopped."""

    def __init__(
        self,
        cluster: Cluster,
        book: Book,
        name: str,
        topic: str,
        partitions: tuple[int, ...],
        **config: Any,
    ) -> None:
        self._book, self._name, self._topic, self._partitions = book, name, topic, partitions
        self._producer = producer(cluster, **{"retry.backoff.ms": 50, **config})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Steady:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        sent = 0
        while not self._stop.wait(0.02):
            partition = self._partitions[sent % len(self._partitions)]
            self._book.send(self._producer, self._name, self._topic, partition)
            self._producer.poll(0)
            sent += 1
        assert self._producer.flush(60) == 0


def stage(cluster: Cluster, book: Book, topics: Collection[str] = tuple(TOPICS)) -> None:
    """The disasters of these topics, one after the other; all take about 10 s."""
    for topic in topics:
        assignment, config = TOPICS[topic]
        cluster.create_topic(topic, assignment=assignment, config=config)
    with ExitStack() as goes_on:
        if "calm" in topics:
            given = {"enable.idempotence": True}
            goes_on.enter_context(Steady(cluster, book, "calm-1", "calm", (0, 1, 2), **given))
        for topic, happen in HAPPEN.items():
            if topic in topics:
                happen(cluster, book)
        cluster.wait_in_sync(timeout=30)


def abort(cluster: Any, book: Book) -> None:
    one = producer(cluster, **{"transactional.id": f"kwire-load-{RUN}-aborted-1"})
    one.init_transactions(30)
    for transaction, outcome in enumerate((ledger.COMMITTED, ledger.ABORTED, ledger.COMMITTED)):
        one.begin_transaction()
        rows = [book.send(one, "aborted-1", "aborted", transaction=transaction) for _ in range(5)]
        assert one.flush(30) == 0
        (one.commit_transaction if outcome == ledger.COMMITTED else one.abort_transaction)(30)
        for row in rows:
            row["outcome"] = outcome


def expire(cluster: Cluster, book: Book) -> None:
    fill_expired(cluster, book)
    cluster.apply_retention("expired")


def fill_expired(cluster: Any, book: Book) -> None:
    """10 records that are older than retention.ms, then 4 of now, in small segments."""
    one = producer(cluster)
    before = int(time.time() * 1000) - LONG_AGO_MS
    for number in range(14):
        book.send(one, "expired-1", "expired", timestamp=before if number < 10 else 0)
        assert one.flush(30) == 0


def double(cluster: Cluster, book: Book) -> None:
    """Acks=all while no follower is reached: the leader answers REQUEST_TIMED_OUT, and the retry finds them.

    Only the producer of that one record is impatient: on a slow machine any other would be sent again, too."""
    one = producer(cluster)
    hasty = {"request.timeout.ms": 2000, "retry.backoff.ms": 2000, "retry.backoff.max.ms": 2000}
    impatient = producer(cluster, **hasty)
    for _ in range(4):
        book.send(one, "doubled-1", "doubled")
        assert one.flush(30) == 0
    with cluster.network.cut({3}, {1, 2}):
        book.send(impatient, "doubled-1", "doubled")
        impatient.poll(0)
        until(lambda: has_timed_out(cluster, "doubled"), 20, "a request has timed out")
    assert impatient.flush(30) == 0
    for _ in range(4):
        book.send(one, "doubled-1", "doubled")
    assert one.flush(30) == 0


def has_timed_out(cluster: Cluster, topic: str) -> bool:
    answers = cluster.requests(api="Produce", broker=3)
    return any(f"{topic}-0: REQUEST_TIMED_OUT" in each.outcome for each in answers)


def lose(cluster: Cluster, book: Book) -> None:
    one = producer(cluster, acks=1)
    for _ in range(5):
        book.send(one, "unclean-1", "unclean")
    assert one.flush(30) == 0
    cluster.wait_for(lambda c: c.partition("unclean", 0).high_watermark == 5, timeout=10)
    with cluster.network.cut({1}, {2, 3}):
        for _ in range(3):
            book.send(one, "unclean-1", "unclean")
        assert one.flush(30) == 0
        cluster.wait_for(lambda c: c.partition("unclean", 0).isr == {1}, timeout=10)
        alone = producer(cluster)  # acks=all, and all of the ISR is broker 1
        for _ in range(2):
            book.send(alone, "unclean-2", "unclean")
        assert alone.flush(30) == 0
        cluster.broker(1).kill()
        cluster.wait_for(lambda c: c.partition("unclean", 0).leader == 2, timeout=10)
    for _ in range(2):
        book.send(one, "unclean-1", "unclean")
    assert one.flush(30) == 0
    cluster.broker(1).start()
    cluster.wait_in_sync(timeout=30)


def truncate(cluster: Cluster, book: Book) -> None:
    one = producer(cluster, **{"message.timeout.ms": 20_000, "retries": 0, "linger.ms": 200})
    for _ in range(5):
        book.send(one, "truncated-1", "truncated")
    assert one.flush(30) == 0
    with cluster.network.cut({3}, {1, 2}):
        for _ in range(2):
            book.send(one, "truncated-1", "truncated")
        one.poll(0)
        cluster.wait_for(
            lambda c: c.partition("truncated", 0).replica(3).log_end_offset >= 7, timeout=10
        )
        cluster.broker(3).kill()
        cluster.wait_for(lambda c: c.partition("truncated", 0).leader == 2, timeout=10)
    one.flush(30)
    cluster.broker(3).start()


HAPPEN: dict[str, Callable[[Cluster, Book], None]] = {
    "aborted": abort,
    "expired": expire,
    "doubled": double,
    "unclean": lose,
    "truncated": truncate,
}


def staged(
    cluster: Cluster, folder: Path, happen: Callable[[Cluster, Book], None] = stage
) -> tuple[Path, Path, Book]:
    """What happens on a cluster: the ledger, the file with the cluster's events, and the rows of the ledger."""
    book = Book()
    happen(cluster, book)
    written = book.write(folder / "ledger", cluster.bootstrap_servers)
    events = folder / "events.json"
    event_lines.write(cluster.events(), events)
    return written, events, book
