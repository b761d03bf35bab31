"""All logs of a broker: placement in log directories, periodic tasks, failed directories, shutdown.

Answers to kafka.log.LogManager, ReplicaManager's high watermark checkpoint and
MetaPropertiesEnsemble of Kafka 3.9 (KIP-112, KIP-113). directory.py handles a single directory.
`load` loads every partition directory; the caller provides topic configurations (`topic_config`)
and their changes (`get_or_create`, or `log.config = …`).

A directory whose store raises an error is offline until the broker restarts: `failure_listeners`
are called in the same step, its logs are closed in the next. When the last directory fails,
`on_all_failed` is called: Kafka halts then.

Invariants: one Log a partition, plus a future log while it moves to another directory;
`meta.properties` names this cluster and node in every directory before any log is touched; the
clean shutdown file is deleted before the first write and written last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from errno import EINVAL

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.varint import INT64_MAX
from kwire.replication.core.events import Event, ignore
from kwire.replication.core.log_config import LogConfig
from kwire.replication.core.log_store import error_text
from kwire.replication.core.types import TopicPartition
from kwire.replication.core.work import at_once
from kwire.replication.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    decode_uuid,
    encode_uuid,
    read_meta_properties,
    write_meta_properties,
)
from kwire.replication.log_dirs.directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    LogDirStore,
    parse_directory,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.log_store import LogStore
    from kwire.replication.core.work import Steps, WorkQueue
    from kwire.replication.log.log import Log

__all__ = ["InconsistentLogDirs", "LogDirStore", "LogManager", "parse_directory"]

_ALL_DIRECTORIES = "kwire.log.dirs"
"""The paths of all directories, in each one's meta.properties. Kafka ignores unknown keys."""


class InconsistentLogDirs(OSError):
    """The directories belong to another broker or contradict each other: the broker cannot start."""

    def __init__(self, reason: str) -> None:
        super().__init__(EINVAL, reason)


