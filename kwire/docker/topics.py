"""kafka-topics and kafka-configs of the image.

Corresponds to org.apache.kafka.tools.TopicCommand and kafka.admin.ConfigCommand, in their columns.
"""

from __future__ import annotations

import sys

from kwire.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE
from kwire.docker.client import TIMEOUT_MS, Client, ToolError, check
from kwire.protocol.errors import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.docker.options import Options
    from kwire.protocol.schemas.metadata import MetadataResponsePartition

_RESOURCES = {"topics": TOPIC_RESOURCE, "brokers": BROKER_RESOURCE}
_TOPIC_SOURCE = 1
_DYNAMIC_SOURCES = (_TOPIC_SOURCE, 2, 3)  # a topic's, a broker's, all brokers'
_PARTITION_FILTERS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)


def topics(options: Options) -> None:
    """kafka-topics --list | --create | --describe | --alter --partitions N | --delete, with --topic NAME"""
    ways = [name for name in ("list", "create", "describe", "alter", "delete") if name in options]
    if len(ways) != 1:
        raise ToolError(
            "exactly one of --list, --create, --describe, --alter, --delete is expected"
        )
    client = options.client()
    if ways == ["create"]:
        _create_topic(client, options, options.need("topic"))
        return
    if ways[0] in ("alter", "delete"):
        options.need("topic")
    names = matching_topics(client, options)
    if ways == ["list"]:
        sys.stdout.write("".join(f"{name}\n" for name in names))
    elif ways == ["describe"]:
        _describe_topics(client, names, options)
    elif ways == ["delete"]:
        from kwire.protocol.schemas.topics import DeleteTopicsRequest

        request = DeleteTopicsRequest(topic_names=names, timeout_ms=TIMEOUT_MS)
        for result in client.ask(request).responses if names else ():
            check(result.error_code, result.error_message or f"topic {result.name}")
    else:
        _grow_topics(client, names, options)


def matching_topics(client: Client, options: Options) -> list[str]:
    """The topics that match --topic, a regular expression; all without it. ToolError for no match."""
    found = [topic for topic in client.metadata(None).topics if topic.name is not None]
    if "exclude-internal" in options:
        found = [topic for topic in found if not topic.is_internal]
    names = sorted(str(topic.name) for topic in found)
    pattern = options.get("topic")
    if pattern is None:
        return names
    chosen = [name for name in names if matches(pattern, name)]
    if not chosen and "if-exists" not in options and "list" not in options:
        raise ToolError(f"Topic '{pattern}' does not exist as expected")
    return chosen


def matches(pattern: str, name: str) -> bool:
    """Match Kafka's lists of expressions, separated by commas or bars."""
    import re

    try:
        return (
            re.fullmatch(pattern.strip("\"'").replace(",", "|").replace(" ", ""), name) is not None
        )
    except re.error as error:
        raise ToolError(f"{pattern} is no regular expression: {error}") from None


def _grow_topics(client: Client, names: list[str], options: Options) -> None:
    from kwire.protocol.schemas.topics import CreatePartitionsRequest, CreatePartitionsTopic

    if options.get("partitions") is None:
        raise ToolError("Missing required argument --partitions")
    count = options.number("partitions", -1)
    changes = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name in names]
    request = CreatePartitionsRequest(topics=changes, timeout_ms=TIMEOUT_MS)
    for outcome in client.ask(request).results if names else ():
        check(outcome.error_code, outcome.error_message)


def _create_topic(client: Client, options: Options, name: str) -> None:
    from kwire.protocol.schemas.topics import (
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )

    topic = CreatableTopic(
        name=name,
        num_partitions=options.number("partitions", -1),
        replication_factor=options.number("replication-factor", -1),
        configs=[
            CreatableTopicConfig(name=key, value=value)
            for key, value in options.pairs("config").items()
        ],
    )
    (result,) = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)).topics
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and "if-not-exists" in options:
        return
    check(result.error_code, result.error_message)
    sys.stdout.write(f"Created topic {name}.\n")


