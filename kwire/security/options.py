"""The options `--sasl`, `--user`, `--tls` and `--mtls` as Kafka's keys: what the nodes are started with."""

from __future__ import annotations

from kwire.replication.core.types import (
    INTERNAL_LISTENER,
    MTLS,
    TLS_DIRECTORY_KEY,
    TLS_KEY,
    USERS_KEY,
)
from kwire.security.mechanism import OAUTHBEARER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from kwire.security.certificates import Certificates
    from kwire.security.client import Credentials
    from kwire.security.settings import ListenerSettings

CHOICES = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
TOKENS = CHOICES[3]
"""Whoever comes says by an unsecured token who that is."""
DEFAULT_CLIENT = "client"
"""Whose unsecured token a client's configuration makes, unless it is said."""
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
    values: Mapping[str, str],
    mechanism: str | None,
    users: Mapping[str, str],
    tls: str | None = None,
) -> dict[str, str]:
    """The keys of a node whose clients log in by `mechanism`, one of CHOICES, and speak TLS (`tls`: TLS or MTLS).

    The listener asks for it, and another one on this machine, at a port that no client learns, is for brokers and for
    kwire itself. With a mechanism of None the users are those of the listeners in `values`; with `tls`, listeners that
    ask for TLS are left as they are. ValueError with one line."""
    found = dict(values)
    if mechanism is None and not users and tls is None:
        return found
    if mechanism is not None and mechanism not in CHOICES:
        raise ValueError(f"sasl: expected {', '.join(CHOICES)}, not {mechanism!r}")
    if users:
        found[USERS_KEY] = "\n".join(f"{name}:{secret}" for name, secret in users.items())
    if mechanism is None:
        if users and "SASL_" not in found.get("listeners", "") + found.get(_PROTOCOLS_KEY, ""):
            raise ValueError(f"a user needs a mechanism to log in by: {', '.join(CHOICES)}")
        names = _with_tls(found)
        if tls is not None and names:
            _guard(found, tls, names)
        if tls is None or names:
            return found
    elif mechanism == TOKENS and users:
        raise ValueError(f"sasl {TOKENS} has no users: a client's token says who it is")
    elif not users and mechanism != TOKENS:
        raise ValueError(f"sasl {mechanism} needs a user, NAME:SECRET")
    elif "sasl.enabled.mechanisms" in found:
        raise ValueError("sasl and sasl.enabled.mechanisms are given: give one of them")
    _lock(found, mechanism, tls)
    return found


def _lock(values: dict[str, str], mechanism: str | None, tls: str | None) -> None:
    """Let the only listener ask for a log-in, for TLS, or for both, and add the other one. ValueError."""
    first, comma, rest = values["listeners"].partition(",")
    if comma or not first.strip().upper().startswith("PLAINTEXT://"):
        option = "sasl" if mechanism is not None else tls
        given = f"{first}{comma}{rest}"
        raise ValueError(f"{option} and listeners ({given}) are given: give one of them")
    name = ("" if mechanism is None else "SASL_") + ("PLAINTEXT" if tls is None else "SSL")
    for key in ("listeners", "advertised.listeners"):
        if values.get(key):
            own = f"{INTERNAL_LISTENER}://127.0.0.1:0"
            values[key] = f"{name}://{values[key].partition('://')[2]},{own}"
    values[_PROTOCOLS_KEY] = f"{name}:{name},{INTERNAL_LISTENER}:PLAINTEXT"
    values["inter.broker.listener.name"] = INTERNAL_LISTENER
    if mechanism is not None:
        values["sasl.enabled.mechanisms"] = mechanism.upper()
    if mechanism == TOKENS:
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        key = f"listener.name.{name.lower()}.{TOKENS}.sasl.jaas.config"
        values.setdefault(key, f"{module} required;")
    values.pop("security.inter.broker.protocol", None)
    if tls is not None:
        _guard(values, tls, [name])


