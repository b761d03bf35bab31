"""Users that are given at the start (`kwire.users`): they may log in by every enabled mechanism."""

from __future__ import annotations

from kwire.replication.config.broker_config import ConfigError, broker_key
from kwire.replication.core.scram_credentials import NUMBERS
from kwire.replication.core.types import SCRAM_USERS_KEY, USERS_KEY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.config.broker_config import BrokerConfig


def given_users(config: BrokerConfig) -> dict[str, str]:
    """Secrets by name. ConfigError, which does not show them."""
    users: dict[str, str] = {}
    for line in filter(None, config.static.get(USERS_KEY, "").split("\n")):
        name, colon, secret = line.partition(":")
        if not (name and colon and secret):
            raise ConfigError(USERS_KEY, "[hidden]", "expected NAME:SECRET, one a line")
        users[name] = secret
    return users


def given_scram_users(config: BrokerConfig) -> list[tuple[str, str, str]]:
    """Name, mechanism and secret of those that have SCRAM credentials: for each mechanism that some listener enables,
    or for that with which they are given (`kwire.scram.users`). ConfigError."""
    users = given_users(config)
    texts = [text for key, text in config.static.items() if key.endswith("sasl.enabled.mechanisms")]
    enabled = {each.strip() for text in texts for each in text.split(",")}
    found = [(n, each, s) for each in NUMBERS if each in enabled for n, s in users.items()]
    for line in filter(None, config.static.get(SCRAM_USERS_KEY, "").split("\n")):
        mechanism, name, secret = (*line.split(":", 2), "", "")[:3]
        if mechanism not in NUMBERS or not name or not secret:
            reason = "expected MECHANISM:NAME:SECRET, one a line"
            raise ConfigError(SCRAM_USERS_KEY, "[hidden]", reason)
        found.append((name, mechanism, secret))
    return found


def is_secret(key: str) -> bool:
    """Whether a key's value is not to be shown."""
    row = broker_key(key)
    return row is not None and row[0] == "PASSWORD"
