"""Access rules with stock clients: who may write and read, what kafka-acls shows; on Apache Kafka 3.9.1 with REAL=1."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from compat_tests import brokers, test_security, tooling
from compat_tests.clients import eventually

pytestmark = pytest.mark.timeout(180)

KEYS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",  # ANONYMOUS: between the brokers of the plain listener
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f"{test_security.MODULES}.plain.PlainLoginModule required"
        ' user_admin="hush" user_alice="secret" user_bob="secret";'
    ),
}
PASSWORDS = {"admin": "hush", "alice": "secret", "bob": "secret"}
TOPIC_REFUSED, GROUP_REFUSED = 29, 30


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The listener on which clients log in."""
    is_real = os.environ.get("REAL") == "1"
    kind = test_security.KafkaWithLogins if is_real else test_security.KwireWithLogins
    with pytest.MonkeyPatch.context() as patch:
        for key, value in KEYS.items():
            patch.setitem(test_security.KEYS, key, value)
        broker = kind(Path(tmp_path_factory.mktemp("acls")))
        if not is_real:
            broker.port = brokers.free_port()
        broker.start()
        yield f"127.0.0.1:{broker.login_port}"
        broker.stop()


def config(address: str, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
        "log_level": 0,
        **more,
    }


def written(address: str, user: str, topic: str) -> int:
    """The error code of a record's delivery, 0 if it was written."""
    codes: list[int] = []
    producer = Producer(config(address, user, **{"message.timeout.ms": 10_000}))
    producer.produce(
        topic, b"x", on_delivery=lambda e, _: codes.append(0 if e is None else e.code())
    )
    assert producer.flush(15) == 0
    return codes[0]


def read(address: str, user: str, topic: str, group: str) -> int:
    """The error code that a consumer of a group gets, 0 if it gets a record."""
    consumer = Consumer(
        config(address, user, **{"group.id": group, "auto.offset.reset": "earliest"})
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(15)
        assert message is not None
        error = message.error()
        return 0 if error is None else int(error.code())
    finally:
        consumer.close()


def rule(
    user: str,
    operation: str,
    name: str,
    *,
    kind: str = "TOPIC",
    pattern: str = "LITERAL",
    permission: str = "ALLOW",
) -> AclBinding:
    return AclBinding(
        ResourceType[kind],
        name,
        ResourcePatternType[pattern],
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermissionType[permission],
    )


def allow(address: str, *rules: AclBinding) -> None:
    admin = AdminClient(config(address, "admin"))
    for future in admin.create_acls(list(rules)).values():
        future.result(15)


def matching(**values: Any) -> AclBindingFilter:
    """A filter of rules; by default of all."""
    wanted: dict[str, Any] = {
        "restype": ResourceType.ANY,
        "name": None,
        "resource_pattern_type": ResourcePatternType.ANY,
        "principal": None,
        "host": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermissionType.ANY,
        **values,
    }
    return AclBindingFilter(**wanted)


def test_producers_and_consumers_do_what_rules_allow(address: str) -> None:
    assert written(address, "alice", "orders") == TOPIC_REFUSED
    allow(address, rule("alice", "WRITE", "orders"), rule("alice", "CREATE", "orders"))
    eventually(lambda: written(address, "alice", "orders") == 0)
    assert written(address, "bob", "orders") == TOPIC_REFUSED
    assert read(address, "alice", "orders", "g") == GROUP_REFUSED
    allow(address, rule("alice", "READ", "g", kind="GROUP"))
    eventually(lambda: read(address, "alice", "orders", "g") == TOPIC_REFUSED)
    allow(address, rule("alice", "READ", "ord", pattern="PREFIXED"))
    eventually(lambda: read(address, "alice", "orders", "g") == 0)
    allow(address, rule("alice", "WRITE", "o", pattern="PREFIXED", permission="DENY"))
    eventually(lambda: written(address, "alice", "orders") == TOPIC_REFUSED)


def test_topics_that_one_may_not_describe_are_not_there(address: str) -> None:
    assert written(address, "admin", "hidden") == 0
    allow(address, rule("bob", "DESCRIBE", "seen"))
    assert written(address, "admin", "seen") == 0
    topics = AdminClient(config(address, "bob")).list_topics(timeout=15).topics
    assert set(topics) == {"seen"}
    consumer = Consumer(config(address, "bob", **{"group.id": "b"}))
    assert consumer.get_watermark_offsets(TopicPartition("seen", 0), timeout=15) == (0, 1)
    consumer.close()


def test_rules_are_shown_and_deleted_by_who_may(address: str) -> None:
    mine = rule("carol", "ALL", "*"), rule("carol", "READ", "c", kind="GROUP", pattern="PREFIXED")
    allow(address, *mine)
    admin = AdminClient(config(address, "admin"))
    assert set(mine) <= set(admin.describe_acls(matching()).result(15))
    other = AdminClient(config(address, "bob"))
    # librdkafka keeps the error of such an answer to itself.
    assert other.describe_acls(matching()).result(15) == []
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        next(iter(other.create_acls([mine[0]]).values())).result(15)
    of_carol = matching(
        restype=ResourceType.TOPIC,
        name="anything",
        resource_pattern_type=ResourcePatternType.MATCH,
        principal="User:carol",
    )
    (deleted,) = admin.delete_acls([of_carol]).values()
    assert deleted.result(15) == [mine[0]]
    assert mine[0] not in admin.describe_acls(matching()).result(15)


@pytest.mark.slow
def test_kafka_acls(address: str, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    module = f"{test_security.MODULES}.plain.PlainLoginModule"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="admin" password="hush";\n'
    )
    tooling.java()
    tooling.kafka_jars("3.9.1")

    def kafka_acls(*arguments: str) -> str:
        given = ("--bootstrap-server", address, "--command-config", str(properties), *arguments)
        argv = tooling.java_argv("3.9.1", "kafka.admin.AclCommand", *given)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    of_dave = ("--topic", "d", "--resource-pattern-type", "prefixed")
    kafka_acls("--add", "--allow-principal", "User:dave", "--producer", *of_dave)
    shown = kafka_acls("--list", "--principal", "User:dave")
    assert "ResourcePattern(resourceType=TOPIC, name=d, patternType=PREFIXED)" in shown
    for operation in ("CREATE", "WRITE", "DESCRIBE"):
        line = f"(principal=User:dave, host=*, operation={operation}, permissionType=ALLOW)"
        assert shown.count(line) == 1
    assert written(address, "bob", "dd") == TOPIC_REFUSED
    kafka_acls("--remove", "--force", *of_dave)
    assert "User:dave" not in kafka_acls("--list")
