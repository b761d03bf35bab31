"""`Cluster.reset`, with clients that were connected before and go on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from cluster_clients import consume, produce
from confluent_kafka import Consumer
from kafka import KafkaProducer

from kwire import Cluster
from kwire.backends.reset import count_clients

pytestmark = pytest.mark.timeout(120)


LEAK = """
import sys, threading, time
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

servers = sys.argv[1]
conf = {"bootstrap.servers": servers, "log_level": 0}
producer = Producer(conf)
producer.produce("orders", b"old")
assert producer.flush(20) == 0
other_producer = KafkaProducer(bootstrap_servers=servers)
other_producer.send("orders", b"old").get(20)
other_producer.config["max_block_ms"] = 20  # without metadata, from now on
consumer = Consumer({**conf, "group.id": "shop", "allow.auto.create.topics": True})
consumer.subscribe(["orders"])
other_consumer = KafkaConsumer("orders", bootstrap_servers=servers, group_id="shop")

def send():
    producer.produce("orders", b"old")
    producer.poll(0)
    try:
        other_producer.send("orders", b"old")
    except KafkaError:
        pass
    print(flush=True)
    time.sleep(0.01)

def go_on(action):
    while True:
        action()

for action in (lambda: consumer.poll(0.05), lambda: other_consumer.poll(50), send):
    threading.Thread(target=go_on, args=(action,)).start()
"""


class Leak:
    """Clients that nobody closes: two producers that go on, and two consumers of the group "shop".

    They live in a process of their own, so that they can be ended. Their ids are the default ones."""

    def __init__(self, servers: str) -> None:
        command = [sys.executable, "-W", "ignore", "-c", LEAK, servers]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self.go_on(1)

    def go_on(self, rounds: int) -> None:
        """Return when the producers have sent so often again."""
        assert self._process.stdout is not None
        for _ in range(rounds):
            assert self._process.stdout.readline()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def leaks() -> Iterator[list[Leak]]:
    """The clients that a test leaks; ended after it, or they would go on during the others."""
    found: list[Leak] = []
    yield found
    for leak in found:
        leak.end()


def test_clients_from_before_change_nothing_and_take_nothing(leaks: list[Leak]) -> None:
    with Cluster() as cluster:
        for number in range(3):
            leaks.append(Leak(cluster.bootstrap_servers))
            consume(cluster.bootstrap_servers, "orders", 2, group="another")
            assert cluster.topics() == {"orders": 1}
            cluster.reset()
            assert cluster.topics(internal=True) == {}
            for leak in leaks:
                leak.go_on(20)
            assert cluster.topics(internal=True) == {}  # though they produce, and poll

            produce(cluster.bootstrap_servers, "orders", ["tea"])
            assert consume(cluster.bootstrap_servers, "orders", 1, group="shop") == ["tea"]
            assert cluster.partition("orders", 0).high_watermark == 1

            (told,) = cluster.leftovers()
            count, rest = told.split(" ", 1)
            assert int(count) >= 4 * number + 4
            assert rest.startswith("clients of an earlier test are still connected (")
            assert "rdkafka 127.0.0.1:" in rest and ", group shop" in rest


def test_clients_that_are_kept_go_on() -> None:
    with Cluster() as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        producer.send("orders", b"tea").get(10)
        cluster.reset(keep_clients=True)
        assert producer.send("orders", b"tea").get(10).offset == 0
        assert cluster.topics() == {"orders": 1} and cluster.leftovers() == []
        producer.close()


def test_nodes_and_kwires_own_requests_are_not_refused() -> None:
    with Cluster(3) as cluster:
        for _ in range(3):
            cluster.create_topic("t", 1, 3)
            produce(cluster.bootstrap_servers, "t", ["x"], acks="all")
            cluster.wait_for(lambda c: c.partition("t", 0).isr == {1, 2, 3})
            cluster.reset()
            assert cluster.topics() == {} and cluster.leftovers() == []


def test_a_client_closes_quickly_after_a_reset() -> None:
    with Cluster() as cluster:
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
        consumer = Consumer({**conf, "auto.offset.reset": "earliest"})
        produce(cluster.bootstrap_servers, "t", ["x"])
        consumer.subscribe(["t"])
        assert consumer.poll(10) is not None
        cluster.reset()
        consumer.close()  # the timeout of this test is the assertion: it does not wait for a broker
        cluster.wait_for(lambda c: c.leftovers() == [])


CLOSES = """
import asyncio, sys, time
library, servers = sys.argv[1:]

