"""What Kafka's keys say of delegation tokens: whether there can be any, and how long they last (all keys: KIP-48).

Answers to org.apache.kafka.server.config.DelegationTokenManagerConfigs.
"""

from __future__ import annotations

from kwire.replication.config.broker_config import broker_key, parse_value
from kwire.replication.core.types import TOKEN_KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.replication.config.broker_config import BrokerConfig


def token_secret(config: BrokerConfig) -> bytes | None:
    """The key of which the tokens' HMACs are made; None: there are no tokens. As in Kafka an empty one is none."""
    given = (config.static[key] for key in TOKEN_KEYS if key in config.static)
    return next(given, "").strip().encode() or None


def max_lifetime_ms(config: BrokerConfig) -> int:
    """How long a token can be renewed."""
    return _number(config, "delegation.token.max.lifetime.ms")


def expiry_time_ms(config: BrokerConfig) -> int:
    """How long a token lasts after its creation, or after it was renewed."""
    return _number(config, "delegation.token.expiry.time.ms")


def check_interval_ms(config: BrokerConfig) -> int:
    """How often expired tokens are deleted."""
    return _number(config, "delegation.token.expiry.check.interval.ms")


def _number(config: BrokerConfig, key: str) -> int:
    row: Any = broker_key(key)
    value = parse_value(key, row, config.text(key))
    assert isinstance(value, int)
    return value
