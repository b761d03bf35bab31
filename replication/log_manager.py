"""All logs of one log directory: loading, checkpoints, retention, compaction's turn, deletion, the clean stop.

Answers to kafka.log.LogManager, ReplicaManager's high watermark checkpoint and MetaPropertiesEnsemble of Kafka 3.9, for
one directory. Every partition directory of the store is loaded when the manager is; what a topic's configuration is,
the caller says (`topic_config`) and says again when it changes (`get_or_create`, or `log.config = …`).

Invariants: one Log a partition; `meta.properties` names this cluster and node before any log is touched; the mark of
a clean stop is taken away before the first write and written only after everything else of the stop succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from errno import EINVAL
from typing import TYPE_CHECKING

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    ZERO_TOPIC_ID,
    TopicPartition,
    encode_uuid,
    format_offsets,
    read_meta_properties,
    read_offsets,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
)
from kwire.replication.log_config import LogConfig
from kwire.replication.log_loader import LogContext, create_log, load_log, write_topic_id

if TYPE_CHECKING:
    from kwire.replication.clock import Clock, Timers
    from kwire.replication.config import BrokerConfig
    from kwire.replication.log import Log
    from kwire.replication.log_store import LogStore

_DELETE_SUFFIX = "-delete"
_STRAY_SUFFIX = "-stray"
_FILE_NAME_BYTES_MAX = 255
_INT64_MAX = (1 << 63) - 1


class LogManager:
    """The logs of one store. `load` first; `start` begins the periodic tasks."""

    def __init__(
        self,
        store: LogStore,
        clock: Clock,
        timers: Timers,
        config: BrokerConfig,
        *,
        cluster_id: str | None = None,
        node_id: int = -1,
        directory_id: bytes | None = None,
        topic_config: Callable[[str], LogConfig] | None = None,
        clean_logs: Callable[[LogManager], None] | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """`topic_config`: the configuration of a topic whose log is found at start (default: the broker's).

        `clean_logs` is called every log.cleaner.backoff.ms. `report` is told of what was repaired, cut or deleted.
        `cluster_id` None: any directory is taken, and what `meta.properties` says is `cluster_id` afterwards.
        """
        self.store = store
        self.clock = clock
        self.timers = timers
        self.config = config
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.directory_id = directory_id
        self.clean_logs = clean_logs
        self.previous_broker_epoch = -1
        """The broker epoch of the last run, when it ended cleanly (KIP-966); -1 otherwise."""
        self._topic_config = topic_config or (lambda _: config.log_config())
        self._context = LogContext(
            store,
            clock,
            timers,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            report=report,
        )
        self._report = report
        self._logs: dict[TopicPartition, Log] = {}
        self._written: dict[str, bytes] = {}
        self._deleted = 0
        self._closed = False

    # ---- loading

    def load(self) -> None:
        """Loads every partition directory. OSError with a plain message when the directory cannot be this broker's.

        A malformed checkpoint is such an error too (S8): guessing would silently lose or repeat records.
        """
        self._check_identity()
        epoch = take_clean_shutdown(self.store)
        clean = epoch is not None
        self.previous_broker_epoch = -1 if epoch is None else epoch
        recovery_points = read_offsets(self.store, RECOVERY_POINTS)
        log_starts = read_offsets(self.store, LOG_START_OFFSETS)
        high_watermarks = read_offsets(self.store, HIGH_WATERMARKS)
        tails_lost = False
        for name in self.store.list_dir():
            if name.endswith(_DELETE_SUFFIX):
                self._delete_later(name)
                continue
            topic_partition = parse_directory(name)
            if topic_partition is None:
                continue
            topic, partition = topic_partition
            log = load_log(
                self._context,
                name,
                topic,
                partition,
                self._topic_config(topic),
                clean=clean,
                recovery_point=recovery_points.get(topic_partition, 0),
                log_start_offset=log_starts.get(topic_partition, 0),
            )
            high_watermark = high_watermarks.get(topic_partition, 0)
            log.update_high_watermark(high_watermark)
            tails_lost |= high_watermark > log.log_end_offset
            self._logs[topic_partition] = log
        if (
            tails_lost
        ):  # else what is appended there now would count as committed after the next crash
            self.checkpoint_high_watermarks(flush=True)

    def _check_identity(self) -> None:
        found = read_meta_properties(self.store)
        version = found.get("version", "1")
        if version not in ("0", "1"):
            raise OSError(EINVAL, f"meta.properties has version {version}; 0 and 1 are known")
        node_key = "node.id" if version == "1" else "broker.id"
        cluster_id, node_id = found.get("cluster.id"), found.get(node_key)
        if cluster_id is not None and self.cluster_id is not None and cluster_id != self.cluster_id:
            raise OSError(
                EINVAL,
                f"the log directory belongs to cluster {cluster_id}, not to {self.cluster_id}"
                " (meta.properties): give it its cluster id, or use another directory",
            )
        if node_id is not None and self.node_id >= 0 and node_id != str(self.node_id):
            raise OSError(
                EINVAL,
                f"the log directory belongs to node {node_id}, not to {self.node_id} (meta.properties)",
            )
        self.cluster_id = self.cluster_id or cluster_id
        if self.node_id < 0 and node_id is not None and node_id.isdigit():
            self.node_id = int(node_id)
        if not found and self.cluster_id is not None:
            properties = {
                "version": "1",
                "cluster.id": self.cluster_id,
                "node.id": str(self.node_id),
            }
            if self.directory_id is not None:
                properties["directory.id"] = encode_uuid(self.directory_id).decode()
            write_meta_properties(self.store, properties)

    # ---- the logs

    def get(self, topic: str, partition: int) -> Log | None:
        return self._logs.get((topic, partition))

    def logs(self) -> Iterable[Log]:
        return self._logs.values()

    def get_or_create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> Log:
        """The log, made when there is none, with this configuration from now on.

        KafkaError: INCONSISTENT_TOPIC_ID when the directory holds another topic of that name, KAFKA_STORAGE_ERROR.
        """
        key = (topic, partition)
        log = self._logs.get(key)
        try:
            if log is None:
                log = create_log(self._context, topic, partition, topic_id, config)
                self._logs[key] = log
                return log
            if topic_id not in (ZERO_TOPIC_ID, log.topic_id):
                if log.topic_id != ZERO_TOPIC_ID:
                    raise KafkaError(
                        ErrorCode.INCONSISTENT_TOPIC_ID,
                        f"the log of {log.name} belongs to another topic of that name",
                    )
                write_topic_id(self.store, log.directory, topic_id)
                log.topic_id = topic_id
                log.flush_topic_id()
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"cannot make the log of {topic}-{partition}: {error}",
            ) from error
        if log.config is not config:
            log.config = config
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Renames the directory to `….<id>-delete`; it is removed after file.delete.delay.ms. No error without a
        log.
        """
        log = self._logs.pop((topic, partition), None)
        if log is not None:
            name = self._rename_away(log, _DELETE_SUFFIX)
            self._delete_later(name, log.config.file_delete_delay_ms)
        # A topic of the same name must not start from this one's offsets, should the broker die before the next
        # checkpoint. Once for all partitions that are deleted in this step.
        self.timers.schedule(
            ("log-manager", "deleted"), self.clock.now_ms, self._checkpoint_deletions
        )

    def set_aside(self, topic: str, partition: int) -> None:
        """Renames the directory to `….<id>-stray`, where it stays: nobody ordered it to be deleted (KIP-858)."""
        log = self._logs.pop((topic, partition), None)
        if log is not None:
            name = self._rename_away(log, _STRAY_SUFFIX)
            self.tell(f"{log.name} is not known to the controller: set aside as {name}")

    def _rename_away(self, log: Log, suffix: str) -> str:
        log.abandon()
        name = self._unique_name(log, suffix)
        try:
            self.store.rename(log.directory, name)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"cannot move the log of {log.name}: {error}"
            ) from error
        return name

    def _unique_name(self, log: Log, suffix: str) -> str:
        """Kafka's form: topic, partition, 32 hexadecimal digits, "-delete", cut to what a file name may have."""
        self._deleted += 1
        unique = f"{self.clock.wall_ms & (1 << 64) - 1:016x}{self._deleted:016x}"
        suffix = f"-{log.partition}.{unique}{suffix}"
        return log.topic[: _FILE_NAME_BYTES_MAX - len(suffix)] + suffix

    def _checkpoint_deletions(self) -> None:
        try:
            self.checkpoint_recovery_points()
            self.checkpoint_log_starts()
            self.checkpoint_high_watermarks()
        except OSError as error:
            self.tell(f"cannot write checkpoints after a deletion: {error}")

    def _delete_later(self, name: str, delay_ms: int | None = None) -> None:
        if delay_ms is None:
            delay_ms = self.config.log_segment_delete_delay_ms
        deadline = self.clock.now_ms + delay_ms

        def delete_dir() -> None:
            try:
                self.store.delete_dir(name)
            except OSError as error:
                self.tell(f"cannot delete {name}: {error}")

        self.timers.schedule(("delete-log", name), deadline, delete_dir)

    def tell(self, message: str) -> None:
        if self._report is not None:
            self._report(message)

    # ---- periodic tasks

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
        if interval_ms >= _INT64_MAX:
            return
        interval_ms = max(interval_ms, 1)

        def run() -> None:
            if self._closed:
                return
            try:
                task()
            except (OSError, KafkaError) as error:
                self.tell(f"periodic task {name} failed: {error}")
            self.timers.schedule(("log-manager", name), self.clock.now_ms + interval_ms, run)

        delay = interval_ms if first_ms is None else first_ms
        self.timers.schedule(("log-manager", name), self.clock.now_ms + delay, run)

    def _clean(self) -> None:
        if self.clean_logs is not None:
            self.clean_logs(self)

    def delete_old_segments(self) -> None:
        """Retention, for the logs that compaction does not own alone (LogManager.cleanupLogs)."""
        for log in list(self._logs.values()):
            log.delete_old_segments()

    def remove_expired_producers(self) -> None:
        for log in self._logs.values():
            if log.producer_state.producers:
                log.producer_state.remove_expired_producers()

    def flush_dirty(self) -> None:
        """flush.ms: flushes the logs whose oldest unflushed append is older than their configuration allows."""
        for log in self._logs.values():
            log.maybe_flush()

    def checkpoint_high_watermarks(self, *, flush: bool = False) -> None:
        """Not flushed while running: a lost checkpoint only means a lower high watermark after a power cut."""
        entries = [(key, log.high_watermark) for key, log in self._logs.items()]
        self._checkpoint(HIGH_WATERMARKS, entries, flush)

    def checkpoint_recovery_points(self, *, flush: bool = False) -> None:
        entries = [(key, log.advance_recovery_point()) for key, log in self._logs.items()]
        self._checkpoint(RECOVERY_POINTS, entries, flush)

    def checkpoint_log_starts(self, *, flush: bool = False) -> None:
        """Only logs that begin after their first segment does: the others' file names say it."""
        entries = [
            (key, log.log_start_offset)
            for key, log in self._logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        ]
        self._checkpoint(LOG_START_OFFSETS, entries, flush)

    def _checkpoint(
        self, path: str, entries: list[tuple[TopicPartition, int]], flush: bool
    ) -> None:
        data = format_offsets(entries)
        if flush or self._written.get(path) != data:
            self.store.write_file(path, data, flush=flush)
            self._written[path] = data

    # ---- stopping

    def close(self, broker_epoch: int = -1) -> None:
        """The clean stop: everything flushed, snapshots and checkpoints written, then the mark.

        OSError or KafkaError(KAFKA_STORAGE_ERROR): no mark, the next start recovers.
        """
        if self._closed:
            return
        self._closed = True
        for log in self._logs.values():
            log.close()
        self.checkpoint_recovery_points(flush=True)
        self.checkpoint_log_starts(flush=True)
        self.checkpoint_high_watermarks(flush=True)
        write_clean_shutdown(self.store, broker_epoch)


def parse_directory(name: str) -> TopicPartition | None:
    """Topic and partition of a partition's directory; None for any other name ("-future", "-stray", "-delete" too)."""
    topic, _, partition = name.rpartition("-")
    if topic == "__cluster_metadata":  # a KRaft controller's, not a broker's
        return None
    if not topic or not partition.isascii() or not partition.isdigit() or len(partition) > 10:
        return None
    return topic, int(partition)
