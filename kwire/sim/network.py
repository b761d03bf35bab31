"""The simulated network: connections whose frames take random times, stall, or get lost.

Models TCP as kwire/server/peers.py and connection.py use it. Frames of one direction arrive in
order or not at all; there is no order between connections. Each side sees the end of a connection
at its own time: a request may have been executed although the asker got "lost", and a side behind a
cut link may think a connection open that the other side closed long ago. Each direction of a link
is cut separately; frames sent over a cut link wait until it is healed, like TCP's retransmissions,
unless the connection is reset.

Invariants: frames of one direction are delivered in order, each at most once; no frame is delivered
to a side that has closed, nor to a later incarnation of a node.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kwire.sim.schedule import MS, Schedule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random
    from typing import Protocol

    class Endpoint(Protocol):
        """A node as the network sees it."""

        node_id: int
        incarnation: int
        up: bool
        paused_until_us: int

        def accept(self, connection: Connection) -> None: ...
        def receive_request(self, connection: Connection, frame: bytes) -> None: ...
        def receive_response(self, connection: Connection, frame: bytes) -> None: ...
        def on_client_closed(self, connection: Connection) -> None: ...
        def on_server_closed(self, connection: Connection) -> None: ...


_OPEN: Final = 0
_FRAME: Final = 1
_END: Final = 2


class Weather:
    """The network's delays and failures. Times in microseconds, `reset_chance` per frame."""

    __slots__ = (
        "connect_timeout_us",
        "delay_us",
        "jitter_us",
        "refused_us",
        "reset_chance",
        "slow_chance",
        "slow_us",
    )

    def __init__(self) -> None:
        self.delay_us = 100
        self.jitter_us = 400
        self.slow_chance = 0.0
        self.slow_us = 50 * MS
        self.reset_chance = 0.0
        self.refused_us = 1 * MS
        self.connect_timeout_us = 500 * MS


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "connection",
        "items",
        "last_us",
        "receiver",
        "receiver_incarnation",
        "sender",
        "stalled",
    )

    def __init__(self, connection: Connection, sender: Endpoint, receiver: Endpoint) -> None:
        self.connection = connection
        self.sender = sender
        self.receiver = receiver
        self.receiver_incarnation = receiver.incarnation
        self.items: deque[tuple[int, bytes]] = deque()
        self.last_us = 0  # when the last of the items arrives
        self.stalled = 0  # items whose time has come while the link was cut


class Connection:
    """A connection; both cores know its `id`. `owed`: correlation ids of pending requests."""

    __slots__ = (
        "answers",
        "asker",
        "asker_open",
        "channel",
        "id",
        "oldest_us",
        "owed",
        "requests",
        "server",
        "server_open",
        "watched",
    )

    def __init__(self, number: int, asker: Endpoint, server: Endpoint, channel: str) -> None:
        self.id = number
        self.asker = asker
        self.server = server
        self.channel = channel
        self.requests = Pipe(self, asker, server)
        self.answers = Pipe(self, server, asker)
        self.asker_open = True
        self.server_open = False
        self.owed: deque[int] = deque()
        self.oldest_us = 0
        self.watched = False  # a check of its timeout is scheduled

    def __repr__(self) -> str:
        return f"#{self.id} {self.asker.node_id}→{self.server.node_id} {self.channel}"


