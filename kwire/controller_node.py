"""ControllerNode: the controller of a cluster of several brokers, as a node of its own.

Answers to kafka.server.ControllerServer. It has the same steps as a Broker, so the same driver turns it; what it
orders goes to brokers over "control" channels (`replication/controller/channels.py`), what they and their clients ask
is in `apis/controller_plane.py`. Its journal lies in a log directory of its own.

Several such nodes may share that directory (`shared`): one is active, the others stand by. They answer NOT_CONTROLLER
and watch the active one's lease; when it has not been renewed for controller.quorum.fetch.timeout.ms, the first to
notice takes over with what the journal says (`replication/controller/claim.py` has the rules). One that was deposed
meanwhile (it stood still, say) finds out at its next write or its next look, and stands by.

Invariants: its node id is no broker's, so nobody takes it for one in an answer to Metadata; a `Controller` is active
once, for each reign there is a new one.
"""

from __future__ import annotations

from kwire.apis.controller_plane import BY_KEY, ControllerServices
from kwire.core import Core
from kwire.protocol.errors import KafkaError
from kwire.replication.controller.controller import DEPOSED, ISOLATED, STOPPED, STORAGE_ERROR
from kwire.replication.core.events import Event
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

_LOOKS_IN_PATIENCE = 5
_SHORTEST_LOOK_MS = 10


