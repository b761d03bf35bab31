"""What Kafka's keys and JAAS options say of OAUTHBEARER: which tokens a listener takes. No I/O.

Answers to the choice of a handler in org.apache.kafka.common.network.SaslChannelBuilder, and to ConfigurationUtils,
AccessTokenValidatorFactory and VerificationKeyResolverFactory of …oauthbearer.internals.secured. A key may stand behind
"listener.name.x.", and "listener.name.x.oauthbearer."; the handler stands behind the latter only.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from kwire.replication.config.broker_config import ConfigError, broker_key, parse_value
from kwire.replication.core.types import SIGNED_TOKEN_HANDLERS
from kwire.security.mechanism import OAUTHBEARER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.security.jaas import Module
    from kwire.security.oauth import UnsecuredTokens
    from kwire.security.signed_tokens import SignedTokens

_HANDLER = "sasl.server.callback.handler.class"
_URL = "sasl.oauthbearer.jwks.endpoint.url"
_REFRESH = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
_BACKOFF = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
_BACKOFF_MAX = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
_MISSING = (
    "needs the library PyJWT with cryptography, which is not installed: pip install 'kwire[oauth]'"
)


class SignedSettings:
    """Of signed tokens. `issuer`: None: of any. `url`: of the key set, `url_key`: the key that names it."""

    __slots__ = (
        "audiences",
        "backoff_max_ms",
        "backoff_ms",
        "issuer",
        "refresh_ms",
        "scope_claim",
        "skew_s",
        "sub_claim",
        "url",
        "url_key",
    )

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        """ConfigError."""

        def value(name: str) -> Any:
            key = _key(config, listener, name)
            row: Any = broker_key(name)
            return parse_value(key, row, config.text(key))

        def text(name: str, *, needed: bool = False) -> str | None:
            found = str(value(name) or "").strip()
            if needed and not found:
                raise ConfigError(_key(config, listener, name), found, "it must not be empty")
            return found or None

        self.url_key = _key(config, listener, _URL)
        self.url = text(_URL, needed=True) or ""
        if urlsplit(self.url).scheme.lower() not in ("file", "http", "https"):
            raise ConfigError(self.url_key, self.url, "expected file:, http: or https:")
        audiences = value("sasl.oauthbearer.expected.audience")
        self.audiences: list[str] = [each for each in audiences or () if each]
        self.issuer = text("sasl.oauthbearer.expected.issuer")
        self.skew_s: int = value("sasl.oauthbearer.clock.skew.seconds")
        self.scope_claim = text("sasl.oauthbearer.scope.claim.name", needed=True) or ""
        self.sub_claim = text("sasl.oauthbearer.sub.claim.name", needed=True) or ""
        self.refresh_ms: int = value(_REFRESH)
        self.backoff_ms: int = value(_BACKOFF)
        self.backoff_max_ms: int = value(_BACKOFF_MAX)
        for name, least in ((_REFRESH, 1), (_BACKOFF, 0), (_BACKOFF_MAX, self.backoff_ms)):
            if value(name) < least:
                raise ConfigError(_key(config, listener, name), value(name), f"at least {least}")


def tokens_of(
    config: BrokerConfig, listener: str, module: Module
) -> UnsecuredTokens | SignedTokens:
    """Which tokens a listener takes; the keys of signed ones are to be loaded. ConfigError."""
    key = f"{_prefix(listener)}{_HANDLER}"
    handler = (config.text(key) or "").strip()
    if handler.lower() not in SIGNED_TOKEN_HANDLERS:
        url_key = _key(config, listener, _URL)
        if config.is_set(url_key):
            reason = f"it is for signed tokens: {key}={_SHOWN_HANDLER} asks for these"
            raise ConfigError(url_key, config.text(url_key), reason)
        from kwire.security.oauth import UnsecuredTokens

        try:
            return UnsecuredTokens(module.options)
        except ValueError as error:
            raise ConfigError(
                f"{_prefix(listener)}sasl.jaas.config", "[hidden]", str(error)
            ) from None
    try:
        import cryptography  # noqa: F401  # PyJWT goes without it, but then has HMAC only

        from kwire.security.signed_tokens import Keys, SignedTokens
    except ImportError:
        raise ConfigError(key, handler, _MISSING) from None
    return SignedTokens(SignedSettings(config, listener), Keys())


_SHOWN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


def _prefix(listener: str) -> str:
    return f"listener.name.{listener.lower()}.{OAUTHBEARER.lower()}."


def _key(config: BrokerConfig, listener: str, name: str) -> str:
    from kwire.security.settings import listener_key

    return listener_key(config, listener, OAUTHBEARER, name)
