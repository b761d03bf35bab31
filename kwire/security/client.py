"""The client's half of a log-in: for kwire's own clients, and what other clients' configurations need for it."""

from __future__ import annotations

from kwire.security.certificates import PASSWORD
from kwire.security.mechanism import OAUTHBEARER, PLAIN, PlainClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from ssl import SSLContext
    from typing import Any

    from kwire.security.certificates import Certificates
    from kwire.security.oauth import OAuthClient
    from kwire.security.scram import ScramClient

KINDS = ("java", "librdkafka", "kafka-python", "aiokafka")
"""Clients whose configuration `client_config` knows; those of librdkafka are confluent-kafka's, too."""


class Credentials:
    """A user, and the mechanism to log in by. The secret is in no text of this object. With OAUTHBEARER there is none:
    the user makes an unsecured token, of `claims` or of the name alone; "": only somebody else can make a token."""

    __slots__ = ("claims", "mechanism", "password", "user")

    def __init__(
        self, mechanism: str, user: str, password: str, claims: Mapping[str, str] | None = None
    ) -> None:
        self.mechanism = mechanism
        self.user = user
        self.password = password
        self.claims = {"sub": user} if claims is None else claims

    def new_exchange(self) -> PlainClient | ScramClient | OAuthClient:
        """A new exchange with a broker."""
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self.password)
        if self.mechanism == OAUTHBEARER:
            import time

            from kwire.security.oauth import OAuthClient, unsecured_token

            return OAuthClient(self.user, unsecured_token(self.claims, time.time()))
        from random import SystemRandom

        from kwire.security.scram import ScramClient

        return ScramClient(self.mechanism, self.user, self.password, SystemRandom())

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism!r}, {self.user!r}, [hidden])"


class Access:
    """What is needed to come in at a listener: a log-in (`credentials`), TLS (`context`), or both."""

    __slots__ = ("context", "credentials")

    def __init__(self, credentials: Credentials | None, context: SSLContext | None) -> None:
        self.credentials = credentials
        self.context = context


def client_config(
    kind: str,
    bootstrap_servers: str,
    credentials: Credentials | None,
    certificates: Certificates | None = None,
) -> dict[str, Any]:
    """What a client of this kind (`KINDS`) is configured with: texts, aiokafka's `ssl_context`, and objects that make
    tokens.

    `credentials` None: no log-in. `certificates` None: no TLS. KeyError."""
    if kind not in KINDS:
        raise KeyError(kind)
    protocol = "PLAINTEXT" if certificates is None else "SSL"
    if credentials is not None:
        protocol = f"SASL_{protocol}"
    is_python = kind in ("kafka-python", "aiokafka")
    found: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
    if protocol != "PLAINTEXT":
        found["security.protocol"] = protocol
    if certificates is not None and not is_python:
        found |= _tls_of_java(certificates) if kind == "java" else _tls_of_librdkafka(certificates)
    if credentials is not None and credentials.mechanism == OAUTHBEARER:
        found |= _token_of(kind, credentials)
    elif credentials is not None:
        found |= (
            _login_of_java(credentials) if kind == "java" else _login_of(credentials, is_python)
        )
    if is_python:
        found = {key.replace(".", "_"): value for key, value in found.items()}
        if certificates is not None:
            found |= _tls_of_python(kind, certificates)
    return found


def _login_of(credentials: Credentials, is_python: bool) -> dict[str, str]:
    plain = "plain." if is_python else ""
    return {
        "sasl.mechanism": credentials.mechanism,
        f"sasl.{plain}username": credentials.user,
        f"sasl.{plain}password": credentials.password,
    }


def _login_of_java(credentials: Credentials) -> dict[str, str]:
    name = "plain.PlainLoginModule" if credentials.mechanism == PLAIN else "scram.ScramLoginModule"
    user, password = (_quoted(each) for each in (credentials.user, credentials.password))
    module = f"org.apache.kafka.common.security.{name}"
    return {
        "sasl.mechanism": credentials.mechanism,
        "sasl.jaas.config": f"{module} required username={user} password={password};",
    }


def _token_of(kind: str, credentials: Credentials) -> dict[str, Any]:
    """What a client needs to make unsecured tokens; the mechanism alone if it has to get signed ones somewhere."""
    name = credentials.user
    found: dict[str, Any] = {"sasl.mechanism": OAUTHBEARER}
    if kind == "java":
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        option = f" unsecuredLoginStringClaim_sub={_quoted(name)}" if name else ""
        found["sasl.jaas.config"] = f"{module}{option};"
    elif not name:
        pass
    elif kind == "librdkafka":
        found["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
        found["sasl.oauthbearer.config"] = f"principal={name}"
    else:
        from kwire.security.oauth_clients import token_provider

        found["sasl.oauth.token.provider"] = token_provider(kind, name)
    return found


def _tls_of_java(files: Certificates) -> dict[str, str]:
    stores = {"truststore": f"{files.truststore}.p12"}
    found = {}
    if files.mutual:
        stores["keystore"] = f"{files.client}.p12"
        found["ssl.key.password"] = PASSWORD
    for name, path in stores.items():
        found[f"ssl.{name}.type"] = "PKCS12"
        found[f"ssl.{name}.location"] = path
        found[f"ssl.{name}.password"] = PASSWORD
    return found


def _tls_of_librdkafka(files: Certificates) -> dict[str, str]:
    found = {"ssl.ca.location": files.ca}
    if files.mutual:
        own = f"{files.client}.pem"
        found |= {"ssl.certificate.location": own, "ssl.key.location": own}
    return found


def _tls_of_python(kind: str, files: Certificates) -> dict[str, Any]:
    own = f"{files.client}.pem" if files.mutual else None
    if kind == "aiokafka":
        from ssl import create_default_context

        context = create_default_context(cafile=files.ca)
        if own is not None:
            context.load_cert_chain(own)
        return {"ssl_context": context}
    found = {"ssl_cafile": files.ca}
    if own is not None:
        found |= {"ssl_certfile": own, "ssl_keyfile": own}
    return found


def _quoted(text: str) -> str:
    """A value of a JAAS line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
