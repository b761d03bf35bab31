"""A node on a thread of its own, on a port of the kernel's choice, and a client that speaks in bytes."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kwire.apis import BY_KEY, served_ranges
from kwire.apis.context import Services
from kwire.core import Core
from kwire.protocol import api
from kwire.replication.config.broker_config import BrokerConfig
from kwire.server.node import Node, new_event_loop
from kwire.session import Sessions


class StubBroker(Core):
    """A core of sessions and nothing behind them: ApiVersions works, what else is asked a test puts in."""

    def __init__(self, node: Node, caps: dict[int, tuple[int, int]] | None = None) -> None:
        super().__init__(node.clock, node.outbox)
        self.services = Services.__new__(Services)
        self.services.gate = None
        self.services.authority = None
        self.services.api_ranges = served_ranges(caps)
        self.services.cluster_id = "test-cluster"
        self.services.node_id = 1
        self.use_sessions(Sessions(self.services, self.outbox, self.services.api_ranges))
        self.closed_cleanly = False

    def close(self) -> None:
        self.closed_cleanly = True


class RunningNode:
    """A node with its broker, on its loop, in its thread."""

    def __init__(self, node: Node, broker: Core, loop: asyncio.AbstractEventLoop) -> None:
        self.node = node
        self.broker = broker
        self.loop = loop
        self.port = node.listeners[0].port

    def call(self, function: Callable[[], Any]) -> Any:
        """Runs a function on the node's thread and returns its result."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.node.stop(), self.loop).result(10)


@contextmanager
def running_node(
    config: dict[str, str] | None = None,
    make_broker: Callable[[Node], Core] = StubBroker,
) -> Iterator[RunningNode]:
    """Starts a node and stops it; what its broker kept in `failed` fails the test unless the test took it out."""
    values = {"listeners": "PLAINTEXT://127.0.0.1:0", "node.id": "1", **(config or {})}
    node = Node(BrokerConfig(values))
    node.bind()
    broker = make_broker(node)
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(node.serve(broker), loop).result(10)
        running = RunningNode(node, broker, loop)
        yield running
        if node.accepts_connections:
            running.stop()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        node.close_sockets()
        loop.close()
    assert broker.failed == []


@contextmanager
def handler_for(key: int, handler: Callable[..., Any]) -> Iterator[None]:
    """Puts another handler behind an API. Before the first request for it: routes are made once."""
    entry = BY_KEY[key]
    saved = entry._handler
    entry._handler = handler
    try:
        yield
    finally:
        entry._handler = saved


class Client:
    """A blocking socket that sends requests and reads frames."""

    def __init__(self, port: int, timeout: float = 10) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.settimeout(timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += part
        return data

    def frame(self) -> bytes:
        return self.receive(int.from_bytes(self.receive(4), "big"))

    def is_closed(self) -> bool:
        """Waits for the broker to end the connection."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def ask(self, key: int, version: int, message: Any, correlation_id: int = 7) -> Any:
        self.send(request_bytes(key, version, message, correlation_id))
        answered, response = api.parse_response(key, version, self.frame())
        assert answered == correlation_id
        return response


def request_bytes(key: int, version: int, message: Any, correlation_id: int = 7) -> bytes:
    parts = api.encode_request(key, version, correlation_id, "test", message)
    return b"".join(bytes(part) for part in parts)


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def random_bytes(rng: random.Random, limit: int) -> bytes:
    return rng.randbytes(rng.randrange(limit))


@contextmanager
def kwire_up(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`kwire up` on ports of the kernel's choice: the process and its ready line; killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kwire", "up", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            _, errors = process.communicate(timeout=20)
            raise AssertionError(f"not ready: {line!r} {errors}")
        yield process, line
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