class LogManager:
    """The logs of a broker. `load` first; `start` begins the periodic tasks."""

    def __init__(
        self,
        store: LogStore | list[LogDirStore],
        clock: Clock,
        timers: Timers,
        config: BrokerConfig,
        *,
        cluster_id: str | None = None,
        node_id: int = -1,
        topic_config: Callable[[str], LogConfig] | None = None,
        clean_logs: Callable[[LogManager], Steps] | None = None,
        log_event: LogEvent = ignore,
        new_uuid: Callable[[], bytes] | None = None,
        on_all_failed: Callable[[str], None] | None = None,
        work: WorkQueue | None = None,
    ) -> None:
        """`store`: of the only directory, or an entry per log.dirs. `new_uuid` makes directory ids.

        `topic_config`: the configuration of a topic whose log is found at start (default: the
        broker's). `clean_logs` is called every log.cleaner.backoff.ms. `log_event` is called with
        repairs, truncations and deletions. `cluster_id` None: accept any directory and take the
        cluster id from its `meta.properties`. `work`: for periodic tasks in parts; None: at once.
        """
        self.clock = clock
        self.timers = timers
        self.config = config
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.clean_logs = clean_logs
        self.previous_broker_epoch = -1
        """The broker epoch of the last run if it shut down cleanly (KIP-966), else -1."""
        self.failure_listeners: list[Callable[[LogDirectory], None]] = []
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        """The directory for logs that do not exist yet, if chosen (AlterReplicaLogDirs)."""
        self.removed: set[TopicPartition] = set()  # compacted logs, until the cleaner forgets them
        self._topic_config = topic_config or (lambda _: config.log_config())
        self.log_event = log_event
        self._new_uuid = new_uuid
        self._on_all_failed = on_all_failed
        self.work = work
        opened = store if isinstance(store, list) else [LogDirStore("", store)]
        self.directories = [
            LogDirectory(each, clock, timers, config, log_event, self.fail) for each in opened
        ]
        self._closed = False

    @property
    def store(self) -> LogStore:
        """The first directory's store. OSError if that was offline at start."""
        return self.directories[0].store

    # --- loading

    def load(self) -> None:
        """Load every partition directory. OSError with a plain message for a foreign directory.

        One unreadable directory of several is offline from the start. An unreadable only one is an
        error, and so is a malformed checkpoint in it (S8): guessing would lose or repeat records.
        """
        for directory in self.directories:
            if not directory.is_online:
                self._log_offline(directory)
        found = {}
        for directory in self.online():
            with _OfflineOnError(self, directory):
                found[directory.path] = read_meta_properties(directory.store)
        self._check_identity(found)
        for directory in self.online():
            with _OfflineOnError(self, directory):
                self._write_identity(directory, found[directory.path])
        for directory in self.online():
            with _OfflineOnError(self, directory):
                directory.load(self._topic_config)
        self._check_duplicates()
        if any(d.broker_epoch is None and d.store.exists(RECOVERY_POINTS) for d in self.online()):
            self._checkpoint_soon()  # a kill may have left logs in it that were deleted
        epochs = {directory.broker_epoch for directory in self.directories}
        if len(epochs) == 1:
            (epoch,) = epochs
            self.previous_broker_epoch = -1 if epoch is None else epoch

    def _check_identity(self, found: dict[str, dict[str, str]]) -> None:
        for path, properties in found.items():
            where = f"the log directory {path}".rstrip()
            self.check_complete(path, properties)
            version = properties.get("version", "1")
            if version not in ("0", "1"):
                raise InconsistentLogDirs(
                    f"{where}: meta.properties has version {version}; 0 and 1 are known"
                )
            cluster_id = properties.get("cluster.id")
            node_id = properties.get("node.id" if version == "1" else "broker.id")
            if cluster_id is not None and self.cluster_id not in (None, cluster_id):
                raise InconsistentLogDirs(
                    f"{where} belongs to cluster {cluster_id}, not to {self.cluster_id}"
                    " (meta.properties): give it its cluster id, or use another directory"
                )
            if node_id is not None and self.node_id >= 0 and node_id != str(self.node_id):
                raise InconsistentLogDirs(
                    f"{where} belongs to node {node_id}, not to {self.node_id} (meta.properties)"
                )
            self.cluster_id = self.cluster_id or cluster_id
            if self.node_id < 0 and node_id is not None and node_id.isdigit():
                self.node_id = int(node_id)

    def check_complete(self, path: str, properties: dict[str, str]) -> None:
        """InconsistentLogDirs if the directory was one of more than log.dirs names now: missing
        partitions would be created empty. As in Kafka an empty directory may replace a lost one."""
        before = properties.get(_ALL_DIRECTORIES, "")
        number = before.count(",") + 1
        if number > len(self.directories):
            raise InconsistentLogDirs(
                f"{path} was one of {number} log directories ({before}): give all with -c log.dirs=…, a lost one as"
                f" an empty directory; to go on without, delete the line {_ALL_DIRECTORIES} from its meta.properties"
            )

    def _write_identity(self, directory: LogDirectory, found: dict[str, str]) -> None:
        """Write `meta.properties` if missing, with a directory id if there are several."""
        properties = dict(found)
        if not found:
            if self.cluster_id is None:
                return
            properties = {
                "version": "1",
                "cluster.id": self.cluster_id,
                "node.id": str(self.node_id),
            }
        if len(self.directories) > 1:
            directory.directory_id = decode_uuid(found.get("directory.id", ""))
            if directory.directory_id is None and self._new_uuid is not None:
                directory.directory_id = self._new_uuid()
                properties["directory.id"] = encode_uuid(directory.directory_id).decode()
            for other in self.directories:
                same = directory.directory_id is not None and (
                    other.directory_id == directory.directory_id
                )
                if other is not directory and same:
                    raise InconsistentLogDirs(
                        f"the log directories {other.path} and {directory.path} have the same directory.id"
                        " (meta.properties): one is a copy of the other"
                    )
            paths = ",".join(each.path for each in self.directories)
            properties[_ALL_DIRECTORIES] = "".join(c if c.isprintable() else "?" for c in paths)
        if properties != found:
            write_meta_properties(directory.store, properties)

    def _check_duplicates(self) -> None:
        for logs_of in (_logs_of, _future_logs_of):
            seen: dict[TopicPartition, LogDirectory] = {}
            for directory in self.online():
                for key in logs_of(directory):
                    if key in seen:
                        raise InconsistentLogDirs(
                            f"{key[0]}-{key[1]} is in two log directories, {seen[key].path} and {directory.path}:"
                            " delete one of the two, most likely that in the directory that failed last"
                        )
                    seen[key] = directory

    # --- directories

    def online(self) -> list[LogDirectory]:
        """The directories that have not failed."""
        return [directory for directory in self.directories if directory.failure is None]

    def directory(self, path: str) -> LogDirectory | None:
        """The directory with this absolute path (as in DescribeLogDirs), or None."""
        for directory in self.directories:
            if directory.path == path:
                return directory
        return None

    def directory_of(self, log: Log) -> LogDirectory:
        return next(directory for directory in self.directories if directory.holds(log))

    def fail(self, directory: LogDirectory, why: str) -> None:
        """Take a directory offline until the broker restarts; no effect if it is offline already."""
        if not directory.is_online:
            return
        directory.failure = why
        if self._closed:
            return
        self.log_event(Event.LOG_DIR_FAILED, log_dir=directory.path or None, detail=why)
        for listener in self.failure_listeners:
            listener(directory)
        # Not in this step: the caller may be iterating over the directory's logs.
        self.timers.schedule(
            ("log-manager", "failed", directory.path), self.clock.now_ms, directory.abandon
        )
        if not self.online() and self._on_all_failed is not None:
            which = (
                "the only log directory" if len(self.directories) == 1 else "every log directory"
            )
            self._on_all_failed(f"{which} has failed: {why}")

    # --- the logs

    def get(self, topic: str, partition: int) -> Log | None:
        return self._find(_logs_of, (topic, partition))

    def future(self, topic: str, partition: int) -> Log | None:
        """The partition's log in the directory to which it is being moved."""
        return self._find(_future_logs_of, (topic, partition))

    def _find(
        self, logs_of: Callable[[LogDirectory], dict[TopicPartition, Log]], key: TopicPartition
    ) -> Log | None:
        for directory in self.directories:
            log = logs_of(directory).get(key)
            if log is not None and directory.failure is None:
                return log
        return None

    @property
    def has_future_logs(self) -> bool:
        """Whether any log is moving between directories."""
        return any(directory.future_logs for directory in self.directories)

    def logs(self) -> Iterable[Log]:
        """All logs except future ones."""
        for directory in self.online():
            yield from directory.logs.values()

    def get_or_create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, is_new: bool = True
    ) -> Log:
        """The log, created if missing, with this configuration from now on.

        KafkaError: INCONSISTENT_TOPIC_ID if the directory holds another topic of that name;
        KAFKA_STORAGE_ERROR, also for a missing log that is not `is_new` while a directory is
        offline, as it may be in there.
        """
        log = self.get(topic, partition)
        if log is None:
            return self._create((topic, partition), topic_id, config, is_new)
        if topic_id not in (ZERO_UUID, log.topic_id):
            if log.topic_id != ZERO_UUID:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID,
                    f"the log of {log.name} belongs to another topic of that name",
                )
            log.assign_topic_id(topic_id)
        if log.config is not config:
            log.config = config
        return log

    def _create(self, key: TopicPartition, topic_id: bytes, config: LogConfig, is_new: bool) -> Log:
        online = self.online()
        if not online or not (is_new or len(online) == len(self.directories)):
            offline = ",".join(d.path for d in self.directories if not d.is_online)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can not create log for {key[0]}-{key[1]} because log directories {offline} are offline",
            )
        why = ""
        candidates = self._candidates(key, online)
        for directory in candidates:
            try:
                if len(candidates) > 1:
                    directory.store.make_dir(f"{key[0]}-{key[1]}")
            except OSError as error:
                why = directory.handle_error(error, f"cannot make the log of {key[0]}-{key[1]}")
                continue
            try:
                log = directory.create(key, topic_id, config)
            except OSError as error:
                why = directory.handle_error(error, f"cannot make the log of {key[0]}-{key[1]}")
                break
            self.preferred.pop(key, None)
            return log
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)

    def _candidates(self, key: TopicPartition, online: list[LogDirectory]) -> list[LogDirectory]:
        """The directories to create a log in: the preferred one, else by number of logs."""
        preferred = self.preferred.get(key)
        if preferred is not None and preferred.is_online:
            return [preferred]
        if len(online) == 1:
            return online
        return sorted(online, key=lambda d: len(d.logs) + len(d.future_logs))

    def delete(self, topic: str, partition: int) -> None:
        """Rename the directory to `….<id>-delete`; delete it after file.delete.delay.ms."""
        for log in (self.get(topic, partition), self.future(topic, partition)):
            if log is not None:
                self._remove(log, DELETE_SUFFIX)
        self._checkpoint_soon()

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename the log's directory to `….<id>-stray` and keep it: no deletion was ordered (KIP-858)."""
        for log in (self.get(topic, partition), self.future(topic, partition)):
            if log is not None:
                name = self._remove(log, STRAY_SUFFIX)
                self.log_event(Event.STRAY_REPLICA_KEPT, topic=topic, partition=partition, log=name)
        self._checkpoint_soon()

    def _remove(self, log: Log, suffix: str) -> str:
        if log.config.compact:
            self.removed.add((log.topic, log.partition))
        return self.directory_of(log).remove(log, suffix)

    def _checkpoint_soon(self) -> None:
        """Write checkpoints once after this step: if the broker dies before the next ones, a new
        topic of the same name must not start from the deleted one's offsets."""
        self.timers.schedule(
            ("log-manager", "deleted"), self.clock.now_ms, self._checkpoint_deletions
        )

    def _checkpoint_deletions(self) -> None:
        """Kafka waits for the flush; here it goes on in the background."""

        def checkpoint(directory: LogDirectory) -> None:
            directory.checkpoint()
            for path in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS):
                if directory.store.exists(path):
                    directory.store.start_flush_file(path, lambda: None)

        self.for_each_online("checkpoints after a deletion", checkpoint)

    def _log_offline(self, directory: LogDirectory) -> None:
        """Report a directory that is offline from the start."""
        path, failure = directory.path or None, directory.failure
        self.log_event(Event.LOG_DIR_OFFLINE, log_dir=path, detail=failure)

    def task_failed(self, task: str, error: Exception, log_dir: str | None = None) -> None:
        """Report the error of a task, which goes on."""
        self.log_event(Event.STORAGE_TASK_FAILED, task=task, log_dir=log_dir, detail=str(error))

    # --- periodic tasks

    def start(self) -> None:
        """Start the periodic tasks; those of Kafka's scheduler after log.initial.task.delay.ms."""
        config = self.config
        first = config.log_initial_task_delay_ms
        high_watermarks_ms = config.replica_high_watermark_checkpoint_interval_ms
        producers_ms = config.producer_id_expiration_check_interval_ms
        self._every("high-watermarks", high_watermarks_ms, high_watermarks_ms)
        self._every("recovery-points", config.log_flush_offset_checkpoint_interval_ms, first)
        self._every("log-starts", config.log_flush_start_offset_checkpoint_interval_ms, first)
        self._every("retention", config.log_retention_check_interval_ms, first)
        self._every("flush", config.log_flush_scheduler_interval_ms, first)
        self._every("producers", producers_ms, producers_ms)
        if config.log_cleaner_enable and self.clean_logs is not None:
            self._every("cleaner", config.log_cleaner_backoff_ms, first)

    def _every(self, name: str, interval_ms: int, first_ms: int) -> None:
        """Run a task (periodic.py) after `first_ms`, and each time `interval_ms` after its end."""
        if interval_ms >= INT64_MAX:
            return

        def schedule(delay_ms: int) -> None:
            self.timers.schedule(("log-manager", name), self.clock.now_ms + delay_ms, run)

        def run() -> None:
            if self._closed:
                return
            if self.work is None:
                at_once(steps())
            else:
                self.work.start(steps())

        def steps() -> Steps:
            from kwire.replication.log_dirs import periodic

            yield from periodic.run(self, name)
            schedule(max(interval_ms, 1))

        schedule(first_ms)

    def checkpoint_high_watermarks(self, *, flush: bool = False) -> None:
        self.for_each_online("high-watermarks", lambda d: d.checkpoint_high_watermarks(flush=flush))

    def checkpoint_recovery_points(self, *, flush: bool = False) -> None:
        self.for_each_online("recovery-points", lambda d: d.checkpoint_recovery_points(flush=flush))

    def checkpoint_log_starts(self, *, flush: bool = False) -> None:
        self.for_each_online("log-starts", lambda d: d.checkpoint_log_starts(flush=flush))

    def for_each_online(self, what: str, task: Callable[[LogDirectory], object]) -> None:
        """Run a task in every online directory; an OSError takes that directory offline."""

        def steps(directory: LogDirectory) -> Steps:
            task(directory)
            yield 1

        at_once(self.in_parts(what, steps))

    def in_parts(self, what: str, task: Callable[[LogDirectory], Steps]) -> Steps:
        """As `for_each_online`, for a task of steps."""
        for directory in self.online():
            try:
                yield from task(directory)
            except OSError as error:
                directory.handle_error(error, what)
            except KafkaError as error:  # the log has reported it to the directory
                self.task_failed(what, error, directory.path or None)

    # --- stopping

    def close(self, broker_epoch: int = -1) -> None:
        """Shut down every online directory cleanly (LogDirectory.close).

        OSError or KafkaError(KAFKA_STORAGE_ERROR) if one failed: the next start recovers it.
        """
        if self._closed:
            return
        self._closed = True
        failure: OSError | KafkaError | None = None
        for directory in self.online():
            try:
                directory.close(broker_epoch)
            except (OSError, KafkaError) as error:
                failure = failure or error
        if failure is not None:
            raise failure


class _OfflineOnError:
    """A context that takes one of several directories offline on OSError, and continues."""

    __slots__ = ("_directory", "_manager")

    def __init__(self, manager: LogManager, directory: LogDirectory) -> None:
        self._manager = manager
        self._directory = directory

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        manager, directory = self._manager, self._directory
        if not isinstance(error, OSError) or isinstance(error, InconsistentLogDirs):
            return False
        if len(manager.online()) == 1:
            return False
        directory.failure = error_text(error)
        manager._log_offline(directory)
        directory.abandon()
        return True


def _logs_of(directory: LogDirectory) -> dict[TopicPartition, Log]:
    return directory.logs


def _future_logs_of(directory: LogDirectory) -> dict[TopicPartition, Log]:
    return directory.future_logs
