"""What Kafka's keys say of TLS, as a context of Python's ssl. Reads key stores; no sockets.

Answers to org.apache.kafka.common.security.ssl.DefaultSslEngineFactory: stores of type PEM, as files or in the
configuration (KIP-651), PKCS12 and JKS (stores.py); a client without a certificate is User:ANONYMOUS. What cannot be
honoured is a ConfigError in one line, in which no secret is.
"""

from __future__ import annotations

import ssl
from tempfile import NamedTemporaryFile

from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.core.types import SECURITY_PROTOCOLS
from kwire.security.principals import DEFAULT, Mapping
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


class ServerContext(ssl.SSLContext):
    """`mapping`: of the names in clients' certificates; None: principals are those names. `subject` and `names`: of the
    node's own certificate, its distinguished name and alternative ones."""

    mapping: Mapping | None = None
    subject: str = ""
    names: frozenset[str] = frozenset()

    def note_own(self, path: str) -> None:
        """Remember whose certificate is in a file in PEM, the first one there."""
        found: Any = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]  # the only decoder in Python
        self.subject = (principal_of(found) or "").removeprefix("User:")
        self.names = frozenset(f"{kind}:{name}" for kind, name in found.get("subjectAltName", ()))


def server_context(config: BrokerConfig, listener: str, protocol: str) -> ServerContext:
    """The context of a listener of security protocol SSL or SASL_SSL. ConfigError."""

    def text_of(name: str) -> tuple[str, str]:
        key = listener_key(config, listener, None, name)
        return key, (config.text(key) or "").strip()

    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION  # OpenSSL before 3 lets clients do that
    key, text = text_of("ssl.principal.mapping.rules")
    if text not in ("", DEFAULT):
        try:
            context.mapping = Mapping(text)
        except ValueError as error:
            raise ConfigError(key, text, str(error)) from None
    _set_versions(context, text_of)
    _choose_suites(context, *text_of("ssl.cipher.suites"))
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


def _choose_suites(context: ssl.SSLContext, key: str, text: str) -> None:
    """Leave a context the cipher suites of a list, or all it has if the list is empty. ConfigError."""
    suites = [each.strip() for each in text.split(",") if each.strip()]
    if not suites:
        return
    from kwire.server.tls.ciphers import openssl_names

    try:
        names, of_12, of_13 = openssl_names(suites)
        if names:
            context.set_ciphers(":".join(names))
    except ssl.SSLError:
        raise ConfigError(key, text, "OpenSSL has none of these suites") from None
    except ValueError as error:
        raise ConfigError(key, text, str(error)) from None
    oldest, newest = context.minimum_version, context.maximum_version
    if not of_13:
        newest = min(newest, _VERSIONS["TLSv1.2"])
    if not of_12:
        oldest = max(oldest, _VERSIONS["TLSv1.3"])
    if oldest > newest:
        raise ConfigError(key, text, "no suite is of a version in ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = oldest, newest


def _type_of(text_of: Any, name: str) -> str:
    """The type of a store, one of stores.TYPES. ConfigError."""
    from kwire.server.tls.stores import TYPES

    key, kind = text_of(name)
    kind = kind.upper() or TYPES[0]
    if kind not in TYPES:
        raise ConfigError(key, kind, f"kwire reads stores of types {', '.join(TYPES)}")
    return str(kind)


def _read(key: str, location: str) -> bytes:
    """A store. ConfigError."""
    try:
        with open(location, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(key, location, error.strerror or "it cannot be read") from None


def _load_own(context: ssl.SSLContext, text_of: Any) -> None:
    """Load the node's own certificate and key. ConfigError."""
    kind = _type_of(text_of, "ssl.keystore.type")
    store_password = text_of("ssl.keystore.password")[1]
    password = text_of("ssl.key.password")[1]
    location_key, location = text_of("ssl.keystore.location")
    chain, private = (text_of(f"ssl.keystore.{each}")[1] for each in ("certificate.chain", "key"))
    if not location and not (chain and private):
        reason = (
            "a listener with TLS needs it, or ssl.keystore.key and ssl.keystore.certificate.chain"
        )
        reason += "; --tls makes certificates"
        raise ConfigError(location_key, location or None, reason)
    if not location and kind != _PEM:
        key = text_of("ssl.keystore.type")[0]
        raise ConfigError(key, kind, "a private key in the configuration is of type PEM")
    if location and kind == _PEM and store_password:
        key = text_of("ssl.keystore.password")[0]
        reason = "the key in a store of type PEM has its password by ssl.key.password"
        raise ConfigError(key, "[hidden]", reason)  # as in Kafka
    if location and kind != _PEM:
        from kwire.server.tls.stores import own_pem

        text = _converted(location_key, location, own_pem, store_password, password)
        password = ""
    else:
        text = f"{private}\n{chain}\n"
    try:
        if location and kind == _PEM:
            _load_chain(context, location, password)
            return
        with NamedTemporaryFile(
            "w", encoding="utf-8", suffix=".pem"
        ) as file:  # of mode 0600; Python reads no texts
            file.write(text)
            file.flush()
            _load_chain(context, file.name, password)
    except (OSError, ValueError) as error:
        raise ConfigError(location_key, location or "[hidden]", _said(error)) from None


def _load_chain(context: ssl.SSLContext, path: str, password: str) -> None:
    context.load_cert_chain(path, password=password)
    if isinstance(context, ServerContext):
        context.note_own(path)


def _converted(key: str, location: str, convert: Any, *passwords: str) -> str:
    """The text in PEM of a store of another type. ConfigError."""
    from kwire.server.tls.stores import NoLibraryError

    data = _read(key, location)
    try:
        return str(convert(data, *passwords))
    except ValueError as error:
        raise ConfigError(key, location, str(error)) from None
    except NoLibraryError as error:
        reason = f"{error}; or openssl pkcs12 -in STORE -nodes -out FILE makes one of type PEM"
        raise ConfigError(key, location, reason) from None


def _load_trusted(context: ssl.SSLContext, text_of: Any) -> None:
    """Load the certificates of those who sign clients' certificates. ConfigError."""
    key, location = text_of("ssl.truststore.location")
    certificates = text_of("ssl.truststore.certificates")[1]
    if not location and not certificates:
        reason = "ssl.client.auth needs it, or ssl.truststore.certificates"
        raise ConfigError(key, location or None, reason)
    kind = _type_of(text_of, "ssl.truststore.type")
    if not location and kind != _PEM:
        key = text_of("ssl.truststore.type")[0]
        raise ConfigError(key, kind, "certificates in the configuration are of type PEM")
    if kind != _PEM:
        from kwire.server.tls.stores import trusted_pem

        password = text_of("ssl.truststore.password")[1]
        certificates, location = _converted(key, location, trusted_pem, password), ""
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


def principal_of(certificate: Any, mapping: Mapping | None = None) -> str | None:
    """The principal of a client's certificate, as `SSLObject.getpeercert` gives it; None without one. NoRuleError."""
    subject = (certificate or {}).get("subject")
    if not subject:
        return None
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in each)
        for each in reversed(subject)
    ]
    name = ",".join(parts)
    return f"User:{name if mapping is None else mapping.name_of(name)}"


def _escaped(value: str) -> str:
    """A value of a distinguished name (RFC 2253)."""
    text = "".join(f"\\{each}" if each in ',+"\\<>;' else each for each in value)
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and len(text) > 1 else text
