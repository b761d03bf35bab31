"""Values of leader.replication.throttled.replicas and follower.replication.throttled.replicas.

Answers to ThrottledReplicaListValidator of Kafka.
"""

from __future__ import annotations

from kwire.replication.config.broker_config import ConfigError, ConfigValue


def check_throttled_replicas(key: str, value: ConfigValue) -> None:
    """Raise ConfigError unless the value is a list of partition:broker, * or none."""
    items = value if isinstance(value, list) else []
    if items in ([], ["*"], ["none"]):
        return
    for item in items:
        partition, _, broker = item.partition(":")
        if not (partition.isdigit() and broker.isdigit()):
            allowed = (
                f"{key} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )
            raise ConfigError(key, f"[{', '.join(items)}]", allowed)
