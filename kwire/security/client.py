"""The client's half of a log-in: for kwire's own clients, and what other clients' configurations need for it."""

from __future__ import annotations

from kwire.replication.core.types import SASL_PLAINTEXT
from kwire.security.mechanism import PLAIN, PlainClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ssl import SSLContext

    from kwire.security.scram import ScramClient

KINDS = ("java", "librdkafka", "kafka-python", "aiokafka")
"""Clients whose configuration `client_config` knows; those of librdkafka are confluent-kafka's, too."""


class Credentials:
    """A user, and the mechanism to log in by. The secret is in no text of this object."""

    __slots__ = ("mechanism", "password", "user")

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.mechanism = mechanism
        self.user = user
        self.password = password

    def new_exchange(self) -> PlainClient | ScramClient:
        """A new exchange with a broker."""
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self.password)
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
    kind: str, bootstrap_servers: str, credentials: Credentials | None
) -> dict[str, str]:
    """What a client of this kind (`KINDS`) is configured with. `credentials` None: no log-in. KeyError."""
    if kind in ("kafka-python", "aiokafka"):
        found = {"bootstrap_servers": bootstrap_servers}
        if credentials is not None:
            found["security_protocol"] = SASL_PLAINTEXT
            found["sasl_mechanism"] = credentials.mechanism
            found["sasl_plain_username"] = credentials.user
            found["sasl_plain_password"] = credentials.password
        return found
    if kind not in KINDS:
        raise KeyError(kind)
    found = {"bootstrap.servers": bootstrap_servers}
    if credentials is None:
        return found
    found["security.protocol"] = SASL_PLAINTEXT
    found["sasl.mechanism"] = credentials.mechanism
    if kind == "librdkafka":
        found["sasl.username"] = credentials.user
        found["sasl.password"] = credentials.password
        return found
    name = "plain.PlainLoginModule" if credentials.mechanism == PLAIN else "scram.ScramLoginModule"
    user, password = (_quoted(each) for each in (credentials.user, credentials.password))
    found["sasl.jaas.config"] = (
        f"org.apache.kafka.common.security.{name} required username={user} password={password};"
    )
    return found


def _quoted(text: str) -> str:
    """A value of a JAAS line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
