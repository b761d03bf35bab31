"""Writes down what Apache Kafka answers to tests/apis/kafka_dialogue.py: `python -m compat_tests.record_dialogue`.

The file tests/data/kafka-3.9-dialogue.json.gz is what tests/apis/test_against_kafka.py holds kwire to. Needs a JDK.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from compat_tests.brokers import RealKafka
from kwire.protocol import api

ROOT = Path(__file__).parent.parent
ANSWERS = ROOT / "tests" / "data" / "kafka-3.9-dialogue.json.gz"
_INIT_PRODUCER_ID = 22
_LOADING = 14


class SocketClient:
    """Asks a broker over TCP, one request at a time; connects again where the broker hangs up."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connect()

    def connect(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        self.correlation_id = 0

    def send(self, key: int, version: int, request: Any) -> None:
        self.correlation_id += 1
        parts = api.encode_request(key, version, self.correlation_id, "dialogue", request)
        self.socket.sendall(b"".join(bytes(part) for part in parts))

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    def ask(self, key: int, version: int, request: Any) -> Any:
        try:
            while True:
                self.send(key, version, request)
                (size,) = struct.unpack(">i", self.exactly(4))
                _, response = api.parse_response(key, version, self.exactly(size))
                if key != _INIT_PRODUCER_ID or response.error_code != _LOADING:
                    return response
                time.sleep(0.05)  # the first block of ids is on its way from the controller
        except ConnectionError:
            self.connect()
            return "closed"
        except TimeoutError:
            self.connect()
            return "no answer"

    def says_nothing(self, key: int, version: int, request: Any) -> str:
        self.send(key, version, request)
        probe = self.ask(18, 0, api.request_class(18)())
        return "closed" if probe == "closed" else "open"

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def settle(self) -> None:
        time.sleep(2)


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "apis"))
    from kafka_dialogue import speak

    with tempfile.TemporaryDirectory() as folder:
        broker = RealKafka(Path(folder) / "kafka")
        broker.start()
        try:
            heard = speak(SocketClient(broker.port))
        finally:
            broker.kill9()
    lines = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in heard)
    ANSWERS.write_bytes(gzip.compress(lines.encode(), mtime=0))
    print(f"{len(heard)} answers in {ANSWERS}")


if __name__ == "__main__":
    main()
