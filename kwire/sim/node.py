"""One simulated node: a core with its clock and the driver's part: deliver, step, drain the outbox.

Does on a simulated network what kwire/server/{node,peers,connection}.py do on a real one: one
connection per (node, channel), opened on demand, responses in order, "lost" for all pending
requests when a connection ends, and a timeout. A restart is a new core over the same disk;
connections and timers end with the old one.

Invariant: a core is stepped by one event at a time, with a fixed clock; its effects are sent before
anything else runs.
"""

from __future__ import annotations

from typing import Any, Final

from kwire.replication.core.clock import Clock
from kwire.replication.core.outbox import Close as CloseEffect
from kwire.replication.core.outbox import HangUp, Log, Outbox, Reply, Send
from kwire.replication.core.types import HELD_CHANNELS
from kwire.sim.schedule import MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from kwire.core import Core
    from kwire.sim.network import Connection, Network
    from kwire.sim.schedule import Schedule

    class World(Protocol):
        """The part of the simulation that a node needs."""

        schedule: Schedule
        network: Network

        def node_at(self, host: str, port: int) -> Node | None: ...
        def after_step(self, node: Node) -> None:
            """Called after every step, before its effects are sent."""
            ...

        def on_response(self, node: Node, connection: Connection, frame: bytes) -> None:
            """Called before a response is sent."""
            ...

        def on_request(self, node: Node, connection: Connection, frame: bytes) -> None:
            """Called before a request is handled."""
            ...

        def on_event(self, effect: Log) -> None:
            """Called with each event that a core logs."""
            ...

        def trace(self, line: str) -> None: ...

        tracing: bool


LISTENER: Final = "PLAINTEXT"
WORK_TURN_US: Final = 5 * MS
"""The time that a turn of long work takes (replication/core/work.py); no other step takes any."""
EPOCH_WALL_MS: Final = 1_700_000_000_000


