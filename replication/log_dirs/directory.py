"""One log directory (an entry of `log.dirs`): its logs, checkpoints, identity and failure.

Answers to the per-directory state of kafka.log.LogManager (KIP-112) and to MetaProperties of Kafka
3.9. The LogManager chooses the directory of a new log and handles failed directories.

Invariants: a failed directory is not touched again before the broker restarts; kwire reads and
writes only whole files in it and directories named after partitions; `logs` are those with this
directory's store.
"""

from __future__ import annotations

from errno import EIO
from typing import NamedTuple

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.events import Event
from kwire.replication.core.log_store import PartitionFault, error_text
from kwire.replication.core.types import TopicPartition
from kwire.replication.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    format_offsets,
    pop_clean_shutdown,
    read_offsets,
    write_clean_shutdown,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.log_config import LogConfig
    from kwire.replication.core.log_store import LogStore
    from kwire.replication.log.loader import LogContext
    from kwire.replication.log.log import Log

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
FILE_NAME_BYTES_MAX = 255


class UnreadableLog(OSError):
    """A log cannot be loaded. Its text names the file, or at least the partition."""

    def __init__(self, log: str, error: OSError | KafkaError) -> None:
        text = error_text(error)
        if log not in text:
            text = f"{log}: {text}"
        super().__init__(EIO, text)


class LogDirStore(NamedTuple):
    """An entry of log.dirs opened by the driver: absolute path and store, or None and the reason."""

    path: str
    store: LogStore | None
    failure: str = ""


