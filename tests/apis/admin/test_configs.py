from __future__ import annotations

from typing import Any

import pytest

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from kwire.replication.config.broker_config import ConfigError

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(admin: Any, kind: int, name: str, *keys: str, version: int = 4, **fields: Any) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource], **fields)
    return admin.call(request, version).results[0]


def values(admin: Any, kind: int, name: str, *keys: str) -> dict[str, tuple[str | None, int]]:
    configs = describe(admin, kind, name, *keys).configs
    return {c.name: (c.value, c.config_source) for c in configs}


def change(
    admin: Any, kind: int, name: str, *operations: tuple[str, int, str | None], **fields: Any
) -> tuple[int, str | None]:
    resource = IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in operations
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], **fields)
    result = admin.call(request, 1).responses[0]
    return result.error_code, result.error_message


def replace(
    admin: Any, kind: int, name: str, configs: dict[str, str | None], **fields: Any
) -> tuple[int, str | None]:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = AlterConfigsRequest(resources=[resource], **fields)
    result = admin.call(request, 2).responses[0]
    return result.error_code, result.error_message


@pytest.fixture
def topic(admin: Any) -> Any:
    admin.create("t", retention_ms="1000", cleanup_policy="compact,delete")
    return admin


# Describe


def test_all_keys_of_a_topic_are_described(topic: Any) -> None:
    result = describe(topic, TOPIC, "t")
    assert len(result.configs) == 36
    assert describe(topic, TOPIC, "t").error_code == 0
    by_name = {c.name: c for c in result.configs}
    assert not any(c.read_only or c.is_sensitive for c in result.configs)
    assert by_name["retention.ms"].config_type == 5
    assert by_name["cleanup.policy"].value == "compact,delete"


def test_only_the_keys_asked_for_that_exist_are_described(topic: Any) -> None:
    assert values(topic, TOPIC, "t", "retention.ms", "nope") == {"retention.ms": ("1000", 1)}


def test_an_empty_list_of_keys_asks_for_all(topic: Any) -> None:
    resource = DescribeConfigsResource(
        resource_type=TOPIC, resource_name="t", configuration_keys=[]
    )
    result = topic.call(DescribeConfigsRequest(resources=[resource]), 4).results[0]
    assert len(result.configs) == 36


def test_version_0_has_is_default(topic: Any) -> None:
    configs = describe(topic, TOPIC, "t", "retention.ms", "segment.ms", version=0).configs
    assert {c.name: c.is_default for c in configs} == {"retention.ms": False, "segment.ms": True}


def test_synonyms_show_every_layer(new_admin: Any) -> None:
    admin = new_admin({"log.segment.bytes": "2000000", "log.retention.hours": "1"})
    admin.create("t", segment_bytes="3000000")
    configs = describe(
        admin, TOPIC, "t", "segment.bytes", "retention.ms", include_synonyms=True
    ).configs
    shown = {c.name: (c.value, [(s.name, s.value, s.source) for s in c.synonyms]) for c in configs}
    assert shown["segment.bytes"] == (
        "3000000",
        [
            ("segment.bytes", "3000000", 1),
            ("log.segment.bytes", "2000000", 4),
            ("log.segment.bytes", "1073741824", 5),
        ],
    )
    # As in Kafka: a value in hours gives the topic its value and is not shown as a synonym of "….ms".
    assert shown["retention.ms"] == ("3600000", [])


def test_synonyms_are_returned_when_requested(topic: Any) -> None:
    assert describe(topic, TOPIC, "t", "retention.ms").configs[0].synonyms == []


def test_documentation_is_returned_when_requested(topic: Any) -> None:
    quiet, loud = (
        describe(topic, TOPIC, "t", "retention.ms", include_documentation=wanted).configs[0]
        for wanted in (False, True)
    )
    assert quiet.documentation is None
    assert "kept" in loud.documentation


def test_a_broker_describes_itself(new_admin: Any) -> None:
    admin = new_admin({"num.partitions": "3", "my.own.key": "x", "ssl.key.password": "secret"})
    configs = {c.name: c for c in describe(admin, BROKER, "1").configs}
    assert len(configs) > 350
    partitions = configs["num.partitions"]
    assert (partitions.value, partitions.config_source, partitions.read_only) == ("3", 4, True)
    assert not configs["log.retention.ms"].read_only
    for secret in ("ssl.key.password", "my.own.key"):  # nobody knows what an unknown key holds
        assert (configs[secret].value, configs[secret].is_sensitive) == (None, True)
    assert (configs["broker.id"].value, configs["node.id"].value) == ("1", "1")
    assert "unstable.api.versions.enable" not in configs


