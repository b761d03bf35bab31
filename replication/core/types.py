"""Types and constants shared by many rooms."""

from __future__ import annotations

from typing import Final

TopicPartition = tuple[str, int]

NO_LEADER: Final = -1
"""In the place of a leader's id."""
PRODUCER_ID_BLOCK: Final = 1000
"""How many producer ids are given out at once (ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE)."""

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""By their numbers on the wire (SecurityProtocol.id)."""
SASL_PLAINTEXT: Final = SECURITY_PROTOCOLS[2]
SECURITY_KEYS: Final = (
    "connection.failed.authentication.delay.ms",
    "connections.max.reauth.ms",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.mechanism.controller.protocol",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.server.max.receive.size",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.principal.mapping.rules",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
"""kwire.security reads these for a listener that asks for a log-in or for TLS, most of them behind its prefix."""
AUTHORIZER_KEY: Final = "authorizer.class.name"
USERS_KEY: Final = "kwire.users"
"""NAME:SECRET of users, one a line: they may log in by every enabled mechanism."""
TLS_KEY: Final = "kwire.tls"
"""TLS or MTLS: certificates are made at the start, for listeners that have no key store."""
TLS_DIRECTORY_KEY: Final = "kwire.tls.directory"
"""Where those are that were made."""
TLS: Final = "tls"
MTLS: Final = "mtls"
"""Clients need a certificate, too."""
INTERNAL_LISTENER: Final = "KWIRE_INTERNAL"
"""On this machine, for brokers and for kwire itself, where the first listener is not for them."""
HELD_CHANNELS: Final = ("forward",)
"""Channels to other nodes whose answers may take as long as a client waits; the core watches their time."""

FETCHER_CHANNEL: Final = "fetcher-"
"""Begins the names of fetchers' channels to their leaders; the fetcher's id follows."""

CONTROLLER_ID: Final = 1000
"""Of the first controller of a cluster, where kwire chooses its id. The next ones follow."""
CONTROLLER_IDS_FROM: Final = 100_000
"""Of the controller beside a broker in one node (`process.roles=broker,controller`): this and the broker's id."""


_PLURALS = [
    f"{before}1 {noun}s"
    for before in (" ", "(")
    for noun in ("partition", "broker", "topic", "member", "connection", "byte")
]


def with_singulars(text: str) -> str:
    """A sentence without plurals behind a count of one: "1 partition"."""
    for plural in _PLURALS:
        text = text.replace(plural, plural[:-1])
    return text