class LogDirectory:
    """A log directory. `failure`: why it is offline, None while online.

    `directory_id` is None if the broker has only one directory.
    """

    def __init__(
        self,
        opened: LogDirStore,
        clock: Clock,
        timers: Timers,
        config: BrokerConfig,
        log_event: LogEvent,
        on_failure: Callable[[LogDirectory, str], None],
    ) -> None:
        """`on_failure(directory, why)` is called with every store error, not only the first."""
        self.path = opened.path
        self.failure = None if opened.store is not None else opened.failure
        self.directory_id: bytes | None = None
        self.broker_epoch: int | None = None
        """From the clean shutdown file (-1: unknown); None after an unclean shutdown."""
        self.logs: dict[TopicPartition, Log] = {}
        self.future_logs: dict[TopicPartition, Log] = {}
        """Replicas that are moving here from another directory of this broker (KIP-113)."""
        self._store = opened.store
        self._clock = clock
        self._timers = timers
        self._config = config
        self._log_event = log_event
        self._written: dict[str, bytes] = {}
        self._renamed = 0
        self._on_failure = on_failure
        self._context: LogContext | None = None
        if opened.store is not None:
            opened.store.on_failure = self._task_failed

    @property
    def store(self) -> LogStore:
        """The opened store. OSError if it could not be opened."""
        if self._store is None:
            raise OSError(f"log directory {self.path} is offline: {self.failure}")
        return self._store

    def _log_context(self) -> LogContext:
        """What the logs of this directory share. OSError if it could not be opened."""
        if self._context is None:
            from kwire.replication.log.loader import LogContext

            self._context = LogContext(
                self.store,
                self._clock,
                self._timers,
                log_event=self._log_event,
                on_failure=self.report_failure,
            )
        self._context.producer_id_expiration_ms = self._config.producer_id_expiration_ms
        return self._context

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def report_failure(self, why: str) -> None:
        """Report an error of the store; the LogManager takes the directory offline."""
        self._on_failure(self, why)

    def _task_failed(self, error: OSError) -> None:
        """Handle the failure of a flush or deletion that was only started."""
        self.handle_error(error, "cannot flush or delete")

    def handle_error(self, error: OSError, doing: str) -> str:
        """Report a store error, unless a test injected it for one partition; return its text."""
        why = f"{doing}: {error}"
        if not isinstance(error, PartitionFault):
            self.report_failure(why)
        else:
            log_dir = self.path or None
            self._log_event(Event.STORAGE_FAULT, task=doing, log_dir=log_dir, detail=str(error))
        return why

    def holds(self, log: Log) -> bool:
        return log.store is self._store

    def all_logs(self) -> Iterable[Log]:
        yield from self.logs.values()
        yield from self.future_logs.values()

    # --- loading

    def load(self, topic_config: Callable[[str], LogConfig]) -> None:
        """Load every partition directory. OSError: the directory cannot be used."""
        store = self.store
        self.broker_epoch = pop_clean_shutdown(store)
        files = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)
        recovery_points, log_starts, high_watermarks = (read_offsets(store, f) for f in files)
        tails_lost = False
        for name in store.list_dir():
            if name.endswith(DELETE_SUFFIX):
                self.delete_later(name)
                continue
            key = parse_directory(name) or parse_future_directory(name)
            if key is None or store.exists(f"{name}/{META_PROPERTIES}"):
                continue  # with meta.properties: another broker's log directory ("broker-1")
            from kwire.replication.log.loader import load_log

            try:
                log = load_log(
                    self._log_context(),
                    name,
                    *key,
                    topic_config(key[0]),
                    clean=self.broker_epoch is not None,
                    recovery_point=recovery_points.get(key, 0),
                    log_start_offset=log_starts.get(key, 0),
                )
            except (OSError, KafkaError) as error:
                raise UnreadableLog(name, error) from error
            if name.endswith(FUTURE_SUFFIX):
                self._drop_futures([key])  # only the last one went on
                self.future_logs[key] = log
            else:
                high_watermark = high_watermarks.get(key, 0)
                log.update_high_watermark(high_watermark)
                tails_lost |= high_watermark > log.log_end_offset
                self.logs[key] = log
        self._drop_futures(self.logs)
        if tails_lost:
            # Otherwise new appends there would count as committed after the next crash.
            self.checkpoint_high_watermarks(flush=True)

    def _drop_futures(self, keys: Iterable[TopicPartition]) -> None:
        """Delete what failed moves have left in the directory that later ones have reached: it could never
        take the place of the log there."""
        for key in keys:
            log = self.future_logs.pop(key, None)
            if log is not None:
                log.abandon()
                self.delete_later(log.directory)
                detail = f"{log.directory} is left of a move that has failed, and is deleted"
                self._log_event(
                    Event.REPLICA_MOVE_FAILED, topic=key[0], partition=key[1], detail=detail
                )

    # --- logs

    def create(
        self, key: TopicPartition, topic_id: bytes, config: LogConfig, *, future: bool = False
    ) -> Log:
        """Create an empty log. OSError; KafkaError if the file system confuses it with another."""
        from kwire.replication.log.loader import create_log

        context = self._log_context()
        topic, index = key
        if self.store.ignores_case and not future:
            self._check_case(f"{topic}-{index}")
        name = self.unique_name(topic, index, FUTURE_SUFFIX) if future else f"{topic}-{index}"
        log = create_log(context, topic, index, topic_id, config, directory=name)
        (self.future_logs if future else self.logs)[key] = log
        return log

    def _check_case(self, name: str) -> None:
        """KafkaError if another log's name differs in upper and lower case only: they would share
        their files."""
        for log in self.logs.values():
            if log.directory.lower() == name.lower():
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"the file system of {self.path or 'the log directory'} does not tell {name}"
                    f" from {log.directory}: choose another name",
                )

    def promote(self, future: Log, current: Log) -> Log:
        """Replace `current` by a future log that has caught up. OSError.

        Closes the future log as in a clean shutdown, but without a flush, and loads it under the
        partition's name (UnifiedLog.renameDir)."""
        from kwire.replication.log.loader import load_log

        context = self._log_context()
        topic, index = key = future.topic, future.partition
        name = f"{topic}-{index}"
        future.leader_epochs.clear()
        for entry in current.leader_epochs.entries:
            future.leader_epochs.assign(*entry)
        future.producer_state.map_end_offset = future.log_end_offset
        future.producer_state.take_snapshot(flush=False)
        future.active.seal()
        future.abandon()
        self.store.rename(future.directory, name)
        del self.future_logs[key]
        log = load_log(
            context,
            name,
            topic,
            index,
            current.config,
            clean=True,
            recovery_point=future.recovery_point,
            log_start_offset=future.log_start_offset,
        )
        for entry in current.leader_epochs.entries:  # loading removes those without records
            if entry[0] > log.leader_epochs.latest_epoch:
                log.leader_epochs.assign(*entry)
        log.recovery_point = future.recovery_point
        log.is_topic_id_flushed = future.is_topic_id_flushed
        log.log_end_offset = current.log_end_offset
        log.producer_state.unreplicated = current.producer_state.unreplicated  # not in snapshots
        log.update_high_watermark(current.high_watermark)
        self.logs[key] = log
        return log

    def remove(self, log: Log, suffix: str) -> str:
        """Remove a log and rename its directory (`-delete`: delete it later); return the name."""
        for logs in (self.logs, self.future_logs):
            if logs.get((log.topic, log.partition)) is log:
                del logs[log.topic, log.partition]
        log.abandon()
        name = self.unique_name(log.topic, log.partition, suffix)
        try:
            self.store.rename(log.directory, name)
        except OSError as error:
            why = self.handle_error(error, f"cannot move the log of {log.name}")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why) from error
        if suffix == DELETE_SUFFIX:
            self.delete_later(name, log.config.file_delete_delay_ms)
        return name

    def unique_name(self, topic: str, index: int, suffix: str) -> str:
        """A directory name in Kafka's form: topic, partition, 32 hexadecimal digits, suffix.

        The topic is shortened to fit into a file name."""
        self._renamed += 1
        unique = f"{self._clock.wall_ms & (1 << 64) - 1:016x}{self._renamed:016x}"
        suffix = f"-{index}.{unique}{suffix}"
        return topic[: FILE_NAME_BYTES_MAX - len(suffix)] + suffix

    def delete_later(self, name: str, delay_ms: int | None = None) -> None:
        """Delete a directory after file.delete.delay.ms."""
        if delay_ms is None:
            delay_ms = self._config.log_segment_delete_delay_ms
        deadline = self._clock.now_ms + delay_ms

        def delete_dir() -> None:
            if self.is_online:
                try:
                    self.store.start_delete_dir(name)
                except OSError as error:
                    self.handle_error(error, f"cannot delete {name}")

        self._timers.schedule(("delete-log", self.path, name), deadline, delete_dir)

    def abandon(self) -> None:
        """Close the logs of a failed directory without writing."""
        for log in self.all_logs():
            try:
                log.abandon()
            except OSError:
                continue  # the disk has failed; nothing more to do
        self.logs.clear()
        self.future_logs.clear()

    # --- checkpoints. OSError.

    def checkpoint_high_watermarks(self, *, flush: bool = False) -> None:
        """Not flushed while running: a power cut then only leads to a lower high watermark."""
        entries = [(key, log.high_watermark) for key, log in self.logs.items()]
        self._checkpoint(HIGH_WATERMARKS, entries, flush)

    def checkpoint_recovery_points(self, *, flush: bool = False) -> None:
        for log in self.all_logs():
            log.advance_recovery_point()
        self.write_recovery_points(flush=flush)

    def write_recovery_points(self, *, flush: bool = False) -> None:
        """The checkpoint of what `advance_recovery_point` has reached."""
        entries = [(key, log.recovery_point) for key, log in self.logs.items()]
        entries += [(key, log.recovery_point) for key, log in self.future_logs.items()]
        self._checkpoint(RECOVERY_POINTS, entries, flush)

    def checkpoint_log_starts(self, *, flush: bool = False) -> None:
        """Only log starts inside the first segment; otherwise its file name is the log start.

        A log has no segment when the disk failed while all of it was truncated."""
        entries = [
            ((log.topic, log.partition), log.log_start_offset)
            for log in self.all_logs()
            if not log.segments or log.log_start_offset > log.segments[0].base_offset
        ]
        self._checkpoint(LOG_START_OFFSETS, entries, flush)

    def _checkpoint(
        self, path: str, entries: list[tuple[TopicPartition, int]], flush: bool
    ) -> None:
        data = format_offsets(entries)
        if flush or self._written.get(path) != data:
            self.store.write_file(path, data, flush=flush)
            self._written[path] = data

    def checkpoint(self, *, flush: bool = False) -> None:
        """Write all three checkpoints."""
        self.checkpoint_recovery_points(flush=flush)
        self.checkpoint_log_starts(flush=flush)
        self.checkpoint_high_watermarks(flush=flush)

    def close(self, broker_epoch: int) -> None:
        """Clean shutdown: flush logs, write snapshots and checkpoints, then the shutdown file.

        OSError or KafkaError(KAFKA_STORAGE_ERROR): no such file, the next start recovers."""
        with self.store.flush_together():
            for log in self.all_logs():
                log.close()
        self.checkpoint(flush=True)
        write_clean_shutdown(self.store, broker_epoch)


def parse_directory(name: str) -> TopicPartition | None:
    """Topic and partition of a directory name; None for others, also -future, -stray, -delete."""
    topic, _, partition = name.rpartition("-")
    if topic == "__cluster_metadata":  # a KRaft controller's, not a broker's
        return None
    if not topic or not partition.isascii() or not partition.isdigit() or len(partition) > 10:
        return None
    return topic, int(partition)


def parse_future_directory(name: str) -> TopicPartition | None:
    """Topic and partition of "orders-0.<32 hexadecimal digits>-future"; None for any other name."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    stem, _, unique = name[: -len(FUTURE_SUFFIX)].rpartition(".")
    if len(unique) != 32 or not all(letter in "0123456789abcdef" for letter in unique):
        return None
    return parse_directory(stem)
