"""Clients as child processes that speak one line protocol, JSON a line, one answer a request.

Words every driver answers (a record is `{p, o, t, k, v, h}`: partition, offset, timestamp in ms,
key and value in base64 or null, headers as [name, base64] pairs):

    produce {topic, codec, records: [{p, k, v, h, t?}]}      -> [offset, …]   acks=all
    fetch {topic, partition, offset, count}                  -> [record, …]
    offset_for_time {topic, partition, time}                 -> offset of the first record not older, or -1
    create {topic, partitions, config}   describe {topic} -> partitions   topics {} -> [name, …]
    grow {topic, total}   set_config {topic, key, value}   get_config {topic, key} -> value
    delete_records {topic, partition, before}   delete {topic}
    join {group, topic}                                      becomes a member, reads from the start or the commit
    wait {partitions, records}                               -> {partitions, records} as soon as that many
    commit {}    leave {}                                    positions, synchronously; a clean goodbye

Words of transactions, which every driver answers; those in TRANSACTIONAL know no others. Values are text in base64:

    txn_init {id, timeout_ms}                                a producer with that transactional id, ready to begin
    txn_send {topic, partition, values}                      begins a transaction unless one is open; sends, and waits
    txn_end {commit}                                         commits or aborts it
    txn_transform {group, source, target, count, commit}     a member reads `count` records of `source`, writes each
                                                             with "!" behind it to partition 0 of `target`, and sends
                                                             its offsets, in one transaction; -> what it read

An answer is `{"ok": …}` or `{"error": "…"}`. Each process holds at most one group member.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compat_tests import tooling

ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DRIVERS = tooling.HERE / "drivers"
GO = tooling.HERE / "go"
ANSWER_TIMEOUT_S = 60.0


class ClientError(Exception):
    """The client said that a request failed, or its process ended."""


@dataclass(frozen=True)
class Record:
    """A record as tests speak of it; `offset` and `timestamp` are -1 where they do not matter."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int = 0
    timestamp: int = -1
    offset: int = -1

    def to_json(self) -> dict[str, Any]:
        said: dict[str, Any] = {"p": self.partition, "k": _text(self.key), "v": _text(self.value)}
        said["h"] = [[name, _text(value)] for name, value in self.headers]
        return said if self.timestamp < 0 else {**said, "t": self.timestamp}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> "Record":
        headers = tuple((name, b64decode(value)) for name, value in said["h"])
        key, value = _bytes(said["k"]), _bytes(said["v"])
        return cls(value, key, headers, said["p"], said["t"], said["o"])

    @property
    def number(self) -> int:
        return int(self.value or b"-1")

    @property
    def content(self) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]:
        return self.key, self.value, self.headers


def eventually(work: Callable[[], Any], timeout_s: float = 15.0) -> Any:
    """The result of `work` once it is true and no error: brokers learn of changes a little later."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if (result := work()) is not False:
                return result
            error: ClientError | None = None
        except ClientError as caught:
            error = caught
        if time.monotonic() > deadline:
            raise error or AssertionError(f"not within {timeout_s} s")
        time.sleep(0.05)


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


class Client:
    """One driver process connected to one cluster."""

    def __init__(self, argv: list[str], environment: dict[str, str], bootstrap: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [*argv, bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **environment},
        )
        self._answers: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def send(self, word: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": word, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise ClientError(f"no answer in {timeout_s} s\n{self._said()}") from None
        answer = json.loads(line) if line else {"error": "the client's process ended"}
        if "error" in answer:
            raise ClientError(f"{answer['error']}\n{self._said()}")
        return answer["ok"]

    def call(self, word: str, **arguments: Any) -> Any:
        self.send(word, **arguments)
        return self.receive()

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:].decode(errors="replace")

    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    # The words, typed.

    def produce(self, topic: str, records: list[Record], codec: str = "none") -> list[int]:
        said = [record.to_json() for record in records]
        offsets: list[int] = self.call("produce", topic=topic, codec=codec, records=said)
        return offsets

    def fetch(self, topic: str, count: int, offset: int = 0, partition: int = 0) -> list[Record]:
        said = self.call("fetch", topic=topic, partition=partition, offset=offset, count=count)
        return [Record.from_json(record) for record in said]

    def wait(self, partitions: int, records: int) -> tuple[list[int], list[Record]]:
        """Until the member holds `partitions` partitions and has read `records` records in all."""
        self.send("wait", partitions=partitions, records=records)
        return self.received_wait()

    def received_wait(self) -> tuple[list[int], list[Record]]:
        said = self.receive()
        return sorted(said["partitions"]), [Record.from_json(record) for record in said["records"]]


@dataclass(frozen=True)
class ClientKind:
    """A client library: how its driver starts and what it can do."""

    name: str
    command: Callable[[], tuple[list[str], dict[str, str]]]
    codecs: tuple[str, ...] = ALL_CODECS
    headers: bool = True

    def start(self, bootstrap: str) -> Client:
        argv, environment = self.command()
        return Client(argv, environment, bootstrap)


def _python(driver: str, client: str) -> Callable[[], tuple[list[str], dict[str, str]]]:
    def command() -> tuple[list[str], dict[str, str]]:
        argv = [sys.executable, str(DRIVERS / driver)]
        return argv, {"PYTHONPATH": tooling.python_path(client), "PYTHONSAFEPATH": ""}

    return command


def _go(package: str) -> Callable[[], tuple[list[str], dict[str, str]]]:
    return lambda: ([tooling.go_program(GO, f"./{package}", package)], {})


def _node() -> tuple[list[str], dict[str, str]]:
    path = str(tooling.node_modules())
    return [tooling.node(), str(tooling.HERE / "node" / "driver.js")], {"NODE_PATH": path}


def _java() -> tuple[list[str], dict[str, str]]:
    return tooling.java_program_argv(tooling.HERE / "java" / "TransactionDriver.java"), {}


def _rust() -> tuple[list[str], dict[str, str]]:
    return [tooling.rust_program(tooling.HERE / "rust", "rust-rdkafka")], {}


def _node_rdkafka() -> tuple[list[str], dict[str, str]]:
    driver = tooling.HERE / "node" / "rdkafka" / "driver.js"
    return [tooling.node(), str(driver)], {"NODE_PATH": str(tooling.node_rdkafka())}


JAVA = ClientKind("java", _java)
RUST = ClientKind("rust-rdkafka", _rust)
NODE_RDKAFKA = ClientKind("node-rdkafka", _node_rdkafka)
TRANSACTIONAL = {kind.name: kind for kind in (JAVA, RUST, NODE_RDKAFKA)}
"""Clients for the words of transactions only: Kafka's own, and two whose build takes minutes."""
KINDS = {
    kind.name: kind
    for kind in (
        ClientKind("kafka-python-3", _python("kafka_python.py", "kafka-python-3")),
        ClientKind("kafka-python-2", _python("kafka_python.py", "kafka-python-2")),
        ClientKind("confluent-kafka", _python("confluent.py", "confluent-kafka")),
        ClientKind("aiokafka", _python("aio_kafka.py", "aiokafka")),
        ClientKind("franz-go", _go("franz")),
        ClientKind("sarama", _go("sarama")),
        ClientKind("kafkajs", _node, codecs=("none", "gzip")),
    )
}