class ControllerNode(Core):
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
        shared: bool = False,
        alone: bool = True,
        on_new_controller: Callable[[Controller], None] | None = None,
    ) -> None:
        """`config.node_id` is the controller's own id. `cluster_id` None: the directory's, or a new one.

        `shared`: other controllers use the store, too; `alone`: none of them runs at this moment. `on_new_controller`
        hears of each Controller before its first step. Nothing is read or written before `start`."""
        super().__init__(clock, outbox)
        self.config = config
        self._store = store
        self._random = random
        self._cluster_id = cluster_id
        self.peers = Peers(outbox, f"controller-{config.node_id}")
        self._on_new_controller = on_new_controller
        self._shared, self._alone = shared, alone
        self._patience_ms = config.controller_quorum_fetch_timeout_ms
        self._look_every_ms = max(self._patience_ms // _LOOKS_IN_PATIENCE, _SHORTEST_LOOK_MS)
        self._beat = 0
        self._seen: tuple[int, int, int] | None = None  # the lease's last sign of life
        self._seen_at_ms = 0  # when it was new
        self._looked_at_ms = 0
        self._journal: ClaimedJournal
        self.controller: Controller
        self.services = ControllerServices(config.node_id)
        self._make_controller()
        self.use_sessions(Sessions(self.services, outbox, self.services.api_ranges, BY_KEY))

    def _make_controller(self) -> None:
        """A Controller that has not begun yet, in place of one that has ended."""
        from kwire.replication.controller.channels import ControllerChannels
        from kwire.replication.controller.claim import ClaimedJournal
        from kwire.replication.controller.controller import Controller

        self._journal = ClaimedJournal(self._store)
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
            log_event=self.outbox.log,
            cluster_id=self.services.cluster_id,
        )
        self.channels = channels
        if self._shared:
            controller.active = False  # until it takes over
            controller.registry.stand_aside = self._stand_aside
        if self._on_new_controller is not None:
            self._on_new_controller(controller)

    def start(self, endpoints: list[Endpoint]) -> None:
        """Replays the journal and begins a new controller epoch, or stands by; brokers then come by themselves.

        OSError with a plain message when the directory is another node's or cannot be read; JournalError."""
        from kwire.replication.controller.state import DeposedError

        self.services.endpoint = endpoints[0] if endpoints else None
        cluster_id = self._check_identity()
        self.services.cluster_id = self.controller.context.cluster_id = cluster_id
        if not self._shared:
            self._take_over()
            return
        self._looked_at_ms = self.clock.now_ms
        try:
            if self._alone or self._is_vacant():
                self._take_over()
        except DeposedError:  # by one that was started at the same time
            self._step_down()
        if not self.controller.active:
            self._log_standby()
        self._look_later()

    # --- several controllers

    def _take_over(self) -> None:
        """This one is the controller from now on. DeposedError when another was faster; OSError, JournalError."""
        controller, journal = self.controller, self._journal
        journal.claim()
        if self._shared:
            self._renew()
        controller.active = True
        controller.start()
        journal.delete_older()
        self.services.active_id = self.config.node_id
        if journal.cut_bytes:
            self.outbox.log(Event.JOURNAL_TRUNCATED, size_bytes=journal.cut_bytes)

    def _renew(self, *, released: bool = False) -> None:
        from kwire.replication.controller.claim import Lease

        self._beat += 1
        lease = Lease(self._journal.generation, self.config.node_id, self._beat, released)
        lease.write(self._store)

    def _look_later(self) -> None:
        due_ms = self.clock.now_ms + self._look_every_ms
        self.timers.schedule("controller-lease", due_ms, self._look)

    def _look(self) -> None:
        """Every now and then: the active one renews its lease, those that stand by see whether it does."""
        if self.controller.active:
            self._look_after_claim()
        if not self.controller.active:
            if self._journal.generation:
                self._step_down()
                self._log_standby()
            self._look_after_vacancy()
        self._look_later()

    def _look_after_claim(self) -> None:

        try:
            self._journal.check()
            self._renew()
        except KafkaError as error:
            self.controller.resign_after(error)
        except OSError as error:
            self.controller.resign(STORAGE_ERROR, f"its lease cannot be renewed: {error}")

    def _look_after_vacancy(self) -> None:
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
        """Nobody is active, or who was has not been heard of for too long; time in which nobody looked is not counted:
        then this process may have stood still, and the others with it."""
        from kwire.replication.controller.claim import read_lease

        now_ms = self.clock.now_ms
        stood_still = now_ms - self._looked_at_ms > 3 * self._look_every_ms
        self._looked_at_ms = now_ms
        lease = read_lease(self._store)
        if lease is None or (lease.released and lease.node_id != self.config.node_id):
            return True
        if lease.sign != self._seen or stood_still:
            self._seen, self._seen_at_ms = lease.sign, now_ms
            self.services.active_id = lease.node_id
        return now_ms - self._seen_at_ms >= self._patience_ms

    def _step_down(self) -> None:
        """Stands by from now on."""
        self.controller.resign(DEPOSED, "another has taken over")
        self._make_controller()
        self._seen = None

    def _log_standby(self) -> None:
        self.outbox.log(Event.CONTROLLER_STANDBY, controller_id=self.config.node_id)

    # --- the directory

    def _check_identity(self) -> str:
        """The cluster's id: given, stored, or new; written into meta.properties."""
        from kwire.replication.log.checkpoints import (
            encode_uuid,
            read_meta_properties,
            write_meta_properties,
        )

        found = read_meta_properties(self._store)
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
                self._store, {"version": "1", "node.id": node_id, "cluster.id": cluster_id}
            )
        return cluster_id

    # --- steps

    def connection_closed(self, connection: int) -> None:
        """The connection has ended; the broker that sent its heartbeats by it may have, too."""
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
        """A connection to a broker has ended that owed no answer: the next order opens another."""
        self.controller.unreachable(node)

    def address_of(self, node: int) -> tuple[str, int] | None:
        """Where a registered broker is reached: it names the listener for its own kind first."""
        broker = self.controller.brokers.get(node)
        if broker is None or not broker.endpoints:
            return None
        first = broker.endpoints[0]
        return first.host, first.port

    def prepare_stop(self, on_ready: Callable[[], None]) -> None:
        """Lets another controller take over at once, if there may be one."""
        if self._shared and self.controller.active:
            self.timers.cancel("controller-lease")
            self._release(STOPPED, "it stops")
        on_ready()

    def _release(self, reason: str, detail: str) -> None:
        """Ends its reign; another may begin at once."""
        self.controller.resign(reason, detail)
        try:
            self._journal.check()
            self._renew(released=True)
        except (KafkaError, OSError):
            pass  # another has taken over already, or will when the lease has run out

    def _stand_aside(self) -> None:
        """It may be cut off from the brokers, but not from the store: if nobody else wants to, it begins anew."""
        self._release(ISOLATED, "it hears of no broker any more")

    def close(self) -> None:
        """A clean stop."""
        self._journal.close()
