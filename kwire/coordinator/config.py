"""The group coordinator's configuration. Answers to
org.apache.kafka.coordinator.group.GroupCoordinatorConfig."""

from __future__ import annotations

from kwire.protocol.varint import INT32_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.config.broker_config import BrokerConfig

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""Longest wait of the parked first join of a member without an id (before KIP-394)."""

OFFSETS_TOPIC = "__consumer_offsets"

# CompressionType's ids, as offsets.topic.compression.codec takes them.
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class GroupConfig:
    """Kafka's defaults, except the initial rebalance delay and the number of partitions."""

    __slots__ = (
        "group_initial_rebalance_delay_ms",
        "group_max_session_timeout_ms",
        "group_max_size",
        "group_min_session_timeout_ms",
        "offset_metadata_max_bytes",
        "offsets_commit_timeout_ms",
        "offsets_retention_check_interval_ms",
        "offsets_retention_ms",
        "offsets_topic_compression",
        "offsets_topic_num_partitions",
    )

    def __init__(
        self,
        *,
        group_initial_rebalance_delay_ms: int = 0,
        group_min_session_timeout_ms: int = 6_000,
        group_max_session_timeout_ms: int = 1_800_000,
        group_max_size: int = INT32_MAX,
        offset_metadata_max_bytes: int = 4096,
        offsets_commit_timeout_ms: int = 5_000,
        offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000,
        offsets_retention_check_interval_ms: int = 600_000,
        offsets_topic_num_partitions: int = 4,
        offsets_topic_compression: str = "none",
    ) -> None:
        self.group_initial_rebalance_delay_ms = group_initial_rebalance_delay_ms
        self.group_min_session_timeout_ms = group_min_session_timeout_ms
        self.group_max_session_timeout_ms = group_max_session_timeout_ms
        self.group_max_size = group_max_size
        self.offset_metadata_max_bytes = offset_metadata_max_bytes
        self.offsets_commit_timeout_ms = offsets_commit_timeout_ms
        self.offsets_retention_ms = offsets_retention_ms
        self.offsets_retention_check_interval_ms = offsets_retention_check_interval_ms
        self.offsets_topic_num_partitions = offsets_topic_num_partitions
        self.offsets_topic_compression = offsets_topic_compression

    @classmethod
    def from_broker(cls, config: BrokerConfig) -> GroupConfig:
        """Copy the broker's values; none of these keys can change at run time."""
        codec = config.offsets_topic_compression_codec
        return cls(
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            offsets_topic_num_partitions=config.offsets_topic_num_partitions,
            offsets_topic_compression=_CODECS[codec] if 0 <= codec < len(_CODECS) else "none",
        )
