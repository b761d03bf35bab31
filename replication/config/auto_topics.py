"""Settings of automatically created topics: partitions, replication factor, overrides.

Answers to kafka.server.AutoTopicCreationManager.
"""

from __future__ import annotations

from kwire.replication.core.metadata import (
    GROUP_METADATA_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.config.broker_config import BrokerConfig


def auto_topic_settings(config: BrokerConfig, name: str) -> tuple[int, int, dict[str, str]]:
    """Partitions, replication factor (-1 each: the broker's default) and overrides of a topic made on demand."""
    if name == GROUP_METADATA_TOPIC:
        overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        return (
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            overrides,
        )
    if name == TRANSACTION_STATE_TOPIC:
        overrides = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
        return (
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            overrides,
        )
    if name == SHARE_STATE_TOPIC:
        prefix = "share.coordinator.state.topic."
        overrides = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": config.text(prefix + "min.isr") or "1",
            "segment.bytes": config.text(prefix + "segment.bytes") or "104857600",
            "retention.ms": "-1",
        }
        return (
            int(config.text(prefix + "num.partitions") or 1),
            int(config.text(prefix + "replication.factor") or 1),
            overrides,
        )
    return -1, -1, {}
