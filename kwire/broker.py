"""A broker: wires its components together and implements the steps of a core (kwire/core.py).

Answers to kafka.server.BrokerServer. A standalone broker hosts its own controller, whose orders (LeaderAndIsr,
UpdateMetadata, StopReplica, configurations) are applied in the same step by `LocalListener`. A broker of a cluster has
a `ClusterMember` instead: the same orders arrive as requests from another node (`controller_node.py`, or a real Kafka).
"""

from __future__ import annotations

from kwire.apis import accepted_ranges, served_ranges
from kwire.apis.context import Services
from kwire.core import Core
from kwire.replication.core.events import Event
from kwire.session import Sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.controller.controller import Controller
    from kwire.replication.controller.journal import StoreJournal
    from kwire.replication.controller.producer_ids import ProducerIds
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.events import EventType
    from kwire.replication.core.log_store import LogStore
    from kwire.replication.core.metadata import Endpoint, MetadataCache
    from kwire.replication.core.outbox import Buffer, Outbox
    from kwire.replication.core.work import Steps
    from kwire.replication.log.log import Log
    from kwire.replication.log_dirs.cleaner import LogCleaner
    from kwire.replication.log_dirs.directory import LogDirectory, LogDirStore
    from kwire.replication.log_dirs.manager import LogManager
    from kwire.replication.member.cluster_member import ClusterMember, ClusterSettings
    from kwire.replication.member.producer_ids import AllocatedProducerIds
    from kwire.replication.replica.manager import ReplicaManager

_START_UNITS = 200_000  # of long work: usual groups are loaded when the broker is ready


