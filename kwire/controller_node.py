"""ControllerNode: the controller of a cluster of several brokers, as a node of its own.

Answers to kafka.server.ControllerServer. It has the same steps as a Broker, so the same driver turns it; what it
orders goes to brokers over "control" channels (`replication/controller_channels.py`), what they and their clients ask
is in `apis/controller_plane.py`. Its journal lies in a log directory of its own.

Invariant: its node id is no broker's, so nobody takes it for one in an answer to Metadata.
"""

from __future__ import annotations

from kwire.apis.controller_plane import BY_KEY, ControllerServices
from kwire.replication.clock import Timers
from kwire.replication.peers import Peers
from kwire.session import Session, Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kwire.replication.clock import Clock
    from kwire.replication.config import BrokerConfig
    from kwire.replication.log_store import LogStore
    from kwire.replication.metadata import Endpoint
    from kwire.replication.outbox import Buffer, Outbox

DEFAULT_NODE_ID = 1000
_FAILURES_KEPT = 100


class ControllerNode:
    """The controller. `start` before anything else, `close` last."""

    def __init__(
        self,
        config: BrokerConfig,
        store: LogStore,
        clock: Clock,
        outbox: Outbox,
        random: Random,
        *,
        cluster_id: str | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """`config.node_id` is the controller's own id. `cluster_id` None: the directory's, or a new one.

        Nothing is read or written before `start`."""
        from kwire.replication.controller import Controller
        from kwire.replication.controller_channels import ControllerChannels
        from kwire.replication.controller_journal import StoreJournal

        self.config = config
        self.clock = clock
        self.outbox = outbox
        self.timers = timers = Timers()
        self.failed: list[BaseException] = []
        self._store = store
        self._random = random
        self._report = report
        self._cluster_id = cluster_id
        self.peers = Peers(outbox, f"controller-{config.node_id}")
        self._journal = StoreJournal(store)
        self.channels = ControllerChannels(
            config.node_id, lambda: self.controller.epoch, self.peers, clock, timers
        )
        self.controller = Controller(
            config.node_id,
            config,
            self._journal,
            self.channels,
            random,
            clock=clock,
            timers=timers,
            report=report,
        )
        self.channels.on_response = self.controller.response
        self.services = ControllerServices(config.node_id, self.controller)
        self.sessions = Sessions(self.services, outbox, self.services.api_ranges, BY_KEY)
        self.receive_frame = self.sessions.receive_frame

    def start(self, endpoints: list[Endpoint]) -> None:
        """Replays the journal and begins a new controller epoch; brokers then come by themselves.

        OSError with a plain message when the directory is another node's or cannot be read; JournalError."""
        self.services.endpoint = endpoints[0] if endpoints else None
        cluster_id = self._check_identity()
        self.services.cluster_id = self.controller.cluster_id = cluster_id
        self.controller.start()
        if self._journal.cut_bytes and self._report is not None:
            self._report(f"cut {self._journal.cut_bytes} torn bytes off the controller's journal")

    def _check_identity(self) -> str:
        """The cluster's id: given, stored, or new; written into meta.properties."""
        from kwire.replication.checkpoints import (
            encode_uuid,
            read_meta_properties,
            write_meta_properties,
        )

        found = read_meta_properties(self._store)
        stored, node_id = found.get("cluster.id"), str(self.config.node_id)
        if stored and self._cluster_id and stored != self._cluster_id:
            raise OSError(f"it belongs to cluster {stored}, not to {self._cluster_id}")
        if found.get("node.id", node_id) != node_id:
            raise OSError(f"it belongs to node {found['node.id']}, not to {node_id}")
        cluster_id = self._cluster_id or stored
        while not cluster_id or cluster_id.startswith("-"):
            cluster_id = encode_uuid(self._random.randbytes(16)).decode()
        if not stored:
            write_meta_properties(
                self._store, {"version": "1", "node.id": node_id, "cluster.id": cluster_id}
            )
        return cluster_id

    # -- steps ---------------------------------------------------------------------------------------------------

    def connection_opened(self, connection: int, listener_name: str, peer_host: str) -> Session:
        """Somebody has connected."""
        return self.sessions.opened(connection, listener_name, peer_host)

    def connection_closed(self, connection: int) -> None:
        """The connection is gone; the broker that was heard by it may be, too."""
        self.sessions.closed(connection)
        broker = self.services.registered.pop(connection, None)
        if broker is not None:
            self.controller.connection_lost(*broker)
        self.sessions.run_waiting()

    def close_connection(self, connection: int, reason: str) -> None:
        """Ends a connection from this side; the outbox gets a Close."""
        session = self.sessions.by_connection.get(connection)
        if session is not None:
            self.sessions.close(session, reason)

    def respond(self, correlation: int, frame: Buffer | None) -> str | None:
        """What came of an order to a broker: its answer's frame, or None for a lost connection."""
        reason = self.peers.respond(correlation, frame)
        self.sessions.run_waiting()
        return reason

    def channel_lost(self, node: int, channel: str) -> None:
        """A connection to a broker has ended that owed no answer: the next order opens another."""

    def address_of(self, node: int) -> tuple[str, int] | None:
        """Where a registered broker is reached: it names the listener for its own kind first."""
        broker = self.controller.brokers.get(node)
        if broker is None or not broker.endpoints:
            return None
        first = broker.endpoints[0]
        return first.host, first.port

    def tick(self) -> None:
        """Runs the timers that are due."""
        self.timers.fire(self.clock.now_ms)
        self.sessions.run_waiting()

    def next_deadline_ms(self) -> int | None:
        """When `tick` is next needed, on the scale of clock.now_ms."""
        return self.timers.next_deadline_ms()

    def step_failed(self, connection: int | None, error: BaseException) -> None:
        """A step raised what it must not raise: it is kept for whoever asks, the connection ends."""
        if len(self.failed) < _FAILURES_KEPT:
            self.failed.append(error)
        if connection is not None:
            self.close_connection(connection, f"internal error: {type(error).__name__}")

    def prepare_stop(self, on_ready: Callable[[], None]) -> None:
        """Nothing to hand over."""
        on_ready()

    def close(self) -> None:
        """A clean stop."""
        self._journal.close()
