"""What Kafka's keys say of log-ins: mechanisms, users and limits of each SASL listener. No I/O.

Answers to kafka.server.KafkaConfig and org.apache.kafka.common.network.{ChannelBuilders,SaslChannelBuilder}:
a key may stand behind "listener.name.x.", and "listener.name.x.mechanism."; users of PLAIN are in JAAS lines.
What cannot be honoured is a ConfigError in one line, in which no secret is.
"""

from __future__ import annotations

from kwire.replication.config.broker_config import (
    BrokerConfig,
    ConfigError,
    broker_key,
    parse_value,
)
from kwire.replication.config.users import given_users
from kwire.replication.core.scram_credentials import NUMBERS
from kwire.security.client import Credentials
from kwire.security.jaas import Module, parse_module
from kwire.security.mechanism import OAUTHBEARER, PLAIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.security.oauth import UnsecuredTokens
    from kwire.security.signed_tokens import SignedTokens

MECHANISMS = (PLAIN, *NUMBERS, OAUTHBEARER)
MODULES = {
    PLAIN: "PlainLoginModule",
    **dict.fromkeys(NUMBERS, "ScramLoginModule"),
    OAUTHBEARER: "OAuthBearerLoginModule",
}
"""The login module of each mechanism."""
_CLAIM = "unsecuredLoginStringClaim_"
_LEFT_OUT = {"GSSAPI": " (Kerberos)"}


class ListenerSettings:
    """Of one SASL listener. `plain_users`: their passwords. `tokens`: of OAUTHBEARER, which it takes. `own`: of the
    nodes themselves, who have to come in before users of SCRAM are known, which the controller sends over these
    connections. Secrets: not shown."""

    __slots__ = (
        "_lifetimes_ms",
        "failure_delay_ms",
        "max_receive_bytes",
        "mechanisms",
        "own",
        "plain_users",
        "tokens",
    )

    def __init__(
        self,
        mechanisms: list[str],
        plain_users: dict[str, str],
        lifetimes_ms: dict[str, int],
        max_receive_bytes: int,
        failure_delay_ms: int,
    ) -> None:
        self.mechanisms = mechanisms
        self.plain_users = plain_users
        self.max_receive_bytes = max_receive_bytes
        self.failure_delay_ms = failure_delay_ms
        self._lifetimes_ms = lifetimes_ms
        self.own: Credentials | None = None
        self.tokens: UnsecuredTokens | SignedTokens | None = None

    def lifetime_ms(self, mechanism: str) -> int:
        """How long a session lasts after a log-in; 0: without end."""
        return max(0, self._lifetimes_ms[mechanism])

    def __repr__(self) -> str:
        return f"ListenerSettings({self.mechanisms}, [hidden])"


def listener_settings(config: BrokerConfig, listener: str) -> ListenerSettings:
    """The settings of a listener of security protocol SASL_PLAINTEXT or SASL_SSL. ConfigError."""
    key = listener_key(config, listener, None, "sasl.enabled.mechanisms")
    text = config.text(key) or ""
    mechanisms = [each.strip() for each in text.split(",") if each.strip()]
    for name in mechanisms or [""]:
        if name not in MECHANISMS:
            known = ", ".join(MECHANISMS)
            given = "" if config.is_set(key) else ", Kafka's default"
            reason = (
                f"kwire has no {name}{_LEFT_OUT.get(name, '')}{given}" if name else "it is empty"
            )
            raise ConfigError(key, text, f"{reason}; listener {listener} can have {known}")
    users = given_users(config)
    plain_users = dict(users) if PLAIN in mechanisms else {}
    tokens = None
    for mechanism in mechanisms:
        is_oauth = mechanism == OAUTHBEARER
        module = _module(config, listener, mechanism, needed=not users or is_oauth)
        if mechanism == PLAIN and module is not None:
            plain_users.update(module.users())
        elif is_oauth and module is not None:
            from kwire.security.oauth_settings import tokens_of

            tokens = tokens_of(config, listener, module)
    lifetimes = {
        each: _number(config, listener, each, "connections.max.reauth.ms") for each in mechanisms
    }
    size = _number(config, listener, None, "sasl.server.max.receive.size")
    delay = _number(config, listener, None, "connection.failed.authentication.delay.ms")
    found = ListenerSettings(mechanisms, plain_users, lifetimes, size, delay)
    found.tokens = tokens
    return found


