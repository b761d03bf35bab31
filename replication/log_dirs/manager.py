"""All logs of a broker, in one log directory or several: which is where, periodic tasks, failed directories, the stop.

Answers to kafka.log.LogManager, ReplicaManager's high watermark checkpoint and MetaPropertiesEnsemble of Kafka 3.9
(KIP-112, KIP-113). What lies in one directory is directory.py's. Every partition directory is loaded when the
manager is; what a topic's configuration is, the caller says (`topic_config`) and says again when it changes
(`get_or_create`, or `log.config = …`).

A directory whose store raises an error is offline until the broker is started again: `failure_listeners` hear of it in
the same step, its logs are given up in the next. When the last one fails `on_all_failed` is called: Kafka halts then.

Invariants: one Log a partition, beside one on its way to another directory; `meta.properties` names this cluster and
node in every directory before any log is touched; the mark of a clean stop is taken away before the first write and
written only after everything else of the stop succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from errno import EINVAL

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.language.primitives import ZERO_UUID
from kwire.protocol.varint import INT64_MAX
from kwire.replication.core.events import Event, ignore
from kwire.replication.core.log_config import LogConfig
from kwire.replication.core.types import TopicPartition
from kwire.replication.log.checkpoints import (
    decode_uuid,
    encode_uuid,
    read_meta_properties,
    write_meta_properties,
)
from kwire.replication.log.loader import write_topic_id
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
    from kwire.replication.log.log import Log

__all__ = ["InconsistentLogDirs", "LogDirStore", "LogManager", "parse_directory"]

_ALL_DIRECTORIES = "kwire.log.dirs"
"""In meta.properties of each of several directories: the paths of all. Kafka ignores keys that it does not know."""


class InconsistentLogDirs(OSError):
    """The directories are not this broker's, or contradict each other: a broker does not start with them."""

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
        clean_logs: Callable[[LogManager], None] | None = None,
        log_event: LogEvent = ignore,
        new_uuid: Callable[[], bytes] | None = None,
        on_all_failed: Callable[[str], None] | None = None,
    ) -> None:
        """`store`: of the one directory, or of each entry of log.dirs. `new_uuid` makes the ids of several directories.

        `topic_config`: the configuration of a topic whose log is found at start (default: the broker's).
        `clean_logs` is called every log.cleaner.backoff.ms. `log_event` is told of what was repaired, cut or deleted.
        `cluster_id` None: any directory is taken, and what `meta.properties` says is `cluster_id` afterwards.
        """
        self.clock = clock
        self.timers = timers
        self.config = config
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.clean_logs = clean_logs
        self.previous_broker_epoch = -1
        """The broker epoch of the last run, when it ended cleanly (KIP-966); -1 otherwise."""
        self.failure_listeners: list[Callable[[LogDirectory], None]] = []
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        """Where a partition's log is to be made that is not there yet (AlterReplicaLogDirs)."""
        self._topic_config = topic_config or (lambda _: config.log_config())
        self.log_event = log_event
        self._new_uuid = new_uuid
        self._on_all_failed = on_all_failed
        opened = store if isinstance(store, list) else [LogDirStore("", store)]
        self.directories = [
            LogDirectory(each, clock, timers, config, log_event, self.fail) for each in opened
        ]
        self._closed = False

    @property
    def store(self) -> LogStore:
        """The first directory's. OSError when it is offline from the start."""
        return self.directories[0].store

    # --- loading

    def load(self) -> None:
        """Loads every partition directory. OSError with a plain message when a directory cannot be this broker's.

        One of several that cannot be read is offline from the start, and told. Where there is only one that is an
        error, and so is a malformed checkpoint (S8): guessing would silently lose or repeat records.
        """
        for directory in self.directories:
            if not directory.is_online:
                self._log_offline(directory)
        found = {}
        for directory in self.online():
            with _Usable(self, directory):
                found[directory.path] = read_meta_properties(directory.store)
        self._check_identity(found)
        for directory in self.online():
            with _Usable(self, directory):
                self._identify(directory, found[directory.path])
        for directory in self.online():
            with _Usable(self, directory):
                directory.load(self._topic_config)
        self._check_duplicates()
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
                    f"meta.properties has version {version}; 0 and 1 are known"
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
        """InconsistentLogDirs when the directory was one of more than there are now: the partitions of those that are
        not named would be made anew, empty. An empty directory may take the place of one that is lost, as in Kafka."""
        before = properties.get(_ALL_DIRECTORIES, "")
        number = before.count(",") + 1
        if number > len(self.directories):
            raise InconsistentLogDirs(
                f"{path} was one of {number} log directories ({before}): give all with -c log.dirs=…, a lost one as"
                f" an empty directory; to go on without, delete the line {_ALL_DIRECTORIES} from its meta.properties"
            )

    def _identify(self, directory: LogDirectory, found: dict[str, str]) -> None:
        """Writes `meta.properties` where there is none. One of several directories has an id in it."""
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
        """The directories that work."""
        return [directory for directory in self.directories if directory.failure is None]

    def directory(self, path: str) -> LogDirectory | None:
        """By its absolute path, as DescribeLogDirs shows it."""
        for directory in self.directories:
            if directory.path == path:
                return directory
        return None

    def directory_of(self, log: Log) -> LogDirectory:
        return next(directory for directory in self.directories if directory.holds(log))

    def fail(self, directory: LogDirectory, why: str) -> None:
        """A directory's store raised an error: it is offline until the broker is started again. No error when it is."""
        if not directory.is_online:
            return
        directory.failure = why
        if self._closed:
            return
        self.log_event(Event.LOG_DIR_FAILED, log_dir=directory.path or None, detail=why)
        for listener in self.failure_listeners:
            listener(directory)
        # Who found out may be going through its logs just now.
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
        """Whether any log is on its way from one directory to another."""
        return any(directory.future_logs for directory in self.directories)

    def logs(self) -> Iterable[Log]:
        """All but those on their way from one directory to another."""
        for directory in self.online():
            yield from directory.logs.values()

    def get_or_create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, *, is_new: bool = True
    ) -> Log:
        """The log, made when there is none, with this configuration from now on.

        KafkaError: INCONSISTENT_TOPIC_ID when the directory holds another topic of that name; KAFKA_STORAGE_ERROR,
        also for a log that is not there, not `is_new`, and may be in a directory that is offline.
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
            try:
                write_topic_id(log.store, log.directory, topic_id)
                log.topic_id = topic_id
                log.flush_topic_id()
            except OSError as error:
                raise log.storage_error("keep the topic id of", error) from error
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
        candidates = self._by_use(key, online)
        for directory in candidates:
            try:
                if len(candidates) > 1:
                    directory.store.make_dir(f"{key[0]}-{key[1]}")
            except OSError as error:
                why = directory.met(error, f"cannot make the log of {key[0]}-{key[1]}")
                continue
            try:
                log = directory.create(key, topic_id, config)
            except OSError as error:
                why = directory.met(error, f"cannot make the log of {key[0]}-{key[1]}")
                break
            self.preferred.pop(key, None)
            return log
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)

    def _by_use(self, key: TopicPartition, online: list[LogDirectory]) -> list[LogDirectory]:
        """Where to make a log: where somebody wants it, else in the directory with the fewest, then the others."""
        preferred = self.preferred.get(key)
        if preferred is not None and preferred.is_online:
            return [preferred]
        if len(online) == 1:
            return online
        return sorted(online, key=lambda d: len(d.logs) + len(d.future_logs))

    def delete(self, topic: str, partition: int) -> None:
        """Renames the directory to `….<id>-delete`; it is removed after file.delete.delay.ms. No error without a
        log.
        """
        for log in (self.get(topic, partition), self.future(topic, partition)):
            if log is not None:
                self.directory_of(log).remove(log, DELETE_SUFFIX)
        self._checkpoint_soon()

    def set_aside(self, topic: str, partition: int) -> None:
        """Renames the directory to `….<id>-stray`, where it stays: nobody ordered it to be deleted (KIP-858)."""
        for log in (self.get(topic, partition), self.future(topic, partition)):
            if log is not None:
                name = self.directory_of(log).remove(log, STRAY_SUFFIX)
                self.log_event(Event.STRAY_REPLICA_KEPT, topic=topic, partition=partition, log=name)
        self._checkpoint_soon()

    def _checkpoint_soon(self) -> None:
        """A topic of the same name must not start from the offsets of one that is gone, should the broker die before
        the next checkpoint. Once for all partitions of this step."""
        self.timers.schedule(
            ("log-manager", "deleted"), self.clock.now_ms, self._checkpoint_deletions
        )

    def _checkpoint_deletions(self) -> None:
        self.in_each("checkpoints after a deletion", LogDirectory.checkpoint)

    def _log_offline(self, directory: LogDirectory) -> None:
        """A directory cannot be used from the start on."""
        path, failure = directory.path or None, directory.failure
        self.log_event(Event.LOG_DIR_OFFLINE, log_dir=path, detail=failure)

    def _task_failed(self, task: str, error: Exception, log_dir: str | None = None) -> None:
        self.log_event(Event.STORAGE_TASK_FAILED, task=task, log_dir=log_dir, detail=str(error))

    # --- periodic tasks

    def start(self) -> None:
        """Begins the periodic tasks. Kafka starts retention and compaction after log.initial.task.delay.ms."""
        config = self.config
        first = config.log_initial_task_delay_ms
        self._every(
            "high-watermarks",
            config.replica_high_watermark_checkpoint_interval_ms,
            self.checkpoint_high_watermarks,
        )
        self._every(
            "recovery-points",
            config.log_flush_offset_checkpoint_interval_ms,
            self.checkpoint_recovery_points,
            first,
        )
        self._every(
            "log-starts",
            config.log_flush_start_offset_checkpoint_interval_ms,
            self.checkpoint_log_starts,
            first,
        )
        self._every(
            "retention", config.log_retention_check_interval_ms, self.delete_old_segments, first
        )
        self._every("flush", config.log_flush_scheduler_interval_ms, self.flush_dirty, first)
        self._every(
            "producers",
            config.producer_id_expiration_check_interval_ms,
            self.remove_expired_producers,
        )
        if config.log_cleaner_enable and self.clean_logs is not None:
            self._every("cleaner", config.log_cleaner_backoff_ms, self._clean, first)

    def _every(
        self, name: str, interval_ms: int, task: Callable[[], None], first_ms: int | None = None
    ) -> None:
        if interval_ms >= INT64_MAX:
            return
        interval_ms = max(interval_ms, 1)

        def run() -> None:
            if self._closed:
                return
            try:
                task()
            except (OSError, KafkaError) as error:
                self._task_failed(f"periodic task {name}", error)
            self.timers.schedule(("log-manager", name), self.clock.now_ms + interval_ms, run)

        delay = interval_ms if first_ms is None else first_ms
        self.timers.schedule(("log-manager", name), self.clock.now_ms + delay, run)

    def _clean(self) -> None:
        if self.clean_logs is not None:
            self.clean_logs(self)

    def delete_old_segments(self) -> None:
        """Retention of the logs that are not compacted; the others' is the cleaner's (LogManager.cleanupLogs)."""
        self.in_each("retention", LogDirectory.delete_old_segments)

    def remove_expired_producers(self) -> None:
        for log in self.logs():
            if log.producer_state.producers:
                log.producer_state.remove_expired_producers()

    def flush_dirty(self) -> None:
        """flush.ms: flushes the logs whose oldest unflushed append is older than their configuration allows."""
        self.in_each("flush", LogDirectory.flush_dirty)

    def checkpoint_high_watermarks(self, *, flush: bool = False) -> None:
        self.in_each("high-watermarks", lambda d: d.checkpoint_high_watermarks(flush=flush))

    def checkpoint_recovery_points(self, *, flush: bool = False) -> None:
        self.in_each("recovery-points", lambda d: d.checkpoint_recovery_points(flush=flush))

    def checkpoint_log_starts(self, *, flush: bool = False) -> None:
        self.in_each("log-starts", lambda d: d.checkpoint_log_starts(flush=flush))

    def in_each(self, what: str, task: Callable[[LogDirectory], object]) -> None:
        """Does something in every directory that works; one in which it raises OSError is offline from then on."""
        for directory in self.online():
            try:
                task(directory)
            except OSError as error:
                directory.met(error, what)
            except KafkaError as error:  # its log has told the directory
                self._task_failed(what, error, directory.path or None)

    # --- stopping

    def close(self, broker_epoch: int = -1) -> None:
        """The clean stop of every directory that works: everything flushed, checkpoints written, then the mark.

        OSError or KafkaError(KAFKA_STORAGE_ERROR) when one could not be: it has no mark, the next start recovers it.
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


class _Usable:
    """A context in which an error of one of several directories takes that offline, and the start goes on."""

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
        directory.failure = error.strerror or str(error)
        manager._log_offline(directory)
        directory.abandon()
        return True


def _logs_of(directory: LogDirectory) -> dict[TopicPartition, Log]:
    return directory.logs


def _future_logs_of(directory: LogDirectory) -> dict[TopicPartition, Log]:
    return directory.future_logs
