"""Configuration keys that are given and that kwire cannot honour: refused, or worth a warning.

A key that would protect the cluster (authorization, authentication, encryption, policies) is refused: a
test of it would pass for the wrong reason. Any other key that has no effect is named in one warning,
unless nobody would miss its effect: the value is Kafka's default, or what kwire does anyway, or the key
tunes or arranges the inside of a JVM broker (docs/decisions/11-keys-without-effect.md). Pure functions.
"""

from __future__ import annotations

from kwire.replication.config.authorization import (
    ALLOW_KEY,
    AUTHORIZERS,
    STANDARD,
    SUPER_USERS_KEY,
    super_users_problem,
)
from kwire.replication.config.broker_config import (
    BrokerConfig,
    ConfigError,
    acts_on_broker_key,
    broker_key,
    parse_value,
)
from kwire.replication.core.types import (
    AUTHORIZER_KEY,
    SECURITY_KEYS,
    SIGNED_TOKEN_HANDLERS,
    STORE_KEYS,
    UNSECURED_TOKEN_HANDLER,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_AUTHORIZER = (
    f"kwire runs no Java classes; name Kafka's own authorizer, {STANDARD}, or leave this key out"
)
_NO_STORES = (
    "kwire reads stores by ssl.keystore.location and ssl.keystore.password; leave this key out"
)
_NO_CLASSES = "kwire runs no Java classes; leave this key out"
_NO_HANDLERS = (
    "kwire runs no Java classes; name one of Kafka's own for OAUTHBEARER, or leave this key out"
)
_NO_KERBEROS = (
    "kwire has no GSSAPI (Kerberos), but PLAIN, SCRAM and OAUTHBEARER; leave this key out"
)
_NO_TOKEN_CLIENT = "kwire's brokers fetch no tokens for themselves; leave this key out"
_HANDLER_KEY = "sasl.server.callback.handler.class"
_OF_OAUTH = f".oauthbearer.{_HANDLER_KEY}"
_MISPLACED = f"Kafka's brokers ignore it; name listener and mechanism: listener.name.sasl_plaintext{_OF_OAUTH}"
_JAAS = "Kafka's brokers ignore it; name listener and mechanism: listener.name.sasl_plaintext.plain.sasl.jaas.config"
_NO_POLICY = "kwire runs no Java classes, so nothing would be enforced; leave this key out"

# Key: the reason for its refusal, and the values that are fine besides Kafka's default.
_REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "alter.config.policy.class.name": (_NO_POLICY, ()),
    AUTHORIZER_KEY: (_NO_AUTHORIZER, tuple(each.lower() for each in AUTHORIZERS)),
    "create.topic.policy.class.name": (_NO_POLICY, ()),
    "principal.builder.class": (_NO_CLASSES, ()),
    "sasl.client.callback.handler.class": (_NO_CLASSES, ()),
    "sasl.jaas.config": (_JAAS, ()),
    "sasl.kerberos.service.name": (_NO_KERBEROS, ()),
    "sasl.login.callback.handler.class": (_NO_CLASSES, ()),
    "sasl.login.class": (_NO_CLASSES, ()),
    "sasl.oauthbearer.token.endpoint.url": (_NO_TOKEN_CLIENT, ()),
    _HANDLER_KEY: (_NO_HANDLERS, (*SIGNED_TOKEN_HANDLERS, UNSECURED_TOKEN_HANDLER)),
    "ssl.engine.factory.class": (_NO_CLASSES, ()),
    "ssl.key.credentials": (_NO_STORES, ()),  # of Kafka's images, as the next ones of that name
    "ssl.keystore.credentials": (_NO_STORES, ()),
    "ssl.keystore.filename": (_NO_STORES, ()),
    "ssl.truststore.credentials": (_NO_STORES, ()),
    "ssl.truststore.filename": (_NO_STORES, ()),
}
# Keys whose effect nobody would miss. A name that ends in a dot stands for all that begin with it.
_QUIET = (
    "auto.include.jmx.reporter",
    "background.threads",
    "broker.id.generation.enable",
    "control.plane.listener.name",
    "controller.performance.",
    "controller.quorum.",
    "controller.socket.timeout.ms",
    "delete.records.purgatory.",
    "early.start.listeners",
    "fetch.purgatory.",
    "group.coordinator.append.linger.ms",
    "group.coordinator.background.threads",
    "group.coordinator.cached.",
    "group.coordinator.new.enable",
    "group.coordinator.threads",
    "initial.broker.registration.timeout.ms",
    "inter.broker.protocol.version",
    "kafka.metrics.",
    "log.cleaner.io.",
    "log.cleaner.threads",
    "log.dir.failure.timeout.ms",
    "log.message.format.version",
    "log.preallocate",
    "metadata.",
    "metric.reporters",
    "metrics.",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads",
    "offsets.load.buffer.size",
    "password.encoder.",
    "process.roles",
    "producer.purgatory.",
    "queued.max.",
    "reserved.broker.max.id",
    "server.max.startup.time.ms",
    "share.coordinator.",
    "share.fetch.purgatory.",
    "socket.connection.setup.",
    "telemetry.max.bytes",
    "transaction.state.log.load.buffer.size",
    "unclean.leader.election.interval.ms",
    "zookeeper.",
)
# Keys of ZooKeeper's that have an effect in Kafka, and the key by which kwire has it.
_INSTEAD = {"zookeeper.session.timeout.ms": "broker.session.timeout.ms"}
# What kwire does anyway.
_AS_WANTED = {"group.coordinator.rebalance.protocols": ("classic",)}
_OF_AUTHORIZER = (ALLOW_KEY, SUPER_USERS_KEY)
"""Keys of the authorizer's: not of Kafka's brokers."""
_VENDOR = "confluent."
"""Keys of Confluent's own: unknown to Apache Kafka, but no typing errors."""
_OTHERS = ("rest.", "schema.registry.")
"""Keys for other servers of Confluent's images: Testcontainers sets one of them."""


