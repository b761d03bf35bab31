"""What differs between the configuration keys of Kafka 3 and Kafka 4, for `--as-version`.

Answers to the ConfigDefs of 3.9.1 and 4.3; imported only when a release is imitated. The table of
keys (`table.py`) is the union of both, with 4.3's defaults; tests/data has what a real 3.9.1
describes. Releases before 3.9 are taken for 3.9, those from 4.0 on for 4.3.
"""

from __future__ import annotations

from typing import Final

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ONLY_IN_4: Final = _words(
    """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    config.providers controller.quorum.auto.join.enable controller.quorum.fetch.max.bytes
    controller.quorum.fetch.snapshot.max.bytes cordoned.log.dirs
    follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms
    group.consumer.max.assignment.interval.ms group.consumer.migration.policy
    group.consumer.min.assignment.interval.ms group.coordinator.background.threads
    group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms
    group.share.assignors group.share.max.assignment.interval.ms
    group.share.max.delivery.count.limit group.share.max.partition.max.record.locks
    group.share.max.share.sessions group.share.min.assignment.interval.ms
    group.share.min.delivery.count.limit group.share.min.partition.max.record.locks
    group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms
    group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
    group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms
    group.streams.max.size group.streams.max.standby.replicas
    group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms
    group.streams.min.session.timeout.ms group.streams.num.standby.replicas
    group.streams.session.timeout.ms remote.list.offsets.request.timeout.ms
    remote.log.manager.follower.thread.pool.size sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.jwt.retriever.class
    sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
    share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
    share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
    share.coordinator.state.topic.num.partitions
    share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
    share.coordinator.threads share.coordinator.write.timeout.ms
    share.fetch.purgatory.purge.interval.requests transaction.two.phase.commit.enable
    """
)
"""Broker keys that 3.9 does not know."""

_ONLY_IN_3: Final = _words(
    """
    auto.include.jmx.reporter broker.id.generation.enable control.plane.listener.name
    controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
    delegation.token.master.key eligible.leader.replicas.enable group.share.max.groups
    inter.broker.protocol.version leader.imbalance.per.broker.percentage
    log.message.downconversion.enable log.message.format.version
    log.message.timestamp.difference.max.ms offsets.commit.required.acks
    password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
    password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret
    reserved.broker.max.id zookeeper.clientCnxnSocket zookeeper.connect
    zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests
    zookeeper.metadata.migration.enable zookeeper.session.timeout.ms zookeeper.set.acl
    zookeeper.ssl.cipher.suites zookeeper.ssl.client.enable zookeeper.ssl.crl.enable
    zookeeper.ssl.enabled.protocols zookeeper.ssl.endpoint.identification.algorithm
    zookeeper.ssl.keystore.location zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type
    zookeeper.ssl.ocsp.enable zookeeper.ssl.protocol zookeeper.ssl.truststore.location
    zookeeper.ssl.truststore.password zookeeper.ssl.truststore.type
    """
)
"""Broker keys that 4.3 does not know."""

_TOPIC_KEYS_ONLY_IN_3: Final = _words(
    "message.downconversion.enable message.format.version message.timestamp.difference.max.ms"
)
_DEFAULTS_OF_3: Final[Mapping[str, str | None]] = {
    "group.consumer.assignors": (
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor,"
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor"
    ),
    "group.coordinator.append.linger.ms": "10",
    "group.coordinator.rebalance.protocols": "classic",
    "group.coordinator.threads": "1",
    "group.share.partition.max.record.locks": "200",
    "log.message.timestamp.after.max.ms": "9223372036854775807",
    "num.recovery.threads.per.data.dir": "1",
    "remote.log.manager.copier.thread.pool.size": "-1",
    "remote.log.manager.expiration.thread.pool.size": "-1",
    "remote.log.manager.thread.pool.size": "10",
    "sasl.oauthbearer.expected.audience": None,
}


class Release:
    """The keys of a line of releases, as far as they differ from the table's."""

    __slots__ = ("broker_keys_missing", "defaults", "has_group_resources", "topic_keys_missing")

    def __init__(self, as_version: str) -> None:
        """`as_version`: as given, "3.9" say. What is no number is taken for the newest."""
        major = as_version.partition(".")[0]
        is_3 = major.isdigit() and int(major) < 4
        self.defaults: Mapping[str, str | None] = _DEFAULTS_OF_3 if is_3 else {}
        self.broker_keys_missing = _ONLY_IN_4 if is_3 else _ONLY_IN_3
        self.topic_keys_missing = frozenset[str]() if is_3 else _TOPIC_KEYS_ONLY_IN_3
        self.has_group_resources = not is_3
        """Whether a group is a resource with configurations (KIP-848, on by default since 4.0)."""
