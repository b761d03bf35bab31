"""The base class of nodes without I/O: the steps that a driver calls.

Answers to what kafka.server.BrokerServer and ControllerServer have in common. A driver
(kwire/server/node.py with sockets, kwire/sim/node.py with a simulated network) owns the core's
clock and outbox. For each event it sets the clock, calls one step and drains the outbox; steps do
not nest. Events are: a frame arrives, a connection opens or ends, another node responds, a timer is
due. Long work is done in parts, one for each `tick` (replication/core/work.py). An exception raised
by a step is a bug: the driver passes it to `step_failed`.

`Broker` and `ControllerNode` are cores, and so are the clients of the simulation. They implement
start and stop and the requests that a node sends to other nodes.
"""

from __future__ import annotations

from kwire.replication.core.clock import Timers
from kwire.replication.core.work import WorkQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kwire.replication.core.clock import Clock
    from kwire.replication.core.metadata import Endpoint
    from kwire.replication.core.outbox import Buffer, Outbox
    from kwire.session import Session, Sessions

_FAILURES_KEPT = 100


class Core:
    """A node as its driver sees it: `start`, then steps, then `close`."""

    sessions: Sessions
    receive_frame: Callable[[int, memoryview | bytes], None]
    """The step for a request, `receive_frame(connection, frame without its length)`: the sessions'
    own method, which saves a call."""

    def __init__(self, clock: Clock, outbox: Outbox) -> None:
        self.clock = clock
        self.outbox = outbox
        self.timers = Timers()
        self.work = WorkQueue(clock)
        self.failed: list[BaseException] = []  # the first exceptions raised by steps

    def use_sessions(self, sessions: Sessions) -> None:
        """Let these sessions receive requests. Call before the first step."""
        self.sessions = sessions
        self.receive_frame = sessions.receive_frame

    def quotas_changed(self, entity: str, values: Mapping[str, str]) -> None:
        """Let the quotas of clients act. Imported with the first one: most brokers have none."""
        sessions = self.sessions
        if sessions.quotas is None:
            from kwire.quotas.requests import Throttling

            sessions.quotas = sessions.services.quotas = Throttling(sessions.services)  # type: ignore[union-attr, arg-type]  # a broker's
        sessions.quotas.changed(entity, values)

    # --- life cycle

    def start(self, endpoints: list[Endpoint]) -> None:
        """Load the stored state and start serving at `endpoints`. Call before the first step."""
        raise NotImplementedError

    def prepare_stop(self, on_ready: Callable[[], None]) -> None:
        """Hand leadership or the lease to other nodes; call back once when `close` may follow."""
        on_ready()

    def close(self) -> None:
        """Stop cleanly, with all state stored. No step follows."""
        raise NotImplementedError

    # --- connections to this node

    def connection_opened(self, connection: int, listener_name: str, peer_host: str) -> Session:
        """Open a session. While its `in_flight` is set, another frame would have to wait."""
        return self.sessions.open(connection, listener_name, peer_host)

    def connection_closed(self, connection: int) -> None:
        """End the session of a closed connection; no-op if this side closed it before."""
        self.sessions.connection_closed(connection)
        self.sessions.run_waiting()

    def close_connection(self, connection: int, reason: str) -> None:
        """End a connection from this side; the outbox gets a Close."""
        session = self.sessions.find(connection)
        if session is not None:
            session.sessions.close(session, reason)

    # --- requests to other nodes

    def respond(self, correlation: int, frame: Buffer | None) -> str | None:
        """Handle the response to a request of the outbox: its frame, or None if the connection was
        lost.

        Returns the reason if the frame is invalid: the driver then drops the connection."""
        raise NotImplementedError

    def channel_lost(self, node: int, channel: str) -> None:
        """Note that a connection to another node has ended with no response outstanding."""
        raise NotImplementedError

    def address_of(self, node: int) -> tuple[str, int] | None:
        """Host and port of another node; None if unknown."""
        raise NotImplementedError

    # --- timers and failures

    def tick(self) -> None:
        """Run the timers that are due, then a part of the long work, if there is any."""
        self.timers.fire(self.clock.now_ms)
        if self.work.jobs:
            self.work.turn()
        self.sessions.run_waiting()

    def next_deadline_ms(self) -> int | None:
        """When `tick` is due next, on the scale of clock.now_ms; None: no timer is set.

        Due now while there is long work: the driver looks at its sockets first."""
        if self.work.jobs:
            return self.clock.now_ms
        return self.timers.next_deadline_ms()

    def step_failed(self, connection: int | None, error: BaseException) -> None:
        """Keep the exception of a failed step and close the connection whose request caused it."""
        if len(self.failed) < _FAILURES_KEPT:
            self.failed.append(error)
        if connection is not None:
            self.close_connection(connection, f"internal error: {type(error).__name__}")