def _describe_topics(client: Client, names: list[str], options: Options) -> None:
    from base64 import urlsafe_b64encode

    for topic in (
        sorted(client.metadata(names).topics, key=lambda each: str(each.name)) if names else ()
    ):
        check(topic.error_code, f"topic {topic.name}")
        configs = _describe(client, TOPIC_RESOURCE, topic.name or "")
        own = ",".join(
            f"{key}={value}" for key, (value, source) in configs.items() if source == _TOPIC_SOURCE
        )
        replicas = len(topic.partitions[0].replica_nodes) if topic.partitions else 0
        topic_id = urlsafe_b64encode(bytes(topic.topic_id)).decode().rstrip("=")
        least = int(configs.get("min.insync.replicas", ("1", 0))[0] or 1)
        rows = [p for p in topic.partitions if _is_shown(p, options, least)]
        if not any(name in options for name in _PARTITION_FILTERS) and (
            own or "topics-with-overrides" not in options
        ):
            sys.stdout.write(
                f"Topic: {topic.name}\tTopicId: {topic_id}\tPartitionCount: {len(topic.partitions)}\t"
                f"ReplicationFactor: {replicas}\tConfigs: {own}\n"
            )
        if "topics-with-overrides" in options:
            continue
        for partition in sorted(rows, key=lambda each: each.partition_index):
            leader = partition.leader_id if partition.leader_id >= 0 else "none"
            sys.stdout.write(
                f"\tTopic: {topic.name}\tPartition: {partition.partition_index}\tLeader: {leader}\t"
                f"Replicas: {_joined(partition.replica_nodes)}\tIsr: {_joined(partition.isr_nodes)}\n"
            )


def _is_shown(partition: MetadataResponsePartition, options: Options, least: int) -> bool:
    in_sync = len(partition.isr_nodes)
    wanted = {
        "under-replicated-partitions": in_sync < len(partition.replica_nodes),
        "unavailable-partitions": partition.leader_id < 0,
        "under-min-isr-partitions": in_sync < least,
        "at-min-isr-partitions": in_sync == least,
    }
    return all(shown for name, shown in wanted.items() if name in options)


def _joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _describe(client: Client, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    """Value and source of each key."""
    from kwire.protocol.schemas.configs import DescribeConfigsRequest, DescribeConfigsResource

    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource])).results
    check(result.error_code, result.error_message)
    return {entry.name: (entry.value, entry.config_source) for entry in result.configs}


def configs(options: Options) -> None:
    """kafka-configs: topics and brokers"""
    from kwire.protocol.schemas.configs import (
        IncrementalAlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResource,
    )

    kind_name, name = _entity(options)
    client = options.client()
    kind = _RESOURCES.get(kind_name)
    if kind is None:
        raise ToolError(
            f"--entity-type {kind_name}: only topics and brokers can be configured here"
        )
    if "describe" in options:
        shown = "all" in options
        sys.stdout.write(f"Dynamic configs for {kind_name.removesuffix('s')} {name} are:\n")
        for key, (value, source) in sorted(_describe(client, kind, name).items()):
            if shown or source in _DYNAMIC_SOURCES:
                sys.stdout.write(f"  {key}={value}\n")
        return
    if "alter" not in options:
        raise ToolError("--describe or --alter is expected")
    changes = [
        IncrementalAlterableConfig(name=key, config_operation=0, value=value)
        for text in options.all("add-config")
        for key, value in _config_list(text).items()
    ]
    changes += [
        IncrementalAlterableConfig(name=key.strip(), config_operation=1, value=None)
        for text in options.all("delete-config")
        for key in text.split(",")
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=changes
    )
    (result,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    check(result.error_code, result.error_message)
    sys.stdout.write(f"Completed updating config for {kind_name.removesuffix('s')} {name}.\n")


def _entity(options: Options) -> tuple[str, str]:
    for short, kind in (("topic", "topics"), ("broker", "brokers")):
        if options.get(short) is not None:
            return kind, options.need(short)
    return options.need("entity-type"), options.get("entity-name") or ""


def _config_list(text: str) -> dict[str, str]:
    """a=b,c=[d,e]"""
    found: dict[str, str] = {}
    while text:
        key, separator, rest = text.partition("=")
        if not separator:
            raise ToolError(f"--add-config: expected key=value, not {text}")
        if rest.startswith("["):
            value, _, text = rest[1:].partition("]")
            text = text.removeprefix(",")
        else:
            value, _, text = rest.partition(",")
        found[key.strip()] = value
    return found
