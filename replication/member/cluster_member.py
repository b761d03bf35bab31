"""Wiring of a broker in a cluster of several: peers, the link to the controller, fetchers.

Answers to the wiring of kafka.server.BrokerServer. `Broker` has a ClusterMember when its controller
is another node; a standalone broker has none.

Invariant: brokers' addresses come from the last UpdateMetadata, controllers' from the
configuration.
"""

from __future__ import annotations

from kwire.replication.core.broker_epochs import is_epoch_of
from kwire.replication.core.metadata import (
    GROUP_METADATA_TOPIC,
    TOPIC_RESOURCE,
    TRANSACTION_STATE_TOPIC,
)
from kwire.replication.core.peers import Peers
from kwire.replication.fetcher.manager import ReplicaFetcherManager
from kwire.replication.member.controller_link import (
    CHANNEL,
    FORWARD_CHANNEL,
    ControllerLink,
)
from kwire.replication.member.leader_doubts import LeaderDoubts
from kwire.replication.member.producer_ids import AllocatedProducerIds
from kwire.replication.member.topic_creation import TopicCreation
from kwire.replication.replica.alter_partition import AlterPartitionManager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.metadata import Endpoint, MetadataCache
    from kwire.replication.core.outbox import Buffer, Outbox
    from kwire.replication.log.log import Log
    from kwire.replication.log_dirs.directory import LogDirectory
    from kwire.replication.replica.manager import ReplicaManager


