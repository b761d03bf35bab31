"""`acl=True` and `super_users`, `kwire up --acl --super-user`: keys, what is said of mistakes, stock clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kwire import Cluster
from kwire.errors import ConfigurationError
from kwire.security.access_rules import doubts, with_acls

ROOT = Path(__file__).resolve().parents[2]
USERS = {"admin": "admin-secret", "alice": "alice-secret"}
PLAIN = {"listeners": "PLAINTEXT://127.0.0.1:0"}
INTERNAL = "KWIRE_INTERNAL://127.0.0.1:0"
NOBODY_LOGS_IN = "no listener asks for a log-in or a certificate, so every client is User:ANONYMOUS"


def produced(config: dict[str, Any], topic: str = "orders") -> int:
    """The error of a record that is sent; 0: none."""
    found: list[Any] = []
    producer = Producer(config)
    producer.produce(topic, b"tea", on_delivery=lambda error, _: found.append(error))
    assert producer.flush(20) == 0
    return 0 if found[0] is None else int(found[0].code())


def allow(admin: AdminClient, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    """Let alice do that, by a rule."""
    rule = AclBinding(
        *(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation),
        AclPermissionType.ALLOW,
    )
    admin.create_acls([rule])[rule].result(20)
    return rule


def consumed(config: dict[str, Any], topic: str = "orders") -> list[bytes | None]:
    """The first record of a topic; KafkaException when it is refused."""
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        found = consumer.consume(1, 30)
        for message in found:
            if message.error():
                raise KafkaException(message.error())
        return [message.value() for message in found]
    finally:
        consumer.close()


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_client_is_denied_until_a_rule_allows_it(brokers: int) -> None:
    locks: dict[str, Any] = {"sasl": "plain", "users": USERS}
    with Cluster(
        brokers, **locks, acl=True, super_users=["admin"], topics=["orders:2:1"]
    ) as cluster:
        alice = cluster.client_config("librdkafka", "alice")
        admin_config = cluster.client_config("librdkafka", "admin")
        assert produced(alice) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert produced(admin_config) == 0  # the super user needs no rule
        admin = AdminClient(admin_config)
        allow(admin, ResourceType.TOPIC, "orders", AclOperation.WRITE)
        assert produced(alice) == 0
        with pytest.raises(KafkaException) as caught:
            consumed(alice)
        assert caught.value.args[0].code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        )
        allow(admin, ResourceType.TOPIC, "orders", AclOperation.READ)
        rule = allow(admin, ResourceType.GROUP, "g", AclOperation.READ)
        assert consumed(alice) == [b"tea"]
        hers = AdminClient(alice)
        with pytest.raises(KafkaException) as caught:
            hers.create_acls([rule])[rule].result(20)
        assert caught.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_kwire_itself_goes_on_in_spite_of_rules(isolation: str) -> None:
    locks: dict[str, Any] = {"sasl": "scram-sha-512", "users": USERS, "acl": True}
    with Cluster(2, **locks, super_users=["admin"], isolation=isolation) as cluster:
        admin = AdminClient(cluster.client_config("librdkafka", "admin"))
        allow(admin, ResourceType.TOPIC, "orders", AclOperation.ALL)
        cluster.create_topic("orders", 2, 2)
        cluster.produce("orders", b"tea", partition=0)
        assert [record.value for record in cluster.records("orders")] == [b"tea"]
        assert cluster.partition("orders", 0).isr == {1, 2}
        cluster.broker(2).kill()
        cluster.broker(2).start()
        cluster.wait_in_sync("orders")
        cluster.reset(keep_clients=True)
        assert cluster.topics() == {}
        every = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None)
        rules = AclBindingFilter(*every, AclOperation.ANY, AclPermissionType.ANY)
        assert admin.describe_acls(rules).result(20) == []  # rules of an earlier test are not there


def test_without_a_log_in_everybody_is_anonymous() -> None:
    with pytest.warns(UserWarning, match=f"access rules: {NOBODY_LOGS_IN}$"):
        cluster = Cluster(acl=True, topics=["orders"])
    with cluster:
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        assert produced(config) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert cluster.topics() == {"orders": 1}


# --- keys


def test_options_as_keys() -> None:
    found = with_acls(PLAIN, ["admin", "User:CN=b,OU=c", "User:admin"], acl=True)
    assert found["super.users"] == "User:admin;User:CN=b,OU=c"
    assert found["authorizer.class.name"].endswith(".StandardAuthorizer")
    assert found["allow.everyone.if.no.acl.found"] == "false"
    assert found["listeners"] == f"{PLAIN['listeners']},{INTERNAL}"
    assert found["inter.broker.listener.name"] == "KWIRE_INTERNAL"


def test_keys_that_are_given_stay() -> None:
    own = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "advertised.listeners": "A://localhost:0,B://localhost:0",
        "listener.security.protocol.map": "A:SASL_PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name": "B",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:broker",
    }
    found = with_acls(own, ["admin"], acl=True)
    for key in ("listeners", "advertised.listeners"):  # kwire itself needs its own
        assert found.pop(key) == f"{own.pop(key)},{INTERNAL}"
    assert found.pop("listener.security.protocol.map").endswith(",KWIRE_INTERNAL:PLAINTEXT")
    assert found.pop("super.users") == "User:broker;User:admin"
    assert found.items() <= own.items()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"acl": "yes"}, "acl: expected True or False, not 'yes'"),
        ({"super_users": ["admin"]}, "super_users: it needs acl, else everybody may"),
        ({"acl": True, "super_users": "admin"}, r"super_users: expected names, \['admin'\]"),
        ({"acl": True, "super_users": [1]}, "super_users: expected names"),
        ({"acl": True, "super_users": [" "]}, "super_users: expected NAME or User:NAME"),
        ({"acl": True, "super_users": ["a;b"]}, "super_users: expected NAME or User:NAME"),
        ({"acl": True, "super_users": ["alice:hush"]}, "super_users: expected NAME or User:NAME"),
        ({"acl": True, "super_users": ["User:*"]}, "stands for nobody here"),
    ],
)
def test_words_that_are_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        Cluster(**words)
    assert "\n" not in str(caught.value) and "hush" not in str(caught.value)


# --- what is doubtful

SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "kwire.users": "alice:secret",
    "sasl.enabled.mechanisms": "PLAIN",
}
MUTUAL = {"listeners": "SSL://127.0.0.1:0", "ssl.client.auth": "required"}


@pytest.mark.parametrize(
    ("keys", "names", "said"),
    [
        (PLAIN, [], NOBODY_LOGS_IN),
        (PLAIN, ["admin"], f"{NOBODY_LOGS_IN}, and nobody is User:admin"),
        (PLAIN, ["ANONYMOUS"], f"{NOBODY_LOGS_IN}, who is a super user: nothing is refused"),
        ({"listeners": "SSL://127.0.0.1:0"}, [], NOBODY_LOGS_IN),
        (SASL, ["alice"], None),
        (SASL, ["alice", "ANONYMOUS"], None),
        (SASL, ["alcie"], "nobody can log in as User:alcie, who is a super user"),
        ({**SASL, "sasl.enabled.mechanisms": "SCRAM-SHA-256"}, ["alcie"], None),
        (MUTUAL, ["CN=client"], None),
        ({**SASL, "sasl.enabled.mechanisms": "GSSAPI"}, ["alcie"], None),  # refused elsewhere
    ],
)
def test_what_can_hardly_be_meant(keys: dict[str, str], names: list[str], said: str | None) -> None:
    assert doubts(with_acls(keys, names, acl=True)) == said


def test_without_rules_nothing_is_doubted() -> None:
    assert doubts(PLAIN) is None


# --- kwire up


@contextmanager
def up(*options: str) -> Iterator[tuple[str, list[str]]]:
    """The address of a `kwire up`, and what it has written to stderr, filled at the end."""
    said: list[str] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "kwire", "up", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("ready ")
        yield line.split()[1].removeprefix("bootstrap="), said
    finally:
        process.send_signal(signal.SIGTERM)
        said += process.communicate(timeout=20)[1].splitlines()
    assert process.returncode == 0


def kwire(*words: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command. `home`: of somebody who knows of no `kwire up`."""
    return subprocess.run(
        [sys.executable, "-m", "kwire", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=None if home is None else os.environ | {"KWIRE_RUNTIME_DIR": str(home)},
        timeout=60,
        check=False,
    )


def test_kwire_up_and_the_commands(tmp_path: Path) -> None:
    login = ("--sasl", "plain", "--user", "admin:s", "--user", "alice:t")
    with up("--acl", "--super-user", "User:admin", *login, "--topic", "orders") as (address, said):
        port = address.rpartition(":")[2]
        made = kwire("topics", "create", "audit", "--port", port)
        assert made.returncode == 0, made.stderr
        elsewhere = ("-b", address, "--user")
        found = kwire("topics", *elsewhere, "admin:s", home=tmp_path).stdout
        assert "audit" in found and "orders" in found
        assert "orders" not in kwire("topics", *elsewhere, "alice:t", home=tmp_path).stdout
        refused = kwire("topics", "create", "more", *elsewhere, "alice:t", home=tmp_path)
        assert refused.returncode == 1 and "AUTHORIZATION_FAILED" in refused.stderr
    assert not any("access rules" in line for line in said)


def test_kwire_up_says_that_everybody_is_anonymous(tmp_path: Path) -> None:
    with up("--acl", "--topic", "orders") as (address, said):
        assert "orders" in kwire("topics", "--port", address.rpartition(":")[2]).stdout
        assert "orders" not in kwire("topics", "-b", address, home=tmp_path).stdout
    assert [line for line in said if line.endswith(f"access rules: {NOBODY_LOGS_IN}")], said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--super-user", "admin"], "--super-user: it needs --acl, else everybody may do"),
        (["--acl", "--super-user", "admin:hush"], "--super-user: expected NAME or User:NAME"),
    ],
)
def test_mistakes_of_kwire_up_are_one_line(words: list[str], said: str) -> None:
    result = kwire("up", "--port", "0", *words)
    assert result.returncode == 2
    assert said in result.stderr and result.stderr.count("\n") == 1 and "hush" not in result.stderr
