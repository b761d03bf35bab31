"""The options `--sasl` and `--user` as Kafka's keys: what the nodes are started with."""

from __future__ import annotations

from kwire.replication.core.types import INTERNAL_LISTENER, SASL_PLAINTEXT, USERS_KEY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kwire.security.client import Credentials

CHOICES = ("plain", "scram-sha-256", "scram-sha-512")
_PROTOCOLS_KEY = "listener.security.protocol.map"


def parse_users(items: Any) -> dict[str, str]:
    """Secrets by name, of texts NAME:SECRET. ValueError, which shows no secret."""
    users: dict[str, str] = {}
    for item in items:
        name, colon, secret = item.partition(":")
        if not (colon and name and secret) or "\n" in item:
            raise ValueError("expected NAME:SECRET")
        if name in users:
            raise ValueError(f"{name} is given twice")
        users[name] = secret
    return users


def with_logins(
    values: Mapping[str, str], mechanism: str | None, users: Mapping[str, str]
) -> dict[str, str]:
    """The keys of a node whose clients log in by `mechanism`, one of CHOICES: the listener asks for it, and another one
    on this machine, at a port that nobody is told, is for brokers and for kwire itself. With a mechanism of None the
    users are those of the listeners in `values`. ValueError with one line."""
    found = dict(values)
    if mechanism is None and not users:
        return found
    if mechanism is not None and mechanism not in CHOICES:
        raise ValueError(f"sasl: expected {', '.join(CHOICES)}, not {mechanism!r}")
    if users:
        found[USERS_KEY] = "\n".join(f"{name}:{secret}" for name, secret in users.items())
    if mechanism is None:
        if SASL_PLAINTEXT not in found.get("listeners", "") and SASL_PLAINTEXT not in found.get(
            _PROTOCOLS_KEY, ""
        ):
            raise ValueError(f"a user needs a mechanism to log in by: {', '.join(CHOICES)}")
        return found
    if not users:
        raise ValueError(f"sasl {mechanism} needs a user, NAME:SECRET")
    if "sasl.enabled.mechanisms" in found:
        raise ValueError("sasl and sasl.enabled.mechanisms are given: give one of them")
    first, comma, rest = found["listeners"].partition(",")
    if comma or not first.strip().upper().startswith("PLAINTEXT://"):
        raise ValueError(f"sasl and listeners ({first}{comma}{rest}) are given: give one of them")
    found["listeners"] = f"{_renamed(first)},{INTERNAL_LISTENER}://127.0.0.1:0"
    advertised = found.get("advertised.listeners")
    if advertised:
        found["advertised.listeners"] = f"{_renamed(advertised)},{INTERNAL_LISTENER}://127.0.0.1:0"
    found[_PROTOCOLS_KEY] = f"{SASL_PLAINTEXT}:{SASL_PLAINTEXT},{INTERNAL_LISTENER}:PLAINTEXT"
    found["inter.broker.listener.name"] = INTERNAL_LISTENER
    found["sasl.enabled.mechanisms"] = mechanism.upper()
    found.pop("security.inter.broker.protocol", None)
    return found


def _renamed(listener: str) -> str:
    return f"{SASL_PLAINTEXT}://{listener.partition('://')[2]}"


def credentials_in(values: Mapping[str, str], user: str | None) -> Credentials | None:
    """The credentials of a user, by default the first, in a node's keys; None: clients do not log in there. ValueError
    for a user that the keys do not have, and for a listener with TLS."""
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.config.users import given_users
    from kwire.security.client import Credentials
    from kwire.security.settings import listener_settings

    first = values.get("listeners", "").partition("://")[0].strip().upper()
    pairs = (
        pair.strip().upper().partition(":") for pair in values.get(_PROTOCOLS_KEY, "").split(",")
    )
    protocols = {name: protocol for name, _, protocol in pairs}
    protocol = protocols.get(first, first)
    if protocol.endswith("SSL"):
        raise ValueError(
            f"client_config: listener {first} has TLS, whose certificates kwire does not know"
        )
    if protocol != SASL_PLAINTEXT:
        if user is not None:
            raise ValueError(f"user: the cluster has no user {user!r}")
        return None
    config = BrokerConfig(values)
    settings = listener_settings(config, first)
    known = {**settings.plain_users, **given_users(config)}
    if user is None:
        user = next(iter(known), "")
    if user not in known:
        raise ValueError(f"user: the cluster has no user {user!r}")
    return Credentials(settings.mechanisms[0], user, known[user])