def _with_tls(values: Mapping[str, str]) -> list[str]:
    """The listeners that ask for TLS."""
    return [name for name, it in listener_protocols(values).items() if it.endswith("SSL")]


def _guard(values: dict[str, str], tls: str, names: list[str]) -> None:
    """Add the keys of `--tls` or `--mtls` for these listeners."""
    values[TLS_KEY] = tls
    if tls == MTLS:
        for name in names:  # behind a prefix it acts with SASL_SSL, too
            values.setdefault(f"listener.name.{name.lower()}.ssl.client.auth", "required")


def _protocols(values: Mapping[str, str]) -> dict[str, str]:
    pairs = (
        pair.strip().upper().partition(":") for pair in values.get(_PROTOCOLS_KEY, "").split(",")
    )
    return {name: protocol for name, _, protocol in pairs}


def listener_protocols(values: Mapping[str, str]) -> dict[str, str]:
    """The security protocols of the listeners in a node's keys, by their names in capitals."""
    protocols = _protocols(values)
    items = values.get("listeners", "").split(",")
    names = [item.partition("://")[0].strip().upper() for item in items]
    return {name: protocols.get(name, name) for name in names}


def protocol_of(values: Mapping[str, str]) -> str:
    """The security protocol of the first listener in a node's keys."""
    return next(iter(listener_protocols(values).values()))


def certificates_in(values: Mapping[str, str]) -> Certificates | None:
    """The certificates of clients of the first listener in a node's keys; None: it does not ask for TLS. ValueError if
    kwire did not make them."""
    from kwire.security.certificates import Certificates

    if not protocol_of(values).endswith("SSL"):
        return None
    directory = values.get(TLS_DIRECTORY_KEY)
    if directory is None:
        raise ValueError("client_config: kwire did not make the certificates of its listener")
    return Certificates(directory, mutual=values.get(TLS_KEY) == MTLS)


def client_config_in(
    values: Mapping[str, str], kind: str, bootstrap_servers: str, user: str | None
) -> dict[str, Any]:
    """The configuration of a client of brokers with these keys (`client.client_config`). ValueError."""
    from kwire.security.client import KINDS, client_config

    if kind not in KINDS:
        raise ValueError(f"kind: expected {', '.join(KINDS)}, not {kind!r}")
    credentials, certificates = credentials_in(values, user), certificates_in(values)
    return client_config(kind, bootstrap_servers, credentials, certificates)


def credentials_in(values: Mapping[str, str], user: str | None) -> Credentials | None:
    """The credentials of a user, by default the first, in a node's keys; None: clients do not log in there. ValueError
    for a user that the keys do not have."""
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.config.users import given_users
    from kwire.security.client import Credentials
    from kwire.security.settings import listener_settings

    first = values.get("listeners", "").partition("://")[0].strip().upper()
    if not protocol_of(values).startswith("SASL_"):
        if user is not None:
            raise ValueError(f"user: the cluster has no user {user!r}")
        return None
    config = BrokerConfig(values)
    settings = listener_settings(config, first)
    if settings.mechanisms[0] == OAUTHBEARER:
        return _token_of(settings, user)
    known = {**settings.plain_users, **given_users(config)}
    if user is None:
        user = next(iter(known), "")
    if user not in known:
        raise ValueError(f"user: the cluster has no user {user!r}")
    return Credentials(settings.mechanisms[0], user, known[user])


def _token_of(settings: ListenerSettings, user: str | None) -> Credentials:
    """The credentials of whoever has a token. ValueError where signed ones are asked for, and a user is named."""
    from kwire.security.client import Credentials

    assert settings.tokens is not None
    if not settings.tokens.is_signed:
        return Credentials(OAUTHBEARER, DEFAULT_CLIENT if user is None else user, "")
    if user is not None:
        raise ValueError(f"user: kwire signs no token of {user!r}")
    return Credentials(OAUTHBEARER, "", "")
