"""What Kafka's keys say of TLS, as a context of Python's ssl. Reads key stores; no sockets.

Answers to org.apache.kafka.common.security.ssl.{DefaultSslEngineFactory,SslPrincipalMapper}: stores of type PEM, as
files or in the configuration (KIP-651); who does not say who he is, is User:ANONYMOUS. Left out: stores of
types JKS and PKCS12, cipher suites by Java's names, mapping rules. What cannot be honoured is a ConfigError in one
line, in which no secret is.
"""

from __future__ import annotations

import ssl
from tempfile import NamedTemporaryFile

from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.core.types import SECURITY_PROTOCOLS
from kwire.security.settings import listener_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.server.listeners import Listener

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_PEM = "PEM"
_CONVERT = "kwire reads stores of type PEM; openssl pkcs12 -in STORE -nodes -out FILE makes one"
# Short names of a distinguished name's attributes, as Java prints them (RFC 2253).
_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


def guard(config: BrokerConfig, listener: Listener) -> None:
    """Let a listener's connections speak TLS. ConfigError."""
    from kwire.server.tls.connection import TlsConnection

    listener.tls = server_context(config, listener.name, listener.security_protocol)
    listener.connection_type = TlsConnection


def server_context(config: BrokerConfig, listener: str, protocol: str) -> ssl.SSLContext:
    """The context of a listener of security protocol SSL or SASL_SSL. ConfigError."""

    def text_of(name: str) -> tuple[str, str]:
        key = listener_key(config, listener, None, name)
        return key, (config.text(key) or "").strip()

    for name, default in (("ssl.cipher.suites", ""), ("ssl.principal.mapping.rules", "DEFAULT")):
        key, text = text_of(name)
        if text not in ("", default):
            raise ConfigError(key, text, "kwire takes the default only; leave this key out")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, text_of)
    _load_own(context, text_of)
    key, text = text_of("ssl.client.auth")
    if protocol != SECURITY_PROTOCOLS[1] and not key.startswith("listener.name."):
        text = "none"  # as in Kafka: clients of SASL_SSL log in, unless the listener's own key says more
    if text.lower() not in _CLIENT_AUTH:
        raise ConfigError(key, text, f"must be one of {', '.join(_CLIENT_AUTH)}")
    context.verify_mode = _CLIENT_AUTH[text.lower()]
    if context.verify_mode != ssl.CERT_NONE:
        _load_trusted(context, text_of)
    return context


def client_context(config: BrokerConfig, listener: str, *, is_own: bool = False) -> ssl.SSLContext:
    """The context of nodes that connect to this listener of others: they trust whom its trust store has, else whom
    the system does, and show their own certificate, if they have one. `is_own`: of kwire itself, at an address of this
    machine that need not be in the certificate, and where nobody else can be. ConfigError."""

    def text_of(name: str) -> tuple[str, str]:
        key = listener_key(config, listener, None, name)
        return key, (config.text(key) or "").strip()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_versions(context, text_of)
    key, text = text_of("ssl.endpoint.identification.algorithm")
    if text.lower() not in ("https", ""):
        raise ConfigError(key, text, "must be https, or empty: then the host name is not verified")
    context.check_hostname = bool(text) and not is_own
    if text_of("ssl.keystore.location")[1] or text_of("ssl.keystore.key")[1]:
        _load_own(context, text_of)
    if text_of("ssl.truststore.location")[1] or text_of("ssl.truststore.certificates")[1]:
        _load_trusted(context, text_of)
    elif is_own:
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_default_certs()
    return context


def _set_versions(context: ssl.SSLContext, text_of: Any) -> None:
    key, text = text_of("ssl.enabled.protocols")
    wanted = [each.strip() for each in text.split(",") if each.strip()]
    for each in wanted or [""]:
        if each not in _VERSIONS:
            raise ConfigError(key, text, f"kwire speaks {' and '.join(_VERSIONS)}")
    context.minimum_version = min(_VERSIONS[each] for each in wanted)
    context.maximum_version = max(_VERSIONS[each] for each in wanted)


def _check_type(text_of: Any, name: str) -> None:
    key, kind = text_of(name)
    if kind.upper() != _PEM:
        raise ConfigError(key, kind, _CONVERT)


def _load_own(context: ssl.SSLContext, text_of: Any) -> None:
    """Load the node's own certificate and key."""
    _check_type(text_of, "ssl.keystore.type")
    password = text_of("ssl.key.password")[1] or None
    location_key, location = text_of("ssl.keystore.location")
    chain, private = (text_of(f"ssl.keystore.{each}")[1] for each in ("certificate.chain", "key"))
    if not location and not (chain and private):
        reason = (
            "a listener with TLS needs it, or ssl.keystore.key and ssl.keystore.certificate.chain"
        )
        raise ConfigError(location_key, location or None, reason)
    try:
        if location:
            context.load_cert_chain(location, password=password or "")
            return
        with NamedTemporaryFile(
            "w", encoding="utf-8", suffix=".pem"
        ) as file:  # Python reads no texts
            file.write(f"{private}\n{chain}\n")
            file.flush()
            context.load_cert_chain(file.name, password=password or "")
    except (OSError, ValueError) as error:
        raise ConfigError(location_key, location or "[hidden]", _said(error)) from None


def _load_trusted(context: ssl.SSLContext, text_of: Any) -> None:
    """Load the certificates of those who sign clients' certificates."""
    key, location = text_of("ssl.truststore.location")
    certificates = text_of("ssl.truststore.certificates")[1]
    if not location and not certificates:
        reason = "ssl.client.auth needs it, or ssl.truststore.certificates"
        raise ConfigError(key, location or None, reason)
    _check_type(text_of, "ssl.truststore.type")
    try:
        if location:
            context.load_verify_locations(cafile=location)
        else:
            context.load_verify_locations(cadata=certificates)
    except (OSError, ValueError) as error:
        raise ConfigError(key, location or "[hidden]", _said(error)) from None


def _said(error: Exception) -> str:
    """What is wrong with a store, without its contents."""
    if isinstance(error, ssl.SSLError):
        return f"no certificate and key in PEM that can be read with this password ({reason_of(error)})"
    return getattr(error, "strerror", None) or "it cannot be read"


def reason_of(error: ssl.SSLError) -> str:
    """OpenSSL's reason, in words."""
    words = (error.reason or str(error)).replace("_", " ").lower()
    verified = getattr(error, "verify_message", None)
    return f"{words}: {verified}" if verified else words


def principal_of(certificate: Any) -> str | None:
    """The principal of a client's certificate, as `SSLObject.getpeercert` gives it; None without one."""
    subject = (certificate or {}).get("subject")
    if not subject:
        return None
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in each)
        for each in reversed(subject)
    ]
    return f"User:{','.join(parts)}"


def _escaped(value: str) -> str:
    """A value of a distinguished name (RFC 2253)."""
    text = "".join(f"\\{each}" if each in ',+"\\<>;' else each for each in value)
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and len(text) > 1 else text
