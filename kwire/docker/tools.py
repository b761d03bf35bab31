"""Kafka's command line tools, as far as scripts and health checks in containers use them.

`TOOLS` names them all; those for topics, groups, partitions and performance have modules of their
own. Like Kafka's, they wait up to a minute for a broker that does not listen
yet. Options without a meaning here are ignored; unsupported uses are refused in one line with status
1. ZooKeeper's address (--zookeeper) means this container's broker.
"""

from __future__ import annotations

import os
import sys
import time

from kwire.client.admin import EARLIEST, LATEST
from kwire.docker import topics
from kwire.docker.client import Client, ToolError
from kwire.docker.options import Options
from kwire.docker.topics import matches, matching_topics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

KAFKA_RELEASE = "3.9.1"
"""Said by --version: the release whose tools these stand for."""
_ENDS = {"earliest": EARLIEST, "latest": LATEST}


def console_producer(options: Options) -> None:
    """kafka-console-producer --topic NAME [--property parse.key=true --property key.separator=:]: a record a line"""
    from kwire.docker.console import produce_lines

    properties = options.pairs("property", "reader-property")
    produce_lines(options.client(), options.need("topic"), properties, sys.stdin.fileno())


def console_consumer(options: Options) -> None:
    """kafka-console-consumer --topic NAME [--from-beginning] [--max-messages N] [--timeout-ms N] [--group NAME]
    [--partition N --offset N] [--property print.key=true]: all partitions, unless one is named"""
    from kwire.docker.console import Formatter, Reading, consume_lines

    pattern = options.get("include", "whitelist")
    topic = options.need("topic") if pattern is None else None
    formatter = Formatter(options.pairs("property", "formatter-property"))
    numbers = [options.number(name, -1) for name in ("max-messages", "timeout-ms")]
    partition = None if options.get("partition") is None else options.number("partition", 0)
    start = _start(options)
    client = options.client()
    names = (
        [topic]
        if topic is not None
        else [n for n in _all_names(client) if matches(pattern or "", n)]
    )
    if not names:
        raise ToolError(f"no topic matches {pattern}")
    reading = Reading(client, options.get("group"))
    for name in names:
        reading.add(name, partition, start)
    total = 0
    try:
        for count in consume_lines(
            reading,
            formatter,
            sys.stdout.buffer,
            max_messages=numbers[0],
            timeout_ms=numbers[1],
        ):
            total = count
    except KeyboardInterrupt:
        pass
    sys.stderr.write(f"Processed a total of {total} messages\n")


def _all_names(client: Client) -> list[str]:
    return sorted(
        str(topic.name) for topic in client.metadata(None).topics if not topic.is_internal
    )


def _start(options: Options) -> int:
    """The start position: an offset, or the timestamp EARLIEST or LATEST."""
    given = options.get("offset")
    if given is None:
        return EARLIEST if "from-beginning" in options else LATEST
    if given in _ENDS:
        return _ENDS[given]
    if options.get("partition") is None:
        raise ToolError("The partition is required when offset is specified.")
    return options.number("offset", 0)


def get_offsets(options: Options) -> None:
    """kafka-get-offsets [--topic NAME] [--partitions N,…] [--time earliest|latest|MILLISECONDS]"""
    client = options.client()
    wanted = options.get("partitions")
    shown = None if wanted is None else {word.strip() for word in wanted.split(",")}
    given = options.get("time") or "latest"
    timestamp = _ENDS[given] if given in _ENDS else options.number("time", LATEST)
    for name in matching_topics(client, options):
        for index, leader in sorted(client.leaders(name).items()):
            if shown is None or str(index) in shown:
                offset = client.offset(name, index, timestamp, leader)
                sys.stdout.write(f"{name}:{index}:{offset}\n")


