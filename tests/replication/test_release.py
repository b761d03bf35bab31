"""The configuration keys of a release, beside what a real Kafka 3.9.1 describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.replication.config.broker_config import (
    CAPPED_BY_BROKERS,
    KWIRE_DEFAULTS,
    BrokerConfig,
)
from kwire.replication.config.entries import (
    ConfigEntry,
    broker_entries,
    effective_topic_config,
    topic_entries,
)
from kwire.replication.config.release import Release

DESCRIBED = Path(__file__).parent.parent / "data" / "described-configs-3.9.1.jsonl"
OWN = KWIRE_DEFAULTS.keys() | CAPPED_BY_BROKERS.keys()
A_SHORT_IN_3 = "group.share.max.size"  # whose type is 4.3's here
AFTER_MAX = "message.timestamp.after.max.ms"


def described(scope: str) -> dict[str, tuple[Any, ...]]:
    rows = [json.loads(line) for line in DESCRIBED.read_text().splitlines()]
    return {
        row["name"]: (row["default"], row["type"], row["read_only"], row["sensitive"])
        for row in rows
        if row["scope"] == scope
    }


def shown(entries: Iterator[ConfigEntry]) -> dict[str, tuple[Any, ...]]:
    return {e.name: (e.value, e.type, e.read_only, e.sensitive) for e in entries}


def test_as_3_9_the_keys_types_and_defaults_of_a_broker_are_those_of_kafka_3_9_1() -> None:
    ours, kafkas = shown(broker_entries(BrokerConfig(release=Release("3.9")))), described("broker")
    assert ours.keys() == kafkas.keys() and len(ours) == 314
    differing = {name for name, row in ours.items() if row != kafkas[name]}
    assert differing - OWN == {A_SHORT_IN_3}


def test_as_3_9_the_keys_and_defaults_of_a_topic_are_those_of_kafka_3_9_1() -> None:
    config = BrokerConfig(release=Release("3.9"))
    assert shown(topic_entries({}, config)) == described("topic")
    assert config.log_config().message_timestamp_after_max_ms == 2**63 - 1


@pytest.mark.parametrize("release", [None, Release("4.0"), Release("4.3.1")])
def test_else_the_defaults_are_those_of_kafka_4(release: Release | None) -> None:
    config = BrokerConfig(release=release)
    assert config.log_config().message_timestamp_after_max_ms == 3_600_000
    names = {entry.name for entry in broker_entries(config)}
    assert {"group.streams.max.size", "share.coordinator.threads"} <= names
    assert ("zookeeper.connect" in names) is (release is None)
    topic = {entry.name for entry in topic_entries({}, config)}
    assert topic == {name for name, _, _ in effective_topic_config({}, config)}
    assert ("message.downconversion.enable" in topic) is (release is None)


def test_keys_of_another_release_are_shown_where_they_are_set() -> None:
    config = BrokerConfig({"group.streams.max.size": "5"}, release=Release("2.8"))
    assert shown(broker_entries(config))["group.streams.max.size"][0] == "5"
    topic = topic_entries(
        {"message.downconversion.enable": "false"}, BrokerConfig(release=Release("4.0"))
    )
    assert shown(topic)["message.downconversion.enable"][0] == "false"
