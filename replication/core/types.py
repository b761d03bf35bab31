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
    "delegation.token.expiry.check.interval.ms",
    "delegation.token.expiry.time.ms",
    "delegation.token.master.key",
    "delegation.token.max.lifetime.ms",
    "delegation.token.secret.key",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.mechanism.controller.protocol",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.server.callback.handler.class",
    "sasl.server.max.receive.size",
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
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
SIGNED_TOKEN_HANDLERS: Final = (
    "org.apache.kafka.common.security.oauthbearer.oauthbearervalidatorcallbackhandler",
    "org.apache.kafka.common.security.oauthbearer.secured.oauthbearervalidatorcallbackhandler",
)
UNSECURED_TOKEN_HANDLER: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
    ".oauthbearerunsecuredvalidatorcallbackhandler"
)
"""Handlers of OAUTHBEARER's tokens, in lower case (`sasl.server.callback.handler.class`)."""
STORE_KEYS: Final = tuple(
    each for each in SECURITY_KEYS if each.startswith(("ssl.key", "ssl.truststore."))
)
"""Those of key stores and trust stores, which a broker exchanges while it runs (SslConfigs.RECONFIGURABLE_CONFIGS)."""
AUTHORIZER_KEY: Final = "authorizer.class.name"
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of clients that have neither logged in nor shown a certificate."""
USERS_KEY: Final = "kwire.users"
"""NAME:SECRET of users, one a line: they may log in by every enabled mechanism."""
SCRAM_USERS_KEY: Final = "kwire.scram.users"
"""MECHANISM:NAME:SECRET of users, one a line: they have the credentials of that mechanism."""
USER_KEYS: Final = (USERS_KEY, SCRAM_USERS_KEY)
TOKEN_KEYS: Final = ("delegation.token.secret.key", "delegation.token.master.key")
"""The secret of delegation tokens: the name of today, which wins, and the old one."""
SECURED_BY: Final = (*USER_KEYS, *TOKEN_KEYS)
"""Keys by which a controller has users or tokens from its start."""
TLS_KEY: Final = "kwire.tls"
"""TLS or MTLS: certificates are made at the start, for listeners that have no key store."""
TLS_DIRECTORY_KEY: Final = "kwire.tls.directory"
"""Where those are that were made."""
TLS: Final = "tls"
MTLS: Final = "mtls"
"""Clients need a certificate, too."""
MOVES: Final = (
    "alter.log.dirs.replication.quota.window.num",
    "alter.log.dirs.replication.quota.window.size.seconds",
)
"""The windows by which the throttle of moves between log directories is measured."""
MOVES_THROTTLE_KEY: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
REPLICATION: Final = ("replication.quota.window.num", "replication.quota.window.size.seconds")
"""The windows by which the throttles of replication between brokers are measured."""
SPANS: Final = (*MOVES, *REPLICATION)
LEADER_THROTTLE_KEY: Final = "leader.replication.throttled.rate"
FOLLOWER_THROTTLE_KEY: Final = "follower.replication.throttled.rate"
THROTTLES: Final = (LEADER_THROTTLE_KEY, FOLLOWER_THROTTLE_KEY, MOVES_THROTTLE_KEY)
"""Bytes a second of a broker: keys that are only ever dynamic (QuotaConfig.brokerQuotaConfigs)."""
LEADER_THROTTLED_KEY: Final = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_KEY: Final = "follower.replication.throttled.replicas"
THROTTLED_KEYS: Final = frozenset((LEADER_THROTTLED_KEY, FOLLOWER_THROTTLED_KEY))
"""Of a topic: the replicas that the throttles of replication are for."""
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only replica.selector.class there is (KIP-392)."""
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
