"""Periodic looks of a core that find nothing to do until a known time: an advance of days need not run each.

A look is run at the first of its times at which its outcome may differ from the last one's: something has happened
since, or a limit of age has been reached. So the outcome of an advance is as if all of them had run.
"""

from __future__ import annotations

from itertools import islice

from kwire.controller_node import ControllerNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from kwire.broker import Broker
    from kwire.coordinator.group_shard import GroupShard
    from kwire.replication.log.log import Log
    from kwire.shards.runtime import CoordinatorRuntime
    from kwire.transactions.shard import TransactionShard

    Times = Callable[[], Iterable[int]]

_BOOKKEEPING = ("high-watermarks", "recovery-points", "log-starts", "flush", "producers")
"""Tasks of the LogManager whose outcome nobody sees before the end of an advance."""
_SEGMENTS = 100
"""Segments of a compacted log that are looked at: the oldest ones."""


class Check:
    """A periodic look. `times()`: when its outcome may change by age alone, Unix ms; None: it is bookkeeping."""

    __slots__ = ("interval_ms", "times")

    def __init__(self, interval_ms: int, times: Times | None) -> None:
        self.interval_ms = max(interval_ms, 1)
        self.times = times

    def next_change_ms(self, wall_ms: int) -> int | None:
        """The next of its times; None: never."""
        assert self.times is not None
        return min((each for each in self.times() if each > wall_ms), default=None)


def checks_of(core: Broker | ControllerNode) -> dict[Hashable, Check]:
    """The periodic looks of a core by the keys of their timers."""
    if isinstance(core, ControllerNode):
        interval_ms = core.config.leader_imbalance_check_interval_seconds * 1000
        return {("controller", "balance"): Check(interval_ms, tuple)}
    config, replicas = core.config, core.services.replica_manager
    found: dict[Hashable, Check] = {
        ("log-manager", name): Check(interval_ms, None)
        for name, interval_ms in zip(
            _BOOKKEEPING,
            (
                config.replica_high_watermark_checkpoint_interval_ms,
                config.log_flush_offset_checkpoint_interval_ms,
                config.log_flush_start_offset_checkpoint_interval_ms,
                config.log_flush_scheduler_interval_ms,
                config.producer_id_expiration_check_interval_ms,
            ),
            strict=True,
        )
    }
    found["log-manager", "retention"] = Check(
        config.log_retention_check_interval_ms, lambda: _ends_of_retention(core)
    )
    found["log-manager", "cleaner"] = Check(
        config.log_cleaner_backoff_ms, lambda: _ends_of_compaction_lags(core)
    )
    found[replicas, "isr-expiration"] = Check(
        replicas.replica_lag_time_max_ms // 2, lambda: _ends_of_lags(core)
    )
    _add_groups(found, core.services.group_coordinator.runtime)
    transactions = core.services.transactions_if_used
    if transactions is not None and transactions.runtime is not None:
        _add_transactions(found, transactions.runtime)
    return found


def _ends_of_retention(core: Broker) -> Iterator[int]:
    for log in core.services.log_manager.logs():
        if log.segments and not (log.config.compact or log.closed or log.is_offline):
            yield from _end_of_retention(log)


def _end_of_retention(log: Log) -> Iterator[int]:
    if log.config.delete and log.config.retention_ms >= 0:
        yield log.segments[0].largest_timestamp() + log.config.retention_ms + 1


def _ends_of_compaction_lags(core: Broker) -> Iterator[int]:
    for log in core.services.log_manager.logs():
        config = log.config
        if not config.compact or log.closed or log.is_offline or not log.segments:
            continue
        yield from _end_of_retention(log)
        for segment in islice(log.segments, _SEGMENTS):
            largest_ms = segment.largest_timestamp()
            yield largest_ms + config.min_compaction_lag_ms
            yield largest_ms + config.max_compaction_lag_ms + 1
            if segment.first_timestamp is not None:
                yield segment.first_timestamp + config.max_compaction_lag_ms + 1


def _ends_of_lags(core: Broker) -> Iterator[int]:
    replicas = core.services.replica_manager
    to_wall_ms = core.clock.wall_ms - core.clock.now_ms
    for partition in replicas.partitions():
        if partition.is_leader and partition.remote_replicas:
            end = partition.log.log_end_offset
            for member in partition.isr_state.isr:
                replica = partition.remote_replicas.get(member)
                if replica is not None and replica.log_end_offset != end:
                    last_ms = replica.last_caught_up_time_ms + to_wall_ms
                    yield last_ms + replicas.replica_lag_time_max_ms + 1


def _add_groups(found: dict[Hashable, Check], runtime: CoordinatorRuntime[GroupShard]) -> None:
    def times(shard: GroupShard) -> Iterator[int]:
        retention_ms = shard._config.offsets_retention_ms
        for group in shard.classic.groups.values():
            for _, _, value in shard.offsets.store.iterate(group.group_id):
                base_ms = group.expiry_base_timestamp_ms(value)
                if base_ms is not None:
                    own_ms = value.expire_timestamp_ms
                    yield base_ms + retention_ms if own_ms is None else own_ms

    for index, context in runtime.contexts.items():
        key = (runtime.kind.timer_prefix, index, ("expire-group-metadata",))
        shard = context.shard
        interval_ms = shard._config.offsets_retention_check_interval_ms
        found[key] = Check(interval_ms, lambda shard=shard: times(shard))  # type: ignore[misc]


def _add_transactions(
    found: dict[Hashable, Check], runtime: CoordinatorRuntime[TransactionShard]
) -> None:
    def times(shard: TransactionShard) -> Iterator[int]:
        for each in shard.transactions.values():
            yield each.values.last_update_ms + shard._around.expiration_ms

    def time_outs(shard: TransactionShard) -> Iterator[int]:
        for each in shard.open.values():
            yield each.values.start_ms + each.values.timeout_ms + 1

    for index, context in runtime.contexts.items():
        shard, prefix = context.shard, runtime.kind.timer_prefix
        around = shard._around
        found[prefix, index, ("expire",)] = Check(
            around.expire_interval_ms,
            lambda shard=shard: times(shard),  # type: ignore[misc]
        )
        found[prefix, index, ("abort-timed-out",)] = Check(
            around.abort_interval_ms,
            lambda shard=shard: time_outs(shard),  # type: ignore[misc]
        )