class Broker(Core):
    """One broker. Call `start` before anything else and `close` last."""

    member: ClusterMember | None = None
    _journal: StoreJournal | None = None

    def __init__(
        self,
        config: BrokerConfig,
        store: LogStore | list[LogDirStore],
        clock: Clock,
        outbox: Outbox,
        random: Random,
        *,
        log_dir: str = "",
        disk_space: Callable[[str], tuple[int, int]] | None = None,
        api_caps: dict[int, tuple[int, int]] | None = None,
        cluster_id: str | None = None,
        cluster: ClusterSettings | None = None,
        on_halt: Callable[[str], None] | None = None,
    ) -> None:
        """Create a broker; nothing is read or written before `start`.

        `store`: the store of the only log directory, or one for each.
        `api_caps`: API versions of the release to imitate (kwire.apis.releases); None: all that kwire serves.
        `cluster_id`: None takes the id in the data directory, or a new one if that is empty.
        `cluster`: how to reach the cluster; None for a standalone broker.
        `on_halt`: called with the reason when the last log directory, or the one that holds the controller's journal,
        has failed. Kafka's process exits there."""
        super().__init__(clock, outbox)
        self.config = config
        self.broker_epoch = -1
        self.halted: str | None = None
        self._on_halt = on_halt
        self.compaction = _Compaction(config)
        log_manager = self._make_log_manager(store, cluster_id, random)
        services = self.services = self._make_services(log_manager, cluster, random)
        services.replica_manager.role_listeners.append(services.role_changed)
        services.metadata.on_quotas = self.quotas_changed
        services.log_dir, services.disk_space = log_dir, disk_space
        self._open_sessions(api_caps, cluster)

    def _make_log_manager(
        self, store: LogStore | list[LogDirStore], cluster_id: str | None, random: Random
    ) -> LogManager:
        from kwire.replication.log_dirs.manager import LogManager

        return LogManager(
            store,
            self.clock,
            self.timers,
            self.config,
            cluster_id=cluster_id,
            node_id=self.config.node_id,
            clean_logs=self.compaction.clean_logs,
            log_event=self.outbox.log,
            new_uuid=lambda: random.randbytes(16),
            on_all_failed=self._halt,
            work=self.work,
        )

    def _make_services(
        self, log_manager: LogManager, cluster: ClusterSettings | None, random: Random
    ) -> Services:
        """The broker's components, with its own controller or a link to the cluster's."""
        from kwire.coordinator.group_coordinator import GroupCoordinator
        from kwire.replication.core.metadata import MetadataCache
        from kwire.replication.replica.fetch_session import FetchSessionCache

        config, clock = self.config, self.clock
        metadata = MetadataCache()
        replicas = self._make_replica_manager(log_manager, metadata)
        controller = None
        if cluster is None:
            log_manager.failure_listeners.append(self._directory_failed)
            controller = self._local_controller(random, metadata, replicas)
        else:
            self.member = self._cluster_member(cluster, random, metadata, replicas)
        groups = GroupCoordinator(config, clock, self.timers, random, metadata, replicas, self.work)
        cache_slots = config.max_incremental_fetch_session_cache_slots
        return Services(
            node_id=config.node_id,
            cluster_id="",
            clock=clock,
            timers=self.timers,
            work=self.work,
            random=random,
            config=config,
            metadata=metadata,
            replica_manager=replicas,
            log_manager=log_manager,
            controller=controller,
            group_coordinator=groups,
            producer_ids=self._producer_ids(log_manager),
            fetch_sessions=FetchSessionCache(clock, random, cache_slots),
            member=self.member,
            log_event=self.outbox.log,
        )

    def _make_replica_manager(
        self, log_manager: LogManager, metadata: MetadataCache
    ) -> ReplicaManager:
        from kwire.replication.replica.manager import ReplicaManager

        return ReplicaManager(
            node_id=self.config.node_id,
            clock=self.clock,
            timers=self.timers,
            config=self.config,
            log_manager=log_manager,
            metadata=metadata,
        )

    def _producer_ids(self, log_manager: LogManager) -> ProducerIds | AllocatedProducerIds:
        """Producer ids from the controller's blocks, or from those in the first log directory."""
        from kwire.replication.controller.producer_ids import ProducerIdBlocks, ProducerIds

        if self.member is not None:
            return self.member.producer_ids
        return ProducerIds(ProducerIdBlocks(log_manager.store))

    def _open_sessions(
        self, api_caps: dict[int, tuple[int, int]] | None, cluster: ClusterSettings | None
    ) -> None:
        served = served_ranges(api_caps)
        accepted = accepted_ranges(served, among_brokers=cluster is not None)
        if cluster is not None and cluster.broker_epoch is not None:
            # The cluster is a Kafka in ZooKeeper mode, whose brokers advertise these too, and no EndTxn of KIP-890.
            served |= {key: accepted[key] for key in (4, 5, 6)} | {26: (0, 4)}
        self.services.api_ranges = served
        self.services.obey_authorizer()
        self.use_sessions(Sessions(self.services, self.outbox, accepted))

    def _local_controller(
        self, random: Random, metadata: MetadataCache, replica_manager: ReplicaManager
    ) -> Controller:
        from kwire.replication.controller.controller import Controller
        from kwire.replication.controller.journal import StoreJournal
        from kwire.replication.replica.local_listener import LocalListener

        config = self.config
        self._journal = StoreJournal(replica_manager.log_manager.store, deferred=True)
        listener = LocalListener(config.node_id, replica_manager, metadata, config, self.work)
        controller = Controller(
            config.node_id,
            config,
            self._journal,
            listener,
            random,
            clock=self.clock,
            work=self.work,
            log_event=self._log_of_controller,
        )
        controller.context.timers = self.timers
        return controller

    def _log_of_controller(self, event: EventType, /, **fields: object) -> None:
        """Log topics that are created and deleted; the broker reports failed disks."""
        if event in (Event.TOPIC_CREATED, Event.TOPIC_DELETED):
            self.outbox.log(event, **fields)

    def _cluster_member(
        self,
        cluster: ClusterSettings,
        random: Random,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
    ) -> ClusterMember:
        from kwire.replication.member.cluster_member import ClusterMember

        return ClusterMember(
            cluster,
            self.config,
            self.clock,
            self.timers,
            self.outbox,
            random,
            metadata,
            replica_manager,
            log_truncated=self.log_truncated,
        )

    def start(self, endpoints: list[Endpoint]) -> None:
        """Load and recover the logs, then start the local controller or register with the
        cluster's.
        Raises OSError with a plain message when the data directory belongs to another node or
        cannot be read; JournalError.
        """
        services = self.services
        log_manager = services.log_manager
        log_manager.cluster_id = log_manager.cluster_id or self._own_cluster_id()
        if self._journal is not None:
            self._check_journal()
        else:
            self._check_no_journal()
        log_manager.load()
        if self._journal is not None and not log_manager.directories[0].is_online:
            first = log_manager.directories[0]
            raise OSError(f"{first.path}, where the controller's journal is: {first.failure}")
        services.cluster_id = log_manager.cluster_id
        if self.member is not None:
            log_manager.start()
            services.replica_manager.start()
            self.member.start(endpoints, services.cluster_id)
            return
        assert services.controller is not None and self._journal is not None
        first_units, self.work.first_units = self.work.first_units, _START_UNITS
        services.controller.start()
        if self._journal.truncated_bytes:
            self.outbox.log(Event.JOURNAL_TRUNCATED, **self._journal.truncation)
        self.broker_epoch = services.controller.register_broker(
            self.config.node_id, self.config.broker_rack, endpoints
        )
        self.work.first_units = first_units
        services.replica_manager.broker_epoch = self.broker_epoch
        log_manager.start()

    def log_truncated(self, log: Log, offset: int) -> None:
        """Lower the cleaner's checkpoint after a follower's log was truncated to `offset`."""
        self.compaction.log_truncated(self.services.log_manager, log, offset)

    def _check_journal(self) -> None:
        """Raise OSError when the journal is not in the first directory, or missing or empty although
        there are partitions: without it they would become strays."""
        from kwire.replication.controller.journal import JOURNAL_FILE
        from kwire.replication.log.checkpoints import read_meta_properties
        from kwire.replication.log_dirs.manager import InconsistentLogDirs, parse_directory

        manager = self.services.log_manager
        first, *others = manager.directories
        if first.store.exists(JOURNAL_FILE) and first.store.size(JOURNAL_FILE):
            return
        for other in others:
            if other.is_online and other.store.exists(JOURNAL_FILE):
                raise InconsistentLogDirs(
                    f"the controller's journal is in {other.path}: name it first in log.dirs"
                )
        for directory in manager.online():
            manager.check_complete(directory.path, read_meta_properties(directory.store))
            if any(parse_directory(name) for name in directory.store.list_dir()):
                why = "not there: it belongs to a broker of a cluster, or is not the first of log.dirs"
                if first.store.exists(JOURNAL_FILE):
                    why = "empty: restore it from a copy, or begin with another directory"
                raise InconsistentLogDirs(
                    f"{directory.path} has partitions, but the controller's journal that knows them is {why}"
                )

    def _check_no_journal(self) -> None:
        """Refuse a standalone broker's directory: in a cluster its logs would become strays."""
        from kwire.replication.controller.journal import JOURNAL_FILE
        from kwire.replication.log_dirs.manager import InconsistentLogDirs

        for directory in self.services.log_manager.online():
            if directory.store.exists(JOURNAL_FILE):
                raise InconsistentLogDirs(f"{directory.path} holds the data of a single broker")

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Report a failed directory to the local controller, or halt if its journal was there.

        The journal is in the first directory (Kafka's metadata.log.dir)."""
        directories = self.services.log_manager.directories
        if directory is directories[0] and len(directories) > 1:
            self._halt(
                f"log directory {directory.path}, where the controller's journal is, has failed: {directory.failure}"
            )
            return
        self.timers.schedule(
            ("broker", "directory-failed", directory.path),
            self.clock.now_ms,
            lambda: self._report_failed_directory(directory),
        )

    def _report_failed_directory(self, directory: LogDirectory) -> None:
        """Report the directory to the local controller, as a heartbeat would.

        No other broker can be elected, but metadata must show its partitions as leaderless."""
        from kwire.protocol.schemas.nodes import BrokerHeartbeatRequest

        controller = self.services.controller
        if controller is not None and directory.directory_id is not None:
            request = BrokerHeartbeatRequest(
                broker_id=self.config.node_id,
                broker_epoch=self.broker_epoch,
                offline_log_dirs=[directory.directory_id],
            )
            controller.submit(request, 1, lambda _: None)

    def _halt(self, why: str) -> None:
        if self.halted is None:
            self.halted = why
            if self._on_halt is not None:
                self._on_halt(why)

    def _own_cluster_id(self) -> str:
        """The id in the data directory, or a new one: a base64url uuid without a leading dash."""
        from kwire.replication.log.checkpoints import encode_uuid, read_meta_properties

        log_manager, random = self.services.log_manager, self.services.random
        ids = (read_meta_properties(d.store).get("cluster.id") for d in log_manager.online())
        found = next(filter(None, ids), None)
        while not found or found.startswith("-"):
            found = encode_uuid(random.randbytes(16)).decode()
        return found

    # --- steps

    def respond(self, correlation: int, frame: Buffer | None) -> str | None:
        reason = None if self.member is None else self.member.respond(correlation, frame)
        self.sessions.run_waiting()
        return reason

    def channel_lost(self, node: int, channel: str) -> None:
        if self.member is not None:
            self.member.channel_lost(node, channel)

    def address_of(self, node: int) -> tuple[str, int] | None:
        return None if self.member is None else self.member.address_of(node)

    def prepare_stop(self, on_ready: Callable[[], None]) -> None:
        """Call back once when the leaderships have moved to other brokers, if there are any."""
        if self.member is None:
            on_ready()
        else:
            self.member.prepare_stop(on_ready)

    def close(self) -> None:
        """Stop cleanly: flush the logs, write the checkpoints and the clean shutdown marker."""
        if self.member is not None:
            self.member.close()
        self.services.replica_manager.shut_down()
        self.services.log_manager.close(self.services.replica_manager.broker_epoch)
        if self._journal is not None:
            self._journal.close()


class _Compaction:
    """The log cleaner, imported at its first run, long after start-up."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._cleaner: LogCleaner | None = None

    @property
    def cleaner(self) -> LogCleaner:
        if self._cleaner is None:
            from kwire.replication.config.broker_config import ROLL_KEY
            from kwire.replication.log_dirs.cleaner import LogCleaner

            buffer_bytes = self._config.log_cleaner_dedupe_buffer_size
            rolls_active = self._config.own_flag(ROLL_KEY)
            self._cleaner = LogCleaner(buffer_bytes, rolls_active=rolls_active)
        return self._cleaner

    def clean_logs(self, manager: LogManager) -> Steps:
        return self.cleaner.clean_logs(manager)

    def log_truncated(self, manager: LogManager, log: Log, offset: int) -> None:
        if "compact" in log.config.cleanup_policy:  # only compacted logs have a cleaner checkpoint
            self.cleaner.log_truncated(manager, log, offset)
