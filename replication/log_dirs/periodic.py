"""The periodic tasks of a LogManager, as steps (core/work.py): between two, logs may be closed.

Answers to the tasks that kafka.log.LogManager and ReplicaManager give to their scheduler. Imported when
the first of them is due.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol.errors import KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.replication.core.work import Steps
    from kwire.replication.log_dirs.directory import LogDirectory
    from kwire.replication.log_dirs.manager import LogManager

_UNITS_FLUSHED: Final = 2000
"""A flush that is waited for."""


def run(manager: LogManager, name: str) -> Steps:
    """Run a task to its end; an error of it is reported."""
    try:
        yield from _TASKS[name](manager)
    except (OSError, KafkaError) as error:
        manager.task_failed(f"periodic task {name}", error)


def _write_high_watermarks(manager: LogManager) -> Steps:
    manager.checkpoint_high_watermarks()
    yield _log_count(manager)


def _write_log_starts(manager: LogManager) -> Steps:
    manager.checkpoint_log_starts()
    yield _log_count(manager)


def _log_count(manager: LogManager) -> int:
    """The cost of a checkpoint, a microsecond for each partition."""
    return sum(len(directory.logs) for directory in manager.online())


def _advance_recovery_points(manager: LogManager) -> Steps:
    """Start the flushes that are missing, and write the recovery points that have been reached."""
    return manager.in_parts("recovery-points", _advance_those_of)


def _advance_those_of(directory: LogDirectory) -> Steps:
    for log in list(directory.all_logs()):
        if log.log_end_offset > log.recovery_point and not log.closed:
            log.advance_recovery_point()
            yield 20
        else:
            yield 1
    directory.write_recovery_points()


def _delete_old_segments(manager: LogManager) -> Steps:
    """Apply retention to logs that are not compacted (LogManager.cleanupLogs).

    The cleaner does it for compacted logs; future logs follow the current."""
    return manager.in_parts("retention", _delete_those_of)


def _delete_those_of(directory: LogDirectory) -> Steps:
    for log in list(directory.logs.values()):
        if not (log.config.compact or log.closed or log.is_offline):
            yield from log.apply_retention()


def _flush_dirty(manager: LogManager) -> Steps:
    """Flush the logs whose last flush is longer ago than flush.ms."""
    return manager.in_parts("flush", _flush_those_of)


def _flush_those_of(directory: LogDirectory) -> Steps:
    for log in list(directory.all_logs()):
        yield _UNITS_FLUSHED if not log.closed and log.maybe_flush() else 1


def _remove_expired_producers(manager: LogManager) -> Steps:
    for log in list(manager.logs()):
        yield 1 + len(log.producer_state.producers)
        producers = log.producer_state
        producers.producer_id_expiration_ms = manager.config.producer_id_expiration_ms  # dynamic
        if producers.producers:
            producers.remove_expired_producers()


def _clean(manager: LogManager) -> Steps:
    assert manager.clean_logs is not None
    yield from manager.clean_logs(manager)


_TASKS: Final[dict[str, Callable[[LogManager], Steps]]] = {
    "high-watermarks": _write_high_watermarks,
    "recovery-points": _advance_recovery_points,
    "log-starts": _write_log_starts,
    "retention": _delete_old_segments,
    "flush": _flush_dirty,
    "producers": _remove_expired_producers,
    "cleaner": _clean,
}
