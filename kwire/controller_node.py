"""A dedicated controller node for a cluster of several brokers.

Answers to kafka.server.ControllerServer. It has the same steps as a Broker, so the same driver runs
it. It sends orders to brokers over "control" channels (`replication/controller/channels.py`) and
serves the APIs in `apis/controller_plane.py`. Its journal is in its own log directory.

Several such nodes may share that directory (`shared`): one is active, the others are standbys.
With a `HoldingOutbox` the journal is flushed in the background, and what a step has to say leaves
when its records are on the disk: other nodes on the loop do not wait for a slow one.

Standbys answer NOT_CONTROLLER and watch the active controller's lease. When the lease was not
renewed for controller.quorum.fetch.timeout.ms, the first standby to notice takes over and replays
the journal (`replication/controller/claim.py` has the rules). A controller that was deposed in the
meantime (its process was paused, say) learns it at its next write or lease check and becomes a
standby.

Invariants: its node id differs from every broker's, so Metadata never shows it as a broker; a
`Controller` object serves one epoch, a node that becomes active again makes a new one.
"""

from __future__ import annotations

from kwire.apis.controller_plane import BY_KEY, ControllerServices
from kwire.core import Core
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.controller.controller import DEPOSED, ISOLATED, STOPPED, STORAGE_ERROR
from kwire.replication.core.events import Event
from kwire.replication.core.log_store import error_text
from kwire.replication.core.outbox import HoldingOutbox
from kwire.replication.core.peers import Peers
from kwire.session import Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.controller.claim import ClaimedJournal
    from kwire.replication.controller.controller import Controller
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.log_store import LogStore
    from kwire.replication.core.metadata import Endpoint
    from kwire.replication.core.outbox import Buffer, Outbox

_CHECKS_PER_TIMEOUT = 5
_MIN_CHECK_INTERVAL_MS = 10