def inter_broker_login(config: BrokerConfig, listener: str) -> Credentials:
    """The credentials by which brokers log in at each other's SASL listener. ConfigError."""
    key = "sasl.mechanism.inter.broker.protocol"
    mechanism = (config.text(key) or "").strip()
    _check_enabled(config, listener, key, mechanism)
    return node_login(config, listener, mechanism)


def controller_login(config: BrokerConfig, listener: str) -> Credentials:
    """The credentials by which nodes log in at a controller's SASL listener. ConfigError."""
    key = "sasl.mechanism.controller.protocol"
    mechanism = (config.text(key) or "").strip()
    _check_enabled(config, listener, key, mechanism)
    return node_login(config, listener, mechanism)


def _check_enabled(config: BrokerConfig, listener: str, key: str, mechanism: str) -> None:
    settings = listener_settings(config, listener)
    if mechanism not in settings.mechanisms:
        enabled = ", ".join(settings.mechanisms)
        reason = f"must be one of sasl.enabled.mechanisms ({enabled}), as brokers log in at listener {listener}"
        raise ConfigError(key, mechanism, reason)


def node_login(config: BrokerConfig, listener: str, mechanism: str) -> Credentials:
    """The credentials of a node's JAAS line, by which it logs in at the same listener of others. ConfigError."""
    module = _module(config, listener, mechanism, needed=True)
    assert module is not None
    if mechanism == OAUTHBEARER:
        return _own_token(config, listener, module)
    name, password = module.options.get("username"), module.options.get("password")
    if name is None or password is None:
        key = jaas_key(listener, mechanism)
        reason = "username and password are needed: brokers log in at each other by them"
        raise ConfigError(key, "[hidden]", reason)
    return Credentials(mechanism, name, password)


def _own_token(config: BrokerConfig, listener: str, module: Module) -> Credentials:
    """A node's own unsecured token. ConfigError."""
    from kwire.security.oauth_settings import tokens_of

    key = jaas_key(listener, OAUTHBEARER)
    if tokens_of(config, listener, module).is_signed:
        reason = "kwire's brokers fetch no signed tokens: let them log in by another mechanism or at another listener"
        raise ConfigError(key, "[hidden]", reason)
    claims = {
        option.removeprefix(_CLAIM): text
        for option, text in module.options.items()
        if option.startswith(_CLAIM)
    }
    name = claims.get(module.options.get("unsecuredLoginPrincipalClaimName", "sub"))
    if not name:
        reason = f"{_CLAIM}sub is needed: brokers log in at each other by it"
        raise ConfigError(key, "[hidden]", reason)
    return Credentials(OAUTHBEARER, name, "", claims)


def jaas_key(listener: str, mechanism: str) -> str:
    """The key of a mechanism's login module at a listener."""
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"


def _module(config: BrokerConfig, listener: str, mechanism: str, *, needed: bool) -> Module | None:
    """The login module of a mechanism. ConfigError when it is needed and not there, or not right."""
    key = jaas_key(listener, mechanism)
    text = config.text(key)
    if text is None:
        if not needed:
            return None
        raise ConfigError(key, None, f"{mechanism} is enabled at listener {listener}, and needs it")
    try:
        module = parse_module(text)
    except ValueError as error:
        raise ConfigError(key, "[hidden]", str(error)) from None
    if module.name != MODULES[mechanism]:
        reason = f"the login module of {mechanism} is {MODULES[mechanism]}, not {module.name}"
        raise ConfigError(key, "[hidden]", reason)
    return module


def listener_key(config: BrokerConfig, listener: str, mechanism: str | None, name: str) -> str:
    """The most specific key that is given for a listener, else the plain one."""
    prefix = f"listener.name.{listener.lower()}."
    prefixes = [prefix] if mechanism is None else [f"{prefix}{mechanism.lower()}.", prefix]
    return next((p + name for p in prefixes if config.is_set(p + name)), name)


def _number(config: BrokerConfig, listener: str, mechanism: str | None, name: str) -> int:
    key = listener_key(config, listener, mechanism, name)
    row: Any = broker_key(name)
    value = parse_value(key, row, config.text(key))
    assert isinstance(value, int)
    return value
