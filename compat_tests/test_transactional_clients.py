"""Transactions of clients as published: commit, abort, fence, crash, time-out, and consume–transform–produce."""

import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.brokers import Broker
from compat_tests.clients import (
    JAVA,
    KINDS,
    NODE_RDKAFKA,
    RUST,
    TRANSACTIONAL,
    Client,
    ClientError,
    eventually,
)

SLOW = (pytest.mark.slow, pytest.mark.timeout(1900))  # the first test waits for the build
EACH = [*KINDS, JAVA.name, *(pytest.param(kind.name, marks=SLOW) for kind in (RUST, NODE_RDKAFKA))]
pytestmark = [pytest.mark.timeout(120), pytest.mark.parametrize("kind", EACH)]
Start = Callable[[], Client]
Fresh = Callable[[str], str]


@pytest.fixture
def start_one(broker: Broker, kind: str) -> Iterator[Start]:
    """Starts clients of one kind; they end with the test."""
    started: list[Client] = []

    def start() -> Client:
        started.append((KINDS | TRANSACTIONAL)[kind].start(broker.bootstrap_servers))
        return started[-1]

    yield start
    for client in started:
        client.close()


class Reader:
    """What a reader sees who waits for commits, and what a group has committed."""

    def __init__(self, broker: Broker, fresh: Fresh) -> None:
        self.base = {"bootstrap.servers": broker.bootstrap_servers, "broker.address.family": "v4"}
        self.fresh = fresh

    def topic(self, partitions: int = 2) -> str:
        name = self.fresh("txn")
        admin = AdminClient(self.base)
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        eventually(lambda: len(admin.list_topics(name, 10).topics[name].partitions) == partitions)
        return name

    def read(self, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[str]:
        """The values before the last stable offset."""
        config = {"group.id": "nobody", "enable.partition.eof": True, "isolation.level": isolation}
        consumer = Consumer({**self.base, **config, "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        values = []
        try:
            while True:
                message = consumer.poll(20)
                assert message is not None, "neither a record nor the end"
                if message.error():
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    return values
                values.append(message.value().decode())
        finally:
            consumer.close()

    def committed(self, group: str, topic: str) -> int:
        consumer = Consumer({**self.base, "group.id": group})
        (found,) = consumer.committed([TopicPartition(topic, 0)], 30)
        consumer.close()
        return found.offset


@pytest.fixture
def reader(broker: Broker, fresh: Fresh) -> Reader:
    return Reader(broker, fresh)


def init(client: Client, tid: str, timeout_ms: int = 60_000) -> None:
    client.call("txn_init", id=tid, timeout_ms=timeout_ms)


def send(client: Client, topic: str, *values: str, partition: int = 0) -> None:
    said = [b64encode(value.encode()).decode() for value in values]
    client.call("txn_send", topic=topic, partition=partition, values=said)


def end(client: Client, commit: bool = True) -> None:
    client.call("txn_end", commit=commit)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    start_one: Start, reader: Reader, fresh: Fresh
) -> None:
    topic, client = reader.topic(), start_one()
    init(client, fresh("id"))
    send(client, topic, "a", "b")
    send(client, topic, "c", partition=1)
    assert reader.read(topic) == reader.read(topic, 1) == []
    assert reader.read(topic, isolation="read_uncommitted") == ["a", "b"]
    end(client)
    eventually(lambda: reader.read(topic) == ["a", "b"] and reader.read(topic, 1) == ["c"])
    send(client, topic, "never")
    send(client, topic, "never", partition=1)
    end(client, commit=False)
    send(client, topic, "d")
    end(client)
    eventually(lambda: reader.read(topic) == ["a", "b", "d"])
    assert reader.read(topic, 1) == ["c"]
    assert reader.read(topic, isolation="read_uncommitted") == ["a", "b", "never", "d"]


def test_a_successor_fences_its_predecessor(start_one: Start, reader: Reader, fresh: Fresh) -> None:
    topic, tid = reader.topic(), fresh("id")
    old, new = start_one(), start_one()
    init(old, tid)
    send(old, topic, "old")
    init(new, tid)
    send(new, topic, "new")
    end(new)
    with pytest.raises(ClientError):
        send(old, topic, "late")
        end(old)
    eventually(lambda: reader.read(topic) == ["new"])


def test_a_successor_ends_what_a_killed_client_left_open(
    start_one: Start, reader: Reader, fresh: Fresh
) -> None:
    topic, tid = reader.topic(), fresh("id")
    dead, new = start_one(), start_one()
    init(dead, tid)
    send(dead, topic, "dead")
    dead._process.kill()
    init(new, tid)
    send(new, topic, "new")
    end(new)
    eventually(lambda: reader.read(topic) == ["new"])


def test_the_broker_aborts_what_takes_too_long(
    start_one: Start, reader: Reader, fresh: Fresh
) -> None:
    topic, client, other = reader.topic(), start_one(), start_one()
    init(client, fresh("id"), timeout_ms=1_000)
    send(client, topic, "late")
    init(other, fresh("id"))
    send(other, topic, "in time")
    end(other)
    start = time.monotonic()
    eventually(lambda: reader.read(topic) == ["in time"], timeout_s=30)
    assert time.monotonic() - start < 20
    with pytest.raises(ClientError):
        end(client)


def test_records_are_transformed_and_offsets_committed_in_one_transaction(
    start_one: Start, reader: Reader, fresh: Fresh, kind: str
) -> None:
    if kind == "kafka-python-2":
        pytest.skip("hangs in kafka-python 2, on Kafka as well")
    source, target, group = reader.topic(1), reader.topic(1), fresh("group")
    client = start_one()
    init(client, fresh("id"))
    send(client, source, "a", "b", "c")
    end(client)

    def transform(count: int, commit: bool) -> list[str]:
        word = {"group": group, "source": source, "target": target}
        read = client.call("txn_transform", **word, count=count, commit=commit)
        return [b64decode(value).decode() for value in read]

    assert transform(2, commit=False) == ["a", "b"]
    assert reader.read(target) == [] and reader.committed(group, source) < 0
    assert transform(2, commit=True) == ["a", "b"]
    eventually(lambda: reader.read(target) == ["a!", "b!"])
    assert reader.committed(group, source) == 2
    assert transform(1, commit=True) == ["c"]
    eventually(lambda: reader.read(target) == ["a!", "b!", "c!"])
    assert reader.committed(group, source) == 3