class ControllerNode(Core):
    """One controller node. Call `start` before anything else and `close` last."""

    def __init__(
        self,
        config: BrokerConfig,
        store: LogStore,
        clock: Clock,
        outbox: Outbox,
        random: Random,
        *,
        cluster_id: str | None = None,
        shared: bool = False,
        alone: bool = True,
        on_new_controller: Callable[[Controller], None] | None = None,
    ) -> None:
        """Create a controller node; nothing is read or written before `start`.

        `config.node_id`: the controller's own id.
        `cluster_id`: None takes the id in the directory, or a new one if that is empty.
        `shared`: other controllers use the store too; `alone`: none of them is running now.
        `on_new_controller`: called with each new Controller before its first step."""
        super().__init__(clock, outbox)
        self.config = config
        self.store = store
        self._random = random
        self._cluster_id = cluster_id
        self.peers = Peers(outbox, f"controller-{config.node_id}")
        self._on_new_controller = on_new_controller
        self._shared, self._alone = shared, alone
        self._lease_timeout_ms = config.controller_quorum_fetch_timeout_ms
        self._check_interval_ms = max(
            self._lease_timeout_ms // _CHECKS_PER_TIMEOUT, _MIN_CHECK_INTERVAL_MS
        )
        self._beat = 0
        self._seen: tuple[int, int, int] | None = None  # the lease's last heartbeat counter
        self._seen_at_ms = 0  # when that counter changed
        self._checked_at_ms = 0
        self._journal: ClaimedJournal
        self.controller: Controller
        self.services = ControllerServices(config.node_id, self.work, clock, self.timers)
        self._make_controller()
        self.use_sessions(Sessions(self.services, outbox, self.services.api_ranges, BY_KEY))

    def _make_controller(self) -> None:
        """Make a Controller that has not started yet, in place of one that has resigned."""
        self._held = self.outbox if isinstance(self.outbox, HoldingOutbox) else None
        from kwire.replication.controller.channels import ControllerChannels
        from kwire.replication.controller.claim import ClaimedJournal
        from kwire.replication.controller.controller import Controller

        self._journal = ClaimedJournal(self.store, self._held)
        if self._held is not None:
            self.store.on_failure = self._flush_failed
            self._journal.on_refused = self._refuse_held
        channels = ControllerChannels(
            self.config.node_id, lambda: controller.epoch, self.peers, self.clock, self.timers
        )
        self.controller = controller = self.services.controller = Controller(
            self.config.node_id,
            self.config,
            self._journal,
            channels,
            self._random,
            clock=self.clock,
            timers=self.timers,
            work=self.work,
            log_event=self.outbox.log,
            cluster_id=self.services.cluster_id,
        )
        self.channels = self.services.channels = channels
        self.services.obey_authorizer(self.outbox.log)
        if self._shared:
            controller.active = False  # until it takes over
            assert controller.registry.leases is not None
            controller.registry.leases.on_isolated = self._resign_isolated
        if self._on_new_controller is not None:
            self._on_new_controller(controller)

    def start(self, endpoints: list[Endpoint]) -> None:
        """Replay the journal and start a new controller epoch, or become a standby.

        Brokers then connect by themselves. Raises OSError with a plain message when the directory
        belongs to another node or cannot be read; JournalError."""
        from kwire.replication.controller.state import DeposedError

        self.services.endpoint = endpoints[0] if endpoints else None
        cluster_id = self._check_identity()
        self.services.cluster_id = self.controller.context.cluster_id = cluster_id
        if not self._shared:
            self._take_over()
            return
        self._checked_at_ms = self.clock.real_ms
        try:
            if self._alone or self._is_vacant():
                self._take_over()
        except DeposedError:  # another controller started at the same time and was faster
            self._step_down()
        if not self.controller.active:
            self._log_standby()
        self._schedule_lease_check()

    # --- several controllers

    def _take_over(self) -> None:
        """Become active. DeposedError if another was faster; OSError, JournalError."""
        controller, journal = self.controller, self._journal
        journal.claim()
        if self._shared:
            self._renew()
        controller.active = True
        controller.start()
        journal.delete_older()
        self.services.active_id = self.config.node_id
        if journal.truncated_bytes:
            self.outbox.log(Event.JOURNAL_TRUNCATED, **journal.truncation)

    def _renew(self, *, released: bool = False) -> None:
        from kwire.replication.controller.claim import Lease

        self._beat += 1
        lease = Lease(self._journal.generation, self.config.node_id, self._beat, released)
        lease.write(self.store)

    def _schedule_lease_check(self) -> None:
        due_ms = self.clock.now_ms + self._check_interval_ms
        self.timers.schedule_real("controller-lease", due_ms, self._check_lease)

    def _check_lease(self) -> None:
        """Renew the lease of an active controller; as a standby take over if it has expired."""
        if self.controller.active:
            self._renew_or_resign()
        if not self.controller.active:
            if self._journal.generation:
                self._step_down()
                self._log_standby()
            self._take_over_if_vacant()
        self._schedule_lease_check()

    def _renew_or_resign(self) -> None:
        try:
            self._journal.check()
            self._renew()
        except KafkaError as error:
            self.controller.resign_after(error)
        except OSError as error:
            self.controller.resign(STORAGE_ERROR, f"its lease cannot be renewed: {error}")

    def _take_over_if_vacant(self) -> None:
        from kwire.replication.controller.state import DeposedError, JournalError

        try:
            if self._is_vacant():
                self._take_over()
        except DeposedError:
            self._step_down()
        except (KafkaError, JournalError, OSError) as error:
            node_id = self.config.node_id
            self.outbox.log(
                Event.CONTROLLER_TAKE_OVER_FAILED, controller_id=node_id, detail=str(error)
            )
            self._step_down()

    def _is_vacant(self) -> bool:
        """Whether no controller is active: none has a lease, or it was not renewed for the timeout.

        Time in which this node did not check is not counted: the whole machine may have been
        paused, the active controller with it."""
        from kwire.replication.controller.claim import read_lease

        now_ms = self.clock.real_ms
        was_paused = now_ms - self._checked_at_ms > 3 * self._check_interval_ms
        self._checked_at_ms = now_ms
        lease = read_lease(self.store)
        if lease is None or (lease.released and lease.node_id != self.config.node_id):
            return True
        if lease.liveness != self._seen or was_paused:
            self._seen, self._seen_at_ms = lease.liveness, now_ms
            self.services.active_id = lease.node_id
        return now_ms - self._seen_at_ms >= self._lease_timeout_ms

    def _step_down(self) -> None:
        """Become a standby."""
        self.controller.resign(DEPOSED, "another has taken over")
        self._make_controller()
        self.sessions.forget_routes()  # which have the authorizer
        self._seen = None

    def _log_standby(self) -> None:
        self.outbox.log(Event.CONTROLLER_STANDBY, controller_id=self.config.node_id)

    # --- a flush in the background

    def _flush_failed(self, error: OSError) -> None:
        message = f"the controller's journal cannot be flushed: {error_text(error)}"
        self._refuse_held(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message))

    def _refuse_held(self, error: KafkaError) -> None:
        """Resign, and leave those without an answer whose answers say what is not on the disk."""
        self.controller.resign_after(error)
        assert self._held is not None
        for connection in self._held.drop_replies():
            self.close_connection(connection, str(error.message))

    # --- the directory

    def _check_identity(self) -> str:
        """The cluster id: given, stored, or new. A new one is written into meta.properties."""
        from kwire.replication.log.checkpoints import (
            encode_uuid,
            read_meta_properties,
            write_meta_properties,
        )

        found = read_meta_properties(self.store)
        stored, node_id = found.get("cluster.id"), str(self.config.node_id)
        if stored and self._cluster_id and stored != self._cluster_id:
            raise OSError(f"it belongs to cluster {stored}, not to {self._cluster_id}")
        if found.get("node.id", node_id) != node_id and not self._shared:
            raise OSError(f"it belongs to node {found['node.id']}, not to {node_id}")
        cluster_id = self._cluster_id or stored
        if not cluster_id and self._shared and not self._alone:
            raise OSError("another controller is just about to give the cluster its id; try again")
        while not cluster_id or cluster_id.startswith("-"):
            cluster_id = encode_uuid(self._random.randbytes(16)).decode()
        if not stored:
            write_meta_properties(
                self.store, {"version": "1", "node.id": node_id, "cluster.id": cluster_id}
            )
        return cluster_id

    # --- steps

    def connection_closed(self, connection: int) -> None:
        """End a session; a broker that sent its heartbeats over it may be dead, too."""
        broker = self.services.registered.pop(connection, None)
        if broker is not None:
            self.controller.connection_lost(*broker)
        super().connection_closed(connection)

    def respond(self, correlation: int, frame: Buffer | None) -> str | None:
        """Take a broker's response to an order."""
        if frame is None and (node := self.peers.node_asked(correlation)) is not None:
            self.controller.unreachable(node)
        reason = self.peers.respond(correlation, frame)
        self.sessions.run_waiting()
        return reason

    def channel_lost(self, node: int, channel: str) -> None:
        """Note that an idle connection to a broker has ended; the next order opens another."""
        self.controller.unreachable(node)

    def address_of(self, node: int) -> tuple[str, int] | None:
        """Host and port of a registered broker: it lists the inter-broker listener first."""
        broker = self.controller.brokers.get(node)
        if broker is None or not broker.endpoints:
            return None
        first = broker.endpoints[0]
        return first.host, first.port

    def next_deadline_ms(self) -> int | None:
        """Now, too, while effects that were held leave in parts."""
        if self._held is not None and self._held.has_more:
            return self.clock.now_ms
        return super().next_deadline_ms()

    def prepare_stop(self, on_ready: Callable[[], None]) -> None:
        """Release the lease, so that a standby can take over immediately."""
        if self._shared and self.controller.active:
            self.timers.cancel("controller-lease")
            self._release(STOPPED, "it stops")
        on_ready()

    def _release(self, reason: str, detail: str) -> None:
        """Resign and release the lease: a standby may take over immediately."""
        self.controller.resign(reason, detail)
        try:
            self._journal.check()
            self._renew(released=True)
        except (KafkaError, OSError):
            pass  # another has taken over already, or will when the lease expires

    def _resign_isolated(self) -> None:
        """Resign because no broker is heard from: this node may be cut off from them, not the
        store.

        If no standby takes over, this node becomes active again."""
        self._release(ISOLATED, "it receives no heartbeats any more")

    def close(self) -> None:
        """Stop cleanly: close the journal."""
        self._journal.close()
