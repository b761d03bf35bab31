"""Truncated, oversized, random and bit-flipped requests by the thousand, on live connections of a real process.

Meanwhile a well-behaved client produces, fetches and asks for metadata, and must not notice. Afterwards the broker is
up, has logged no internal error and has not grown. The seed is printed; KWIRE_HOSTILE_SEED repeats a run,
KWIRE_HOSTILE_REQUESTS makes it longer.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server_harness import Client, framed, request_bytes

from kwire.apis import BY_KEY
from kwire.protocol import api
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas import fetch, metadata, produce

SEED = int(os.environ.get("KWIRE_HOSTILE_SEED", random.SystemRandom().randrange(1 << 32)))
REQUESTS = int(os.environ.get("KWIRE_HOSTILE_REQUESTS", "6000"))
GROWTH_LIMIT_MB = 96
SLOW_SECONDS = 5.0
GOLDEN = Path(__file__).parent.parent / "data" / "golden-4.4.jsonl.gz"


def corpus() -> list[bytes]:
    """Requests of every served API and version, as Kafka's own classes write them, with headers."""
    requests = []
    with gzip.open(GOLDEN, "rt") as lines:
        for line in lines:
            golden: dict[str, Any] = json.loads(line)
            name, key, version = golden["name"], golden["key"], golden["v"]
            served = BY_KEY.get(key) if key is not None else None
            if served is None or not name.endswith("Request") or len(golden["hex"]) > 40_000:
                continue
            header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\0\4evil"
            if api.request_header_version(key, version) == 2:
                header += b"\0"
            requests.append(header + bytes.fromhex(golden["hex"]))
    assert len(requests) > 500
    return requests


def mutated(rng: random.Random, request: bytes) -> bytes:
    """Bytes for the wire, length prefix included, that are wrong in one way or another."""
    kind = rng.randrange(9)
    data = bytearray(request)
    if kind == 0:  # cut off, with an honest length
        return framed(bytes(data[: rng.randrange(len(data))]))
    if kind == 1:  # bits flipped
        for _ in range(rng.randrange(1, 9)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 2:  # a length, a count or a number become extreme
        position = rng.randrange(8, max(9, len(data) - 3))
        extreme = rng.choice([0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 0xFFFFFFFE, 0x7FFFFFFE, 0])
        data[position : position + 4] = extreme.to_bytes(4, "big")
    elif kind == 3:  # varints that do not end
        position = rng.randrange(8, len(data) + 1)
        data[position : position + 6] = b"\xff" * rng.randrange(1, 12)
    elif kind == 4:  # bytes put in or taken out
        position = rng.randrange(8, len(data) + 1)
        data[position : position + rng.randrange(5)] = rng.randbytes(rng.randrange(20))
    elif kind == 5:  # another version's or another API's body
        data[rng.randrange(4)] = rng.randrange(32)
    elif kind == 6:  # noise behind a good header
        data[14:] = rng.randbytes(rng.randrange(300))
    elif kind == 7:  # noise alone
        return framed(rng.randbytes(rng.randrange(200)))
    else:  # a dishonest length
        return rng.randrange(-(1 << 31), 1 << 31).to_bytes(4, "big", signed=True) + bytes(data)
    return framed(bytes(data))


class Node:
    """A `kwire up` in a process of its own."""

    def __init__(self, data_dir: Path, errors: Path) -> None:
        self.errors = errors
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kwire", "up", "--port", "0", "--topic", "good"),
                *("--data-dir", str(data_dir), "--log-level", "info"),
                *("-c", "log.retention.ms=-1"),  # records are of 1970; retention starts after 30 s
            ],
            stdout=subprocess.PIPE,
            stderr=errors.open("w"),
            text=True,
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("ready "), errors.read_text()
        bootstrap, control = ready.split()[1:]
        self.port = int(bootstrap.rpartition(":")[2])
        self.control_port = int(control.rpartition(":")[2])

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line) / 1024


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data", tmp_path / "errors.txt")
    try:
        yield node
    finally:
        node.process.terminate()
        try:
            status = node.process.wait(20)
        except subprocess.TimeoutExpired:
            node.process.kill()
            node.process.wait()
            raise
    errors = node.errors.read_text()
    assert "Traceback" not in errors, errors[errors.index("Traceback") :][:6000]
    assert status == 0