class Node:
    """A node. `make_core(clock, outbox)` returns a started core; `core` is None while down."""

    def __init__(
        self,
        world: World,
        node_id: int,
        name: str,
        make_core: Callable[[Clock, Outbox], Core],
        *,
        skew_ms: int = 0,
        answer_timeout_us: int = 30_000 * MS,
    ) -> None:
        """`skew_ms`: the offset of the node's two clocks from the simulation's."""
        self.world = world
        self.node_id = node_id
        self.name = name
        self.up = False
        self.incarnation = 0
        self.paused_until_us = 0
        self.core: Core | None = None
        self.clock = Clock()
        self.outbox = Outbox(self.clock)
        self._make_core = make_core
        self._skew_ms = skew_ms
        self.wall_offset_ms = 0  # how far its wall clock is wrong
        self._answer_timeout_us = answer_timeout_us
        self._served: dict[int, Connection] = {}
        self._links: dict[tuple[int, str], Connection] = {}
        self._tick_us = -1

    def __repr__(self) -> str:
        return self.name

    # --- life

    def start(self) -> None:
        """Start a new incarnation over the node's disk."""
        assert not self.up
        self.incarnation += 1
        self.up = True
        self.paused_until_us = 0
        self._tick_us = -1
        self.clock = Clock()
        self.outbox = Outbox(self.clock)
        self._set_clock()
        self.core = self._make_core(self.clock, self.outbox)
        self._after()

    def stop(self, notice_us: int = 0) -> None:
        """End the process; its peers notice after `notice_us`."""
        assert self.up
        self.up = False
        self.core = None
        self._served.clear()
        self._links.clear()
        self.world.network.close_node(self, notice_us)

    def pause(self, until_us: int) -> None:
        """Stop running until then, like a long garbage collection or a stopped process."""
        self.paused_until_us = max(self.paused_until_us, until_us)

    def step(self, action: Callable[..., Any], *args: Any) -> Any:
        """Run one step of the core and send its effects."""
        self._set_clock()
        result = action(*args)
        self._after()
        return result

    def _set_clock(self) -> None:
        now_ms = self.world.schedule.now_us // MS + self._skew_ms
        self.clock.now_ms = now_ms
        self.clock.wall_ms = EPOCH_WALL_MS + now_ms + self.wall_offset_ms

    def _after(self) -> None:
        world = self.world
        world.after_step(self)
        for effect in self.outbox.drain():
            kind = type(effect)
            if kind is Reply:
                connection = self._served.get(effect.connection)  # type: ignore[union-attr]
                if connection is not None:
                    frame = b"".join(effect.parts)[4:]  # type: ignore[union-attr]
                    world.on_response(self, connection, frame)
                    world.network.answer(connection, frame)
            elif kind is Send:
                self._send(effect)  # type: ignore[arg-type]
            elif kind is Log:
                self._check_event(effect)  # type: ignore[arg-type]
            elif kind is CloseEffect:
                connection = self._served.pop(effect.connection, None)  # type: ignore[union-attr]
                if connection is not None:
                    if world.tracing:
                        world.trace(f"{self} closes {connection}: {effect.reason}")  # type: ignore[union-attr]
                    world.network.close_from_server(connection)
            elif kind is HangUp:
                self._close_link((effect.node, effect.channel))  # type: ignore[union-attr]
        self._schedule_tick()

    def _check_event(self, effect: Log) -> None:
        assert set(effect.fields) == set(effect.event.fields), effect
        self.world.on_event(effect)
        if self.world.tracing:
            self.world.trace(f"    {self}: {effect.event} {effect.text}")

    # --- timers

    def _schedule_tick(self) -> None:
        assert self.core is not None
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is None:
            return
        now_us = self.world.schedule.now_us
        if self.core.work.jobs:
            now_us += WORK_TURN_US
        due_us = max((deadline_ms - self._skew_ms) * MS, now_us)
        if self._tick_us < 0 or due_us < self._tick_us:
            self._tick_us = due_us
            self.world.schedule.at(due_us, self._tick, self.incarnation, due_us)

    def _tick(self, incarnation: int, due_us: int) -> None:
        if incarnation != self.incarnation or due_us != self._tick_us or not self.up:
            return
        schedule = self.world.schedule
        if self.paused_until_us > schedule.now_us:
            schedule.at(self.paused_until_us, self._tick, incarnation, due_us)
            return
        self._tick_us = -1
        assert self.core is not None
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is not None and (deadline_ms - self._skew_ms) * MS <= schedule.now_us:
            self.step(self.core.tick)
        else:
            self._schedule_tick()

    # --- as a server

    def accept(self, connection: Connection) -> None:
        assert self.core is not None
        self._served[connection.id] = connection
        self.step(
            self.core.connection_opened,
            connection.id,
            LISTENER,
            f"10.0.0.{connection.asker.node_id % 250}",
        )

    def receive_request(self, connection: Connection, frame: bytes) -> None:
        assert self.core is not None
        self.world.on_request(self, connection, frame)
        self.step(self.core.receive_frame, connection.id, frame)

    def on_client_closed(self, connection: Connection) -> None:
        assert self.core is not None
        if self._served.pop(connection.id, None) is not None:
            self.step(self.core.connection_closed, connection.id)

    # --- as a client of other nodes

    def _send(self, effect: Send) -> None:
        world = self.world
        key = effect.node, effect.channel
        connection = self._links.get(key)
        if connection is None:
            assert self.core is not None
            address = self.core.address_of(effect.node)
            target = None if address is None else world.node_at(*address)
            connection = world.network.connect(self, target, effect.channel)
            if connection is None:
                delay_us = world.network.refusal_us(self, target)
                world.schedule.after(delay_us, self._refused, self.incarnation, effect.correlation)
                return
            self._links[key] = connection
        if not connection.owed:
            connection.oldest_us = world.schedule.now_us
            self._watch(connection)
        connection.owed.append(effect.correlation)
        world.network.ask(connection, b"".join(effect.parts)[4:])

    def _refused(self, incarnation: int, correlation: int) -> None:
        if incarnation == self.incarnation and self.up:
            if self.paused_until_us > self.world.schedule.now_us:
                self.world.schedule.at(
                    self.paused_until_us, self._refused, incarnation, correlation
                )
                return
            assert self.core is not None
            self.step(self.core.respond, correlation, None)

    def receive_response(self, connection: Connection, frame: bytes) -> None:
        if self._links.get((connection.server.node_id, connection.channel)) is not connection:
            return
        assert connection.owed and int.from_bytes(frame[:4], "big") == connection.owed[0], (
            f"{self} got an answer to what it did not ask on {connection}"
        )
        assert self.core is not None
        correlation = connection.owed.popleft()
        connection.oldest_us = self.world.schedule.now_us
        reason = self.step(self.core.respond, correlation, frame)
        assert reason is None, f"{self} cannot read the answer of {connection}: {reason}"

    def on_server_closed(self, connection: Connection) -> None:
        key = connection.server.node_id, connection.channel
        if self._links.get(key) is connection:
            del self._links[key]
            self._fail_owed(connection)

    def _fail_owed(self, connection: Connection) -> None:
        assert self.core is not None
        if not connection.owed:
            self.step(self.core.channel_lost, connection.server.node_id, connection.channel)
            return
        while connection.owed and self.up:
            self.step(self.core.respond, connection.owed.popleft(), None)

    def _close_link(self, key: tuple[int, str]) -> None:
        connection = self._links.pop(key, None)
        if connection is not None:
            connection.owed.clear()
            self.world.network.close_from_asker(connection)

    def _watch(self, connection: Connection) -> None:
        if not connection.watched and connection.channel not in HELD_CHANNELS:
            connection.watched = True
            due_us = connection.oldest_us + self._answer_timeout_us
            self.world.schedule.at(due_us, self._check_timeout, connection, self.incarnation)

    def _check_timeout(self, connection: Connection, incarnation: int) -> None:
        connection.watched = False
        key = connection.server.node_id, connection.channel
        if incarnation != self.incarnation or self._links.get(key) is not connection:
            return
        if not connection.owed:
            return
        now_us = self.world.schedule.now_us
        if self.paused_until_us > now_us:
            connection.watched = True
            self.world.schedule.at(
                self.paused_until_us, self._check_timeout, connection, incarnation
            )
        elif now_us >= connection.oldest_us + self._answer_timeout_us:
            del self._links[key]
            self.world.network.close_from_asker(connection)
            self._fail_owed(connection)
        else:
            self._watch(connection)