def check_security(values: Mapping[str, str]) -> None:
    """ConfigError for the first key that asks for protection that kwire does not have."""
    for key, text in values.items():
        problem = security_problem(key, text)
        if problem is not None:
            raise problem


def security_problem(key: str, text: str | None) -> ConfigError | None:
    """Why a key with this value is refused; None: it is not. Secrets are not shown.

    The key may stand behind the prefix "listener.name.x." or "listener.name.x.mechanism."."""
    if key == SUPER_USERS_KEY:
        return super_users_problem(text)
    plain = _plain_key(key)
    if plain is None or text is None or not text.strip():
        return None
    reason, fine = _REFUSED[plain]
    row = broker_key(plain)
    default = None if row is None else row[1]
    value = text.strip()
    if value == default or value.lower() in fine:
        if plain != _HANDLER_KEY or key.endswith(_OF_OAUTH):
            return None
        reason = _MISPLACED
    is_secret = (row is not None and row[0] == "PASSWORD") or "credentials" in plain
    return ConfigError(key, "[hidden]" if is_secret else value, reason)


def problem_at_run_time(key: str, text: str | None) -> ConfigError | None:
    """Why a broker that runs does not take a key with this value; None: it does. Secrets are not shown."""
    if key.endswith(STORE_KEYS) and key.startswith("listener.name."):
        return None
    if (key.endswith(SECURITY_KEYS) or key in _OF_AUTHORIZER) and text is not None:
        return ConfigError(key, "[hidden]", "kwire reads it when it starts, and not again")
    return security_problem(key, text)


def _plain_key(key: str) -> str | None:
    """The key of _REFUSED that a given key is or ends in; None: neither."""
    if key in _REFUSED:
        return key
    if key.startswith("listener.name."):
        parts = key.split(".")
        for start in (3, 4):
            plain = ".".join(parts[start:])
            if plain in _REFUSED and not (plain == "sasl.jaas.config" and start == 4):
                return plain
    return None


def is_known_key(key: str) -> bool:
    """Whether a key means something to Kafka or to what is usually shipped with it."""
    known = broker_key(key) is not None or key in _REFUSED or key in _OF_AUTHORIZER
    return known or key.startswith((_VENDOR, *_OTHERS))


def keys_without_effect(config: BrokerConfig) -> list[str]:
    """The given keys whose effect somebody may miss, sorted."""
    return sorted(key for key, text in config.static.items() if _is_missed(key, text))


def instead_of(keys: list[str]) -> str | None:
    """What to give instead of keys without effect, as text for people; None: nothing."""
    found = [f"{_INSTEAD[key]} acts instead of {key}" for key in keys if key in _INSTEAD]
    return ", ".join(found) or None


def _is_missed(key: str, text: str) -> bool:
    if key.startswith(_VENDOR):
        return True
    row = broker_key(key)
    if row is None or _plain_key(key) is not None or acts_on_broker_key(key):
        return False  # unknown keys are another warning; refused ones are not here, or harmless
    quiet = any(key.startswith(name) if name.endswith(".") else key == name for name in _QUIET)
    if quiet and key not in _INSTEAD:
        return False
    if text.strip().lower() in _AS_WANTED.get(key, ()):
        return False
    default = None if row[1] is None else parse_value(key, row, row[1])
    return parse_value(key, row, text) != default and bool(text.strip())


def similar_key(key: str) -> str | None:
    """The key of Kafka's that somebody may have meant who has written an unknown one."""
    from difflib import get_close_matches

    from kwire.replication.config.broker_config import OWN_KEYS
    from kwire.replication.config.table import BROKER_KEYS

    found = get_close_matches(key, [*BROKER_KEYS, *OWN_KEYS], 1, 0.8)
    return found[0] if found else None