def beginning():
    print("member", flush=True)
    sys.stdin.readline()  # the cluster is reset

async def with_aiokafka():
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, group_id="shop", auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
    )
    await consumer.start()
    await consumer.getone()
    await asyncio.to_thread(beginning)
    if poll:
        while consumer.assignment():
            await consumer.getmany(timeout_ms=50)
    begin = time.monotonic()
    await consumer.stop()
    return begin

def with_kafka_python():
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        "orders", bootstrap_servers=servers, group_id="shop", auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
    )
    next(consumer)
    beginning()
    while poll and consumer.assignment():
        consumer.poll(50)
    begin = time.monotonic()
    consumer.close()
    return begin

def with_confluent_kafka():
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "shop", "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
        }
    )
    consumer.subscribe(["orders"])
    assert consumer.poll(20).value()
    beginning()
    while poll and consumer.assignment():
        consumer.poll(0.05)
    begin = time.monotonic()
    consumer.close()
    return begin

library, _, poll = library.partition("/")
begin = asyncio.run(with_aiokafka()) if library == "aiokafka" else globals()["with_" + library]()
print(time.monotonic() - begin)
"""


@pytest.mark.parametrize("when", ["", "/poll"], ids=["at-once", "later"])
@pytest.mark.parametrize("library", ["confluent_kafka", "kafka_python", "aiokafka"])
def test_a_member_that_is_closed_after_a_reset_does_not_wait(library: str, when: str) -> None:
    """`later`: after it has gone on until it has nothing assigned any more. It used to take 30 s and more."""
    with Cluster() as cluster:
        cluster.produce("orders", "tea")
        member = subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                CLOSES,
                library + when,
                cluster.bootstrap_servers,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert member.stdout is not None and member.stdout.readline() == "member\n"
            cluster.reset()
            cluster.create_topic("orders")
            seconds = member.communicate("\n", timeout=20)[0]
        finally:
            member.kill()
            member.communicate()
        assert float(seconds) < 5
        assert cluster.group("shop").state == "Dead" and cluster.topics() == {"orders": 1}


def test_outside_topics_that_clients_make_again_are_told(leaks: list[Leak]) -> None:
    with Cluster() as cluster:
        outside = Cluster.connect(cluster.bootstrap_servers)
        leaks.append(Leak(cluster.bootstrap_servers))
        outside.reset()  # no error, though orders is made again and again
        told = outside.leftovers()
        if told:  # they may have been too slow to make it again five times
            assert told[0].startswith(
                "clients of an earlier test keep making topics that were deleted ("
            )
        leaks.pop().end()
        outside.reset()
        assert outside.topics(internal=True) == {} and outside.leftovers() == []
        outside.stop()


def test_the_sentence_on_clients() -> None:
    one = {"client_id": "rdkafka", "address": "127.0.0.1:1", "group": "shop"}
    other = {"client_id": "", "address": "127.0.0.1:2", "group": None}
    assert count_clients([one]) == (
        "1 client of an earlier test is still connected (rdkafka 127.0.0.1:1, group shop)"
    )
    assert count_clients([one, other]) == (
        "2 clients of an earlier test are still connected"
        " (rdkafka 127.0.0.1:1, group shop; unknown 127.0.0.1:2)"
    )