@pytest.mark.parametrize(
    ("kind", "name", "error", "message"),
    [
        (TOPIC, "nope", 3, ""),
        (TOPIC, "", 17, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "9", 42, "Unexpected broker id, expected 1 or empty string, but received 9"),
        (BROKER, "x", 42, "Broker id must be an integer, but it is: x"),
        (LOGGER, "9", 42, "Unexpected broker id, expected 1 but received 9"),
        (METRICS, "", 42, "Client metrics subscription name must not be empty"),
        (GROUP, "", 42, "Group name must not be empty"),
    ],
)
def test_unknown_resources_are_not_described(
    admin: Any, kind: int, name: str, error: int, message: str
) -> None:
    result = describe(admin, kind, name)
    assert (result.error_code, result.error_message) == (error, message)
    assert result.configs == []


def test_an_unknown_resource_type_is_refused(admin: Any) -> None:
    assert describe(admin, 77, "x").error_code == ErrorCode.INVALID_REQUEST


# IncrementalAlterConfigs


def test_set_and_delete_take_effect_at_once(topic: Any) -> None:
    log = topic.services.log_manager.get("t", 0)
    assert change(topic, TOPIC, "t", ("retention.ms", SET, "2000")) == (0, None)
    assert log.config.retention_ms == 2000
    assert change(topic, TOPIC, "t", ("retention.ms", DELETE, None)) == (0, None)
    assert log.config.retention_ms == 604_800_000
    assert values(topic, TOPIC, "t", "retention.ms") == {"retention.ms": ("604800000", 5)}


