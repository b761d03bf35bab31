from __future__ import annotations

import pytest

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.config.broker_config import (
    EPOCH_BUMP_KEY,
    BrokerConfig,
    ConfigError,
    acts_on_broker_key,
    acts_on_topic_key,
    broker_key,
    parse_value,
    topic_log_config,
    validate_topic_config,
)
from kwire.replication.config.docs import _BROKER as BROKER_DOCS
from kwire.replication.config.docs import documentation
from kwire.replication.config.given import similar_key
from kwire.replication.config.table import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS
from kwire.replication.core.log_config import OWN_FIELDS, LogConfig
from kwire.replication.core.metadata import BROKER_RESOURCE, TOPIC_RESOURCE

HOUR_MS = 3_600_000


def test_every_default_is_allowed_by_its_own_row() -> None:
    for keys in (BROKER_KEYS, TOPIC_KEYS, GROUP_KEYS):
        for key, row in keys.items():
            if row[1] not in (None, "") and not (key.startswith("remote.") and row[1] == "-2"):
                parse_value(key, row, row[1])


def test_every_key_that_kwire_acts_on_is_in_the_table_with_its_type() -> None:
    python_types = {
        "INT": int,
        "SHORT": int,
        "LONG": int,
        "DOUBLE": float,
        "BOOLEAN": bool,
        "LIST": list,
    }
    config = BrokerConfig({"node.id": "1"})
    for attribute in BrokerConfig._ATTRIBUTES:
        row = BROKER_KEYS[attribute.replace("_", ".")]
        value = getattr(config, attribute)
        assert value is None or type(value) is python_types.get(row[0], str), attribute
    for field in LogConfig.FIELDS.keys() - OWN_FIELDS:
        assert field.replace("_", ".") in TOPIC_KEYS


def test_every_key_that_kwire_acts_on_is_documented() -> None:
    acted_on = {key for key in BROKER_KEYS if acts_on_broker_key(key)}
    assert not acted_on - set(BROKER_DOCS), "add a sentence to replication/config/docs.py"
    assert not set(BROKER_DOCS) - acted_on, "kwire does not act on these: no sentence in docs.py"
    for key in TOPIC_KEYS:
        unused = "does not act" in documentation(TOPIC_RESOURCE, key)
        assert acts_on_topic_key(key) != unused, f"{key}: _BROKER and _TOPIC in docs.py"


@pytest.mark.parametrize(
    "key",
    [
        "log.cleaner.io.buffer.size",
        "log.preallocate",
        "group.consumer.max.size",
        "queued.max.requests",
        "transaction.state.log.load.buffer.size",
        "producer.purgatory.purge.interval.requests",
        "background.threads",
    ],
)
def test_a_key_without_effect_is_accepted_checked_and_said_to_be_without_effect(key: str) -> None:
    value = "true" if key == "log.preallocate" else "7"
    config = BrokerConfig({key: value})
    assert config.text(key) == value
    assert config.unused_keys() == [key], "kwire acts on it now? then name another key in the list"
    assert "does not act" in documentation(BROKER_RESOURCE, key)
    with pytest.raises(ConfigError):
        BrokerConfig({key: "no such value"})


@pytest.mark.parametrize(
    "key", ["log.segment.bytes", "log.retention.hours", "broker.id", "log.dir"]
)
def test_a_key_without_an_attribute_may_have_an_effect(key: str) -> None:
    assert BrokerConfig({key: "4000"}).unused_keys() == []


def test_defaults_without_any_setting_are_those_of_log_config() -> None:
    assert BrokerConfig().log_config() == LogConfig()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("num.partitions", "0", "Value must be at least 1"),
        ("num.partitions", "x", "Not a number of type INT"),
        ("num.partitions", "1_0", "Not a number of type INT"),
        ("num.partitions", "1.0", "Not a number of type INT"),
        ("num.partitions", "", "Not a number of type INT"),
        ("num.partitions", "2147483648", "Not a number of type INT"),
        ("num.partitions", "9" * 5000, "Not a number of type INT"),
        ("offsets.topic.replication.factor", "32768", "Not a number of type SHORT"),
        ("auto.create.topics.enable", "yes", "Expected value to be either true or false"),
        ("compression.gzip.level", "12", "Value must be between 1 and 9 or equal to -1"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "Value must be no more than 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "Value must be at least 0"),
        ("log.cleanup.policy", "compact, zap", "String must be one of: compact, delete"),
        (
            "security.inter.broker.protocol",
            "plain",
            "String must be one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ("log.retention.ms", "0", "must be unlimited (-1) or, equal or greater than 1"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(key: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({key: value})
    assert caught.value.key == key
    assert caught.value.reason == reason
    text = str(caught.value)
    assert text.startswith("Invalid value ")
    assert text.endswith(f" for configuration {key}: {reason}")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("num.partitions", " 7 ", 7),
        ("num.partitions", "+7", 7),
        ("compression.gzip.level", "-1", -1),
        ("compression.zstd.level", "-5", -5),
        ("auto.create.topics.enable", "FALSE", False),
        ("log.cleanup.policy", " compact , delete ", ["compact", "delete"]),
        ("group.consumer.migration.policy", "Upgrade", "Upgrade"),
        ("log.cleaner.min.cleanable.ratio", "0.25", 0.25),
    ],
)
def test_a_value_is_read_as_kafka_reads_it(key: str, value: str, expected: object) -> None:
    assert parse_value(key, BROKER_KEYS[key], value) == expected
    config = BrokerConfig({key: value})
    attribute = key.replace(".", "_")
    assert attribute not in BrokerConfig._ATTRIBUTES or getattr(config, attribute) == expected


