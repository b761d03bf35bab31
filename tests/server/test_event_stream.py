"""`GET /v1/events` as a stream: what readers get, in threads and processes; and readers that are slow, late or gone."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_harness import RunningCluster, running_cluster, until

from kwire.aio import Cluster
from kwire.backends import history
from kwire.backends.events import feed
from kwire.backends.history import EventHistory
from kwire.control.live import events as live
from kwire.control.live.answers import accepts
from kwire.control.routes import cluster_handler
from kwire.control.socket import ControlSocket
from kwire.server.events import NodeEvent

pytestmark = pytest.mark.timeout(60)

SECONDS = 20.0
STREAM = "Accept: text/event-stream"


class Served:
    """A cluster with its control API."""

    def __init__(self, running: RunningCluster) -> None:
        self.running = running
        self.cluster: Cluster = running.call(lambda: Cluster.of(running.supervisor))
        self.control = ControlSocket(lambda: cluster_handler(self.cluster))
        running.run(self.control.open("127.0.0.1", 0))
        host, _, port = self.control.url.rpartition("/")[2].rpartition(":")
        self.address = host, int(port)
        self.history: EventHistory = self.cluster.inside.events

    def log(self, count: int) -> None:
        """Something happens so many times."""

        def some() -> None:
            for _ in range(count):
                self.history.log(NodeEvent.RESET_REQUESTED)

        self.running.call(some)

    def close(self) -> float:
        """Close the API; returns the seconds that it took."""
        begin = time.monotonic()
        self.running.run(self.control.close())
        return time.monotonic() - begin


@contextmanager
def served(path: Path, isolation: str = "thread", brokers: int = 1) -> Iterator[Served]:
    with running_cluster(path, isolation, brokers) as running:
        found = Served(running)
        yield found
        found.close()


class Reader:
    """A client of the stream."""

    def __init__(self, served: Served, query: str = "", *headers: str, buffer: int = 0) -> None:
        self.connection = socket.socket()
        if buffer:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.connection.settimeout(SECONDS)
        self.connection.connect(served.address)
        lines = [f"GET /v1/events{query} HTTP/1.0", "Host: localhost", STREAM, *headers, "", ""]
        self.connection.sendall("\r\n".join(lines).encode())
        self._file = self.connection.makefile("rb")

    def head(self) -> list[str]:
        """The status line and the headers."""
        found = []
        while line := self._file.readline().decode().strip():
            found.append(line)
        return found

    def next(self) -> dict[str, str]:
        """The next event: its fields; of a comment, under ""; empty at the end."""
        found = {}
        while line := self._file.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            found[name] = value
        return found

    def until(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first event whose object is so."""
        while event := self.next():
            if event.get("event") == "message":
                found: dict[str, Any] = json.loads(event["data"])
                assert event["id"] == str(found["number"])
                if condition(found):
                    return found
        raise AssertionError("the stream has ended")

    def close(self) -> None:
        self._file.close()
        self.connection.close()


def reader(*arguments: Any, **options: Any) -> Any:
    """A reader that has had the head of its answer."""
    found = Reader(*arguments, **options)
    head = found.head()
    assert "HTTP/1.1 200" in head[0] and "Content-Type: text/event-stream" in head
    assert found.next() == {"retry": "1000"}
    return closing(found)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_readers_get_what_was_and_what_comes(tmp_path: Path, isolation: str) -> None:
    with served(tmp_path, isolation, 3) as api:
        api.running.run(api.cluster.create_topic("orders", assignment=[[1, 2, 3]]))
        with reader(api) as all_, reader(api, "?name=LEADER_ELECTED&topic=orders") as some:
            assert all_.until(lambda e: e["event"] == "CONTROLLER_ELECTED")["number"] == 1
            all_.until(lambda e: e["event"] == "TOPIC_CREATED")
            api.running.run(api.cluster.broker(1).kill())
            killed = all_.until(lambda e: e["event"] == "KILL_REQUESTED")
            assert (killed["node"], killed["words"]) == (None, "kill broker 1")
            elected = all_.until(lambda e: e["event"] == "LEADER_ELECTED")
            assert elected["words"] == "orders-0: broker 2 leads in epoch 1"
            assert some.until(bool) == elected
            begin = time.monotonic()
        with reader(api, "?since=1", f"Last-Event-ID: {killed['number']}") as later:
            assert later.until(bool)["number"] == killed["number"] + 1
        until(lambda: api.history.feed.readers == 0)
        assert api.close() < 1 and time.monotonic() - begin < SECONDS


def test_a_stream_that_stands_still_shows_that_it_is_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", 0.05)
    with served(tmp_path) as api, reader(api, "?name=NODE_DIED") as silent:
        assert silent.next() == silent.next() == {"": "nothing new"}


def test_a_reader_that_does_not_read_holds_up_nobody_and_learns_what_it_has_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "KEPT", 500)
    with served(tmp_path) as api, reader(api, buffer=4096) as slow, reader(api) as quick:
        for _ in range(40):  # 4 MB, more than the system keeps for a connection
            api.log(400)
            number = api.history.number
            quick.until(lambda e, number=number: e["number"] == number)
        seen, missed, last = 0, 0, 0
        while last < number:
            event = slow.next()
            if event["event"] == "missed":
                missed += json.loads(event["data"])["missed"]
            else:
                seen += 1
            last = int(event["id"])
        assert missed and seen + missed == number


def test_the_api_closes_at_once_whoever_reads(tmp_path: Path) -> None:
    with served(tmp_path) as api:
        with reader(api, buffer=4096) as slow, reader(api) as quick:
            while not any_is_full(api):
                api.log(2000)
                time.sleep(0.01)
            quick.until(lambda e: e["number"] == api.history.number)
            idle = socket.create_connection(api.address)
            idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert idle.recv(1000).startswith(b"HTTP/1.1 200")  # and it keeps its connection
            assert api.close() < 1
            assert quick.next() == {}
            slow.close()
            idle.close()
        assert api.history.feed.readers == 0


