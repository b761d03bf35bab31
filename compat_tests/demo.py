"""`make demo`: a real text through the broker, a word count in a group, kill -9 twice, nothing lost.

The text is Debian's licence texts and Python's own documentation, every line a record. The producer
is kafka-python, idempotent, acks=all; a line counts as acknowledged when its future says so. The
counter commits after each batch and keeps a batch's words only if the commit succeeded.

Checked at the end, each with its numbers:

1. every acknowledged line is in the log, at the offset it was acknowledged with, and only there;
2. the new member starts exactly at the committed offsets: nothing is read twice, nothing is skipped;
3. the words counted through the broker are the words of the text.

Exit status 0 when all hold, 1 otherwise. REAL=1 runs the same against Apache Kafka.
"""

import argparse
import logging
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

from compat_tests.brokers import Broker, BrokerFailed, broker_class
from compat_tests.tooling import ToolMissing

TOPIC, GROUP, PARTITIONS = "lines", "word-count", 3
Place = tuple[int, int]  # partition, offset
WORD = re.compile(rb"[a-z']+")


def real_text(lines_max: int) -> list[bytes]:
    """Lines that are not blank, of real prose every Debian and every Python carries."""
    licences = {path.resolve() for path in Path("/usr/share/common-licenses").glob("*")}
    text = b"\n".join(path.read_bytes() for path in sorted(licences) if path.is_file())
    text += b"\n" + "\n".join(topics.values()).encode()
    return [line for line in text.splitlines() if line.strip()][:lines_max]


class Story:
    """Says what happens, with the time since the start, and keeps the checks that failed."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.failed = 0

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.start:6.2f} s  {text}", flush=True)

    def check(self, holds: bool, text: str) -> None:
        self.failed += not holds
        self.say(f"{'ok  ' if holds else 'FAIL'} {text}")


def kill_and_restart(story: Story, broker: Broker) -> None:
    pid = broker.pid
    broker.kill9()
    story.say(f"kill -9 {pid}")
    begin = time.monotonic()
    broker.restart()
    took_ms = (time.monotonic() - begin) * 1000
    story.say(f"the broker is back on the same directory after {took_ms:.0f} ms, pid {broker.pid}")


def produce(story: Story, broker: Broker, lines: list[bytes]) -> dict[Place, bytes]:
    """Sends every line; the broker dies while about half of them are acknowledged."""
    acknowledged: dict[Place, bytes] = {}
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, acks="all", enable_idempotence=True,
        linger_ms=2, batch_size=4096, retry_backoff_ms=50, reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200, compression_type="gzip",
    )  # fmt: skip
    half = len(lines) // 2
    futures = []
    for number, line in enumerate(lines):
        key = b"%d" % number
        futures.append(producer.send(TOPIC, line, key, partition=number % PARTITIONS))
        if number == half:  # wait for some, so that there is something to lose, then strike
            futures[number // 2].get(30)
            done = sum(future.succeeded() for future in futures)
            story.say(
                f"{done} of {len(futures)} lines sent are acknowledged, the rest is under way"
            )
            kill_and_restart(story, broker)
    producer.flush(40)
    for future, line in zip(futures, lines, strict=True):
        sent = future.get(40)
        acknowledged[sent.partition, sent.offset] = line
    producer.close()
    story.say(f"all {len(acknowledged)} lines are acknowledged")
    return acknowledged


def everything(broker: Broker) -> list[tuple[Place, bytes]]:
    """All records of the topic, read without a group."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=None)
    partitions = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    ends = consumer.end_offsets(partitions)
    records: list[tuple[Place, bytes]] = []
    while any(consumer.position(tp) < ends[tp] for tp in partitions):
        for batch in consumer.poll(1000).values():
            records += [((r.partition, r.offset), r.value) for r in batch]
    consumer.close()
    return records


