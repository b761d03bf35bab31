"""JAAS files, named by KAFKA_OPTS: the file's grammar, which section counts, what is refused, a stock client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kwire.docker.container import _settings
from kwire.launch.configuration import cluster_spec, node_spec
from kwire.launch.node_runner import NodeRunner
from kwire.launch.spec import BROKER, STANDALONE
from kwire.replication.config.broker_config import BrokerConfig
from kwire.security.jaas import Module, parse_module, parse_sections
from kwire.security.settings import inter_broker_login, listener_settings
from kwire.server.access.jaas_file import with_jaas_file
from kwire.server.errors import SettingsError

ROOT = Path(__file__).resolve().parents[2]
# As in Confluent's and Testcontainers' examples.
USUAL = """
/* of the brokers */
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin"
    password="admin-secret"   // between brokers
    user_admin="admin-secret"
    user_alice="alice-\\"secret\\"";
};
Client {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    username="zk" password="zk-secret";
};
"""
PLAIN = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}
KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


def options(path: Path, text: str | None = USUAL) -> str:
    """KAFKA_OPTS with a file of this text; None: there is no file."""
    if text is not None:
        path.write_text(text)
    return f"-Xmx1g -Djava.security.auth.login.config={path} -Dother=1"


# --- the grammar


def test_sections_and_their_modules() -> None:
    sections = parse_sections(USUAL)
    assert list(sections) == ["KafkaServer", "Client"]
    (module,) = sections["KafkaServer"]
    assert module.name == "PlainLoginModule"
    assert module.users() == {"admin": "admin-secret", "alice": 'alice-"secret"'}
    assert parse_sections("") == {} and parse_sections("a.b-c { };") == {"a.b-c": []}
    two = parse_sections('K { x.A required a="1"; x.B optional; };')["K"]
    assert [each.name for each in two] == ["A", "B"]


@pytest.mark.parametrize("value", ["", "plain", 'a"b', "a\\b", "a\nb", "a;}'#", "ä"])
def test_a_module_is_read_as_it_is_written(value: str) -> None:
    module = parse_module(Module("PlainLoginModule", {"user_a": value, "b": "c"}).to_text())
    assert (module.name, module.options) == ("PlainLoginModule", {"user_a": value, "b": "c"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('KafkaServer x.A required user_a="hush";', "expected a section"),
        ("{ };", "expected a section"),
        ('K { x.A required user_a="hush";', "section K: it does not end"),
        ('K { x.A required user_a="hush"; }', "section K does not end with };"),
        ('K { x.A user_a="hush"; };', "section K: after the login module expected a flag"),
        ('K { x.A required user_a="hush" };', "section K: expected KEY=VALUE"),
        ("K { x.A required user_a=hush", "section K: it does not end with a semicolon"),
        ("K { }; K { };", "it has two sections K"),
        ('K { x.A required user_a="hush', "unexpected text at character"),
    ],
)
def test_a_file_that_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse_sections(text)
    assert "hush" not in str(caught.value)


# --- as keys


def users(values: dict[str, str], listener: str = "SASL_PLAINTEXT") -> dict[str, str]:
    return listener_settings(BrokerConfig(values), listener).plain_users


def test_users_of_the_file_may_log_in(tmp_path: Path) -> None:
    found = dict(with_jaas_file(PLAIN, options(tmp_path / "server.conf")))
    assert found.keys() - PLAIN.keys() == {KEY}
    assert users(found) == {"admin": "admin-secret", "alice": 'alice-"secret"'}


def test_a_section_of_the_listener_wins_and_a_key_wins_over_both(tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    text = f'KafkaServer {{ {module} user_a="1"; }};\nin.KafkaServer {{ {module} user_b="2"; }};'
    values = {
        "listeners": "IN://:1,OUT://:2,KEYED://:3,PLAINTEXT://:4",
        "listener.security.protocol.map": "IN:SASL_SSL,OUT:SASL_PLAINTEXT,KEYED:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.keyed.plain.sasl.jaas.config": f'{module} user_c="3";',
    }
    found = dict(with_jaas_file(values, options(tmp_path / "server.conf", text)))
    assert [users(found, name) for name in ("IN", "OUT", "KEYED")] == [
        {"b": "2"},
        {"a": "1"},
        {"c": "3"},
    ]
    assert not any("plaintext" in key for key in found.keys() - values.keys())


def test_modules_of_a_section_are_those_of_all_mechanisms(tmp_path: Path) -> None:
    text = """KafkaServer {
        x.PlainLoginModule required username="admin" password="p" user_admin="p";
        x.ScramLoginModule required;
    };"""
    values = {
        **PLAIN,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    }
    found = dict(with_jaas_file(values, options(tmp_path / "server.conf", text)))
    login = inter_broker_login(BrokerConfig(found), "SASL_PLAINTEXT")
    assert (login.mechanism, login.user, login.password) == ("SCRAM-SHA-512", "admin", "p")
    assert users(found) == {"admin": "p"}


def test_of_the_controllers_of_other_nodes(tmp_path: Path) -> None:
    values = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "sasl.mechanism.controller.protocol": "PLAIN",
    }
    found = dict(with_jaas_file(values, options(tmp_path / "server.conf")))
    assert found.keys() - values.keys() == {"listener.name.controller.plain.sasl.jaas.config"}


@pytest.mark.parametrize(
    "values",
    [
        {"listeners": "PLAINTEXT://127.0.0.1:0"},
        {**PLAIN, KEY: 'x.PlainLoginModule required user_a="b";'},
        {**PLAIN, "kwire.users": "alice:secret"},
        {**PLAIN, "sasl.enabled.mechanisms": "GSSAPI"},  # refused at the start
    ],
)
def test_a_file_that_no_listener_needs_is_not_read(values: dict[str, str], tmp_path: Path) -> None:
    assert with_jaas_file(values, options(tmp_path / "none", None)) == values
    assert with_jaas_file(values, None) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file or directory"),
        ("KafkaServer {", "section KafkaServer: it does not end"),
        (
            "Client { };",
            "expected a section sasl_plaintext.KafkaServer or KafkaServer, there is Client",
        ),
        ("", "there is none"),
        ("KafkaServer { };", "section KafkaServer: it names no login module"),
        (
            'KafkaServer { com.sun.security.auth.module.Krb5LoginModule required keyTab="k"; };',
            "section KafkaServer: kwire has no Krb5LoginModule (Kerberos)",
        ),
        ("KafkaServer { my.LdapLoginModule required; };", "kwire has no LdapLoginModule"),
    ],
)
def test_what_cannot_be_had_is_one_line(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    with pytest.raises(SettingsError) as caught:
        with_jaas_file(PLAIN, options(path, text))
    line = str(caught.value)
    assert line.startswith(f"KAFKA_OPTS: java.security.auth.login.config={path}: ")
    assert said in line and "\n" not in line


def test_what_is_no_text_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="it is no text"):
        with_jaas_file(PLAIN, options(path, None))


@pytest.mark.parametrize(
    "written",
    [
        "-Djava.security.auth.login.config={}",
        "-Djava.security.auth.login.config=={}",
        "-Djava.security.auth.login.config=file:{}",
        "-Djava.security.auth.login.config=file://{}",
        "'-Djava.security.auth.login.config={}'",
        '-Djava.security.auth.login.config="{}"',
        "-Djava.security.auth.login.config=/not/this -Djava.security.auth.login.config={}",
        "it's -Djava.security.auth.login.config={}",
    ],
)
def test_ways_to_name_the_file(written: str, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(USUAL)
    assert KEY in with_jaas_file(PLAIN, written.format(path))


# --- the doors


def test_the_keys_are_those_of_each_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_OPTS", options(tmp_path / "server.conf"))
    between = {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    spec = cluster_spec(overrides={**PLAIN, **between}, data_dir="/nowhere")
    assert users(dict(spec.node.values)).keys() == {"admin", "alice"}
    NodeRunner(spec.node.replace(role=STANDALONE))  # is not refused
    words = {"node_id": 1, "role": BROKER, "controllers": ((1000, "h", 1),), "standby": False}
    node = node_spec(data_dir="/nowhere", values={**PLAIN, **between}, **words)
    assert KEY in node.values
    monkeypatch.setenv("KAFKA_LISTENERS", "SASL_PLAINTEXT://0.0.0.0:9092")
    monkeypatch.setenv("KAFKA_SASL_ENABLED_MECHANISMS", "PLAIN")
    assert KEY in _settings(["run"]).node.values
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in PLAIN.items()))
    assert KEY in _settings(["start", str(properties)]).node.values


def test_kwire_up_with_a_file(tmp_path: Path) -> None:
    keys = {
        **PLAIN,
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    given = [word for key, value in keys.items() for word in ("-c", f"{key}={value}")]
    command = [sys.executable, "-m", "kwire", "up", *given, "--topic", "orders"]
    path = tmp_path / "server.conf"
    environ = os.environ | {"KAFKA_OPTS": options(path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environ)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split()[1].removeprefix("bootstrap=")
        config = {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
        }
        admin = AdminClient({**config, "sasl.password": 'alice-"secret"'})
        assert "orders" in admin.list_topics(timeout=20).topics
        stranger = AdminClient({**config, "sasl.password": "wrong"})
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=1)
    finally:
        process.terminate()
        assert process.wait(20) == 0
    path.unlink()
    refused = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environ, timeout=60, check=False
    )
    assert refused.returncode == 2
    assert "no such file" in refused.stderr and refused.stderr.count("\n") == 1
