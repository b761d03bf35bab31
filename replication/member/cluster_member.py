"""What a broker has beside its replicas when it is one of several: peers, the link to the controller, fetchers.

Answers to the wiring of kafka.server.BrokerServer. `Broker` has one of these when its controller is another node, and
none when it is alone.

Invariant: a node is reached where the last UpdateMetadata says; only controllers are known from configuration.
"""

from __future__ import annotations

from kwire.replication.core.peers import Peers
from kwire.replication.fetcher.manager import ReplicaFetcherManager
from kwire.replication.member.controller_link import (
    CHANNEL,
    FORWARD_CHANNEL,
    AllocatedProducerIds,
    ControllerLink,
)
from kwire.replication.member.leader_doubts import LeaderDoubts
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
    """How a broker gets to its cluster. `broker_epoch`: somebody else (a foreign controller) has registered it."""

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
        """`more_controllers`: id, host and port of others of which one may be the active one.

        `on_ready`: the controller has told the broker of the cluster. `on_refused`: it never will, and why."""
        self.controller_id = controller_id
        self.controllers = {controller_id: controller_address}
        self.controllers.update({node: (host, port) for node, host, port in more_controllers})
        self.inter_broker_listener = inter_broker_listener
        self.broker_epoch = broker_epoch
        self.on_ready = on_ready
        self.on_refused = on_refused


class ClusterMember:
    """The parts of one broker among several that a broker alone does not have."""

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
        """`log_truncated`: hears of logs that had to be cut."""
        self._settings = settings
        self._config = config
        self._clock = clock
        self._timers = timers
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._controller_id = settings.controller_id  # whom to ask
        self._controller_told = -1  # who was so by the last UpdateMetadata
        self._held: list[Callable[[], None]] = []
        self._untold: list[
            tuple[int, Callable[[], None]]
        ] = []  # deadline in ms, call; the first is due first
        self._awaits_itself = False  # registered, and not yet told that it is alive
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
            on_registered=self._registered,
            on_refused=settings.on_refused,
            on_unavailable=self._controller_unavailable,
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
            on_unavailable=self._controller_unavailable,
        )
        replica_manager.isr_proposer = proposals.submit
        replica_manager.log_manager.failure_listeners.append(self._directory_failed)
        replica_manager.on_partition_lost = self.link.disk_failed

    def start(self, endpoints: list[Endpoint], cluster_id: str) -> None:
        """Registers with the controller, the listener for it and for brokers first; a foreign one knows the broker."""
        if self.link.is_foreign:
            self._replica_manager.broker_epoch = self.link.broker_epoch
            self._settings.on_ready()
        own = self._settings.inter_broker_listener
        log_manager = self._replica_manager.log_manager
        self.link.log_dirs = [
            d.directory_id for d in log_manager.online() if d.directory_id is not None
        ]
        previous = log_manager.previous_broker_epoch
        self.link.start(sorted(endpoints, key=lambda e: e.listener != own), cluster_id, previous)

    def _directory_failed(self, directory: LogDirectory) -> None:
        if directory.directory_id is not None:
            self.link.disk_failed(directory.directory_id)

    @property
    def is_registered(self) -> bool:
        """This incarnation has an epoch, by which orders for earlier ones are told."""
        return self._replica_manager.broker_epoch >= 0

    def hold(self, order: Callable[[], None]) -> None:
        """Carries out an order when the broker is registered, in turn."""
        self._held.append(order)

    def _registered(self, broker_epoch: int) -> None:
        self._replica_manager.broker_epoch = broker_epoch
        held, self._held = self._held, []
        for order in held:
            order()
        self.producer_ids.ask()
        self._awaits_itself = True
        self._check_ready()

    def _check_ready(self) -> None:
        """UpdateMetadata comes by another connection than the answer to the registration."""
        if self._awaits_itself and self._metadata.is_alive(self._replica_manager.node_id):
            self._awaits_itself = False
            self._settings.on_ready()

    # --- questions that only the cluster can answer

    @property
    def is_told(self) -> bool:
        """The controller has said who is there. Before that no topic is known, which is not to say that it is unknown:
        clients drop what they have for an unknown topic. Kafka (KRaft) does not serve clients yet in this state."""
        return bool(self._metadata.brokers)

    def when_told(self, call: Callable[[], None]) -> None:
        """Calls back when the controller has, or after request.timeout.ms."""
        self._untold.append((self._clock.now_ms + self._config.request_timeout_ms, call))
        if len(self._untold) == 1:
            self._timers.schedule("cluster-told", self._untold[0][0], self._call_those_told)

    def _call_those_told(self) -> None:
        """All, when the controller has told; else those whose time is over."""
        now_ms, told = self._clock.now_ms, self.is_told
        waiting = self._untold
        self._untold = [each for each in waiting if not told and each[0] > now_ms]
        if self._untold:
            self._timers.schedule("cluster-told", self._untold[0][0], self._call_those_told)
        else:
            self._timers.cancel("cluster-told")
        for deadline_ms, call in waiting:
            if told or deadline_ms <= now_ms:
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
        """The controller's id: a foreign one may move from broker to broker, kwire's is none of them.

        Of several it is the one that last told this broker something, or, while that one does not answer, each of
        them in turn."""
        current = self._metadata.controller_id
        return current if current in self._metadata.brokers else self._controller_id

    def controller_told(self) -> None:
        """An UpdateMetadata was accepted. From a new controller: nothing more is expected of the one before."""
        if self._untold and self.is_told:
            self._call_those_told()
        self._check_ready()
        self.leader_doubts.controller_told()
        current = self._metadata.controller_id
        if current == self._controller_told:
            return
        self._controller_told = current
        if current not in self._settings.controllers:
            return
        self._controller_id = current
        others = [node for node in self._settings.controllers if node != current]
        for node in others:
            for channel in (CHANNEL, FORWARD_CHANNEL):
                self.peers.give_up(node, channel)
        if others:
            self.link.controller_changed()

    def _controller_unavailable(self, node: int) -> None:
        """It did not answer, or it is not the active one: the next is asked."""
        ids = list(self._settings.controllers)
        if node == self._controller_id and len(ids) > 1:
            self._controller_id = ids[(ids.index(node) + 1) % len(ids)]

    def address_of(self, node: int) -> tuple[str, int] | None:
        endpoint = self._metadata.endpoint(node, self._settings.inter_broker_listener)
        if endpoint is not None:
            return endpoint.host, endpoint.port
        return self._settings.controllers.get(node)

    def prepare_stop(self, on_ready: Callable[[], None]) -> None:
        """Controlled shutdown."""
        self.link.shut_down(on_ready)

    def close(self) -> None:
        self.link.close()
