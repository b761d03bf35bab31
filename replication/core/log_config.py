"""The configuration of one log, as typed attributes with Kafka's defaults.

Built from the merged topic and broker keys by `config/broker_config.py`; replaced as a whole when a key changes.
"""

from __future__ import annotations

from typing import dataclass_transform

from kwire.protocol.varint import INT64_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

UNLIMITED = -1
FULL = "full"
HEADER = "header"
OWN_FIELDS = frozenset({"record_validation"})
"""Fields of kwire's own keys: brokers have them, topics do not."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class _Values:
    """A frozen dataclass to type checkers. A real one of 26 fields would cost 3.5 ms of every start."""

    FIELDS: dict[str, Any]

    def __init_subclass__(cls) -> None:
        cls.FIELDS = {name: getattr(cls, name) for name in cls.__annotations__}

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - self.FIELDS
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        for name, default in self.FIELDS.items():
            object.__setattr__(self, name, values.get(name, default))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} does not change: {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # equal by value, and compared only

    def __repr__(self) -> str:
        changed = {k: v for k, v in vars(self).items() if v != self.FIELDS[k]}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"


class LogConfig(_Values):
    """Units end the names; -1 is "no limit" for retention_ms and retention_bytes (Kafka: storage…LogConfig)."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = UNLIMITED
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1048588
    message_downconversion_enable: bool = True
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    file_delete_delay_ms: int = 60_000
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    record_validation: str = FULL

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    def but(self, **values: Any) -> LogConfig:
        """Copy it with other values for these fields."""
        return LogConfig(**{**vars(self), **values})