class WordCount:
    """A group member that counts; a batch counts only when its commit succeeded."""

    def __init__(self, broker: Broker) -> None:
        self.bootstrap_servers = broker.bootstrap_servers
        self.words: Counter[bytes] = Counter()
        self.read: list[Place] = []  # of committed batches, over all members
        self.committed: dict[int, int] = {}
        self.lost_batch: list[Place] = []
        self.resumed_at: dict[int, int] = {}

    def member(self) -> KafkaConsumer:
        return KafkaConsumer(
            TOPIC, bootstrap_servers=self.bootstrap_servers, group_id=GROUP,
            auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=400,
            session_timeout_ms=2000, heartbeat_interval_ms=300, request_timeout_ms=5000,
            reconnect_backoff_ms=20,
        )  # fmt: skip

    def until(self, total: int, consumer: KafkaConsumer) -> None:
        """Reads, counts and commits until `total` lines are counted in all."""
        while len(self.read) < total:
            batch = [record for part in consumer.poll(1000).values() for record in part]
            if batch:
                self._first_offsets(batch)
                consumer.commit()
                self._keep(batch)

    def _first_offsets(self, batch: list) -> None:  # type: ignore[type-arg]
        if self.lost_batch:
            for record in batch:
                self.resumed_at.setdefault(record.partition, record.offset)

    def _keep(self, batch: list) -> None:  # type: ignore[type-arg]
        for record in batch:
            self.words.update(WORD.findall(record.value.lower()))
            self.read.append((record.partition, record.offset))
            self.committed[record.partition] = record.offset + 1


def count_words(story: Story, broker: Broker, total: int) -> WordCount:
    count = WordCount(broker)
    first = count.member()
    count.until(total // 2, first)
    story.say(f"{len(count.read)} lines counted and committed: {count.committed}")
    while not count.lost_batch:
        unsaved = [record for part in first.poll(1000).values() for record in part]
        count.lost_batch = [(record.partition, record.offset) for record in unsaved]
    story.say(f"{len(unsaved)} more are read, not yet committed")
    kill_and_restart(story, broker)
    committed_before = dict(count.committed)
    first.close(autocommit=False, timeout_ms=0)  # the counter goes down with its broker

    story.say("a new member of the group takes over")
    second = count.member()
    count.until(total, second)
    second.close()
    resumed = dict(
        sorted(count.resumed_at.items())
    )  # a partition that was read to its end is not here
    expected = {partition: committed_before.get(partition, 0) for partition in resumed}
    story.check(resumed == expected, f"it resumed at the committed offsets: {resumed}")
    return count


def run(lines_max: int) -> int:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what it says of a dead broker is known
    story = Story()
    lines = real_text(lines_max)
    story.say(f"the text: {len(lines)} lines, {sum(map(len, lines)) / 1e6:.2f} MB")
    with tempfile.TemporaryDirectory(prefix="kwire-demo-") as folder:
        # A member that died is missed after its session; two seconds keep the story short.
        broker = broker_class()(Path(folder) / "broker", {"group.min.session.timeout.ms": "1000"})
        broker.start()
        try:
            story.say(f"{broker.name} listens on {broker.bootstrap_servers}, pid {broker.pid}")
            admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
            admin.close()
            acknowledged = produce(story, broker, lines)
            kept = everything(broker)
            in_log = dict(kept)
            missing = sum(in_log.get(place) != line for place, line in acknowledged.items())
            story.check(
                missing == 0, f"{len(acknowledged)} lines acknowledged, {missing} lost or moved"
            )
            extra = len(kept) - len(acknowledged)
            story.check(extra == 0, f"{len(kept)} records in the log, {extra} written twice")
            count = count_words(story, broker, len(kept))
            twice = len(count.read) - len(set(count.read))
            story.check(
                twice == 0, f"{len(count.read)} lines counted, {twice} read twice after a commit"
            )
            unread = len(set(in_log) - set(count.read))
            story.check(unread == 0, f"{unread} lines not read")
            truth = Counter(word for line in lines for word in WORD.findall(line.lower()))
            common = ", ".join(f"{w.decode()} {n}" for w, n in count.words.most_common(5))
            story.check(
                count.words == truth, f"{count.words.total()} words, as in the text: {common}, …"
            )
        finally:
            broker.kill9()
    story.say(
        "nothing acknowledged was lost" if not story.failed else f"{story.failed} checks failed"
    )
    return 1 if story.failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", type=int, default=12_000, help="at most this many lines")
    options = parser.parse_args()
    try:
        return run(options.lines)
    except (BrokerFailed, KafkaError, ToolMissing) as error:
        print(f"demo: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
