"""OAUTHBEARER without sockets: the exchange, unsecured tokens, the ends of sessions, keys and options."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from click.testing import CliRunner
from login_kit import Guarded
from oauth_kit import INVALID, JAAS, MODULE, NOW_S, bearer, guarded, part, shaken, unsecured

from kwire import Cluster
from kwire.cli.main import cli
from kwire.launch.configuration import cluster_spec
from kwire.launch.node_runner import NodeRunner
from kwire.launch.spec import STANDALONE, NodeSpec
from kwire.replication.config.broker_config import BrokerConfig, ConfigError
from kwire.replication.config.given import problem_at_run_time, security_problem
from kwire.security.client import Credentials, client_config
from kwire.security.jaas import parse_module
from kwire.security.mechanism import SaslFailure
from kwire.security.oauth import (
    BadTokenError,
    OAuthClient,
    OAuthServer,
    UnsecuredTokens,
    unsecured_token,
)
from kwire.security.options import credentials_in, with_logins
from kwire.security.peer_login import PeerLogin
from kwire.security.settings import inter_broker_login, listener_settings
from kwire.server.errors import SettingsError

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
HANDLER_KEY = "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class"
URL = "sasl.oauthbearer.jwks.endpoint.url"


def taken(token: str, **options: str) -> Any:
    """What a token says; the text of the refusal."""
    rules = UnsecuredTokens({f"unsecuredValidator{key}": text for key, text in options.items()})
    try:
        found = rules.validated(token, NOW_S * 1000, 0)
    except BadTokenError as error:
        return str(error)
    return found.name, found.expires_ms


# --- the exchange


def test_a_log_in() -> None:
    broker = guarded()
    client = shaken(broker)
    answer = client.authenticate(bearer(unsecured(), "traceId=7\x01"))
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    assert answer.session_lifetime_ms == 100_000
    assert client.session.principal == "User:alice" and broker.admitted == [client.connection]
    assert client.metadata().brokers


def test_a_refused_token_and_the_byte_that_ends_it() -> None:
    broker = guarded(connection_failed_authentication_delay_ms="0")
    client = shaken(broker)
    answer = client.authenticate(bearer(unsecured(exp=NOW_S)))
    assert (answer.error_code, answer.auth_bytes) == (0, INVALID)
    answer = client.authenticate(b"\x01")
    assert (answer.error_code, answer.error_message) == (58, INVALID.decode())
    client.received()
    assert client.closed == "authentication failed: the token of 'alice' has expired (exp)"
    assert not broker.admitted


def test_another_token_may_follow_a_refused_one() -> None:
    client = shaken(guarded())
    assert client.authenticate(bearer("x")).auth_bytes == INVALID
    assert client.authenticate(bearer(unsecured())).auth_bytes == b""
    assert client.metadata().brokers


def test_a_request_after_a_refused_token_ends_the_connection_with_both_reasons() -> None:
    """As of aiokafka, which takes the refusal for a success."""
    client = shaken(guarded(connection_failed_authentication_delay_ms="0"))
    client.authenticate(bearer(unsecured(iat=NOW_S + 9)))
    assert client.metadata() is None
    assert client.closed is not None
    assert "Metadata in its log-in, after this: the token of 'alice' was issued" in client.closed


def test_the_first_byte_0x01_is_malformed() -> None:
    with pytest.raises(SaslFailure, match="malformed message"):
        OAuthServer(lambda token: pytest.fail(token)).evaluate(b"\x01")


def test_tokens_without_headers() -> None:
    client = shaken(guarded(), 0)
    assert client.send(bearer("x")) == [INVALID]
    assert client.send(bearer(unsecured())) == [b""]
    assert client.metadata().brokers


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer T\x01",
        b"n,,auth=Bearer T\x01\x01",
        b"y,,\x01auth=Bearer T\x01\x01",
        b"n,,\x01auth=T\x01\x01",
        b"n,,\x01auth=Basic T\x01\x01",
        b"n,,\x01host=h\x01\x01",
        b"n,,\x01auth=Bearer T\x01a1=b\x01\x01",
        b"n,,\x01auth=Bearer T\x01a=\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,a=,\x01auth=Bearer T\x01\x01",
    ],
)
def test_malformed_messages(data: bytes) -> None:
    with pytest.raises(SaslFailure) as caught:
        OAuthServer(lambda token: pytest.fail(token)).evaluate(data)
    assert caught.value.message is None


def test_somebody_elses_token() -> None:
    client = shaken(guarded(connection_failed_authentication_delay_ms="0"))
    answer = client.authenticate(bearer(unsecured(), authzid="a=bob"))
    assert answer.error_code == 58
    assert "authorization id (bob) that is different from the token's" in answer.error_message
    client = shaken(guarded())
    assert client.authenticate(bearer(unsecured(), authzid="a=alice")).auth_bytes == b""


def test_both_halves_together() -> None:
    rules = UnsecuredTokens({})
    server = OAuthServer(lambda token: rules.validated(token, NOW_S * 1000, 0))
    client = OAuthClient("alice", unsecured_token({"sub": "alice"}, NOW_S))
    assert client.evaluate(server.evaluate(client.first())) is None
    assert server.user == client.user == "alice"
    wrong = OAuthClient("alice", "x")
    last = wrong.evaluate(server.evaluate(wrong.first()))
    assert last == b"\x01" and wrong.user is None
    with pytest.raises(SaslFailure):
        server.evaluate(last)


# --- unsecured tokens


def test_tokens_that_are_taken() -> None:
    end = (NOW_S + 100) * 1000
    assert taken(unsecured()) == ("alice", end)
    assert taken(unsecured(exp=NOW_S + 0.0014)) == ("alice", NOW_S * 1000 + 1)
    assert taken(unsecured({"sub": "a", "exp": NOW_S + 100})) == ("a", end)
    assert taken(unsecured(sub=True)) == ("true", end)
    assert taken(unsecured(sub=None)) == ("null", end)
    assert taken(unsecured(scope=["x", ""])) == ("alice", end)
    assert taken(unsecured(b'{"sub":"a","sub":"b","exp":1700000100} more')) == ("b", end)
    assert taken(unsecured(iat=NOW_S + 0.0004)) == ("alice", end)


@pytest.mark.parametrize(
    "token",
    [
        unsecured().rstrip("."),
        unsecured() + ".",
        unsecured() + "eA",
        unsecured().replace(".", "..", 1),
        unsecured(exp=NOW_S),
        unsecured(iat=NOW_S + 1),
        unsecured(iat=NOW_S + 0.002),
        unsecured({"sub": "a", "iat": NOW_S}),
        unsecured({"exp": NOW_S + 9}),
        unsecured(sub=" "),
        unsecured(sub={}),
        unsecured(sub=["a"]),
        unsecured(sub=7),
        unsecured(exp=str(NOW_S + 9)),
        unsecured(exp=10**400),
        unsecured(iat="now"),
        unsecured(scope=7),
        unsecured([1]),
        unsecured(b"{"),
        unsecured(b""),
        unsecured(b"[" * 100_000),
        unsecured(b'{"sub":"a","exp":NaN}'),
        unsecured(None, {"alg": "None"}),
        unsecured(None, {"alg": "RS256"}),
        unsecured(None, {"typ": "JWT"}),
        f"{part({'alg': 'none'})}.e.",
        f"{part({'alg': 'none'})}.____.",
    ],
)
def test_tokens_that_are_refused(token: str) -> None:
    assert isinstance(taken(token), str)


def test_options_of_the_validator() -> None:
    assert taken(unsecured(who="w"), PrincipalClaimName=" who ")[0] == "w"
    assert taken(unsecured(exp=NOW_S - 4), AllowableClockSkewMs="5000")[0] == "alice"
    assert "expired" in taken(unsecured(exp=NOW_S - 5), AllowableClockSkewMs="5000")
    assert taken(unsecured(iat=NOW_S + 5), AllowableClockSkewMs="5000")[0] == "alice"
    assert "before it was issued" in taken(
        unsecured(iat=NOW_S + 5, exp=NOW_S + 4), AllowableClockSkewMs="5000"
    )
    needs = {"RequiredScope": "a b", "ScopeClaimName": "may"}
    assert taken(unsecured(may=["b", " a "]), **needs)[0] == "alice"
    assert "lacks the scope b" in taken(unsecured(may="a"), **needs)
    assert "lacks the scope a" in taken(unsecured(may="a b"), **needs)


def test_what_a_client_is_told_of_a_scope() -> None:
    client = shaken(guarded('unsecuredValidatorRequiredScope="a b"'))
    answer = client.authenticate(bearer(unsecured()))
    assert answer.auth_bytes == b'{"status":"insufficient_scope", "scope":"[a, b]"}'


@pytest.mark.parametrize("name", ["alice", 'q"\\', "ü", "??~~>>", "~" * 50])
def test_own_tokens_are_plain_base64(name: str) -> None:
    token = unsecured_token({"sub": name}, NOW_S + 0.9)
    assert taken(token) == (name, (NOW_S + 3600) * 1000)


# --- how long a session lasts


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_s", "expected"),
    [("0", 100, 100_000), ("60000", 100, 60_000), ("60000", 20, 20_000), ("60000", -2, 0)],
)
def test_a_session_lasts_as_long_as_its_token(
    max_reauth_ms: str, expires_s: int, expected: int
) -> None:
    skew = 'unsecuredValidatorAllowableClockSkewMs="9000"'
    broker = guarded(skew, connections_max_reauth_ms=max_reauth_ms)
    client = shaken(broker)
    answer = client.authenticate(bearer(unsecured(exp=NOW_S + expires_s)))
    assert (answer.error_code, answer.session_lifetime_ms) == (0, expected)
    if expected:
        broker.later(expected - 1)
        assert client.metadata().brokers
    broker.later(1)
    assert client.metadata() is None
    assert client.closed is not None and "before its token had expired" in client.closed


def test_a_log_in_again_with_a_new_token() -> None:
    broker = guarded()
    client = shaken(broker)
    client.authenticate(bearer(unsecured()))
    broker.later(99_000)
    assert client.handshake("OAUTHBEARER").error_code == 0
    answer = client.authenticate(bearer(unsecured(exp=NOW_S + 50)))
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 50_000)
    broker.later(49_000)
    assert client.metadata().brokers
    assert client.handshake("OAUTHBEARER").error_code == 0
    broker.later(2000)
    assert client.authenticate(bearer(unsecured())).error_code == 0
    assert client.metadata().brokers and len(broker.admitted) == 1


def test_a_log_in_again_is_for_the_same_user_and_mechanism() -> None:
    for change in ("user", "mechanism"):
        broker = guarded(connection_failed_authentication_delay_ms="0")
        client = shaken(broker)
        client.authenticate(bearer(unsecured()))
        broker.later(2000)
        mechanism = "PLAIN" if change == "mechanism" else "OAUTHBEARER"
        assert client.handshake(mechanism).error_code == 0
        answer = client.authenticate(bearer(unsecured(sub="bob")))
        if change == "user":
            assert "Cannot change principals" in answer.error_message
        assert client.closed is not None or client.received() == []
        assert client.connection not in broker.core.sessions.by_connection


# --- keys and options


def test_the_option_makes_keys() -> None:
    values = dict(cluster_spec(overrides={}, port=9092, sasl="oauthbearer").node.values)
    assert values["sasl.enabled.mechanisms"] == "OAUTHBEARER"
    NodeRunner(NodeSpec(node_id=1, role=STANDALONE, values=values, data_dir="/nowhere"))
    found = credentials_in(values, None)
    assert found is not None and (found.user, found.password) == ("client", "")
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    with pytest.raises(ValueError, match="a client's token says who it is"):
        with_logins(listeners, "oauthbearer", {"a": "b"})


def test_configurations_of_clients() -> None:
    for name in ("alice", ""):
        own = Credentials("OAUTHBEARER", name, "")
        java = client_config("java", "h:1", own)
        options = parse_module(java["sasl.jaas.config"]).options
        assert options == ({"unsecuredLoginStringClaim_sub": "alice"} if name else {})
        librdkafka = client_config("librdkafka", "h:1", own)
        assert (librdkafka.get("sasl.oauthbearer.config") == "principal=alice") is bool(name)
        kafka_python = client_config("kafka-python", "h:1", own)
        assert ("sasl_oauth_token_provider" in kafka_python) is bool(name)
        assert "password" not in str([java, librdkafka, kafka_python])
        for each in (java, librdkafka):
            assert each["sasl.mechanism"] == "OAUTHBEARER"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({JAAS: None}, "OAUTHBEARER is enabled at listener SASL, and needs it"),
        ({JAAS: "x.PlainLoginModule required;"}, "is OAuthBearerLoginModule, not Plain"),
        ({JAAS: f'{MODULE} unsecuredValidatorRequiredScope="ü";'}, "invalid scope value"),
        ({JAAS: f'{MODULE} unsecuredValidatorAllowableClockSkewMs="-1";'}, "expected 0 or more"),
        ({f"listener.name.sasl.{URL}": "file:///k"}, "asks for these"),
        ({HANDLER_KEY: HANDLER}, "it must not be empty"),
        ({HANDLER_KEY: HANDLER, URL: "ftp://x"}, "expected file:, http: or https:"),
        (
            {HANDLER_KEY: HANDLER, URL: "http://x", URL.replace("url", "refresh.ms"): "0"},
            "at least 1",
        ),
        (
            {HANDLER_KEY: HANDLER, URL: "http://x", "sasl.oauthbearer.sub.claim.name": " "},
            "it must not be empty",
        ),
    ],
)
def test_keys_that_are_refused(keys: dict[str, str | None], said: str) -> None:
    pytest.importorskip("jwt", reason="PyJWT is not installed yet: make setup")
    values = {"sasl.enabled.mechanisms": "OAUTHBEARER", JAAS: f"{MODULE};", **keys}
    given = {key: text for key, text in values.items() if text is not None}
    with pytest.raises(ConfigError, match=said):
        listener_settings(BrokerConfig(given), "SASL")


def test_where_the_handler_may_stand() -> None:
    assert security_problem(HANDLER_KEY, HANDLER) is None
    old = HANDLER.replace("OAuthBearerV", "secured.OAuthBearerV")
    assert security_problem(HANDLER_KEY, old) is None
    plain = "sasl.server.callback.handler.class"
    for key in (plain, f"listener.name.sasl.{plain}", f"listener.name.sasl.plain.{plain}"):
        problem = security_problem(key, HANDLER)
        assert problem is not None and "name listener and mechanism" in str(problem)
    problem = security_problem(HANDLER_KEY, "my.Handler")
    assert problem is not None and "no Java classes" in str(problem)
    assert problem_at_run_time("sasl.oauthbearer.expected.issuer", "x") is not None


def test_a_listener_without_the_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    values = {"sasl.enabled.mechanisms": "OAUTHBEARER", JAAS: f"{MODULE};", HANDLER_KEY: HANDLER}
    with pytest.raises(ConfigError, match=r"pip install 'kwire\[oauth\]'"):
        listener_settings(BrokerConfig({**values, URL: "file:///k"}), "SASL")


def test_brokers_log_in_at_each_other_by_unsecured_tokens() -> None:
    values = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            f'{MODULE} unsecuredLoginStringClaim_sub="broker" unsecuredLoginStringClaim_scope="x";'
        ),
    }
    found = inter_broker_login(BrokerConfig(values), "SASL_PLAINTEXT")
    assert (found.user, found.claims) == ("broker", {"sub": "broker", "scope": "x"})
    broker = guarded('unsecuredValidatorRequiredScope="x"')
    broker.clock.wall_ms = time.time_ns() // 1_000_000
    client, login = broker.client(), PeerLogin(found, "me")
    frame: bytes | None = login.first()
    while frame is not None:
        (answer,) = client.send(frame[4:])
        frame = login.take(answer)
    assert client.session.principal == "User:broker" and 0 < login.lifetime_ms <= 3_600_000
    values["listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"] = f"{MODULE};"
    with pytest.raises(SettingsError, match="unsecuredLoginStringClaim_sub is needed"):
        NodeRunner(NodeSpec(node_id=1, role=STANDALONE, values=values, data_dir="/nowhere"))


# --- clusters


@pytest.mark.timeout(60)
def test_stock_clients_and_kwires_own() -> None:
    from confluent_kafka import Producer
    from kafka import KafkaProducer

    with Cluster(sasl="oauthbearer", topics=["orders"]) as cluster:
        producer = Producer(cluster.client_config("librdkafka", "alice"))
        producer.produce("orders", b"one")
        assert producer.flush(10) == 0
        other = KafkaProducer(**cluster.client_config("kafka-python"))
        assert other.send("orders", b"two").get(10).offset == 1
        other.close()
        at = ["-b", cluster.bootstrap_servers, "--sasl", "oauthbearer"]
        runner = CliRunner()
        done = runner.invoke(cli, ["topics", *at, "--user", "alice"])
        assert done.exit_code == 0 and "orders" in done.output
        failed = runner.invoke(cli, ["topics", *at, "--user", "alice:secret"])
        assert failed.exit_code != 0 and "oauthbearer has no secrets" in failed.output


def test_a_broker_without_tokens_has_none() -> None:
    assert Guarded().gate.listeners["SASL"].tokens is None
