"""Kafka's command line tools, as far as scripts and health checks in containers use them.

Answers to kafka-topics, kafka-configs, kafka-console-producer, kafka-console-consumer, kafka-consumer-groups --list,
kafka-get-offsets, kafka-broker-api-versions, kafka-cluster cluster-id and Confluent's `cub kafka-ready`. Options that
mean nothing here are taken and ignored; a use that is not there is refused in one line with status 1, as Kafka's own
refusals are. ZooKeeper's address (--zookeeper) is taken for "this broker".
"""

from __future__ import annotations

import os
import sys
import time

from kwire.docker.client import Client, ToolError, check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.docker.client import Connection

# What takes no value.
_FLAGS = frozenset(
    (
        "all",
        "all-groups",
        "all-topics",
        "alter",
        "create",
        "delete",
        "describe",
        "disable-rack-aware",
        "enable-systest-events",
        "entity-default",
        "exclude-internal",
        "force",
        "from-beginning",
        "if-exists",
        "if-not-exists",
        "list",
        "members",
        "offsets",
        "print-config",
        "state",
        "version",
    )
)
_TOPIC, _BROKER = 2, 4
_RESOURCES = {"topics": _TOPIC, "brokers": _BROKER}
_EARLIEST, _LATEST = -2, -1


class Options:
    """--name value, --name=value and flags; what comes several times is a list."""

    def __init__(self, arguments: list[str]) -> None:
        self._values: dict[str, list[str]] = {}
        self.words: list[str] = []
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            if not word.startswith("-") or word == "-":
                self.words.append(word)
                continue
            name, separator, value = word.lstrip("-").partition("=")
            if not separator and name not in _FLAGS:
                if not rest:
                    raise ToolError(f"--{name} needs a value")
                value = rest.pop(0)
            self._values.setdefault(name, []).append(value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def all(self, *names: str) -> list[str]:
        """Every value of an option that goes by one of these names."""
        return [value for name in names for value in self._values.get(name, ())]

    def get(self, *names: str) -> str | None:
        """The last value."""
        values = self.all(*names)
        return values[-1] if values else None

    def number(self, name: str, default: int) -> int:
        """An integer. ToolError."""
        text = self.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise ToolError(f"--{name}: not a number: {text}") from None

    def need(self, *names: str) -> str:
        """The value. ToolError when it was not given."""
        value = self.get(*names)
        if value is None:
            raise ToolError(f"Missing required argument --{names[0]}")
        return value

    def pairs(self, *names: str) -> dict[str, str]:
        """key=value options."""
        pairs = {}
        for item in self.all(*names):
            key, separator, value = item.partition("=")
            if not separator:
                raise ToolError(f"--{names[0]}: expected key=value, not {item}")
            pairs[key] = value
        return pairs

    def client(self) -> Client:
        """A connection to --bootstrap-server, else to this container's broker."""
        servers = self.get("bootstrap-server", "broker-list", "b")
        return Client(servers or _own_address())


def _own_address() -> str:
    from kwire.docker.container import HEALTH_FILE

    try:
        with open(HEALTH_FILE, encoding="ascii") as file:
            return ":".join(file.read().split())
    except OSError:
        return "localhost:9092"


def topics(options: Options) -> None:
    """kafka-topics"""
    client = options.client()
    name = options.get("topic")
    if "list" in options:
        found = client.metadata(None).topics
        sys.stdout.write("".join(f"{topic.name}\n" for topic in sorted(found, key=_name)))
    elif "create" in options:
        _create_topic(client, options, options.need("topic"))
    elif "delete" in options:
        from kwire.protocol.schemas.topics import DeleteTopicsRequest

        names = options.need("topic").split(",")
        for result in client.bootstrap.ask(
            5, DeleteTopicsRequest(topic_names=names, timeout_ms=30_000)
        ).responses:
            if not ("if-exists" in options and result.error_code == 3):
                check(result.error_code, result.error_message or f"topic {result.name}")
    elif "alter" in options:
        from kwire.protocol.schemas.topics import CreatePartitionsRequest, CreatePartitionsTopic

        change = CreatePartitionsTopic(
            name=options.need("topic"), count=options.number("partitions", -1)
        )
        for outcome in client.bootstrap.ask(
            2, CreatePartitionsRequest(topics=[change], timeout_ms=30_000)
        ).results:
            check(outcome.error_code, outcome.error_message)
    elif "describe" in options:
        _describe_topics(client, None if name is None else name.split(","))
    else:
        raise ToolError(
            "exactly one of --create, --list, --describe, --alter, --delete is expected"
        )


def _name(topic: object) -> str:
    return str(getattr(topic, "name", ""))


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
    result = client.bootstrap.ask(6, CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics[
        0
    ]
    if result.error_code == 36 and "if-not-exists" in options:
        return
    check(result.error_code, result.error_message)
    sys.stdout.write(f"Created topic {name}.\n")


def _describe_topics(client: Client, names: list[str] | None) -> None:
    for topic in sorted(client.metadata(names).topics, key=_name):
        check(topic.error_code, f"topic {topic.name}")
        configs = _describe(client.bootstrap, _TOPIC, topic.name or "")
        own = ",".join(f"{key}={value}" for key, (value, source) in configs.items() if source == 1)
        replicas = len(topic.partitions[0].replica_nodes) if topic.partitions else 0
        sys.stdout.write(
            f"Topic: {topic.name}\tPartitionCount: {len(topic.partitions)}\t"
            f"ReplicationFactor: {replicas}\tConfigs: {own}\n"
        )
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index):
            leader = partition.leader_id if partition.leader_id >= 0 else "none"
            sys.stdout.write(
                f"\tTopic: {topic.name}\tPartition: {partition.partition_index}\tLeader: {leader}\t"
                f"Replicas: {_joined(partition.replica_nodes)}\tIsr: {_joined(partition.isr_nodes)}\n"
            )


def _joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _describe(connection: Connection, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    """Value and source of each key."""
    from kwire.protocol.schemas.configs import DescribeConfigsRequest, DescribeConfigsResource

    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    result = connection.ask(4, DescribeConfigsRequest(resources=[resource])).results[0]
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
        for key, (value, source) in sorted(_describe(client.bootstrap, kind, name).items()):
            if shown or source in (1, 2, 3):
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
    result = client.bootstrap.ask(1, IncrementalAlterConfigsRequest(resources=[resource]))
    check(result.responses[0].error_code, result.responses[0].error_message)
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


def console_producer(options: Options) -> None:
    """kafka-console-producer: a record a line"""
    from kwire.docker.console import produce_lines

    produce_lines(
        options.client(), options.need("topic"), options.pairs("property"), sys.stdin.buffer
    )


def console_consumer(options: Options) -> None:
    """kafka-console-consumer: without a group; all partitions"""
    from kwire.docker.console import consume_lines

    partition = options.get("partition")
    consume_lines(
        options.client(),
        options.need("topic"),
        options.pairs("property"),
        sys.stdout.buffer,
        start=_EARLIEST if "from-beginning" in options else _LATEST,
        max_messages=options.number("max-messages", -1),
        timeout_ms=options.number("timeout-ms", -1),
        partition=None if partition is None else options.number("partition", 0),
    )


def consumer_groups(options: Options) -> None:
    """kafka-consumer-groups --list"""
    from kwire.protocol.schemas.groups import ListGroupsRequest

    if "list" not in options:
        raise ToolError("only --list is there")
    answer = options.client().bootstrap.ask(4, ListGroupsRequest())
    check(answer.error_code)
    sys.stdout.write("".join(sorted(f"{group.group_id}\n" for group in answer.groups)))


def get_offsets(options: Options) -> None:
    """kafka-get-offsets: topic:partition:offset"""
    from kwire.docker.console import list_offset

    name = options.need("topic")
    when = {"latest": _LATEST, "earliest": _EARLIEST}.get(options.get("time") or "latest")
    timestamp = options.number("time", _LATEST) if when is None else when
    for index, leader in sorted(options.client().leaders(name).items()):
        sys.stdout.write(f"{name}:{index}:{list_offset(leader, name, index, timestamp)}\n")


def broker_api_versions(options: Options) -> None:
    """kafka-broker-api-versions"""
    from kwire.protocol.api import ApiKey
    from kwire.protocol.schemas.api_versions import ApiVersionsRequest

    client = options.client()
    for broker in client.metadata([]).brokers:
        sys.stdout.write(
            f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack}) -> (\n"
        )
        answer = client.bootstrap.ask(
            3, ApiVersionsRequest(client_software_name="kwire", client_software_version="1")
        )
        check(answer.error_code)
        lines = [
            f"\t{ApiKey(api.api_key).api_name}({api.api_key}): {api.min_version} to {api.max_version}"
            for api in answer.api_keys
        ]
        sys.stdout.write(",\n".join(lines) + "\n)\n")


def cluster(options: Options) -> None:
    """kafka-cluster cluster-id"""
    if options.words != ["cluster-id"]:
        raise ToolError("only cluster-id is there")
    sys.stdout.write(f"Cluster ID: {options.client().metadata([]).cluster_id}\n")


def kafka_ready(options: Options) -> None:
    """cub kafka-ready [-b SERVERS] BROKERS TIMEOUT"""
    numbers = [int(word) for word in options.words if word.isdigit()]
    if len(numbers) < 2:
        raise ToolError("usage: cub kafka-ready [-b HOST:PORT] BROKERS TIMEOUT_SECONDS")
    expected, seconds = numbers[:2]
    deadline = time.monotonic() + seconds
    reason = ""
    while time.monotonic() < deadline:
        try:
            found = len(options.client().metadata([]).brokers)
            if found >= expected:
                return
            reason = f"{found} of {expected} brokers"
        except ToolError as error:
            reason = str(error)
        time.sleep(0.1)
    raise ToolError(f"not ready in {seconds} s: {reason}")


TOOLS = {
    "kafka-topics": topics,
    "kafka-configs": configs,
    "kafka-console-producer": console_producer,
    "kafka-console-consumer": console_consumer,
    "kafka-consumer-groups": consumer_groups,
    "kafka-get-offsets": get_offsets,
    "kafka-broker-api-versions": broker_api_versions,
    "kafka-cluster": cluster,
    "kafka-ready": kafka_ready,
}


def main(arguments: list[str]) -> int:
    """Runs the tool that the first argument names; 0, or 1 with one line on stderr."""
    name = arguments[0] if arguments else ""
    tool = TOOLS.get(name)
    try:
        if tool is None:
            raise ToolError("this tool is not in the image")
        tool(Options(arguments[1:]))
        sys.stdout.flush()
    except ToolError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