def test_a_key_that_is_nearly_one_of_kafkas_is_recognised() -> None:
    assert similar_key("num.partition") == "num.partitions"
    assert similar_key("my.own.key") is None


def test_unknown_keys_are_kept_and_unused_ones_told_apart() -> None:
    config = BrokerConfig({"foo": "1", "zookeeper.connect": "x", "num.partitions": "2"})
    assert config.unknown_keys() == ["foo"]
    assert config.unused_keys() == ["zookeeper.connect"]
    assert config.text("foo") == "1"


def test_kwires_own_key_is_known_and_checked() -> None:
    key = "kwire.leader.epoch.bump.on.isr.shrink"
    assert BrokerConfig().own_flag(EPOCH_BUMP_KEY)
    config = BrokerConfig({key: "False"})
    assert not config.own_flag(EPOCH_BUMP_KEY) and config.unknown_keys() == []
    with pytest.raises(ConfigError, match="either true or false"):
        BrokerConfig({key: "maybe"})


def test_keys_of_a_listener_are_known_by_their_plain_name() -> None:
    assert broker_key("listener.name.inside.ssl.keystore.location") is not None
    assert broker_key("listener.name.inside.plain.sasl.jaas.config") is not None
    assert broker_key("listener.name.inside.nonsense") is None


def test_node_id_and_broker_id_are_one() -> None:
    assert BrokerConfig({"broker.id": "4"}).node_id == 4
    assert BrokerConfig({"node.id": "4"}).text("broker.id") == "4"
    with pytest.raises(ConfigError):
        BrokerConfig({"node.id": "4", "broker.id": "5"})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, 300_000),
        ({"log.retention.minutes": "5", "log.retention.ms": "9"}, 9),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_most_specific_retention_wins(settings: dict[str, str], expected: int) -> None:
    config = BrokerConfig(settings)
    assert config.log_config().retention_ms == expected


def test_internal_topics_need_no_more_replicas_than_there_are_brokers() -> None:
    for brokers, factor, min_isr in ((1, 1, 1), (2, 2, 2), (3, 3, 2), (5, 3, 2)):
        config = BrokerConfig(brokers=brokers)
        assert config.offsets_topic_replication_factor == factor
        assert config.transaction_state_log_replication_factor == factor
        assert config.transaction_state_log_min_isr == min_isr
    assert (
        BrokerConfig({"offsets.topic.replication.factor": "3"}).text(
            "offsets.topic.replication.factor"
        )
        == "3"
    )


def test_dynamic_values_cover_static_ones_and_are_told() -> None:
    config = BrokerConfig({"message.max.bytes": "100"})
    heard: list[set[str]] = []
    config.listeners_of_change.append(heard.append)
    config.set_dynamic({"message.max.bytes": "200"}, {})
    assert config.log_config().max_message_bytes == 200
    config.set_dynamic({"message.max.bytes": "200"}, {"message.max.bytes": "300"})
    assert config.log_config().max_message_bytes == 300
    config.set_dynamic({"message.max.bytes": "200"}, {"message.max.bytes": "300"})
    config.set_dynamic({}, {})
    assert config.log_config().max_message_bytes == 100
    assert heard == [{"message.max.bytes"}] * 3


def test_a_wrong_dynamic_value_leaves_everything_as_it_was() -> None:
    config = BrokerConfig()
    for wrong in ({"message.max.bytes": "x"}, {"log.retention.ms": "0"}):
        with pytest.raises(ConfigError):
            config.set_dynamic(wrong, {})
    assert config.dynamic_default == {}
    assert config.log_config().retention_ms == 168 * HOUR_MS


def test_a_topics_overrides_go_before_the_brokers_values() -> None:
    config = BrokerConfig({"log.segment.bytes": "5000", "log.cleanup.policy": "compact"})
    assert topic_log_config({}, config) is config.log_config()
    result = topic_log_config({"segment.bytes": "6000"}, config)
    assert (result.segment_bytes, result.cleanup_policy) == (6000, {"compact"})


@pytest.mark.parametrize(
    "overrides",
    [{"nope": "1"}, {"segment.bytes": "1"}, {"leader.replication.throttled.replicas": "0"}],
)
def test_wrong_overrides_are_invalid_config(overrides: dict[str, str]) -> None:
    with pytest.raises(KafkaError) as caught:
        topic_log_config(overrides, BrokerConfig())
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_throttles_of_reassignments_are_shown_as_they_were_set_other_unknown_keys_are_hidden() -> (
    None
):
    from kwire.replication.config.entries import broker_entries, cluster_default_entries

    config = BrokerConfig({})
    throttle = "leader.replication.throttled.rate"
    config.set_dynamic({throttle: "7"}, {throttle: "5", "foo": "secret"})
    for entries, value in ((broker_entries(config), "5"), (cluster_default_entries(config), "7")):
        shown = {entry.name: entry for entry in entries}
        assert (shown[throttle].value, shown[throttle].sensitive) == (value, False)
        assert shown[throttle].synonyms[0][1] == value
    hidden = {entry.name: entry for entry in broker_entries(config)}["foo"]
    assert (hidden.value, hidden.sensitive) == (None, True)


def test_record_validation_is_full_unless_a_broker_says_otherwise() -> None:
    assert BrokerConfig().log_config().record_validation == "full"
    config = BrokerConfig({"kwire.record.validation": "header"})
    assert config.log_config().record_validation == "header" and config.unknown_keys() == []
    assert topic_log_config({"retention.ms": "1"}, config).record_validation == "header"
    with pytest.raises(ConfigError, match="String must be one of: full, header"):
        BrokerConfig({"kwire.record.validation": "some"})
    with pytest.raises(KafkaError, match="Unknown topic config name"):
        validate_topic_config({"record.validation": "header"})
