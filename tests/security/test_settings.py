"""What Kafka's keys say of log-ins, the options `--sasl` and `--user`, JAAS lines."""

from __future__ import annotations

import pytest

from kwire.launch.configuration import cluster_spec
from kwire.launch.node_runner import NodeRunner
from kwire.launch.spec import STANDALONE, NodeSpec
from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.config.given import keys_without_effect
from kwire.security.client import KINDS, Credentials, client_config
from kwire.security.jaas import parse_module
from kwire.security.options import credentials_in, parse_users, with_logins
from kwire.security.settings import inter_broker_login, listener_settings
from kwire.server.errors import SettingsError

PLAIN_LINE = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="admin" password="pw" user_admin="pw" user_alice="a;\\"s\'";'
)
SCRAM_LINE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
LISTENERS = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
OF_BROKERS = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}
USUAL = {**LISTENERS, **OF_BROKERS, "sasl.enabled.mechanisms": "PLAIN", JAAS: PLAIN_LINE}


def start(values: dict[str, str]) -> None:
    """SettingsError when a standalone broker with these keys is refused."""
    NodeRunner(NodeSpec(node_id=1, role=STANDALONE, values=values, data_dir="/nowhere"))


def test_a_server_properties_as_people_write_it() -> None:
    start(USUAL)
    config = BrokerConfig(USUAL)
    settings = listener_settings(config, "SASL_PLAINTEXT")
    assert settings.plain_users == {"admin": "pw", "alice": "a;\"s'"}
    login = inter_broker_login(config, "SASL_PLAINTEXT")
    assert (login.mechanism, login.user, login.password) == ("PLAIN", "admin", "pw")
    assert keys_without_effect(config) == [] and config.unknown_keys() == []


def test_a_listener_has_keys_of_its_own() -> None:
    config = BrokerConfig(
        {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.out.sasl.enabled.mechanisms": "SCRAM-SHA-256, SCRAM-SHA-512",
            "listener.name.out.scram-sha-256.sasl.jaas.config": SCRAM_LINE,
            "listener.name.out.scram-sha-512.sasl.jaas.config": SCRAM_LINE,
            "listener.name.out.connections.max.reauth.ms": "7000",
            "listener.name.out.scram-sha-512.connections.max.reauth.ms": "9000",
            "sasl.server.max.receive.size": "1000",
        }
    )
    settings = listener_settings(config, "OUT")
    assert settings.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert [settings.lifetime_ms(each) for each in settings.mechanisms] == [7000, 9000]
    assert settings.max_receive_bytes == 1000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "kwire has no GSSAPI (Kerberos); listener SASL"),
        ({"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"}, "OAUTHBEARER is enabled at listener"),
        ({"sasl.enabled.mechanisms": ""}, "it is empty"),
        ({JAAS: SCRAM_LINE}, "the login module of PLAIN is PlainLoginModule, not ScramLogin"),
        ({JAAS: PLAIN_LINE[:-1]}, "it does not end with a semicolon"),
        ({JAAS: 'x.PlainLoginModule needed user_a="b";'}, "expected a flag"),
        ({JAAS: "x.PlainLoginModule required user_a=;"}, "expected KEY=VALUE"),
        ({JAAS: PLAIN_LINE * 2}, "it has 2 login modules, expected one"),
        ({JAAS: 'x.PlainLoginModule required user_a="b";'}, "username and password are needed"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "must be one of sasl.enab"),
        ({"security.inter.broker.protocol": "PLAINTEXT"}, "no listener speaks it"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "no listener speaks it"),
        ({"sasl.server.callback.handler.class": "my.Handler"}, "kwire runs no Java classes"),
        ({"sasl.jaas.config": PLAIN_LINE}, "name listener and mechanism"),
        ({"listeners": "SASL_SSL://:0"}, "no listener speaks it (SASL_SSL)"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_line(change: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        start({**USUAL, **change})
    text = str(caught.value)
    assert said in text and "\n" not in text
    assert "pw" not in text and "user_a" not in text


def test_a_mechanism_without_a_jaas_line_is_refused_as_by_kafka() -> None:
    values = {**USUAL, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
    with pytest.raises(SettingsError, match=r"scram-sha-256\.sasl\.jaas\.config: .* needs it"):
        start(values)
    start({**values, "kwire.users": "alice:secret"})


def test_the_options_become_keys() -> None:
    spec = cluster_spec(
        overrides={}, port=9092, advertise="kafka.test", sasl="scram-sha-512", users={"a": "b"}
    )
    values = spec.node.values
    assert values["listeners"] == "SASL_PLAINTEXT://127.0.0.1:9092,KWIRE_INTERNAL://127.0.0.1:0"
    advertised = "SASL_PLAINTEXT://kafka.test:0,KWIRE_INTERNAL://127.0.0.1:0"
    assert values["advertised.listeners"] == advertised
    assert values["inter.broker.listener.name"] == "KWIRE_INTERNAL"
    assert values["sasl.enabled.mechanisms"] == "SCRAM-SHA-512"
    found = credentials_in(values, None)
    assert found is not None and (found.user, found.password) == ("a", "b")
    start(dict(values))


@pytest.mark.parametrize(
    ("values", "sasl", "users", "said"),
    [
        ({}, "plain", {}, "sasl plain needs a user"),
        ({}, None, {"a": "b"}, "a user needs a mechanism"),
        ({}, "kerberos", {"a": "b"}, "expected plain, scram-sha-256, scram-sha-512"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "plain", {"a": "b"}, "give one of them"),
        ({"listeners": "SASL_PLAINTEXT://:1"}, "plain", {"a": "b"}, "give one of them"),
        ({"listeners": "PLAINTEXT://:1,B://:2"}, "plain", {"a": "b"}, "give one of them"),
    ],
)
def test_options_that_do_not_go_together(
    values: dict[str, str], sasl: str | None, users: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        with_logins({"listeners": "PLAINTEXT://127.0.0.1:0", **values}, sasl, users)


def test_users_are_names_and_secrets() -> None:
    assert parse_users(["alice:se:cret"]) == {"alice": "se:cret"}
    for item in ("alice", ":x", "alice:", "a:b\nc:d"):
        with pytest.raises(ValueError, match=r"^expected NAME:SECRET$"):
            parse_users([item])
    with pytest.raises(ValueError, match="alice is given twice"):
        parse_users(["alice:1", "alice:2"])
    with pytest.raises(ConfigError, match="hidden"):
        listener_settings(
            BrokerConfig({"kwire.users": "x", "sasl.enabled.mechanisms": "PLAIN"}), "A"
        )


def test_each_kind_of_client_has_its_configuration() -> None:
    credentials = Credentials("SCRAM-SHA-256", 'a"b', "c\\d")
    for kind in KINDS:
        plain = client_config(kind, "h:1", None)
        assert list(plain.values()) == ["h:1"]
        secure = client_config(kind, "h:1", credentials)
        assert "SASL_PLAINTEXT" in secure.values() and "SCRAM-SHA-256" in secure.values()
    line = client_config("java", "h:1", credentials)["sasl.jaas.config"]
    module = parse_module(line)
    assert module.options == {"username": 'a"b', "password": "c\\d"}
    with pytest.raises(KeyError):
        client_config("ruby", "h:1", None)