def any_is_full(api: Served) -> bool:
    """Whether a reader takes no more."""

    def asked() -> bool:
        return any(
            task.get_coro().cr_frame.f_locals["writer"].transport.get_write_buffer_size()  # type: ignore[union-attr]
            for task in api.control._connections
        )

    return bool(api.running.call(asked))


@pytest.mark.parametrize(
    ("query", "header", "text"),
    [
        ("?since=soon", "X: y", "since: expected a whole number, not 'soon'"),
        ("?since=1.5", "X: y", "since: expected a whole number, not '1.5'"),
        ("?name=LEADER_ELECTD", "X: y", "did you mean LEADER_ELECTED"),
        ("?until=5", "X: y", "expected since, name, topic, broker, not 'until'"),
        ("", "Last-Event-ID: soon", "Last-Event-ID: expected a number, not 'soon'"),
        ("", "Last-Event-ID: -1", "Last-Event-ID: expected a number, not '-1'"),
        ("", f"Last-Event-ID: {10**30}", "Last-Event-ID: expected a number, not '1000"),
    ],
)
def test_nonsense_is_refused(api: Served, query: str, header: str, text: str) -> None:
    with closing(Reader(api, query, header)) as asking:
        assert asking.head()[0].startswith("HTTP/1.1 400")
        assert text in asking._file.read().decode()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("data")) as found:
        yield found


def test_a_number_of_another_run_is_no_number(api: Served) -> None:
    with reader(api, "?since=1000000") as late:
        assert late.until(bool)["number"] == 1
    with reader(api, "?since=-5") as early:
        assert early.until(bool)["number"] == 1


def test_only_so_many_read_at_once(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    until(lambda: api.history.feed.readers == 0)
    monkeypatch.setattr(live, "MAX_READERS", 1)
    with reader(api) as one:
        one.until(bool)
        with closing(Reader(api)) as other:
            assert other.head()[0].startswith("HTTP/1.1 503")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8, */*", True),
        ("application/json, text/event-stream;q=0.5", True),
        ("*/*", False),
        ("text/*", False),
        ("", False),
    ],
)
def test_who_wants_a_stream_says_so(accept: str, expected: bool) -> None:
    assert accepts({"accept": accept}, "text/event-stream") is expected


# --- the feed, without a cluster


class Node:
    """A node whose events and answers are given."""

    running, paused = True, False

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.events: list[dict[str, Any]] = []
        self.dropped = 0
        self.answers = asyncio.Event()
        self.answers.set()

    def happen(self, number: int, time_ms: int) -> None:
        found = {"number": number, "time_ms": time_ms, "event": "X", "message": "x", "fields": {}}
        self.events.append(found)

    async def ask(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        await self.answers.wait()
        found = [each for each in self.events if each["number"] > body["since"]]
        return {"events": found, "dropped": self.dropped}


def order(found: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(each["number"], each["node"], each["time_ms"]) for each in found]


@pytest.mark.asyncio
async def test_events_of_several_nodes_are_numbered_in_the_order_of_time() -> None:
    one, two = Node(1), Node(2)
    one.happen(7, 10)
    one.happen(8, 30)
    two.happen(3, 20)
    events = EventHistory(lambda: [one, two])  # type: ignore[list-item]
    await events.collect()
    assert order(events.numbered()) == [(1, 1, 10), (2, 2, 20), (3, 1, 30)]


@pytest.mark.asyncio
async def test_two_that_ask_at_the_same_time_get_each_event_once() -> None:
    one = Node(1)
    one.happen(7, 10)
    one.dropped = 4
    events = EventHistory(lambda: [one])  # type: ignore[list-item]
    one.answers.clear()
    both = asyncio.gather(events.collect(), events.collect())
    await asyncio.sleep(0)
    one.answers.set()
    await both
    assert order(events.numbered()) == [(5, 1, 10)] and events.dropped == 4


@pytest.mark.asyncio
async def test_a_node_that_does_not_answer_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "POLL_SECONDS", 0.001)
    stuck, other = Node(1), Node(2)
    stuck.answers.clear()
    events = EventHistory(lambda: [stuck, other])  # type: ignore[list-item]
    with events.feed.reader() as reading:
        other.happen(1, 10)
        assert order((await reading.next(SECONDS))[1]) == [(1, 2, 10)]
        stuck.happen(1, 5)
        stuck.answers.set()
        assert order((await reading.next(SECONDS))[1]) == [(2, 1, 5)]
        assert await reading.next(0.01) == (0, [])


@pytest.mark.asyncio
async def test_a_reader_learns_what_nodes_have_dropped() -> None:
    one = Node(1)
    one.happen(900, 10)
    one.dropped = 5
    events = EventHistory(lambda: [one])  # type: ignore[list-item]
    with events.feed.reader() as reading:
        missed, found = await reading.next(SECONDS)
        assert (missed, order(found)) == (5, [(6, 1, 10)])


@pytest.mark.asyncio
async def test_an_answer_that_makes_no_sense_ends_no_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "POLL_SECONDS", 0.001)
    one, reported = Node(1), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    one.events = [{}]
    events = EventHistory(lambda: [one])  # type: ignore[list-item]
    with events.feed.reader() as reading:
        await reading.next(0.01)
        one.events = []
        one.happen(1, 10)
        assert order((await reading.next(SECONDS))[1]) == [(1, 1, 10)]
    assert isinstance(reported[0], KeyError)