def broker_api_versions(options: Options) -> None:
    """kafka-broker-api-versions"""
    from kwire.protocol.api import ApiKey

    client = options.client()
    for broker in client.metadata([]).brokers:
        sys.stdout.write(
            f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack or 'null'}) -> (\n"
        )
        lines = [
            f"\t{ApiKey(key).api_name}({key}): {lowest} to {highest} [usable: {highest}]"
            for key, (lowest, highest) in client.api_ranges().items()
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
            found = len(options.client(wait_seconds=0).metadata([]).brokers)
            if found >= expected:
                return
            reason = f"{found} of {expected} brokers"
        except ToolError as error:
            reason = str(error)
        time.sleep(0.1)
    raise ToolError(f"not ready in {seconds} s: {reason}")


def _consumer_groups(options: Options) -> None:
    """kafka-consumer-groups --list | --describe | --reset-offsets | --delete, with --group NAME or --all-groups"""
    from kwire.docker.groups import consumer_groups

    consumer_groups(options)


def _log_dirs(options: Options) -> None:
    """kafka-log-dirs --describe [--broker-list 1,2] [--topic-list NAME,…]: JSON in the last line"""
    from kwire.docker.partitions import log_dirs

    log_dirs(options)


def _leader_election(options: Options) -> None:
    """kafka-leader-election --election-type preferred|unclean --topic NAME --partition N | --all-topic-partitions |
    --path-to-json-file FILE"""
    from kwire.docker.partitions import leader_election

    leader_election(options)


def _delete_records(options: Options) -> None:
    """kafka-delete-records --offset-json-file FILE: {"partitions": [{"topic": "orders", "partition": 0, "offset": 7}]};
    offset -1: all that is committed"""
    from kwire.docker.partitions import delete_records

    delete_records(options)


def _reassign_partitions(options: Options) -> None:
    """kafka-reassign-partitions --list | --execute | --verify | --cancel, with --reassignment-json-file FILE"""
    from kwire.docker.partitions import reassign_partitions

    reassign_partitions(options)


def _transactions(options: Options) -> None:
    """kafka-transactions list | describe --transactional-id ID | describe-producers --topic NAME --partition N |
    find-hanging --topic NAME | --broker-id N | abort --topic NAME --partition N --start-offset N"""
    from kwire.docker.transactions import transactions

    transactions(options)


def _acls(options: Options) -> None:
    """kafka-acls --list [--principal User:NAME] | --add | --remove [--force], with --topic NAME, --group NAME,
    --transactional-id ID, --cluster, --delegation-token ID, --user-principal User:NAME; --resource-pattern-type
    literal|prefixed|any|match; --allow-principal User:NAME, --deny-principal User:NAME, --allow-host IP,
    --deny-host IP, --operation NAME; --producer [--idempotent], --consumer"""
    from kwire.docker.acls import acls

    acls(options)


def _producer_performance(options: Options) -> None:
    """kafka-producer-perf-test --topic NAME --num-records N --record-size BYTES | --payload-file FILE
    [--throughput RECORDS_PER_SECOND] [--producer-props bootstrap.servers=HOST:PORT …]"""
    from kwire.docker.performance import producer_performance

    producer_performance(options)


def _consumer_performance(options: Options) -> None:
    """kafka-consumer-perf-test --topic NAME --messages N [--timeout MS] [--from-latest]"""
    from kwire.docker.performance import consumer_performance

    consumer_performance(options)


TOOLS: dict[str, Callable[[Options], None]] = {
    "kafka-topics": topics.topics,
    "kafka-configs": topics.configs,
    "kafka-console-producer": console_producer,
    "kafka-console-consumer": console_consumer,
    "kafka-consumer-groups": _consumer_groups,
    "kafka-get-offsets": get_offsets,
    "kafka-broker-api-versions": broker_api_versions,
    "kafka-cluster": cluster,
    "kafka-ready": kafka_ready,
    "kafka-log-dirs": _log_dirs,
    "kafka-leader-election": _leader_election,
    "kafka-delete-records": _delete_records,
    "kafka-reassign-partitions": _reassign_partitions,
    "kafka-transactions": _transactions,
    "kafka-acls": _acls,
    "kafka-producer-perf-test": _producer_performance,
    "kafka-consumer-perf-test": _consumer_performance,
}


NOT_SUPPORTED = {
    "kafka-client-metrics": "kwire has no client metrics",
    "kafka-delegation-tokens": "the image has no tool for tokens; Kafka's works with its brokers",
    "kafka-features": "kwire has no feature flags",
    "kafka-metadata-quorum": "kwire has no Raft quorum; its controller is a node of its own",
    "kafka-share-groups": "kwire has no share groups",
}
"""Tools of Kafka's that are here to say so, and why they do nothing."""


def main(arguments: list[str]) -> int:
    """Run the tool that the first argument names; return 0, or 1 after one line on stderr."""
    name = arguments[0] if arguments else ""
    try:
        _run(name, arguments[1:])
        sys.stdout.flush()
    except ToolError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os._exit(1)
    return 0


def _run(name: str, arguments: list[str]) -> None:
    if name in NOT_SUPPORTED and "--version" not in arguments:
        raise ToolError(f"not supported yet: {NOT_SUPPORTED[name]}")
    if name not in TOOLS and name not in NOT_SUPPORTED:
        raise ToolError("this tool is not in the image")
    if "--version" in arguments:
        from kwire import __version__

        sys.stdout.write(f"{KAFKA_RELEASE} (kwire {__version__})\n")
        return
    options = Options(arguments, name)
    if "help" in options:
        sys.stdout.write(" ".join((TOOLS[name].__doc__ or "").split()) + "\n")
    else:
        TOOLS[name](options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