class ClusterSettings:
    """How a broker joins its cluster. `broker_epoch`: from a foreign controller."""

    __slots__ = (
        "broker_epoch",
        "controller_id",
        "controllers",
        "inter_broker_listener",
        "on_ready",
        "on_refused",
    )

    def __init__(
        self,
        controller_id: int,
        controller_address: tuple[str, int],
        inter_broker_listener: str,
        *,
        more_controllers: Iterable[tuple[int, str, int]] = (),
        broker_epoch: int | None = None,
        on_ready: Callable[[], None] = lambda: None,
        on_refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`more_controllers`: id, host and port of further controllers; any may be active.

        `on_ready`: the broker is registered and has the cluster's metadata.
        `on_refused(reason)`: the controller has refused the broker for good."""
        self.controller_id = controller_id
        self.controllers = {controller_id: controller_address}
        self.controllers.update({node: (host, port) for node, host, port in more_controllers})
        self.inter_broker_listener = inter_broker_listener
        self.broker_epoch = broker_epoch
        self.on_ready = on_ready
        self.on_refused = on_refused


class ClusterMember:
    """The parts that only a broker with a remote controller has."""

    def __init__(
        self,
        settings: ClusterSettings,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        outbox: Outbox,
        random: Random,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        *,
        log_truncated: Callable[[Log, int], None] | None = None,
    ) -> None:
        """`log_truncated(log, offset)`: called after every truncation of a log."""
        self._settings = settings
        self._config = config
        self._clock = clock
        self._timers = timers
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._controller_id = settings.controller_id  # target of requests
        self._last_controller = -1  # sender of the last UpdateMetadata
        self._held_orders: list[Callable[[], None]] = []
        self._metadata_waiters: list[
            tuple[int, Callable[[], None]]
        ] = []  # (deadline in ms, call), in the order of deadlines
        self._awaits_own_metadata = False  # registered, but not yet alive in the metadata cache
        self.peers = Peers(outbox, f"broker-{config.node_id}")
        self.leader_doubts = LeaderDoubts(clock, timers, config, metadata)
        self.link = ControllerLink(
            config.node_id,
            self.controller_node,
            self.peers,
            clock,
            timers,
            config,
            random,
            on_registered=self._on_registered,
            on_refused=settings.on_refused,
            on_unavailable=self._on_controller_unavailable,
            several_controllers=len(settings.controllers) > 1,
            foreign_epoch=settings.broker_epoch,
        )
        self.topic_creation = TopicCreation(self.link, config)
        self.producer_ids = AllocatedProducerIds(self.link)
        replica_manager.fetchers = ReplicaFetcherManager(
            replica_manager,
            self.peers,
            clock,
            timers,
            config,
            log_truncated=log_truncated,
        )
        proposals = AlterPartitionManager(
            replica_manager,
            self.peers,
            self.controller_node,
            clock,
            timers,
            on_unavailable=self._on_controller_unavailable,
        )
        replica_manager.isr_proposer = proposals.submit
        replica_manager.log_manager.failure_listeners.append(self._on_directory_failure)
        replica_manager.on_partition_lost = self.link.report_disk_failure

    def start(self, endpoints: list[Endpoint], cluster_id: str) -> None:
        """Register with the controller, the inter-broker listener first.

        A foreign controller has done so already."""
        if self.link.is_foreign:
            self._configure_internal_topics()
            self._replica_manager.broker_epoch = self.link.broker_epoch
            self._settings.on_ready()
        own = self._settings.inter_broker_listener
        log_manager = self._replica_manager.log_manager
        self.link.log_dirs = [
            d.directory_id for d in log_manager.online() if d.directory_id is not None
        ]
        previous = log_manager.previous_broker_epoch
        self.link.start(sorted(endpoints, key=lambda e: e.listener != own), cluster_id, previous)

    def _configure_internal_topics(self) -> None:
        """Configure the coordinators' topics as Kafka does: its controller does not tell, and with the
        defaults retention would delete what they keep."""
        from kwire.replication.config.auto_topics import auto_topic_settings

        for name in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
            *_, overrides = auto_topic_settings(self._config, name)
            self._metadata.set_config(TOPIC_RESOURCE, name, overrides)

    def _on_directory_failure(self, directory: LogDirectory) -> None:
        if directory.directory_id is not None:
            self.link.report_disk_failure(directory.directory_id)

    @property
    def is_registered(self) -> bool:
        """Whether this incarnation has a broker epoch, which fences orders for earlier ones."""
        return self._replica_manager.broker_epoch >= 0

    def is_from_peer(self, listener_name: str) -> bool:
        """Whether a connection to this listener may be another node's."""
        return listener_name == self._settings.inter_broker_listener

    def is_own_epoch(self, broker_epoch: int) -> bool:
        """Whether a request with this epoch comes from a controller that has registered this broker:
        nobody else knows the epoch. It may be older or newer than the one in force."""
        if self.link.is_foreign:
            return broker_epoch == self.link.broker_epoch
        return is_epoch_of(self.link.incarnation_id, broker_epoch)

    def hold(self, order: Callable[[], None]) -> None:
        """Queue a controller's order until the broker is registered; orders keep their sequence."""
        self._held_orders.append(order)

    def _on_registered(self, broker_epoch: int) -> None:
        self._replica_manager.broker_epoch = broker_epoch
        held, self._held_orders = self._held_orders, []
        for order in held:
            order()
        self.producer_ids.request_block()
        self._awaits_own_metadata = True
        self._check_ready()

    def _check_ready(self) -> None:
        """Call `on_ready` once; UpdateMetadata may come before the response to the registration."""
        if self._awaits_own_metadata and self._metadata.is_alive(self._replica_manager.node_id):
            self._awaits_own_metadata = False
            self._settings.on_ready()

    # --- waiting for the first metadata

    @property
    def has_metadata(self) -> bool:
        """Whether a first UpdateMetadata has filled the cache. Before it
        UNKNOWN_TOPIC_OR_PARTITION would be wrong: clients drop their records for an unknown topic.
        Kafka (KRaft) serves no clients yet."""
        return bool(self._metadata.brokers)

    def when_metadata_known(self, call: Callable[[], None]) -> None:
        """Call back when the cache is filled, or after request.timeout.ms."""
        self._metadata_waiters.append((self._clock.now_ms + self._config.request_timeout_ms, call))
        if len(self._metadata_waiters) == 1:
            self._timers.schedule_real(
                "first-metadata", self._metadata_waiters[0][0], self._run_metadata_waiters
            )

    def _run_metadata_waiters(self) -> None:
        """Run all waiting calls if the cache is filled, else those past their deadline."""
        now_ms, known = self._clock.now_ms, self.has_metadata
        waiting = self._metadata_waiters
        self._metadata_waiters = [each for each in waiting if not known and each[0] > now_ms]
        if self._metadata_waiters:
            self._timers.schedule_real(
                "first-metadata", self._metadata_waiters[0][0], self._run_metadata_waiters
            )
        else:
            self._timers.cancel("first-metadata")
        for deadline_ms, call in waiting:
            if known or deadline_ms <= now_ms:
                call()

    # --- steps

    def respond(self, correlation: int, frame: Buffer | None) -> str | None:
        if frame is None and (node := self.peers.node_asked(correlation)) is not None:
            self.leader_doubts.connection_lost(node)
        return self.peers.respond(correlation, frame)

    def channel_lost(self, node: int, channel: str) -> None:
        self.leader_doubts.connection_lost(node)
        if node == self.controller_node():
            self.link.channel_lost(channel)

    def controller_node(self) -> int:
        """Return the id of the node to send controller requests to.

        A foreign controller is one of the brokers and may move; kwire's is not a broker. Of
        several: the last UpdateMetadata's sender, or, while it does not respond, each in turn."""
        current = self._metadata.controller_id
        return current if current in self._metadata.brokers else self._controller_id

    def metadata_updated(self) -> None:
        """Handle an accepted UpdateMetadata. If its sender is new, give up the others."""
        if self._metadata_waiters and self.has_metadata:
            self._run_metadata_waiters()
        self._check_ready()
        self.leader_doubts.metadata_updated()
        current = self._metadata.controller_id
        if current == self._last_controller:
            return
        self._last_controller = current
        if current not in self._settings.controllers:
            return
        self._controller_id = current
        others = [node for node in self._settings.controllers if node != current]
        for node in others:
            for channel in (CHANNEL, FORWARD_CHANNEL):
                self.peers.give_up(node, channel)
        if others:
            self.link.controller_changed()

    def show_life(self) -> None:
        """Send a heartbeat now, unless one is under way: a test is about to advance the clock."""
        self.link.controller_changed()

    def _on_controller_unavailable(self, node: int) -> None:
        """Turn to the next controller: `node` did not respond, or is not the active one."""
        ids = list(self._settings.controllers)
        if node == self._controller_id and len(ids) > 1:
            self._controller_id = ids[(ids.index(node) + 1) % len(ids)]

    def address_of(self, node: int) -> tuple[str, int] | None:
        endpoint = self._metadata.endpoint(node, self._settings.inter_broker_listener)
        if endpoint is not None:
            return endpoint.host, endpoint.port
        return self._settings.controllers.get(node)

    def prepare_stop(self, on_ready: Callable[[], None]) -> None:
        """Start a controlled shutdown; `on_ready` follows when the broker may stop."""
        self.link.shut_down(on_ready)

    def close(self) -> None:
        self.link.close()
