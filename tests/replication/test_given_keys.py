"""Keys that are given and cannot be honoured: refused when they would protect something, else named."""

from __future__ import annotations

import pytest

from kwire.replication.config import given
from kwire.replication.config.broker_config import (
    BrokerConfig,
    ConfigError,
    acts_on_broker_key,
    broker_key,
)
from kwire.replication.config.given import (
    check_security,
    instead_of,
    is_known_key,
    keys_without_effect,
)
from kwire.replication.config.table import BROKER_KEYS

# What Kafka's own files and the modules that wrap its images give; none of it is worth a line.
KRAFT_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
OF_MODULES = {
    "log.flush.interval.messages": "9223372036854775807",
    "group.initial.rebalance.delay.ms": "0",
    "rest.bootstrap.servers": "PLAINTEXT://localhost:9092",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.connection.timeout.ms": "18000",
    "inter.broker.protocol.version": "2.8",
    "log.message.format.version": "2.8",
    "metric.reporters": "io.confluent.metrics.reporter.ConfluentMetricsReporter",
    "ssl.endpoint.identification.algorithm": "",
}


@pytest.mark.parametrize("values", [KRAFT_PROPERTIES, OF_MODULES], ids=["server.properties", "env"])
def test_what_everybody_gives_is_neither_refused_nor_mentioned(values: dict[str, str]) -> None:
    check_security(values)
    config = BrokerConfig(values)
    assert keys_without_effect(config) == []
    assert [key for key in config.unknown_keys() if not is_known_key(key)] == []


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("authorizer.class.name", "my.Authorizer", "name Kafka's own authorizer"),
        ("ssl.engine.factory.class", "my.Factory", "no Java classes"),
        ("ssl.keystore.filename", "k.jks", "by ssl.keystore.location"),
        ("listener.name.secure.ssl.key.credentials", "x", "by ssl.keystore.location"),
        ("sasl.oauthbearer.token.endpoint.url", "file:///x", "fetch no tokens"),
        ("sasl.kerberos.service.name", "kafka", "no GSSAPI"),
        ("sasl.server.callback.handler.class", "my.Handler", "no Java classes"),
        ("listener.name.s.plain.sasl.login.callback.handler.class", "my.H", "no Java classes"),
        ("principal.builder.class", "my.Builder", "no Java classes"),
        ("create.topic.policy.class.name", "my.Policy", "nothing would be enforced"),
    ],
)
def test_a_key_that_would_protect_is_refused(key: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        check_security({"num.partitions": "1", key: value})
    assert caught.value.key == key and "leave this key out" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authorizer.class.name", ""),
        ("authorizer.class.name", "  "),
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("super.users", ""),
        ("super.users", "User:admin; User:CN=broker,OU=kafka;"),
        ("allow.everyone.if.no.acl.found", "false"),
        ("allow.everyone.if.no.acl.found", "True"),
        ("security.inter.broker.protocol", "PLAINTEXT"),
        ("sasl.enabled.mechanisms", ""),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("security.inter.broker.protocol", "SASL_PLAINTEXT"),
        ("listener.name.a.plain.sasl.jaas.config", "x"),
        ("sasl.mechanism.inter.broker.protocol", "GSSAPI"),
        ("ssl.client.auth", "none"),
        ("ssl.keystore.location", "/k.pem"),
        ("ssl.keystore.password", "hush"),
        ("ssl.principal.mapping.rules", "RULE:^CN=(.*)$/$1/"),
        ("security.inter.broker.protocol", "SASL_SSL"),
        ("ssl.protocol", "TLSv1.3"),
        ("principal.builder.class", str(BROKER_KEYS["principal.builder.class"][1])),
    ],
)
def test_a_key_that_asks_for_nothing_passes(key: str, value: str) -> None:
    check_security({key: value})
    assert keys_without_effect(BrokerConfig({key: value})) == []


@pytest.mark.parametrize(
    "key",
    ["ssl.truststore.credentials", "listener.name.a.sasl.jaas.config", "ssl.key.credentials"],
)
def test_secrets_are_not_shown(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_security({key: "hush"})
    assert "hush" not in str(caught.value) and key in str(caught.value)


def test_what_to_give_instead_of_a_key_of_zookeeper_is_said() -> None:
    instead = "broker.session.timeout.ms acts instead of zookeeper.session.timeout.ms"
    assert instead_of(["quota.window.num", "zookeeper.session.timeout.ms"]) == instead
    assert instead_of(["quota.window.num"]) is None


def test_keys_without_effect_are_named_unless_nobody_would_miss_them() -> None:
    config = BrokerConfig(
        {
            "quota.window.size.seconds": "2",  # acted on
            "group.consumer.max.size": "7",
            "group.coordinator.rebalance.protocols": "classic,consumer",
            "confluent.tier.enable": "true",
            "quota.window.num": "11",  # the default
            "num.io.threads": "64",  # tuning
            "num.partitions": "3",  # acted on
            "my.own.key": "x",  # unknown: another warning
        }
    )
    assert keys_without_effect(config) == [
        "confluent.tier.enable",
        "group.consumer.max.size",
        "group.coordinator.rebalance.protocols",
    ]
    zookeeper = {"zookeeper.connect": "z:2181", "zookeeper.session.timeout.ms": "6000"}
    assert keys_without_effect(BrokerConfig(zookeeper)) == ["zookeeper.session.timeout.ms"]
    default = {"zookeeper.session.timeout.ms": "18000"}
    assert keys_without_effect(BrokerConfig(default)) == []
    classic = BrokerConfig({"group.coordinator.rebalance.protocols": "classic"})
    assert keys_without_effect(classic) == []


@pytest.mark.parametrize("value", ["admin", "User:a;b", "User:", ":a"])
def test_super_users_are_principals(value: str) -> None:
    with pytest.raises(ConfigError, match="expected principals, User:NAME"):
        check_security({"super.users": value})


def test_a_handler_of_tokens_stands_behind_listener_and_mechanism() -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    key = "sasl.server.callback.handler.class"
    check_security({f"listener.name.x.oauthbearer.{key}": handler})
    for place in ("", "listener.name.x.", "listener.name.x.plain."):
        with pytest.raises(ConfigError, match="name listener and mechanism"):
            check_security({f"{place}{key}": handler})


def test_each_rule_is_about_a_key_of_kafkas_that_has_no_effect() -> None:
    of_images = {key for key in given._REFUSED if key.endswith((".filename", ".credentials"))}
    unknown = {key for key in given._REFUSED if broker_key(key) is None}
    assert unknown == of_images
    acted_on = {key for key in given._REFUSED if acts_on_broker_key(key)}
    assert acted_on == {"sasl.jaas.config", "sasl.server.callback.handler.class"}
    for name in given._QUIET:
        meant = [key for key in BROKER_KEYS if key == name or key.startswith(name)]
        without_effect = [key for key in meant if not acts_on_broker_key(key)]
        assert without_effect, f"{name}: kwire acts on it now, or Kafka has no such key"


def test_a_key_of_protection_with_a_harmless_value_is_not_mentioned() -> None:
    config = BrokerConfig({"allow.everyone.if.no.acl.found": "true"})
    assert keys_without_effect(config) == []
