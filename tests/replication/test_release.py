"""The configuration keys of a release, beside what a real Kafka 3.9.1 describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.replication.config.auto_topics import auto_topic_settings
from kwire.replication.config.broker_config import (
    CAPPED_BY_BROKERS,
    KWIRE_DEFAULTS,
    BrokerConfig,
    ConfigError,
)
from kwire.replication.config.entries import (
    ConfigEntry,
    broker_entries,
    effective_topic_config,
    group_entries,
    topic_entries,
)
from kwire.replication.config.release import Release
from kwire.replication.config.throttles import check_throttled_replicas

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


def test_a_key_of_another_release_is_shown_where_it_is_set() -> None:
    """Kafka keeps keys that it does not know, too."""
    for settings in ({}, {"config.providers": "x"}):
        config = BrokerConfig(settings, release=Release("3.9"))
        names = {entry.name for entry in broker_entries(config)}
        assert ("config.providers" in names) == bool(settings)
    overrides = {"message.format.version": "3.0"}
    for given in ({}, overrides):
        entries = topic_entries(given, BrokerConfig(release=Release("4.0")))
        assert ("message.format.version" in {entry.name for entry in entries}) == bool(given)


def test_what_is_no_number_is_taken_for_the_newest() -> None:
    newest, other = Release("4.4"), Release("trunk")
    assert other.has_group_resources and other.defaults == newest.defaults == {}
    assert other.broker_keys_missing == newest.broker_keys_missing


def test_the_value_of_a_new_topic_comes_from_the_most_specific_layer() -> None:
    key = "log.segment.bytes"

    def source(
        static: dict[str, str],
        default: dict[str, str] | None = None,
        own: dict[str, str] | None = None,
    ) -> int:
        config = BrokerConfig(static)
        config.set_dynamic(default or {}, own or {})
        return next(
            s for name, _, s in effective_topic_config({}, config) if name == "segment.bytes"
        )

    static = {key: "2000000"}
    assert source({}) == 5 and source(static) == 4
    assert source(static, {key: "3000000"}) == 3
    assert source(static, {key: "3000000"}, {key: "4000000"}) == 2


def test_the_default_of_a_group_is_that_of_its_broker() -> None:
    config = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    shown = {entry.name: entry.value for entry in group_entries({}, config)}
    assert shown["consumer.session.timeout.ms"] == "50000"


def test_a_secret_is_not_shown_in_its_synonyms() -> None:
    config = BrokerConfig({"ssl.key.password": "secret"})
    (entry,) = [e for e in broker_entries(config) if e.name == "ssl.key.password"]
    assert entry.value is None and entry.synonyms == [("ssl.key.password", None, 4)]


def test_the_state_of_transactions_is_a_topic_with_settings_of_its_own() -> None:
    config = BrokerConfig(
        {
            "transaction.state.log.num.partitions": "7",
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.min.isr": "2",
            "offsets.topic.replication.factor": "1",
        },
        brokers=3,
    )
    partitions, factor, overrides = auto_topic_settings(config, "__transaction_state")
    assert (partitions, factor) == (7, 2)
    assert overrides["cleanup.policy"] == "compact" and overrides["min.insync.replicas"] == "2"
    assert overrides["unclean.leader.election.enable"] == "false"
    assert auto_topic_settings(config, "__consumer_offsets")[1] == 1
    assert auto_topic_settings(config, "t") == (-1, -1, {})


@pytest.mark.parametrize("value", ["", "*", "none", "0:1,1:2"])
def test_throttled_replicas_are_all_none_or_a_list(value: str) -> None:
    items = value.split(",") if value else []
    check_throttled_replicas("leader.replication.throttled.replicas", items)
    for wrong in (["*", "0:1"], ["0"], ["a:1"], ["1:b"]):
        with pytest.raises(ConfigError):
            check_throttled_replicas("leader.replication.throttled.replicas", wrong)
