"""`python -m bench.tls`: what TLS adds to a request, at kwire and at Apache Kafka, the same client, in turns.

Each broker has a listener without and one with TLS (1.3, a certificate of tests/data/tls). One connection at a time
asks, and waits for each answer: Produce of 1 KiB with acks=1, and Fetch of 64 KiB. A round is every pair once; the
table shows medians over the rounds of each round's p50. The client is Python's: its own part of TLS is in all figures.

Options: --rounds, --requests, --brokers kwire,kafka, --check (exit 1 when TLS costs kwire more than the target),
--write (the table goes into docs/benchmarks.md, with machine and load).
"""

from __future__ import annotations

import argparse
import socket
import ssl
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.run import load, told, write_page
from compat_tests.locks.brokers import STORES, TOPIC, LockedKafka, LockedKwire, started
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.json_form import from_json
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record

BEGIN = "<!-- begin: TLS, written by bench/tls.py --write -->"
BROKERS: dict[str, type[LockedKwire] | type[LockedKafka]] = {
    "kwire": LockedKwire,
    "kafka": LockedKafka,
}
RECORD_BYTES, FETCH_BYTES = 1024, 1 << 16
WARM_UP = 5000
"""Requests before the first figure: Kafka's compiler has its turn."""
TARGET = 1.5

Figures = dict[tuple[str, str, str], list[float]]
"""By broker, request and listener: the p50 of each round, in microseconds."""


class Connection:
    """A blocking connection whose requests are bytes that are made once."""

    def __init__(self, port: int, *, is_tls: bool) -> None:
        plain = socket.create_connection(("127.0.0.1", port), 20)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket: socket.socket = plain
        if is_tls:
            context = ssl.create_default_context(cafile=str(STORES / "ca.pem"))
            self._socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._room = bytearray(FETCH_BYTES * 4)

    def ask(self, request: bytes) -> memoryview:
        """The answer's frame."""
        self._socket.sendall(request)
        view = memoryview(self._room)
        have, size = 0, 4
        while have < size:
            count = self._socket.recv_into(view[have:])
            if not count:
                raise ConnectionError("the broker has hung up")
            have += count
            if have >= 4:
                size = 4 + int.from_bytes(view[:4], "big")
        return view[4:size]

    def close(self) -> None:
        self._socket.close()


def frame(key: ApiKey, version: int, body: dict[str, Any]) -> bytes:
    parts = api.encode_request(key, version, 1, "bench", from_json(api.request_class(key), body))
    return b"".join(map(bytes, parts))


def requests() -> dict[str, bytes]:
    """The requests by name."""
    from base64 import b64encode

    batch = build_batch([Record(-1, int(time.time() * 1000), None, bytes(RECORD_BYTES))])
    partition = {"index": 0, "records": b64encode(batch).decode()}
    topic = {"name": TOPIC, "partitionData": [partition]}
    wanted = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": FETCH_BYTES}
    read = {"maxWaitMs": 500, "minBytes": 1, "maxBytes": FETCH_BYTES}
    return {
        "Produce of 1 KiB": frame(
            ApiKey.PRODUCE, 9, {"acks": 1, "timeoutMs": 10_000, "topicData": [topic]}
        ),
        "Fetch of 64 KiB": frame(
            ApiKey.FETCH, 12, {**read, "topics": [{"topic": TOPIC, "partitions": [wanted]}]}
        ),
    }


def p50_us(connection: Connection, request: bytes, count: int) -> float:
    times = []
    for _ in range(count):
        begun = time.perf_counter_ns()
        connection.ask(request)
        times.append(time.perf_counter_ns() - begun)
    return statistics.median(times) / 1000


def measure(names: list[str], rounds: int, count: int, folder: Path) -> Figures:
    """The figures of all brokers, which run side by side, one of them asked at a time."""
    brokers = {}
    figures: Figures = {}
    asked = requests()
    try:
        for name in names:
            brokers[name] = started(BROKERS[name](folder / name))
        for each in brokers.values():
            for listener in ("PLAINTEXT", "TLS"):
                connection = Connection(each.ports[listener], is_tls=listener == "TLS")
                for request in asked.values():
                    p50_us(connection, request, WARM_UP // 2)
                connection.close()
        for _ in range(rounds):
            for name, each in brokers.items():
                for word, request in asked.items():
                    for listener in ("PLAINTEXT", "TLS"):
                        connection = Connection(each.ports[listener], is_tls=listener == "TLS")
                        p50_us(connection, request, 100)
                        found = p50_us(connection, request, count)
                        connection.close()
                        figures.setdefault((name, word, listener), []).append(found)
    finally:
        for each in brokers.values():
            each.stop()
    return figures


def table(figures: Figures, names: list[str]) -> tuple[list[str], list[float]]:
    """The lines in Markdown, and how many times plaintext's p50 kwire's over TLS is, by request."""
    lines = ["| p50, µs | broker | plaintext | TLS | times |", "|---|---|---|---|---|"]
    ratios = []
    for word in requests():
        for name in names:
            plain, tls = (
                statistics.median(figures[name, word, each]) for each in ("PLAINTEXT", "TLS")
            )
            if name == "kwire":
                ratios.append(tls / plain)
            lines.append(f"| {word} | {name} | {plain:.0f} | {tls:.0f} | {tls / plain:.2f} |")
    return lines, ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--brokers", default=",".join(BROKERS))
    parser.add_argument("--check", action="store_true", help="exit 1 when the target is missed")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    names = options.brokers.split(",")
    loads = [load()]
    with tempfile.TemporaryDirectory(prefix="kwire-bench-") as folder:
        figures = measure(names, options.rounds, options.requests, Path(folder))
    loads.append(load())
    lines, ratios = table(figures, names)
    text = "\n".join(lines)
    print(text)
    missed = max(ratios, default=0.0) > TARGET
    if ratios:
        said = "MISSED" if missed else "ok"
        print(f"kwire over TLS at most {TARGET} times plaintext: {max(ratios):.2f}: {said}")
    if options.write:
        write_page(f"{told(options.rounds, loads)}\n\n{text}", begin=BEGIN)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
