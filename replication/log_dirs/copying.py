"""Bring a broker's log directories, while it runs, into the state in which a clean stop leaves them: for snapshots.

Kafka has no counterpart; compare LogManager.shutdown and UnifiedLog.close. What a clean stop writes are files that
a running broker writes from time to time, too: the state of producers, indexes, checkpoints. Only the clean
shutdown file is left to whoever copies the directories, for it is true of the copy alone.

Invariant: between `prepare` and the end of the copying the broker runs no step.
"""

from __future__ import annotations

from kwire.replication.log_dirs.manager import LogManager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.log.log import Log

_ROLL_BYTES = 1 << 20
"""Larger active segments are rolled: what is appended next would else copy them."""


def prepare(manager: LogManager) -> None:
    """Write what a clean stop writes, and close all files. OSError or KafkaError(KAFKA_STORAGE_ERROR): nothing can be
    copied."""
    for directory in manager.online():
        for log in directory.all_logs():
            _complete(log)
        directory.checkpoint()
        directory.store.release_files()


def release(manager: LogManager) -> None:
    """Close all files after the copying: those that are shared now are opened as such."""
    for directory in manager.online():
        directory.store.release_files()


def _complete(log: Log) -> None:
    """Complete the files of a log, as its close does."""
    if log.active.size > _ROLL_BYTES:
        log.roll()
    try:
        producers = log.producer_state
        producers.map_end_offset = log.log_end_offset
        if producers.take_snapshot(flush=False) is not None:
            # Earlier ones that were taken in between segments have no use beside this one.
            producers.remove_stray_snapshots(segment.base_offset for segment in log.segments)
        log.active.seal()
    except OSError as error:
        raise log.storage_error("copy", error) from error
