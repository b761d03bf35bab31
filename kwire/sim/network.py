"""The simulated network: connections between nodes whose bytes take random times, stall, or are lost with the link.

Stands for TCP as kwire/server/peers.py and connection.py use it. What one side sends arrives in order or not at all;
between connections nothing is in order. A connection that ends does so for each side at a time of its own: a request
may have been carried out though its asker was told "lost", and a side that is cut off may think a connection open that
the other has given up long ago. Directions are cut one by one; what is sent over a cut link waits until it is healed,
as TCP's retransmissions do, unless the connection is reset.

Invariants: frames of one direction are delivered in order, each at most once; nothing is delivered to a side that has
closed, nor to another incarnation of a node than the one that made the connection.
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

        def accepted(self, connection: Connection) -> None: ...
        def request_arrived(self, connection: Connection, frame: bytes) -> None: ...
        def answer_arrived(self, connection: Connection, frame: bytes) -> None: ...
        def client_gone(self, connection: Connection) -> None: ...
        def server_gone(self, connection: Connection) -> None: ...


_OPEN: Final = 0
_FRAME: Final = 1
_END: Final = 2


class Weather:
    """How the network behaves; a run draws its own. Times in microseconds, `reset_chance` per frame."""

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
    """`id` is what both cores know it by. `owed`: correlations that the asker waits for, in order."""

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
        self.watched = False  # somebody looks after its time-out

    def __repr__(self) -> str:
        return f"#{self.id} {self.asker.node_id}→{self.server.node_id} {self.channel}"


class Network:
    """All connections. Chances come from `random`, which nobody else may use, and from `weather`."""

    def __init__(self, schedule: Schedule, random: Random, weather: Weather) -> None:
        self.schedule = schedule
        self.weather = weather
        self._random = random
        self._connections = 0
        self.open: dict[int, Connection] = {}  # those of which either side thinks that it is open
        self._cut: set[tuple[int, int]] = set()
        self._slow: dict[tuple[int, int], int] = {}
        self._stalled: dict[Pipe, None] = {}

    # --- what nodes do

    def connect(self, asker: Endpoint, server: Endpoint | None, channel: str) -> Connection | None:
        """Begins a connection; None when none can be made: the asker learns that later (`refusal_us`)."""
        if server is None or not server.up or self._is_cut_off(asker, server):
            return None
        self._connections += 1
        connection = Connection(self._connections, asker, server, channel)
        self.open[connection.id] = connection
        self._push(connection.requests, _OPEN, b"")
        return connection

    def refusal_us(self, asker: Endpoint, server: Endpoint | None) -> int:
        """How long it takes to learn that no connection can be made: at once where a port is closed, else longer."""
        if server is not None and self._is_cut_off(asker, server):
            return int(self.weather.connect_timeout_us * self._random.random())
        return int(self.weather.refused_us * (1 + self._random.random()))

    def _is_cut_off(self, asker: Endpoint, server: Endpoint) -> bool:
        ways = (asker.node_id, server.node_id), (server.node_id, asker.node_id)
        return bool(self._cut) and (ways[0] in self._cut or ways[1] in self._cut)

    def ask(self, connection: Connection, frame: bytes) -> None:
        """From the asker to the server."""
        self._push(connection.requests, _FRAME, frame)
        self._maybe_reset(connection)

    def answer(self, connection: Connection, frame: bytes) -> None:
        """From the server to the asker."""
        self._push(connection.answers, _FRAME, frame)
        self._maybe_reset(connection)

    def asker_closes(self, connection: Connection) -> None:
        """The asker is done with it; what it sent may or may not arrive before the end does."""
        if connection.asker_open:
            connection.asker_open = False
            self._end(connection.requests)

    def server_closes(self, connection: Connection) -> None:
        """The server is done with it; what it answered before arrives."""
        if connection.server_open:
            connection.server_open = False
            self._push(connection.answers, _END, b"")

    def node_died(self, node: Endpoint, notice_us: int) -> None:
        """Its connections end: the others notice after `notice_us` and the usual delay."""
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
        """The connection breaks: both sides learn it in their own time."""
        self._end(connection.requests)
        self._end(connection.answers)

    def cut(self, source: int, target: int) -> None:
        """From now on nothing gets from one node to the other."""
        self._cut.add((source, target))

    def slow_down(self, source: int, target: int, delay_us: int) -> None:
        """Everything takes so much longer in this direction."""
        self._slow[source, target] = delay_us

    def heal(self, source: int, target: int) -> None:
        """Undoes `cut` and `slow_down` of one direction."""
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
        """Every link is as it should be."""
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
        """The end of a direction: behind what was sent, or in the place of it."""
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
                receiver.answer_arrived(connection, frame)
            else:
                connection.asker_open = False
                self._forget(connection)
                receiver.server_gone(connection)

    def _at_server(self, connection: Connection, kind: int, frame: bytes) -> None:
        server = connection.server
        if kind == _OPEN:
            if connection.asker_open:  # else the handshake was never finished
                connection.server_open = True
                server.accepted(connection)
        elif connection.server_open:
            if kind == _FRAME:
                server.request_arrived(connection, frame)
            else:
                connection.server_open = False
                self._forget(connection)
                server.client_gone(connection)

    def _forget(self, connection: Connection) -> None:
        if not connection.asker_open and not connection.server_open:
            self.open.pop(connection.id, None)

    def _maybe_reset(self, connection: Connection) -> None:
        chance = self.weather.reset_chance
        if chance and self._random.random() < chance:
            self.reset(connection)
