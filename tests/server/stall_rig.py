"""How long one request keeps all other clients of a broker waiting, and the requests to try.

A `Case` has a request that is expensive, or a time in the life of a broker that is; a client beside
it sends an ApiVersions request every millisecond. The longest answer is the stall. On a machine
with more to do than it can, the clock says more about the others, so the processor time that the
broker took during that answer counts as well (`Stall.cpu_ms`): what it did instead of answering.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kwire.protocol.api import encode_request, key_of, parse_response
from kwire.protocol.language.schema import Message
from kwire.protocol.schemas.api_versions import ApiVersionsRequest

ROOT = Path(__file__).resolve().parents[2]


SLOW_DISK = """
import os, sys, time
fsync, seconds = os.fsync, float(sys.argv.pop(1))
os.fsync = lambda fd: (time.sleep(seconds), fsync(fd))[1]
from kwire.__main__ import main
main()
"""
"""A broker on a disk where each flush takes that long."""


class Stall(NamedTuple):
    """The longest answer to the client beside a case."""

    wall_ms: float
    cpu_ms: float
    """The largest processor time that the broker took during an answer."""
    case_ms: float
    """How long the case itself took."""
    pings: int


class Connection:
    """A blocking client of one broker."""

    def __init__(self, port: int, timeout: float = 120) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        """The next response, without its length; the connection must not end before."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return memoryview(self._exactly(size))

    def _exactly(self, size: int) -> bytearray:
        out, view, have = bytearray(size), None, 0
        view = memoryview(out)
        while have < size:
            count = self._socket.recv_into(view[have:])
            assert count, "the broker closed the connection"
            have += count
        return out

    def ask(self, request: Message, version: int) -> Any:
        """A small request's response, decoded."""
        self.send(frame_of(request, version))
        return parse_response(key_of(request), version, self.receive())[1]

    def close(self) -> None:
        self._socket.close()


def frame_of(request: Message, version: int, client_id: str = "stall") -> bytes:
    """A request with its header and length."""
    return b"".join(encode_request(key_of(request), version, 7, client_id, request))


def raw_frame(key: int, version: int, body: bytes) -> bytes:
    """A request whose body was written by hand, as its objects would take long to make: header v1."""
    header = struct.pack(">hhih5s", key, version, 7, 5, b"stall")
    return struct.pack(">i", len(header) + len(body)) + header + body


class Broker:
    """A broker in a process of its own; `Broker.log` is its output."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str],
        data_dir: Path | None,
        options: tuple[str, ...] = (),
        fsync_seconds: float = 0,
    ) -> None:
        command = ["-m", "kwire"] if not fsync_seconds else ["-c", SLOW_DISK, str(fsync_seconds)]
        command += ["up", "--port", "0", *(f"-c{key}={value}" for key, value in settings.items())]
        if data_dir is not None:
            command += ["--data-dir", str(data_dir)]
        self.log = folder / "log"
        self._started = time.perf_counter()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command, *options],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready"), self.log.read_text()
        addresses = line.split("bootstrap=")[1].split()[0].split(",")
        self.ports = [int(address.rpartition(":")[2]) for address in addresses]
        self.port = self.ports[0]
        self.control = line.split("control=")[1].split()[0] if "control=" in line else ""
        self.pinged_port = self.ports[-1]
        """Of the last broker of the process, where there are several."""

    def cpu_seconds(self) -> float:
        """Processor time of the process so far."""
        return time.clock_gettime(~self.process.pid << 3 | 2)  # CPUCLOCK_SCHED of a process, Linux

    def connect(self) -> Connection:
        return Connection(self.port)

    def ask(self, request: Message, version: int) -> Any:
        """Ask on a connection of its own."""
        connection = self.connect()
        try:
            return connection.ask(request, version)
        finally:
            connection.close()

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(60) == 0, self.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def running(folder: Path, case: Case, data_dir: Path | None = None) -> Iterator[Broker]:
    settings = {"log.retention.check.interval.ms": "600000", **(case.settings or {})}
    broker = Broker(folder, settings, data_dir, case.options, case.fsync_seconds)
    try:
        yield broker
        assert "Traceback" not in broker.log.read_text(), broker.log.read_text()
    finally:
        broker.kill()


class Pinger:
    """The client beside a case: `with Pinger(broker) as pinger: …`, then `pinger.stall`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ping = frame_of(ApiVersionsRequest(), 0)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failure: Exception | None = None
        self.stall = Stall(0, 0, 0, 0)

    def _run(self) -> None:
        wall = cpu = 0.0
        pings = 0
        broker = self._broker
        try:
            connection = Connection(broker.pinged_port)
            while True:
                begin, begin_cpu = time.perf_counter(), broker.cpu_seconds()
                connection.send(self._ping)
                connection.receive()
                took, elapsed = broker.cpu_seconds() - begin_cpu, time.perf_counter() - begin
                cpu = max(cpu, min(took, elapsed))  # threads may work beside the loop
                wall = max(wall, elapsed)
                pings += 1
                if self._stopped.wait(0.001):
                    break
            connection.close()
        except Exception as error:
            self._failure = error
        self.stall = Stall(wall * 1000, cpu * 1000, 0, pings)

    def __enter__(self) -> Pinger:
        self._thread.start()
        self._begin = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        case_ms = (time.perf_counter() - self._begin) * 1000
        time.sleep(0.05)  # what the broker does after the answer counts, too
        self._stopped.set()
        self._thread.join()
        if self._failure is not None and error[0] is None:
            raise self._failure
        self.stall = self.stall._replace(case_ms=case_ms)


class Case(NamedTuple):
    """`prepare(broker)` returns what `run(broker, that)` does while the other client pings."""

    name: str
    prepare: Callable[[Broker], Callable[[], None]]
    limit_ms: float = 50
    """Of `Stall.cpu_ms` on a quiet machine of 2026."""
    settings: dict[str, str] | None = None
    restarts: bool = False
    """`prepare` fills a data directory; the broker is started again on it, and then `run` is measured."""
    after_restart: Callable[[Broker], None] = lambda broker: None
    options: tuple[str, ...] = ()
    """Of `kwire up`."""
    fsync_seconds: float = 0
    """How long the disk takes for each flush; else as long as this machine's."""
    on_disk: bool = False
    """In a data directory that is flushed, which is what stalls: the clock counts, not the processor."""


def measure(case: Case, folder: Path) -> Stall:
    """Run a case once, on a broker of its own."""
    data_dir = folder / "data" if case.on_disk or case.restarts else None
    with running(folder, case, data_dir) as broker:
        run = case.prepare(broker)
        if not case.restarts:
            return _measure(broker, run)
        broker.stop()
    with running(folder, case, data_dir) as broker:
        return _measure(broker, lambda: case.after_restart(broker))


def _measure(broker: Broker, run: Callable[[], None]) -> Stall:
    with Pinger(broker) as pinger:
        run()
    return pinger.stall