class GoodClient(threading.Thread):
    """Produces, fetches and asks for metadata on one connection until told to stop; keeps what went wrong."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.stopping = threading.Event()
        self.rounds = 0
        self.slowest = 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with Client(self.port, timeout=20) as client:
                while not self.stopping.is_set():
                    start = time.monotonic()
                    self.round(client)
                    self.slowest = max(self.slowest, time.monotonic() - start)
                    self.rounds += 1
                    self.stopping.wait(0.002)
        except BaseException as error:
            self.failure = error

    def round(self, client: Client) -> None:
        value = b"%d" % self.rounds
        partition = produce.PartitionProduceData(
            index=0, records=build_batch([Record(-1, 1, None, value)])
        )
        topic = produce.TopicProduceData(name="good", partition_data=[partition])
        response = client.ask(
            0, 9, produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
        )
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, self.rounds)
        wanted = fetch.FetchPartition(
            partition=0, fetch_offset=self.rounds, partition_max_bytes=10_000
        )
        request = fetch.FetchRequest(
            max_wait_ms=1000,
            min_bytes=1,
            max_bytes=10_000,
            topics=[fetch.FetchTopic(topic="good", partitions=[wanted])],
        )
        data = client.ask(1, 12, request).responses[0].partitions[0]
        assert data.error_code == 0
        assert value in bytes(data.records)
        topics = client.ask(
            3, 9, metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="good")])
        ).topics
        assert topics[0].error_code == 0


def attack(port: int, rng: random.Random, requests: list[bytes], count: int) -> None:
    """Sends `count` bad requests over many connections, a few on each, and reads what may come back."""
    while count > 0:
        with contextlib.suppress(OSError), Client(port, timeout=0.5) as client:
            for _ in range(min(count, rng.randrange(1, 6))):
                count -= 1
                client.send(mutated(rng, rng.choice(requests)))
            if rng.random() < 0.5:
                client.socket.shutdown(socket.SHUT_WR)
            if rng.random() < 0.1:  # gone at once, whatever is on its way
                linger = struct.pack("ii", 1, 0)
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            if rng.random() < 0.2:
                client.socket.settimeout(0.02)
                client.socket.recv(100_000)


def test_hostile_requests_disturb_nobody(node: Node) -> None:
    print(f"KWIRE_HOSTILE_SEED={SEED}")
    rng, requests = random.Random(SEED), corpus()
    attack(node.port, rng, requests, REQUESTS // 6)  # what is imported and compiled is not growth
    before = node.resident_mb()
    good = GoodClient(node.port)
    good.start()
    try:
        attack(node.port, rng, requests, REQUESTS)
    finally:
        good.stopping.set()
        good.join(30)
    assert good.failure is None, f"seed {SEED}: {good.failure!r}"
    assert good.rounds > 20
    assert good.slowest < SLOW_SECONDS, f"seed {SEED}: a round took {good.slowest:.1f} s"
    grown = node.resident_mb() - before
    assert grown < GROWTH_LIMIT_MB, f"seed {SEED}: {grown:.0f} MB more than before"


def test_hostile_requests_disturb_the_control_api_as_little(node: Node) -> None:
    print(f"KWIRE_HOSTILE_SEED={SEED}")
    attack(node.control_port, random.Random(SEED), corpus(), REQUESTS // 6)
    with socket.create_connection(("127.0.0.1", node.control_port), 5) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")


def test_long_frames_that_never_come_take_no_memory(node: Node) -> None:
    clients = [Client(node.port) for _ in range(200)]
    before = node.resident_mb()
    for client in clients:
        client.send((100 * 1024 * 1024).to_bytes(4, "big") + b"\0\0\0\x09\0\0\0\1")
    with Client(node.port) as good:
        assert good.ask(3, 9, metadata.MetadataRequest(topics=None)).brokers
    assert node.resident_mb() - before < 40
    for client in clients:
        client.socket.close()


def test_batches_that_lie_are_refused_and_not_appended(node: Node) -> None:
    """Bit flips inside record batches: each is refused with an error, or the connection is closed; none is stored."""
    rng = random.Random(SEED)
    print(f"KWIRE_HOSTILE_SEED={SEED}")
    batch = build_batch([Record(-1, 1, b"key", b"value" * 20, [("h", b"v")])] * 3)
    stored = 0
    for _ in range(600):
        broken = bytearray(batch)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(16, len(batch))] ^= 1 << rng.randrange(8)
        partition = produce.PartitionProduceData(index=0, records=bytes(broken))
        topic = produce.TopicProduceData(name="good", partition_data=[partition])
        request = produce.ProduceRequest(acks=1, timeout_ms=100, topic_data=[topic])
        with Client(node.port) as client:
            client.send(request_bytes(0, 9, request))
            with contextlib.suppress(EOFError, ConnectionResetError):
                _, response = api.parse_response(0, 9, client.frame())
                answer = response.responses[0].partition_responses[0]  # type: ignore[attr-defined]
                # Two flips of one bit are none: what is right is stored.
                stored += answer.error_code == 0
                assert (answer.error_code == 0) == (bytes(broken) == batch), f"seed {SEED}"
    with Client(node.port) as client:
        partition = produce.PartitionProduceData(index=0, records=batch)
        topic = produce.TopicProduceData(name="good", partition_data=[partition])
        response = client.ask(
            0, 9, produce.ProduceRequest(acks=1, timeout_ms=100, topic_data=[topic])
        )
        assert response.responses[0].partition_responses[0].base_offset == 3 * stored
