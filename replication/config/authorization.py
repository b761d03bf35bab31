"""What Kafka's keys say of authorization: whether there is an authorizer, and who may do everything."""

from __future__ import annotations

from kwire.replication.config.broker_config import ConfigError
from kwire.replication.core.types import AUTHORIZER_KEY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.config.broker_config import BrokerConfig

SUPER_USERS_KEY = "super.users"
ALLOW_KEY = "allow.everyone.if.no.acl.found"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTHORIZERS = (STANDARD, "kafka.security.authorizer.AclAuthorizer")
"""Classes of Kafka's own. They have the same rules; the second one kept them in ZooKeeper."""


def is_authorizing(config: BrokerConfig) -> bool:
    """Whether what clients do is subject to access rules."""
    return bool(config.static.get(AUTHORIZER_KEY, "").strip())


def super_users(config: BrokerConfig) -> list[str]:
    """Principals that may do everything, "User:alice". ConfigError."""
    text = config.static.get(SUPER_USERS_KEY)
    problem = super_users_problem(text)
    if problem is not None:
        raise problem
    return [each.strip() for each in (text or "").split(";") if each.strip()]


def super_users_problem(text: str | None) -> ConfigError | None:
    """What is wrong with a value of super.users; None: nothing."""
    for each in (text or "").split(";"):
        kind, _, name = each.strip().partition(":")
        if each.strip() and not (kind and name):
            reason = "expected principals, User:NAME, with a semicolon between two of them"
            return ConfigError(SUPER_USERS_KEY, text, reason)
    return None


def allows_if_no_acl_found(config: BrokerConfig) -> bool:
    """Whether everybody may do what no rule is about."""
    return config.static.get(ALLOW_KEY, "").strip().lower() == "true"
