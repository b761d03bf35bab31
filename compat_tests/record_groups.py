"""Holds tests/coordinator/conversation.py with a real Kafka 3.9.1 and writes its answers to tests/data.

    .venv/bin/python -m compat_tests.record_groups

The conversation is held with the new coordinator (group.coordinator.rebalance.protocols=classic,consumer), the one that
kwire follows.
"""

import importlib
import shutil
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from compat_tests.brokers import RealKafka
from kwire.protocol import api
from kwire.protocol.schemas.groups import FindCoordinatorRequest, HeartbeatRequest
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest

ROOT = Path(__file__).resolve().parent.parent
ANSWERS = ROOT / "tests" / "data" / "group-conversation-3.9.1.jsonl"


class SocketConnection:
    """A client's socket; `receive` waits, `is_silent` waits a little."""

    def __init__(self, port: int, client_id: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._client_id = client_id
        self._asked: list[tuple[int, int]] = []

    def send(self, version: int, request: Any) -> None:
        key = api.key_of(request)
        self._asked.append((key, version))
        self._socket.sendall(
            b"".join(api.encode_request(key, version, 1, self._client_id, request))
        )

    def receive(self) -> Any:
        (size,) = struct.unpack(">i", self._read(4))
        key, version = self._asked.pop(0)
        return api.parse_response(key, version, self._read(size))[1]

    def is_silent(self) -> bool:
        self._socket.settimeout(0.5)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(20)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "coordinator"))
    conversation = importlib.import_module("conversation")
    settings = conversation.SETTINGS | {"group.coordinator.rebalance.protocols": "classic,consumer"}
    folder = Path(tempfile.mkdtemp(prefix="kwire-record-"))
    broker = RealKafka(folder, settings)
    broker.start()
    try:

        def connect() -> SocketConnection:
            return SocketConnection(broker.port, conversation.CLIENT_ID)

        def ask(version: int, request: Any) -> Any:
            connection = connect()
            connection.send(version, request)
            return connection.receive()

        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in conversation.TOPICS.items()
        ]
        ask(5, CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        # The coordinators of all four partitions must be up: groups a, b, c, d are one each.
        for group in "abcd":
            while ask(0, FindCoordinatorRequest(key=group)).error_code:
                time.sleep(0.2)
            while ask(0, HeartbeatRequest(group_id=group)).error_code in (14, 15, 16):
                time.sleep(0.2)
        lines = conversation.Conversation(connect).hold()
    finally:
        broker.stop()
    shutil.rmtree(folder, ignore_errors=True)
    ANSWERS.write_text("".join(line + "\n" for line in lines))
    print(f"{len(lines)} answers in {ANSWERS}")


if __name__ == "__main__":
    main()
