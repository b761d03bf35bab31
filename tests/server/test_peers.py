"""Requests to other nodes: order, losses, garbage, and the network that tests pull the plug of."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from kwire.replication.core.outbox import Send
from kwire.server.link_rules import LinkRule
from kwire.server.peers import PeerConnections


class Host:
    """The asking node: what it heard, in order."""

    def __init__(self, port: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.host = "127.0.0.1"
        self.port: int | None = port
        self.heard: list[tuple[int, bytes | None]] = []
        self.lost: list[tuple[int, str]] = []
        self.news = asyncio.Event()

    def address_of(self, node: int) -> tuple[str, int] | None:
        return None if self.port is None else (self.host, self.port)

    def peer_answered(self, correlation: int, frame: Any) -> str | None:
        self.heard.append((correlation, None if frame is None else bytes(frame[4:])))
        self.news.set()
        return "senseless" if frame is not None and bytes(frame[4:]) == b"senseless" else None

    def channel_lost(self, node: int, channel: str) -> None:
        self.lost.append((node, channel))
        self.news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.news.clear()
                await self.news.wait()


class Answerer:
    """The other node: answers each frame with its own text, or as `say` has it (None: hangs up)."""

    def __init__(self) -> None:
        self.connections = 0
        self.say: Callable[[bytes], bytes | None] = lambda text: text
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                answer = self.say(frame[4:])
                if answer is None:
                    break
                writer.write((4 + len(answer)).to_bytes(4, "big") + frame[:4] + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


def request(correlation: int, text: bytes = b"?", channel: str = "a", node: int = 2) -> Send:
    body = correlation.to_bytes(4, "big") + text
    return Send(node, channel, correlation, [len(body).to_bytes(4, "big"), body])


def play(
    scene: Callable[[Host, PeerConnections, Answerer], Awaitable[None]], timeout_seconds: float = 10
) -> None:
    async def run() -> None:
        answerer = Answerer()
        server = await asyncio.start_server(answerer.serve, "127.0.0.1", 0)
        host = Host(server.sockets[0].getsockname()[1])
        peers = PeerConnections(host, timeout_seconds)
        try:
            await scene(host, peers, answerer)
        finally:
            peers.close()
            server.close()
            for writer in answerer.writers:
                writer.close()
            await asyncio.sleep(0)

    asyncio.run(run())


def test_requests_of_a_channel_share_a_connection_and_are_answered_in_order() -> None:
    async def scene(host: Host, peers: PeerConnections, answerer: Answerer) -> None:
        for correlation in range(1, 6):
            peers.send(request(correlation, b"text %d" % correlation))
        await host.until(lambda: len(host.heard) == 5)
        assert host.heard == [(n, b"text %d" % n) for n in range(1, 6)]
        assert answerer.connections == 1
        peers.send(request(6, channel="b"))
        await host.until(lambda: len(host.heard) == 6)
        assert answerer.connections == 2

    play(scene)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_the_receive_buffer_is_that_of_fetchers_only(loop: str) -> None:
    async def run() -> None:
        answerer = Answerer()
        server = await asyncio.start_server(answerer.serve, "127.0.0.1", 0)
        host = Host(server.sockets[0].getsockname()[1])
        peers = PeerConnections(host, fetcher_buffer_bytes=20_000)
        peers.send(request(1, channel="fetcher-0"))
        peers.send(request(2, channel="forward"))
        await host.until(lambda: len(host.heard) == 2)
        sizes = []
        for key in ((2, "fetcher-0"), (2, "forward")):
            transport = peers._open[key]._transport
            assert transport is not None
            option = socket.SOL_SOCKET, socket.SO_RCVBUF
            sizes.append(transport.get_extra_info("socket").getsockopt(*option))
        assert sizes[0] == 40_000, "the kernel doubles it"
        assert sizes[1] > 100_000
        peers.close()
        for writer in answerer.writers:
            writer.close()
        server.close()
        await asyncio.sleep(0)

    make = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(run())


def test_a_large_answer_comes_whole() -> None:
    async def scene(host: Host, peers: PeerConnections, answerer: Answerer) -> None:
        answerer.say = lambda text: bytes(range(256)) * 40_000
        peers.send(request(1))
        await host.until(lambda: len(host.heard) == 1)
        assert host.heard[0][1] == bytes(range(256)) * 40_000

    play(scene)


@pytest.mark.parametrize(
    "what", ["refused", "unknown address", "no port", "no host", "hangs up", "silent", "garbage"]
)
def test_every_failure_answers_all_that_is_owed_and_the_next_request_connects_anew(
    what: str,
) -> None:
    async def scene(host: Host, peers: PeerConnections, answerer: Answerer) -> None:
        port = host.port
        if what == "refused":
            host.port = 1
        elif what == "unknown address":
            host.port = None
        elif what == "no port":
            host.port = 70_000
        elif what == "no host":
            host.host = "a..b" + "c" * 70
        elif what == "hangs up":
            answerer.say = lambda text: None
        elif what == "silent":
            answerer.say = lambda text: b"" if text == b"never" else text
            original = answerer.serve

            async def silent(reader: Any, writer: Any) -> None:
                answerer.serve = original  # type: ignore[method-assign]
                await reader.read()

            answerer.serve = silent  # type: ignore[method-assign]
            server = await asyncio.start_server(lambda r, w: answerer.serve(r, w), "127.0.0.1", 0)
            port = host.port = server.sockets[0].getsockname()[1]
        else:
            answerer.say = lambda text: b"senseless"
        peers.send(request(1))
        peers.send(request(2))
        assert host.heard == []  # never on the asker's stack
        await host.until(lambda: len(host.heard) == 2)
        assert [text for _, text in host.heard][-1] is None
        assert [n for n, _ in host.heard] == [1, 2]
        host.host, host.port = "127.0.0.1", port
        answerer.say = lambda text: text
        peers.send(request(3, b"again"))
        await host.until(lambda: len(host.heard) == 3)
        assert host.heard[-1] == (3, b"again")

    play(scene, 0.3 if what == "silent" else 10)


def test_an_answer_to_another_question_ends_the_connection() -> None:
    async def scene(host: Host, peers: PeerConnections, answerer: Answerer) -> None:
        peers.send(Send(2, "a", 9, [(5).to_bytes(4, "big"), (8).to_bytes(4, "big"), b"x"]))
        await host.until(lambda: host.heard != [])
        assert host.heard == [(9, None)]

    play(scene)


def test_the_end_of_a_connection_that_owes_nothing_is_told() -> None:
    async def scene(host: Host, peers: PeerConnections, answerer: Answerer) -> None:
        peers.send(request(1))
        await host.until(lambda: host.heard != [])
        answerer.writers[0].close()
        await host.until(lambda: host.lost != [])
        assert host.lost == [(2, "a")]

    play(scene)


def test_a_channel_that_is_hung_up_says_nothing_more() -> None:
    async def scene(host: Host, peers: PeerConnections, answerer: Answerer) -> None:
        peers.send(request(1))
        peers.hang_up(2, "a")
        peers.hang_up(2, "never opened")
        peers.send(request(2))
        await host.until(lambda: host.heard != [])
        assert host.heard == [(2, b"?")] and host.lost == []

    play(scene)


def test_a_cut_link_fails_until_it_is_healed_and_others_work_on() -> None:
    async def scene(host: Host, peers: PeerConnections, answerer: Answerer) -> None:
        peers.send(request(1))
        await host.until(lambda: len(host.heard) == 1)
        peers.set_rules([LinkRule(2)])
        peers.send(request(2))
        peers.send(request(3, node=3))
        await host.until(lambda: len(host.heard) == 3)
        assert sorted(host.heard[1:]) == [(2, None), (3, b"?")]
        peers.set_rules([])
        peers.send(request(4))
        await host.until(lambda: len(host.heard) == 4)
        assert host.heard[-1] == (4, b"?")

    play(scene)


def test_a_delayed_link_takes_its_time_both_ways() -> None:
    async def scene(host: Host, peers: PeerConnections, answerer: Answerer) -> None:
        peers.set_rules([LinkRule(2, 15)])
        begun = host.loop.time()
        peers.send(request(1))
        peers.send(request(2))
        await host.until(lambda: len(host.heard) == 2)
        assert host.heard == [(1, b"?"), (2, b"?")]
        assert host.loop.time() - begun >= 0.029

    play(scene)