class Network:
    """All connections. All draws come from `random`, which nothing else may use."""

    def __init__(self, schedule: Schedule, random: Random, weather: Weather) -> None:
        self.schedule = schedule
        self.weather = weather
        self._random = random
        self._connections = 0
        self.open: dict[int, Connection] = {}  # those that at least one side considers open
        self._cut: set[tuple[int, int]] = set()
        self._slow: dict[tuple[int, int], int] = {}
        self._stalled: dict[Pipe, None] = {}

    # --- operations of nodes

    def connect(self, asker: Endpoint, server: Endpoint | None, channel: str) -> Connection | None:
        """Open a connection; None if that fails, which the asker learns after `refusal_us`."""
        if server is None or not server.up or self._is_cut_off(asker, server):
            return None
        self._connections += 1
        connection = Connection(self._connections, asker, server, channel)
        self.open[connection.id] = connection
        self._push(connection.requests, _OPEN, b"")
        return connection

    def refusal_us(self, asker: Endpoint, server: Endpoint | None) -> int:
        """The time until a connect fails: short for a closed port, longer for a cut link."""
        if server is not None and self._is_cut_off(asker, server):
            return int(self.weather.connect_timeout_us * self._random.random())
        return int(self.weather.refused_us * (1 + self._random.random()))

    def _is_cut_off(self, asker: Endpoint, server: Endpoint) -> bool:
        ways = (asker.node_id, server.node_id), (server.node_id, asker.node_id)
        return bool(self._cut) and (ways[0] in self._cut or ways[1] in self._cut)

    def ask(self, connection: Connection, frame: bytes) -> None:
        """Send a frame from the asker to the server."""
        self._push(connection.requests, _FRAME, frame)
        self._maybe_reset(connection)

    def answer(self, connection: Connection, frame: bytes) -> None:
        """Send a frame from the server to the asker."""
        self._push(connection.answers, _FRAME, frame)
        self._maybe_reset(connection)

    def close_from_asker(self, connection: Connection) -> None:
        """Close the asker's side; frames in flight may or may not arrive before the end."""
        if connection.asker_open:
            connection.asker_open = False
            self._end(connection.requests)

    def close_from_server(self, connection: Connection) -> None:
        """Close the server's side; earlier responses still arrive."""
        if connection.server_open:
            connection.server_open = False
            self._push(connection.answers, _END, b"")

    def close_node(self, node: Endpoint, notice_us: int) -> None:
        """End a dead node's connections; peers notice after `notice_us` and the usual delay."""
        for connection in [c for c in self.open.values() if c.asker is node or c.server is node]:
            if connection.asker is node:
                connection.asker_open = False
                self._end(connection.requests, notice_us)
            if connection.server is node:
                connection.server_open = False
                self._push(connection.answers, _END, b"", notice_us)
            self._forget(connection)

    # --- faults

    def reset(self, connection: Connection) -> None:
        """Break a connection; each side notices at its own time."""
        self._end(connection.requests)
        self._end(connection.answers)

    def cut(self, source: int, target: int) -> None:
        """Cut one direction of a link."""
        self._cut.add((source, target))

    def slow_down(self, source: int, target: int, delay_us: int) -> None:
        """Delay one direction of a link."""
        self._slow[source, target] = delay_us

    def heal(self, source: int, target: int) -> None:
        """Undo `cut` and `slow_down` of one direction."""
        self._cut.discard((source, target))
        self._slow.pop((source, target), None)
        for pipe in [
            p for p in self._stalled if p.sender.node_id == source and p.receiver.node_id == target
        ]:
            del self._stalled[pipe]
            count, pipe.stalled = pipe.stalled, 0
            time_us = self.schedule.now_us + self._delay(pipe)
            for _ in range(count):
                self.schedule.at(time_us, self._deliver, pipe)

    def heal_all(self) -> None:
        """Heal all links."""
        for source, target in sorted(self._cut | set(self._slow)):
            self.heal(source, target)

    # --- delivery

    def _delay(self, pipe: Pipe) -> int:
        weather, random = self.weather, self._random
        delay = weather.delay_us + int(weather.jitter_us * random.random())
        if weather.slow_chance and random.random() < weather.slow_chance:
            delay += int(weather.slow_us * random.random())
        if self._slow:
            delay += self._slow.get((pipe.sender.node_id, pipe.receiver.node_id), 0)
        return delay

    def _push(self, pipe: Pipe, kind: int, frame: bytes, extra_us: int = 0) -> None:
        pipe.items.append((kind, frame))
        time_us = self.schedule.now_us + self._delay(pipe) + extra_us
        if time_us < pipe.last_us:
            time_us = pipe.last_us
        pipe.last_us = time_us
        self.schedule.at(time_us, self._deliver, pipe)

    def _end(self, pipe: Pipe, extra_us: int = 0) -> None:
        """End a direction: after the frames in flight, or instead of them."""
        if pipe.items and self._random.random() < 0.5:
            kept = [item for item in pipe.items if item[0] == _OPEN]
            lost = len(pipe.items) - len(kept)
            pipe.items = deque(
                [*kept, *[(_END, b"")] * lost]
            )  # as many as deliveries are scheduled
        self._push(pipe, _END, b"", extra_us)

    def _deliver(self, pipe: Pipe) -> None:
        connection, receiver = pipe.connection, pipe.receiver
        if self._cut and (pipe.sender.node_id, receiver.node_id) in self._cut:
            pipe.stalled += 1
            self._stalled[pipe] = None
            return
        if not receiver.up or receiver.incarnation != pipe.receiver_incarnation:
            pipe.items.popleft()
            return
        if receiver.paused_until_us > self.schedule.now_us:
            self.schedule.at(receiver.paused_until_us, self._deliver, pipe)
            return
        kind, frame = pipe.items.popleft()
        if pipe is connection.requests:
            self._at_server(connection, kind, frame)
        elif connection.asker_open:
            if kind == _FRAME:
                receiver.receive_response(connection, frame)
            else:
                connection.asker_open = False
                self._forget(connection)
                receiver.on_server_closed(connection)

    def _at_server(self, connection: Connection, kind: int, frame: bytes) -> None:
        server = connection.server
        if kind == _OPEN:
            if connection.asker_open:  # else the handshake was never finished
                connection.server_open = True
                server.accept(connection)
        elif connection.server_open:
            if kind == _FRAME:
                server.receive_request(connection, frame)
            else:
                connection.server_open = False
                self._forget(connection)
                server.on_client_closed(connection)

    def _forget(self, connection: Connection) -> None:
        if not connection.asker_open and not connection.server_open:
            self.open.pop(connection.id, None)

    def _maybe_reset(self, connection: Connection) -> None:
        chance = self.weather.reset_chance
        if chance and self._random.random() < chance:
            self.reset(connection)
