"""How long clients stand still when the leader goes: Apache Kafka's three brokers and kwire's, killed and stopped.

    python -m compat_tests.leader_loss kafka|kwire kill|stop CLIENT… [--times N]

Clients (librdkafka, kafka-python, aiokafka) write one record after the other, each awaited, acks=all, with their own
defaults; what is printed is the longest time without an acknowledgement. "admin" is Java's AdminClient, which lists
offsets all the time (java/ListOffsetsLoop.java): the longest call.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kwire
from compat_tests import tooling
from compat_tests.brokers import mortal
from compat_tests.kafka_nodes import KafkaNodes
from kwire.client.streams import ask
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest

TOPIC = "loss"
ADMIN: list[str] = []  # what Java's client has other than its defaults
PATIENCE_S = 90.0


class Kafka:
    def __init__(self, folder: Path, config: dict[str, str]) -> None:
        self.cluster = KafkaNodes(folder, 3, {"controlled.shutdown.enable": "true", **config})
        self.cluster.start()
        self.bootstrap_servers = self.cluster.bootstrap_servers
        self.ids = list(self.cluster.brokers)

    def address(self, node_id: int) -> tuple[str, int]:
        return "127.0.0.1", self.cluster.brokers[node_id].port

    def kill(self, node_id: int) -> None:
        self.cluster.brokers[node_id].kill9()

    def stop(self, node_id: int) -> None:
        self.cluster.brokers[node_id].stop()

    def start(self, node_id: int) -> None:
        self.cluster.brokers[node_id].start()

    def close(self) -> None:
        self.cluster.kill9()


class Kwire:
    """`kwire.Cluster` of three brokers, each in a process."""

    def __init__(self, folder: Path, config: dict[str, str]) -> None:
        self.cluster = kwire.Cluster(
            brokers=3, config=config, isolation="process", data_dir=folder / "kwire"
        )
        self.cluster.start()
        self.bootstrap_servers = self.cluster.bootstrap_servers
        self.ids = [broker.id for broker in self.cluster.brokers]

    def address(self, node_id: int) -> tuple[str, int]:
        host, _, port = self.cluster.broker(node_id).address.rpartition(":")
        return host, int(port)

    def kill(self, node_id: int) -> None:
        self.cluster.broker(node_id).kill()

    def stop(self, node_id: int) -> None:
        self.cluster.broker(node_id).stop()

    def start(self, node_id: int) -> None:
        self.cluster.broker(node_id).start()

    def close(self) -> None:
        self.cluster.stop()


def librdkafka(bootstrap: str) -> Callable[[], None]:
    from confluent_kafka import Producer

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0}
    settings |= {"log_level": 0}
    if "--debug" in sys.argv:
        settings |= {"debug": "broker,topic,metadata", "log_level": 7}
    producer = Producer(settings)
    failed: list[Any] = []

    def write() -> None:
        producer.produce(TOPIC, b"x", partition=0, on_delivery=lambda e, _: e and failed.append(e))
        assert producer.flush(PATIENCE_S) == 0 and not failed, failed

    return write


def kafka_python(bootstrap: str) -> Callable[[], None]:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")
    return lambda: producer.send(TOPIC, b"x", partition=0).get(PATIENCE_S)


def admin(bootstrap: str) -> Callable[[], None]:
    """Java: each call is a line to the program and one back."""
    source = tooling.HERE / "java" / "ListOffsetsLoop.java"
    argv = tooling.java_argv(tooling.KAFKA_BROKER, "ListOffsetsLoop", bootstrap, TOPIC, *ADMIN)
    argv[argv.index("-cp") + 1] = tooling.java_program(source)
    argv = mortal(argv)
    program = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call() -> None:
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write("\n")
        program.stdin.flush()
        said = program.stdout.readline().strip()
        if said != "ok":
            print("  admin:", said, flush=True)

    return call


CLIENTS = {"librdkafka": librdkafka, "kafka-python": kafka_python, "admin": admin}


class Cluster:
    """Either kind, and what is asked of it."""

    def __init__(self, kind: str, folder: Path, config: dict[str, str]) -> None:
        self.nodes = (Kafka if kind == "kafka" else Kwire)(folder, config)
        self.down: set[int] = set()

    def ask(self, request: Any) -> Any:
        node_id = next(n for n in self.nodes.ids if n not in self.down)
        return asyncio.run(ask(self.nodes.address(node_id), request))

    def partition(self) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        while not (topics := self.ask(request).topics) or not topics[0].partitions:
            time.sleep(0.1)  # a node of Kafka's that has just started knows of nothing
        return topics[0].partitions[0]

    def create(self, partitions: int) -> None:
        while len(self.ask(MetadataRequest(topics=[])).brokers) < 3:
            time.sleep(0.1)
        topic = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=3)
        made = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20000))
        assert made.topics[0].error_code == 0, made
        self.whole()

    def whole(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (self.partition().leader_id >= 0 and len(self.partition().isr_nodes) == 3):
            assert time.monotonic() < deadline, self.partition()
            time.sleep(0.1)


def one(cluster: Cluster, how: str, write: Callable[[], None]) -> tuple[float, float]:
    """Seconds without an acknowledgement, and until the others had a new leader; a client is at work throughout."""
    begun: list[float] = []
    ended: list[float] = []
    failures: list[BaseException] = []
    stopping = threading.Event()

    def work() -> None:
        try:
            while not stopping.is_set():
                begun.append(time.perf_counter())
                write()
                ended.append(time.perf_counter())
                time.sleep(0.002)
        except BaseException as failure:  # told below
            failures.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(1.5)
    leader = cluster.partition().leader_id
    cluster.down = {leader}
    at = time.perf_counter()
    ending = threading.Thread(target=getattr(cluster.nodes, how), args=(leader,))
    ending.start()
    while cluster.partition().leader_id in (leader, -1):
        time.sleep(0.005)
    elected = time.perf_counter() - at
    ending.join()
    gone = time.perf_counter()
    while not failures and not (ended and begun[len(ended) - 1] > gone):
        time.sleep(0.01)
    stopping.set()
    thread.join()
    if failures:
        raise failures[0]
    gap = max(b - a for a, b in zip(begun, ended, strict=True) if b > at)
    cluster.nodes.start(leader)
    cluster.down = set()
    cluster.whole()
    return gap, elected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("kafka", "kwire"))
    parser.add_argument("how", help="kill, stop or both with a comma")
    parser.add_argument("clients", nargs="+", choices=CLIENTS)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--debug", action="store_true")
    parser.add_argument("-c", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--admin", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    ADMIN.extend(arguments.admin)
    folder = Path(tempfile.mkdtemp(prefix="kwire-loss-"))
    config = dict(item.split("=", 1) for item in arguments.c)
    cluster = Cluster(arguments.what, folder, config)
    try:
        cluster.create(1)
        for how in arguments.how.split(","):
            for name in arguments.clients:
                write = CLIENTS[name](cluster.nodes.bootstrap_servers)
                write()
                found = [one(cluster, how, write) for _ in range(arguments.times)]
                listed = ", ".join(f"{gap:.2f} s (new leader known {k:.2f} s)" for gap, k in found)
                print(f"{arguments.what}, {how}, {name}: {listed}", flush=True)
    finally:
        cluster.nodes.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
