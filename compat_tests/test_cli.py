"""`kwire topics`, `partitions`, `groups`, `produce` and `consume` work with any Kafka."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from compat_tests.brokers import Broker

pytestmark = pytest.mark.timeout(90)


def kwire(broker: Broker, *words: str, lines: str = "", status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kwire", *words, "--bootstrap", broker.bootstrap_servers],
        input=lines,
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert done.returncode == status, done
    return done.stdout if status == 0 else done.stderr


def test_a_topic_from_its_creation_to_its_deletion(
    broker: Broker, fresh: Callable[[str], str]
) -> None:
    topic = fresh("cli")
    assert kwire(broker, "topics", "create", f"{topic}:3") == f"created {topic}\n"
    lines = [f"k{number % 5}:v{number}" for number in range(50)]
    kwire(broker, "produce", topic, "-K", ":", "-H", "lang=en", lines="\n".join(lines))
    read = kwire(broker, "consume", topic, "-K", ":").splitlines()
    assert sorted(read) == sorted(lines)
    for key in ("k0", "k4"):  # each in one partition, in order
        of_key = [line for line in lines if line.startswith(f"{key}:")]
        assert [line for line in read if line.startswith(f"{key}:")] == of_key
    ends = [each["end"] for each in json.loads(kwire(broker, "partitions", topic, "--json"))]
    assert (len(ends), sum(ends)) == (3, 50)
    (place,) = kwire(broker, "produce", topic, "last", "-p", "1").split()
    assert place == f"{topic}-1@{ends[1]}"
    record = json.loads(kwire(broker, "consume", topic, "-p", "1", "--from", "-1", "--json"))
    assert (record["value"], record["offset"], record["headers"]) == ("last", ends[1], [])
    assert [topic, "3", "1"] in [line.split() for line in kwire(broker, "topics").splitlines()]
    assert "TOPIC_ALREADY_EXISTS" in kwire(broker, "topics", "create", topic, status=1)
    assert kwire(broker, "topics", "delete", topic) == f"deleted {topic}\n"
    assert f"there is no topic {topic}" in kwire(broker, "topics", "delete", topic, status=1)


def test_a_group_with_its_lag(broker: Broker, fresh: Callable[[str], str]) -> None:
    from kafka import KafkaConsumer

    topic, group = fresh("cli"), fresh("group")
    kwire(broker, "topics", "create", topic)
    kwire(broker, "produce", topic, "a", "b", "c")
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=1,
    )
    try:
        next(consumer)
        consumer.commit()
        found = json.loads(kwire(broker, "groups", group, "--json"))
    finally:
        consumer.close()
    assert (found["state"], found["lag"], len(found["members"])) == ("Stable", 2, 1)
    assert [group, "Empty", "0", "2", topic] in [
        line.split() for line in kwire(broker, "groups").splitlines()
    ]


def test_wait_returns_when_a_broker_answers(broker: Broker) -> None:
    assert kwire(broker, "wait") == f"ready bootstrap={broker.bootstrap_servers}\n"
