"""Core: the steps by which a driver turns a node that does no I/O itself.

Answers to what kafka.server.BrokerServer and ControllerServer have in common. A driver (kwire/server/node.py with
sockets, kwire/sim/node.py with a simulated network) owns the core's clock and outbox. For each event it sets the clock,
calls one step and drains the outbox; steps do not nest. The events are a frame or the end of a connection, the answer
of another node, and a due timer. What a step raises is a bug: the driver hands it to `step_failed`.

`Broker` and `ControllerNode` are cores, and so are the clients of the simulation. Left to them: what a node starts and
stops, and the requests that it sends to other nodes.
"""

from __future__ import annotations

from kwire.replication.core.clock import Timers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.replication.core.clock import Clock
    from kwire.replication.core.metadata import Endpoint
    from kwire.replication.core.outbox import Buffer, Outbox
    from kwire.session import Session, Sessions

_FAILURES_KEPT = 100


class Core:
    """A node as its driver sees it: `start`, then steps, then `close`."""

    sessions: Sessions
    receive_frame: Callable[[int, memoryview | bytes], None]
    """The step for a request, `receive_frame(connection, frame without its length)`: the sessions' own method, which
    saves a call."""

    def __init__(self, clock: Clock, outbox: Outbox) -> None:
        self.clock = clock
        self.outbox = outbox
        self.timers = Timers()
        self.failed: list[BaseException] = []  # the first that steps have raised

    def use_sessions(self, sessions: Sessions) -> None:
        """Take requests by these sessions. Before the first step."""
        self.sessions = sessions
        self.receive_frame = sessions.receive_frame

    # --- life cycle

    def start(self, endpoints: list[Endpoint]) -> None:
        """Read what the node has stored and take up its role, reached at `endpoints`. Before the first step."""
        raise NotImplementedError

    def prepare_stop(self, on_ready: Callable[[], None]) -> None:
        """Give up the node's role; call back once, when a clean stop may follow."""
        on_ready()

    def close(self) -> None:
        """Stop cleanly: what is stored is complete. No step follows."""
        raise NotImplementedError

    # --- connections to this node

    def connection_opened(self, connection: int, listener_name: str, peer_host: str) -> Session:
        """Open a session. Its `in_flight` tells whether another frame would have to wait."""
        return self.sessions.opened(connection, listener_name, peer_host)

    def connection_closed(self, connection: int) -> None:
        """The connection has ended. No error when this side closed it before."""
        self.sessions.closed(connection)
        self.sessions.run_waiting()

    def close_connection(self, connection: int, reason: str) -> None:
        """End a connection from this side; the outbox gets a Close."""
        session = self.sessions.by_connection.get(connection)
        if session is not None:
            self.sessions.close(session, reason)

    # --- requests to other nodes

    def respond(self, correlation: int, frame: Buffer | None) -> str | None:
        """Take the response to a request that the outbox had: its frame, or None for a lost connection.

        Returns why the frame makes no sense, if so: the driver then drops the connection."""
        raise NotImplementedError

    def channel_lost(self, node: int, channel: str) -> None:
        """A connection to another node has ended that owed no response."""
        raise NotImplementedError

    def address_of(self, node: int) -> tuple[str, int] | None:
        """Host and port of another node; None when they are not known."""
        raise NotImplementedError

    # --- timers and failures

    def tick(self) -> None:
        """Run the timers that are due."""
        self.timers.fire(self.clock.now_ms)
        self.sessions.run_waiting()

    def next_deadline_ms(self) -> int | None:
        """When `tick` is next needed, on the scale of clock.now_ms."""
        return self.timers.next_deadline_ms()

    def step_failed(self, connection: int | None, error: BaseException) -> None:
        """Keep what a step has raised, and end the connection whose request it was."""
        if len(self.failed) < _FAILURES_KEPT:
            self.failed.append(error)
        if connection is not None:
            self.close_connection(connection, f"internal error: {type(error).__name__}")
