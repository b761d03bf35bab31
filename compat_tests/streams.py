"""A word count of Kafka Streams under attack (java/WordCount.java): its processes, its input, and what must come out.

Each count that the store has held is a record of the topic of counts: of a word that occurs n times a reader of
committed transactions must see 1, 2, … n, each once and in this order, and each line once among the lines seen."""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests import tooling
from compat_tests.brokers import mortal

PARTITIONS = 3
WORDS = ("tea", "coffee", "milk", "sugar", "cocoa", "water", "lemon", "mint", "ginger", "honey")
SOURCE = tooling.HERE / "java" / "WordCount.java"
PATIENCE_S = 120.0  # a busy machine starts a JVM in a minute
_RECIPE = re.compile(r"^## Kafka Streams.*?^```ini\n(.*?)^```$", re.M | re.S)


def recipe() -> dict[str, str]:
    """What docs/recipes.md tells people to set in the application."""
    found = _RECIPE.search((tooling.HERE.parent / "docs" / "recipes.md").read_text())
    assert found is not None
    return dict(line.split("=", 1) for line in found[1].splitlines())


def wait_until(done: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(0.02)


def some_lines(count: int, seed: int = 1) -> list[str]:
    """Different lines of a few words."""
    choice = random.Random(seed)
    return [f"{n} {' '.join(choice.choices(WORDS, k=4))}" for n in range(count)]


class Topics:
    """The topics of one word count, filled and read by a stock client that is not Kafka's own."""

    def __init__(self, bootstrap: str, application: str, replicas: int = 1) -> None:
        self.base = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.application = application
        self.admin = AdminClient(self.base)
        config = {"min.insync.replicas": "2"} if replicas > 2 else {}
        names = [self.name(word) for word in ("lines", "seen", "counts")]
        new = [NewTopic(name, PARTITIONS, replicas, config=config) for name in names]
        for made in self.admin.create_topics(new).values():
            made.result(30)

    def name(self, word: str) -> str:
        return f"{self.application}-{word}"

    @property
    def changelog(self) -> str:
        return "counts-changelog"

    def fill(self, lines: list[str]) -> None:
        producer = Producer({**self.base, "acks": "all", "enable.idempotence": True})
        for number, line in enumerate(lines):
            producer.produce(self.name("lines"), line, partition=number % PARTITIONS)
        assert producer.flush(60) == 0

    def end(self, word: str, isolation: str = "read_committed") -> int:
        """The sum of the partitions' last stable offsets, or of their high watermarks; control records count."""
        consumer = Consumer({**self.base, "group.id": "nobody", "isolation.level": isolation})
        places = [TopicPartition(self.name(word), index) for index in range(PARTITIONS)]
        deadline = time.monotonic() + PATIENCE_S
        try:
            while True:
                try:
                    return sum(consumer.get_watermark_offsets(place, 20)[1] for place in places)
                except KafkaException:  # its broker has just been killed
                    if time.monotonic() > deadline:
                        raise
        finally:
            consumer.close()

    def read(self, word: str, isolation: str = "read_committed") -> list[tuple[str, str | bytes]]:
        """Keys and values before the last stable offset (or the high watermark), each partition in its order."""
        config: dict[str, Any] = {"group.id": "nobody", "isolation.level": isolation}
        config |= {"enable.partition.eof": True, "enable.auto.commit": False}
        consumer = Consumer({**self.base, **config})
        consumer.assign([TopicPartition(self.name(word), index, 0) for index in range(PARTITIONS)])
        found: list[tuple[str, str | bytes]] = []
        ended: set[int] = set()
        try:
            while len(ended) < PARTITIONS:
                message = consumer.poll(30)
                assert message is not None, f"{word}: neither a record nor the end"
                if message.error() is None:
                    ended.discard(message.partition())
                    key, value = message.key() or b"", message.value() or b""
                    found.append((key.decode(), value))
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended.add(message.partition())
            return found
        finally:
            consumer.close()


class WordCount:
    """One process of the application."""

    def __init__(
        self,
        topics: Topics,
        folder: Path,
        name: str = "app",
        micros_a_line: int = 0,
        version: str = tooling.KAFKA_BROKER,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        jars = tooling.streams_jars(version)
        argv = tooling.java_program_argv(SOURCE, version, jars)
        state = folder / f"state-{name}"
        argv += [topics.base["bootstrap.servers"], topics.application, str(state)]
        argv += [str(micros_a_line)]
        argv += [f"{key}={value}" for key, value in (config or {}).items()]
        self.log_path = folder / f"{name}.log"
        self.said_path = folder / f"{name}.states"
        with self.log_path.open("ab") as log, self.said_path.open("wb") as said:
            self.process = subprocess.Popen(
                mortal(argv), stdin=subprocess.PIPE, stdout=said, stderr=log
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def check(self) -> None:
        assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.log}"

    def kill9(self) -> None:
        """kill -9: its transaction stays open, its group knows of nothing."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """As an application ends that closes its KafkaStreams: what is processed is committed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            status = self.process.wait(40)
        finally:
            self.kill9()
        assert status == 0, f"ended with {status}\n{self.log}"


def wanted(lines: list[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split(" "))


def wait_for_all(topics: Topics, lines: list[str], *apps: WordCount, seconds: float) -> None:
    """Until as many counts are committed as there are words in all lines; the applications must live."""
    goal = wanted(lines).total()

    def there() -> bool:
        for app in apps:
            app.check()
        return topics.end("counts") >= goal and len(topics.read("counts")) >= goal

    wait_until(there, "all words are counted", seconds)


def check_counts(topics: Topics, lines: list[str]) -> None:
    """Each line seen once, each count of each word once and in order, and the changelog ends with them."""
    seen = Counter(bytes(value).decode() for _, value in topics.read("seen"))  # type: ignore[arg-type]
    assert seen == Counter(lines)
    steps: dict[str, list[int]] = defaultdict(list)
    for word, value in topics.read("counts"):
        steps[word].append(int(value))
    expected = wanted(lines)
    assert {word: found[-1] for word, found in steps.items()} == dict(expected)
    for word, found in steps.items():
        assert found == list(range(1, expected[word] + 1)), word
    kept = {word: int.from_bytes(value, "big") for word, value in topics.read(topics.changelog)}  # type: ignore[arg-type]
    assert kept == dict(expected)