def test_lists_are_appended_to_and_subtracted_from(topic: Any) -> None:
    def policy() -> str | None:
        return values(topic, TOPIC, "t", "cleanup.policy")["cleanup.policy"][0]

    change(topic, TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact"))
    assert policy() == "delete"
    change(topic, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    change(topic, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert policy() == "delete,compact"
    change(topic, TOPIC, "t", ("cleanup.policy", DELETE, None))
    change(topic, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert policy() == "delete,compact"


@pytest.mark.parametrize(
    ("operations", "error", "message"),
    [
        (
            [("retention.ms", APPEND, "3")],
            40,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        ([("nope", SET, "3")], 40, "Unknown topic config name: nope"),
        (
            [("retention.ms", SET, "x")],
            40,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        ([("retention.ms", SET, None)], 42, "Null value not supported for : retention.ms"),
        (
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            42,
            "Error due to duplicate config keys",
        ),
        ([("retention.ms", 9, "1")], -1, None),
    ],
)
def test_wrong_operations_change_nothing(
    topic: Any, operations: Any, error: int, message: str | None
) -> None:
    assert change(topic, TOPIC, "t", *operations) == (error, message)
    assert values(topic, TOPIC, "t", "retention.ms") == {"retention.ms": ("1000", 1)}


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("nope", 3, "The topic 'nope' does not exist."),
        ("", 42, "Default topic resources are not allowed."),
    ],
)
def test_only_existing_topics_are_altered(admin: Any, name: str, error: int, message: str) -> None:
    assert change(admin, TOPIC, name, ("retention.ms", SET, "1")) == (error, message)


def test_validation_alone_changes_nothing(topic: Any) -> None:
    assert change(topic, TOPIC, "t", ("retention.ms", SET, "77"), validate_only=True) == (0, None)
    assert values(topic, TOPIC, "t", "retention.ms") == {"retention.ms": ("1000", 1)}


def test_topics_inherit_dynamic_broker_values(admin: Any) -> None:
    admin.create("t")
    log = admin.services.log_manager.get("t", 0)
    assert change(admin, BROKER, "", ("log.retention.ms", SET, "99999")) == (0, None)
    assert log.config.retention_ms == 99999
    assert values(admin, TOPIC, "t", "retention.ms") == {"retention.ms": ("99999", 3)}
    assert values(admin, BROKER, "") == {"log.retention.ms": ("99999", 3)}
    change(admin, BROKER, "1", ("log.retention.ms", SET, "55555"))
    assert log.config.retention_ms == 55555
    assert values(admin, BROKER, "1", "log.retention.ms") == {"log.retention.ms": ("55555", 2)}
    change(admin, BROKER, "1", ("log.retention.ms", DELETE, None))
    change(admin, BROKER, "", ("log.retention.ms", DELETE, None))
    assert log.config.retention_ms == 604_800_000


def test_validation_of_records_changes_at_run_time(admin: Any) -> None:
    """For all brokers, for one, and back: the only key of kwire's own that is dynamic."""
    key = "kwire.record.validation"
    admin.create("t")
    log = admin.services.log_manager.get("t", 0)
    assert log.reads_records and values(admin, BROKER, "1", key) == {}  # not among Kafka's keys
    assert change(admin, BROKER, "", (key, SET, "header"), validate_only=True) == (0, None)
    assert log.reads_records
    assert change(admin, BROKER, "", (key, SET, "header")) == (0, None)
    assert not log.reads_records
    assert values(admin, BROKER, "", key) == {key: ("header", 3)}
    assert change(admin, BROKER, "1", (key, SET, "full")) == (0, None)
    assert log.reads_records
    assert values(admin, BROKER, "1", key) == {key: ("full", 2)}
    assert change(admin, BROKER, "1", (key, DELETE, None)) == (0, None)
    assert not log.reads_records
    admin.create("later")
    assert not admin.services.log_manager.get("later", 0).reads_records
    admin.start()
    assert not admin.services.log_manager.get("t", 0).reads_records
    assert replace(admin, BROKER, "", {}) == (0, None)
    assert admin.services.log_manager.get("t", 0).reads_records


def test_validation_of_records_is_no_key_of_a_topic(admin: Any) -> None:
    admin.create("t")
    for key in ("kwire.record.validation", "record.validation"):
        refusal = (ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}")
        assert change(admin, TOPIC, "t", (key, SET, "header")) == refusal


def test_dynamic_broker_values_survive_a_restart(admin: Any) -> None:
    change(admin, BROKER, "", ("message.max.bytes", SET, "5000"))
    admin.start()
    assert admin.services.config.log_config().max_message_bytes == 5000


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        (
            "1",
            "num.partitions",
            "2",
            "Cannot update these configs dynamically: Set(num.partitions)",
        ),
        ("", "num.partitions", "2", "Cannot update these configs dynamically: Set(num.partitions)"),
        *(
            (
                name,
                "kwire.topic.creation.waits",
                "false",
                "Cannot update these configs dynamically: Set(kwire.topic.creation.waits)",
            )
            for name in ("", "1")
        ),
        (
            "",
            "kwire.record.validation",
            "none",
            "Invalid value none for configuration kwire.record.validation: String must be one of: "
            "full, header",
        ),
        (
            "",
            "advertised.listeners",
            "PLAINTEXT://h:1",
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "Set(advertised.listeners)",
        ),
        (
            "1",
            "log.cleaner.threads",
            "x",
            "Invalid value x for configuration log.cleaner.threads: Not a number of type INT",
        ),
        (
            "",
            "min.insync.replicas",
            "0",
            "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1",
        ),
        *(
            (
                name,
                "max.connections.per.ip",
                "0",
                "Invalid value 0 for configuration max.connections.per.ip: can be set to zero only if "
                "max.connections.per.ip.overrides is set",
            )
            for name in ("", "1")
        ),
        ("9", "log.cleaner.threads", "2", "Unexpected broker id, expected 1, but received 9"),
        ("x", "log.cleaner.threads", "2", "Node id must be an integer, but it is: x"),
    ],
)
def test_read_only_broker_keys_are_refused(
    admin: Any, name: str, key: str, value: str, message: str
) -> None:
    expected = (ErrorCode.INVALID_REQUEST, message)
    assert change(admin, BROKER, name, (key, SET, value)) == expected
    assert replace(admin, BROKER, name, {key: value}) == expected


def test_a_key_that_kafka_does_not_know_is_kept_for_a_broker(admin: Any) -> None:
    assert change(admin, BROKER, "1", ("foo.bar", SET, "x")) == (0, None)
    assert values(admin, BROKER, "1", "foo.bar") == {"foo.bar": (None, 2)}


def test_groups_and_client_metrics_have_configurations(admin: Any) -> None:
    assert change(admin, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == (0, None)
    shown = values(admin, GROUP, "g", "consumer.session.timeout.ms")
    assert shown == {"consumer.session.timeout.ms": ("50000", 8)}
    assert change(admin, GROUP, "g", ("consumer.session.timeout.ms", SET, "5"))[0] == 40
    assert change(admin, GROUP, "g", ("nope", SET, "5"))[0] == 40
    assert values(admin, METRICS, "m") == {}
    assert change(admin, METRICS, "m", ("interval.ms", SET, "5000")) == (0, None)
    assert values(admin, METRICS, "m") == {"interval.ms": ("5000", 7)}
    assert change(admin, METRICS, "m", ("nope", SET, "5"))[0] == 42


def test_loggers_take_levels(admin: Any) -> None:
    assert change(admin, LOGGER, "1", ("root", SET, "DEBUG")) == (0, None)
    assert values(admin, LOGGER, "1", "root") == {"root": ("DEBUG", 6)}
    expected = (ErrorCode.INVALID_CONFIG, "Logger nope does not exist!")
    assert change(admin, LOGGER, "1", ("nope", SET, "DEBUG")) == expected
    assert change(admin, LOGGER, "1", ("root", SET, "LOUD"))[0] == ErrorCode.INVALID_CONFIG
    assert replace(admin, LOGGER, "1", {"root": "INFO"})[0] == ErrorCode.INVALID_REQUEST


def test_a_logger_whose_level_is_deleted_has_the_default_again(admin: Any) -> None:
    change(admin, LOGGER, "1", ("root", SET, "DEBUG"))
    assert change(admin, LOGGER, "1", ("root", DELETE, None)) == (0, None)
    assert values(admin, LOGGER, "1", "root") == {"root": ("INFO", 6)}


def test_a_validation_changes_no_level(admin: Any) -> None:
    assert change(admin, LOGGER, "1", ("root", SET, "DEBUG"), validate_only=True) == (0, None)
    assert values(admin, LOGGER, "1", "root") == {"root": ("INFO", 6)}


def test_a_resource_is_altered_once_in_a_request(topic: Any) -> None:
    resources = [
        IncrementalAlterConfigsResource(
            resource_type=TOPIC,
            resource_name="t",
            configs=[IncrementalAlterableConfig(name="retention.ms", value=value)],
        )
        for value in ("5", "6")
    ]
    response = topic.call(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert [r.error_code for r in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert values(topic, TOPIC, "t", "retention.ms") == {"retention.ms": ("1000", 1)}


@pytest.mark.parametrize("alter", ["change", "replace"])
def test_a_value_of_another_kind_is_refused_for_a_broker(admin: Any, alter: str) -> None:
    key, value = "log.cleaner.threads", "many"
    if alter == "change":
        code, message = change(admin, BROKER, "1", (key, SET, value))
    else:
        code, message = replace(admin, BROKER, "1", {key: value})
    assert code == ErrorCode.INVALID_REQUEST and "many" in str(message)


def test_answers_keep_the_order_of_the_request(admin: Any) -> None:
    admin.create("t")
    resources = [
        IncrementalAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[IncrementalAlterableConfig(name="retention.ms", value="1")],
        )
        for kind, name in ((77, "x"), (TOPIC, "t"), (BROKER, "9"), (TOPIC, "nope"))
    ]
    responses = admin.call(IncrementalAlterConfigsRequest(resources=resources), 1).responses
    assert [(r.resource_name, r.error_code) for r in responses] == [
        ("x", 42),
        ("t", 0),
        ("9", 42),
        ("nope", 3),
    ]


# AlterConfigs


def test_keys_that_are_not_named_return_to_their_defaults(topic: Any) -> None:
    assert replace(topic, TOPIC, "t", {"segment.ms": "500000"}) == (0, None)
    assert values(topic, TOPIC, "t", "retention.ms", "segment.ms") == {
        "retention.ms": ("604800000", 5),
        "segment.ms": ("500000", 1),
    }


def test_all_that_is_described_can_be_written_back(topic: Any) -> None:
    described = {c.name: c.value for c in describe(topic, TOPIC, "t").configs}
    assert replace(topic, TOPIC, "t", described) == (0, None)
    assert {c.name: c.value for c in describe(topic, TOPIC, "t").configs} == described


def test_wrong_replacements_are_refused(topic: Any) -> None:
    assert replace(topic, TOPIC, "t", {"segment.ms": None})[0] == 42
    assert replace(topic, TOPIC, "t", {"segment.ms": "x"})[0] == 40
    assert replace(topic, TOPIC, "nope", {"segment.ms": "1"})[0] == 3
    assert values(topic, TOPIC, "t", "retention.ms") == {"retention.ms": ("1000", 1)}


# ListConfigResources


def listed(admin: Any, *types: int, version: int = 1) -> Any:
    response = admin.call(ListConfigResourcesRequest(resource_types=list(types)), version)
    names = [(r.resource_name, r.resource_type) for r in response.config_resources]
    return response.error_code or names


def test_resources_are_listed_by_type(topic: Any) -> None:
    change(topic, METRICS, "m", ("interval.ms", SET, "5000"))
    assert listed(topic, TOPIC) == [("t", TOPIC)]
    assert listed(topic, METRICS, GROUP) == [("m", METRICS)]
    assert listed(topic) == [("t", TOPIC), ("1", BROKER), ("1", LOGGER), ("m", METRICS)]
    assert listed(topic, 77) == ErrorCode.UNSUPPORTED_VERSION
    assert listed(topic, TOPIC, METRICS, TOPIC) == [("t", TOPIC), ("m", METRICS)]
    assert listed(topic, version=0) == [("m", METRICS)]


def test_a_broker_cannot_be_secured_at_run_time(new_admin: Any) -> None:
    admin = new_admin({})
    for key, value in (
        ("ssl.keystore.location", "/k.jks"),
        ("listener.name.plaintext.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "x.PlainLoginModule required;"),
        ("principal.builder.class", "my.Builder"),
    ):
        code, message = change(admin, BROKER, "1", (key, 0, value))
        assert code == ErrorCode.INVALID_REQUEST and key in str(message), message
        code, message = replace(admin, BROKER, "1", {key: value})
        assert code == ErrorCode.INVALID_REQUEST and key in str(message), message
    code, message = change(admin, BROKER, "1", ("authorizer.class.name", 0, "my.Authorizer"))
    assert code == ErrorCode.INVALID_REQUEST  # as in Kafka: a read-only key
    assert message == "Cannot update these configs dynamically: Set(authorizer.class.name)"
    assert (
        change(admin, BROKER, "1", ("ssl.client.auth", 0, "none"))[0] == ErrorCode.INVALID_REQUEST
    )
    assert change(admin, BROKER, "1", ("super.users", 0, "User:a"))[0] == ErrorCode.INVALID_REQUEST


class FakeStores:
    """Stores that refuse the location "/wrong"."""

    def __init__(self, config: Any) -> None:
        self.reads = 0
        config.stores = self

    def check(self, changed: Any) -> None:
        if changed.text(LOCATION) == "/wrong":
            raise ConfigError(LOCATION, "/wrong", "no such file")

    def reread(self) -> None:
        self.reads += 1


LOCATION = "listener.name.plaintext.ssl.keystore.location"


def test_key_stores_of_a_listener_are_exchanged(new_admin: Any) -> None:
    admin = new_admin({})
    stores = FakeStores(admin.broker.services.config)
    for name in ("ssl.keystore.location", "ssl.truststore.password", "ssl.key.password"):
        code, message = change(admin, BROKER, "1", (name, SET, "x"))
        assert code == ErrorCode.INVALID_REQUEST
        assert str(message).endswith(f"only per-listener using the listener prefix: Set({name})")
    for how in (
        lambda v, **f: change(admin, BROKER, "1", (LOCATION, SET, v), **f),
        lambda v, **f: replace(admin, BROKER, "1", {LOCATION: v}, **f),
    ):
        stores.reads = 0
        assert how("/wrong")[0] == ErrorCode.INVALID_REQUEST
        assert how("/right", validate_only=True) == (0, None) and stores.reads == 0
        assert how("/right")[0] == 0 and stores.reads == 1
        assert (
            how("/right")[0] == 0 and stores.reads == 2
        )  # the same again: the file may have changed
    assert change(admin, BROKER, "", (LOCATION, SET, "/right"))[0] == ErrorCode.INVALID_REQUEST
    assert change(admin, BROKER, "", ("log.retention.ms", SET, "77"))[0] == 0 and stores.reads == 2


def test_groups_are_resources_since_kafka_4_only(admin: Any) -> None:
    """As a real Kafka 3.9.1 answers for resource type 32."""
    from kwire.replication.config.release import Release

    for release, error in (("3.9", ErrorCode.INVALID_REQUEST), ("4.0", ErrorCode.NONE)):
        admin = type(admin)(release=Release(release))
        assert describe(admin, 32, "shop").error_code == error
        change = IncrementalAlterableConfig(name="consumer.heartbeat.interval.ms", value="6000")
        resource = IncrementalAlterConfigsResource(
            resource_type=32, resource_name="shop", configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        assert admin.call(request, 1).responses[0].error_code == error
