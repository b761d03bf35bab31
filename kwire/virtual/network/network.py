"""The network of a world: who listens, the links between hosts, and what is done to them."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections import defaultdict

from kwire.virtual.errors import VirtualTimeError
from kwire.virtual.hosts import HOST
from kwire.virtual.network.requests import Tap
from kwire.virtual.network.transport import MemoryTransport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.virtual.loop import VirtualLoop
    from kwire.virtual.network.requests import Requests

    Link = frozenset[str]

FIRST_PORT = 9092
_FIRST_CLIENT_PORT = 50_001
_LATENCY_SECONDS = (0.0001, 0.001)
_ADDRESS = "127.0.0.1"


class MemoryServer(asyncio.AbstractServer):
    """What `create_server` gives: a port of the world, until it is closed."""

    def __init__(self, network: VirtualNetwork, port: int, factory: Callable[[], Any]) -> None:
        self._network, self.port, self.factory = network, port, factory
        self.host = HOST.get()
        self.context = contextvars.copy_context()

    @property
    def sockets(self) -> tuple[Any, ...]:
        from kwire.virtual.refusals import MemoryPort

        return (MemoryPort(self.port),)

    def is_serving(self) -> bool:
        return self._network.servers.get(self.port) is self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def close(self) -> None:
        if self.is_serving():
            del self._network.servers[self.port]

    async def start_serving(self) -> None:
        """No-op: it listens from the start."""

    async def serve_forever(self) -> None:
        await self._network.loop.create_future()

    async def wait_closed(self) -> None:
        """No-op: connections that are open stay so."""


class VirtualNetwork:
    """All links of one world."""

    def __init__(self, loop: VirtualLoop, seed: str, requests: Requests) -> None:
        self.loop = loop
        self.requests = requests
        self.servers: dict[int, MemoryServer] = {}
        self._random = random.Random(f"{seed} network").random
        self._ports = itertools.count(FIRST_PORT)
        self._client_ports = itertools.count(_FIRST_CLIENT_PORT)
        self._cuts: dict[Link, int] = {}
        self._delays: dict[Link, list[float]] = {}
        self._held: dict[Link, list[tuple[MemoryTransport, Any]]] = defaultdict(list)
        self._waiting: list[asyncio.Future[None]] = []
        self._open: dict[MemoryTransport, None] = {}
        self.nodes: dict[int, str] = {}
        """The brokers and controllers, by the port they listen on: requests to them are noted."""

    # --- connections

    def reserve(self) -> int:
        """A port that nobody has used."""
        return next(self._ports)

    def listen(self, factory: Callable[[], Any], port: int) -> MemoryServer:
        """Listen on a port; 0: any. OSError when it is taken."""
        port = port or self.reserve()
        if port in self.servers:
            raise OSError(98, f"Address already in use: port {port}")
        server = self.servers[port] = MemoryServer(self, port, factory)
        return server

    async def connect(
        self, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[MemoryTransport, Any]:
        """Connect to who listens on a port: one way there, one way back. ConnectionRefusedError."""
        own = HOST.get()
        server = self.servers.get(port)
        there = own if server is None else server.host
        await asyncio.sleep(self.latency(own, there) + self.latency(there, own))
        server = self.servers.get(port)
        while server is not None and self._is_cut(own, server.host):
            future: asyncio.Future[None] = self.loop.create_future()
            self._waiting.append(future)
            await future
            server = self.servers.get(port)
        if server is None:
            raise ConnectionRefusedError(111, f"Connect call failed ({host!r}, {port})")
        ends = (_ADDRESS, next(self._client_ports)), (_ADDRESS, port)
        near = MemoryTransport(self, own, contextvars.copy_context(), *ends)
        far = MemoryTransport(self, server.host, server.context.copy(), *reversed(ends))
        near.other, far.other = far, near
        if port in self.nodes:
            far.tap = Tap(self.requests, own, self.nodes[port])
        self._open[near] = self._open[far] = None
        near.protocol = factory()
        self.loop.call_soon(_accept, server, far, context=far.context)
        near.protocol.connection_made(near)
        return near, near.protocol

    def forget(self, transport: MemoryTransport) -> None:
        """A transport has ended."""
        self._open.pop(transport, None)

    # --- links

    def latency(self, source: str, target: str) -> float:
        """How long a segment travels, in seconds: drawn from the seed for each."""
        low, high = _LATENCY_SECONDS
        found = low + (high - low) * self._random()
        if self._delays:
            found += sum(self._delays.get(frozenset((source, target)), ()))
        return found

    def _is_cut(self, one: str, other: str) -> bool:
        return bool(self._cuts) and frozenset((one, other)) in self._cuts

    def holds(self, transport: MemoryTransport, data: Any) -> bool:
        """Whether a segment that arrives is held back, and keep it: its link is cut."""
        if not self._cuts and not self._held:
            return False
        link = frozenset((transport.host, transport.other.host))
        if link not in self._cuts and link not in self._held:
            return False
        self._held[link].append((transport, data))
        return True

    def cut(self, link: Link) -> None:
        """Hold back all segments of a link, until it is healed as often as it was cut."""
        self._cuts[link] = self._cuts.get(link, 0) + 1

    def heal(self, link: Link | None = None) -> None:
        """Undo `cut` once, or with None all cuts: what was held back arrives."""
        links = list(self._cuts) if link is None else [link] if link in self._cuts else []
        for each in links:
            self._cuts[each] -= 1
            if link is not None and self._cuts[each] > 0:
                continue
            del self._cuts[each]
            for transport, data in self._held.pop(each, ()):
                transport.send(data)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def delay(self, link: Link, seconds: float) -> None:
        """Add to the latency of a link; 0: no more."""
        if seconds:
            self._delays.setdefault(link, []).append(seconds)
        else:
            self._delays.pop(link, None)

    def undelay(self, link: Link, seconds: float) -> None:
        """Undo one `delay`."""
        found = self._delays.get(link, [])
        if seconds in found:
            found.remove(seconds)
        if not found:
            self._delays.pop(link, None)

    def end_delays(self) -> None:
        self._delays.clear()

    def reset(self, link: Link) -> int:
        """Reset all connections of a link; return how many there were."""
        found = [each for each in self._open if frozenset((each.host, each.other.host)) == link]
        for each in found:
            each.reset()
        return len(found) // 2

    def close(self) -> None:
        """The end of the world: nothing travels any more."""
        self.servers.clear()
        self._open.clear()
        self._held.clear()


def _accept(server: MemoryServer, transport: MemoryTransport) -> None:
    transport.protocol = server.factory()
    transport.protocol.connection_made(transport)


def milliseconds(what: str, value: object) -> float:
    """A delay in seconds, from milliseconds. VirtualTimeError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise VirtualTimeError(f"{what}: expected milliseconds from 0, not {value!r}")
    return value / 1000
