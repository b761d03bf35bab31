"""A node on an event loop: one broker or controller, its sockets, its clock and its timer.

Corresponds to kafka.network.SocketServer (acceptors, connection quotas, idle expiry) and to start and stop
of kafka.server.BrokerServer. Connections above a limit wait, or are closed (`descriptors.py`).

A step: set the clock, pass one event to the core, drain its outbox, write once to every connection
that has replies. Steps do not nest: a reply that unblocks another connection's next frame puts that
connection into `_work`. Requests to other nodes and their responses pass through `peers.py`, imported
with the first of them.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import time
from collections import deque
from contextlib import suppress
from enum import Enum

from kwire.protocol.errors import KafkaError, MalformedMessage
from kwire.replication.core.clock import Clock
from kwire.replication.core.outbox import Close, HangUp, Log, Outbox, Ready, Reply, Send
from kwire.server.connection import Connection
from kwire.server.connection_log import NODE_STOPS, ConnectionLog
from kwire.server.descriptors import ConnectionLimits
from kwire.server.errors import NodeError
from kwire.server.event_history import NodeEvents
from kwire.server.events import NodeEvent
from kwire.server.listeners import Listener, backlog_of, bind, format_address, parse_listeners
from kwire.server.logs import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.core import Core
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.outbox import Buffer, Effect
    from kwire.server.peers import PeerConnections

_log = logging.getLogger(__name__)

REPLY_BATCH_BYTES = 256 * 1024
"""Pipelined requests run until their replies reach this size; then the replies are written first."""
BUFFER_KEPT_MS = 10_000
FLUSH_TIMEOUT_SECONDS = 2.0
"""How long a stopping node waits for clients to take their last replies."""


class State(Enum):
    """The life cycle of a node."""

    STARTING = "starting"
    """Possibly bound; accepts no connections yet."""
    SERVING = "serving"
    PAUSED = "paused"
    """Suspended, as a process after SIGSTOP: sockets stay open, new connections are accepted, no
    request runs, no timer fires."""
    STOPPING = "stopping"
    """Accepts no more connections; clients receive their last responses."""
    STOPPED = "stopped"
    """Stopped or killed: no further step runs."""


STARTING, SERVING, PAUSED, STOPPING, STOPPED = State
VALID_PREVIOUS_STATES: dict[State, tuple[State, ...]] = {
    STARTING: (),
    SERVING: (STARTING, PAUSED),
    PAUSED: (SERVING,),
    STOPPING: (STARTING, SERVING, PAUSED, STOPPING),  # itself: killed while it stops
    STOPPED: (STARTING, SERVING, PAUSED, STOPPING, STOPPED),  # itself: killed while it stops
}


class Node:
    """`Node(config).bind()`, `attach(broker)`, `await serve()`, … `await stop()`; `run_node` does it all."""

    def __init__(self, config: BrokerConfig, name: str | None = None) -> None:
        """`name`: how logs call it; default: "broker" and its id."""
        self.config = config
        self.name = name or f"broker {config.node_id}"
        self.clock = Clock(nanoseconds=time.perf_counter_ns)
        self._set_clock()
        self.outbox = Outbox(self.clock)
        self.events = NodeEvents(config.node_id, self.name)
        self.listeners = parse_listeners(config)
        self.max_frame_bytes = config.socket_request_max_bytes
        self.connections: dict[int, Connection] = {}
        self.state = STARTING
        self.broker: Core
        self.peers: PeerConnections | None = None
        self.loop: asyncio.AbstractEventLoop
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.AbstractServer] = []
        self.connection_log = ConnectionLog(config.node_id, self.name)
        self._last_connection_id = 0
        self._limits = ConnectionLimits(self)
        self._dirty: list[Connection] = []
        self._work: deque[Connection] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self.run_aside: Callable[[Callable[[], Any]], Any] | None = None  # a coroutine function
        self.deliver: Callable[[], None] | None = None  # the log directories', for background_done
        self._all_closed: asyncio.Event | None = None
        self.bind_listener = bind
        self.find_loop = asyncio.get_running_loop  # where it listens, connects and sets its timers

    # --- start and stop

    def bind(self) -> None:
        """Bind the ports, so that a port in use fails the start before anything is changed. NodeError."""
        for listener in self.listeners:
            bound = self.bind_listener(listener, self.config)
            self._sockets.append(bound)
            listener.port = bound.getsockname()[1]
            if listener.advertised_port == 0:
                listener.advertised_port = listener.port

    async def serve(self, broker: Core) -> None:
        """Accept connections for `broker`, which uses this node's clock and outbox."""
        self.broker = broker
        self.loop = self.find_loop()
        for listener, bound in zip(self.listeners, self._sockets, strict=True):
            server = await self.loop.create_server(
                lambda listener=listener: self._new_connection(listener),  # type: ignore[misc]
                sock=bound,
                backlog=backlog_of(self.config),
            )
            self._servers.append(server)
            event(
                _log,
                NodeEvent.LISTENER_STARTED,
                None,
                self.name,
                node_id=self.config.node_id,
                listener=listener.name,
                address=format_address(listener.host or "*", listener.port),
                advertised=format_address(listener.advertised_host, listener.advertised_port),
            )
        self._move(SERVING)
        self._arm_idle_check()
        self.background_done()
        self.tick()

    def _move(self, state: State) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.state.value} -> {state.value}"
        self.state = state

    @property
    def is_serving(self) -> bool:
        """Whether it runs requests."""
        return self.state is SERVING

    @property
    def accepts_connections(self) -> bool:
        """Whether the ports are open; those of a paused node are, as after SIGSTOP."""
        return self.state is SERVING or self.state is PAUSED

    @property
    def bootstrap_servers(self) -> str:
        """The advertised address of the first listener."""
        first = self.listeners[0]
        return format_address(first.advertised_host, first.advertised_port)

    async def stop(self, *, controlled: bool = True, discard: bool = False) -> None:
        """Stop accepting, let clients receive their last responses, close the broker (checkpoints,
        clean-shutdown marker).

        `controlled`: a broker of a cluster first has its leaderships moved (controlled.shutdown.enable).
        `discard`: its directory is deleted next, so it is not closed: nothing is written."""
        if controlled:
            await self._prepare_stop()
        self._stop_accepting()
        if self.peers is not None:
            self.peers.close()
        if self.connections:
            self._all_closed = asyncio.Event()
            for connection in list(self.connections.values()):
                connection.close(NODE_STOPS)
            try:
                async with asyncio.timeout(FLUSH_TIMEOUT_SECONDS):
                    await self._all_closed.wait()
            except TimeoutError:
                for connection in list(self.connections.values()):
                    connection.close(NODE_STOPS, abort=True)
                await asyncio.sleep(0)
        self._set_clock()
        self._move(STOPPED)
        try:
            if not discard:
                close = self.broker.close
                await self.run_aside(close) if self.run_aside is not None else close()
        except (OSError, KafkaError) as error:
            raise NodeError(f"the logs could not be closed cleanly: {error}") from None
        finally:
            self.write_events()
            self.outbox.drain()
        event(_log, NodeEvent.NODE_STOPPED, None, self.name, node_id=self.config.node_id)

    async def _prepare_stop(self) -> None:
        ready = asyncio.Event()
        self._set_clock()
        self._guard(None, self.broker.prepare_stop, ready.set)
        self._settle()
        if not ready.is_set():
            tries = self.config.controlled_shutdown_max_retries
            wait_ms = tries * (self.config.controlled_shutdown_retry_backoff_ms + 1000) + 1000
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await ready.wait()

    def _stop_accepting(self) -> None:
        if self.state is not STOPPED:  # killed during its controlled shutdown
            self._move(STOPPING)
        for server in self._servers:
            server.close()
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()

    def kill(self) -> None:
        """End as a killed process does: reset connections, flush nothing, run no further step."""
        self._stop_accepting()
        self._move(STOPPED)
        if self.peers is not None:
            self.peers.close()
        connections, self.connections = self.connections, {}
        for connection in connections.values():
            connection.session.closed = True
            connection.close("the node is killed", abort=True)
        self.outbox.drain()

    def pause(self) -> None:
        """Suspend a serving node, as SIGSTOP does."""
        if self.state is not SERVING:
            return
        self._move(PAUSED)
        for connection in self.connections.values():
            connection.transport.pause_reading()
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._timer = None
        if self.peers is not None:
            self.peers.pause()

    def resume(self) -> None:
        """Undo `pause`: timers that expired meanwhile fire, requests that were sent meanwhile run."""
        if self.state is not PAUSED:
            return
        self._move(SERVING)
        every, has_to_wait = self.connections.values(), self._limits.have_paused
        held = [each for each in every if each.held and not has_to_wait(each)]
        for connection in list(self.connections.values()):
            connection.resume_after_pause()
        if self.peers is not None:
            self.peers.resume()
        self._arm_idle_check()
        self.background_done()
        self.tick()
        for connection in held:
            connection.release()
        self._limits.node_resumed()

    def close_sockets(self) -> None:
        """Close the bound sockets after a start that failed between `bind` and `serve`."""
        for bound in self._sockets:
            bound.close()

    # --- connections

    def _new_connection(self, listener: Listener) -> Connection:
        self._last_connection_id += 1
        return (listener.connection_type or Connection)(self, listener, self._last_connection_id)

    def connection_made(self, connection: Connection) -> None:
        refusal = self._limits.refusal(connection) if self.accepts_connections else NODE_STOPS
        self.connections[connection.id] = connection
        connection.session = self.broker.connection_opened(
            connection.id, connection.listener.name, connection.peer_host
        )
        connection.last_active_ms = time.monotonic_ns() // 1_000_000
        if self.state is PAUSED:
            connection.hold()
        if refusal is not None:
            connection.close(refusal, abort=True)
        else:
            self.connection_log.opened(connection)
        self._limits.opened(connection, refusal)

    def connection_lost(self, connection: Connection, error: Exception | None) -> None:
        if self.connections.pop(connection.id, None) is None:
            return
        self._limits.closed(connection)
        self.connection_log.closed(connection, error)
        self._set_clock()
        self._guard(connection, self.broker.connection_closed, connection.id)
        self._settle()
        if self._all_closed is not None and not self.connections:
            self._all_closed.set()

    # --- steps

    def _set_clock(self) -> None:
        clock = self.clock
        clock.now_ms = time.monotonic_ns() // 1_000_000
        clock.wall_ms = time.time_ns() // 1_000_000

    def perform(self, action: Callable[[], Any]) -> Any:
        """Run an action that no socket or timer triggered as a step of its own; its errors propagate."""
        self._set_clock()
        try:
            return action()
        finally:
            self._settle()

    def step(self, connection: Connection) -> None:
        """Run the frames that a connection has received, as far as back-pressure allows."""
        clock = self.clock
        clock.now_ms = connection.last_active_ms = time.monotonic_ns() // 1_000_000
        clock.wall_ms = time.time_ns() // 1_000_000
        self._pump(connection)
        self._settle()
        if connection.reading_paused or connection.session.in_flight or connection.writing_paused:
            connection.throttle_reading()

    def background_done(self) -> None:
        """Let what threads have ended take effect, as one step; while the node is paused it waits."""
        if self.deliver is not None and self.state in (SERVING, STOPPING):
            self._set_clock()
            self._guard(None, self.deliver)
            self._settle()

    def tick(self) -> None:
        """Run the core's due timers, and arm the next one."""
        self._set_clock()
        self._guard(None, self.broker.tick)
        self._settle()

    def _pump(self, connection: Connection) -> None:
        """Pass frames to the core while the connection's session is free and its replies are small."""
        session, reader, broker = connection.session, connection.reader, self.broker
        try:
            while (
                session.in_flight is None
                and not session.closed
                and not connection.writing_paused
                and connection.parts_bytes < REPLY_BATCH_BYTES
            ):
                frame = reader.next_frame()
                if frame is None:
                    if connection.ended:
                        connection.finish()
                    return
                broker.receive_frame(connection.id, frame)
                if self.outbox.effects:
                    self._collect(connection)
        except MalformedMessage as error:
            # Errors of framing only; the broker handles errors in the content.
            broker.close_connection(connection.id, f"malformed request: {error}")
        except Exception as error:
            self._failed(connection, error)
        else:
            if connection.parts_bytes >= REPLY_BATCH_BYTES:
                self._work.append(connection)
            elif session.keeps_frame:
                session.keeps_frame = False
                reader.leave_frames()

    def _settle(self) -> None:
        """End a step: write replies, run connections that became free, arm the timer."""
        outbox, work, dirty = self.outbox, self._work, self._dirty
        while True:
            if outbox.effects:
                self._collect(None)
            if dirty:
                for connection in dirty:
                    connection.flush()
                dirty.clear()
            if not work:
                break
            connection = work.popleft()
            self._pump(connection)
            if connection.reading_paused:
                connection.throttle_reading()
        due = self.broker.next_deadline_ms()
        if due is not None and (self._timer is None or due < self._timer_due_ms):
            self._arm_timer(due)

    def _collect(self, current: Connection | None) -> None:
        """Drain the outbox into the connections' parts. `current` continues with its next frame itself."""
        for effect in self.outbox.drain():
            if isinstance(effect, Reply):
                connection = self.connections.get(effect.connection)
                if connection is None:
                    continue
                if not connection.parts:
                    self._dirty.append(connection)
                connection.parts += effect.parts
                for part in effect.parts:
                    connection.parts_bytes += len(part)
                if connection is not current and connection.has_more:
                    self._work.append(connection)
            elif isinstance(effect, Ready):
                free = self.connections.get(effect.connection)
                if free is not None and free is not current:
                    self._work.append(free)
            else:
                self._carry_out(effect)

    def write_events(self) -> None:
        """Log the core's events from outside of steps (start and stop). Other effects stay queued."""
        effects = self.outbox.drain()
        for effect in effects:
            if isinstance(effect, Log):
                self.events.write(effect)
        self.outbox.effects[:0] = [each for each in effects if not isinstance(each, Log)]

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Log):
            self.events.write(effect)
        elif isinstance(effect, Close):
            closing = self.connections.get(effect.connection)
            if closing is not None:
                if closing.parts:
                    closing.flush()
                closing.close(effect.reason)
        elif isinstance(effect, Send):
            self.peer_connections().send(effect)
        elif isinstance(effect, HangUp):
            self.peer_connections().hang_up(effect.node, effect.channel)

    # --- other nodes

    def peer_connections(self) -> PeerConnections:
        """The connections to other nodes."""
        if self.peers is None:
            from kwire.server.peers import PeerConnections

            config, key = self.config, "replica.socket.receive.buffer.bytes"
            seconds = config.replica_socket_timeout_ms / 1000
            size = config.replica_socket_receive_buffer_bytes if config.is_set(key) else -1
            self.peers = PeerConnections(self, seconds, config.node_id, self.name, size)
        return self.peers

    def address_of(self, node: int) -> tuple[str, int] | None:
        """The current address of another node; None if unknown."""
        return self.broker.address_of(node)

    def peer_answered(self, correlation: int, frame: Buffer | None) -> str | None:
        """Pass the response to a request to another node (None: lost) to the core, as one step.

        Returns the reason if the frame is malformed."""
        if self.state is STOPPED:
            return NODE_STOPS
        self._set_clock()
        reason: str | None = "internal error"
        try:
            reason = self.broker.respond(correlation, frame)
        except Exception as error:
            self._failed(None, error)
        self._settle()
        return reason

    def channel_lost(self, node: int, channel: str) -> None:
        """Report to the core that an idle connection to another node has ended."""
        if self.state is not STOPPED:
            self._set_clock()
            self._guard(None, self.broker.channel_lost, node, channel)
            self._settle()

    def _guard(
        self, connection: Connection | None, call: Callable[..., object], *arguments: object
    ) -> None:
        """Call into the core; an exception is a bug: keep it, log it, close the connection, if any."""
        try:
            call(*arguments)
        except Exception as error:
            self._failed(connection, error)

    def _failed(self, connection: Connection | None, error: Exception) -> None:
        peer = connection and format_address(connection.peer_host, connection.peer_port)
        event(
            _log, NodeEvent.INTERNAL_ERROR, error, self.name, peer=peer, node_id=self.config.node_id
        )
        self.broker.step_failed(None if connection is None else connection.id, error)

    # --- timers

    def _arm_timer(self, due_ms: int) -> None:
        if self.state is not SERVING:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay = max(0, due_ms - self.clock.now_ms) / 1000
        self._timer = self.loop.call_later(delay, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.tick()

    def _arm_idle_check(self) -> None:
        idle_ms = self.config.connections_max_idle_ms
        delay_ms = 60_000 if idle_ms < 0 else min(max(idle_ms / 4, 20), 60_000)
        self._idle_timer = self.loop.call_later(delay_ms / 1000, self._check_idle)

    def _check_idle(self) -> None:
        """Close connections idle for too long; shrink the read buffers of those idle for a while."""
        idle_ms = self.config.connections_max_idle_ms
        now_ms = time.monotonic_ns() // 1_000_000
        for connection in list(self.connections.values()):
            silent_ms = now_ms - connection.last_active_ms
            if silent_ms >= BUFFER_KEPT_MS:
                connection.reader.release()
            if 0 <= idle_ms <= silent_ms and connection.session.in_flight is None:
                connection.close(f"idle for connections.max.idle.ms={idle_ms}", abort=True)
        self.connection_log.write_counts()
        self._arm_idle_check()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop: uvloop's if installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    # libuv aborts the process when it closes one of the first three descriptors, and is given them
    # where a shell has closed stdin, stdout or stderr (`kwire up >&-`).
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        continue
    os.close(descriptor)
    return uvloop.new_event_loop()


def settle_garbage_collector() -> None:
    """Freeze the objects of the start, made with collection disabled, and enable collection.

    They live as long as the process, and requests make few cycles. The second generation has at
    most 20,000 objects: a collection of more would hold the loop for tens of milliseconds."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 1, 3_000)
