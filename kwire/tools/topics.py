"""`kwire topics` and `kwire partitions`: topics of any Kafka, listed, created, deleted."""

from __future__ import annotations

import json
import sys

from kwire.client.admin import EARLIEST, LATEST, REQUEST_SECONDS
from kwire.client.offsets import offsets, unknown
from kwire.client.retries import repeat
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.server.errors import NodeError
from kwire.tools.kafka import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from kwire.client.admin import Admin, Steps
    from kwire.client.blocking import Client


def list_topics(client: Client, *, internal: bool, as_json: bool) -> int:
    """Print the topics with their numbers of partitions and replicas."""
    found = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(p.replica_nodes) for p in topic.partitions), default=0),
            "internal": topic.is_internal,
        }
        for topic in client.run(client.metadata(None)).topics
        if internal or not topic.is_internal
    ]
    found.sort(key=lambda each: str(each["topic"]))
    if as_json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    elif found:
        rows = [(each["topic"], each["partitions"], each["replicas"]) for each in found]
        sys.stdout.write(table(("TOPIC", "PARTITIONS", "REPLICAS"), rows))
    else:
        sys.stderr.write("no topics\n")
    return 0


def create_topics(
    client: Client,
    topics: Sequence[tuple[str, int, int]],
    config: Mapping[str, str],
    *,
    if_not_exists: bool,
) -> int:
    """Create topics: name, partitions, replication factor (-1: the broker's default)."""
    for name, partitions, replication in topics:
        steps = client.create_topic(name, partitions, replication, config, None, REQUEST_SECONDS)
        try:
            client.run(steps)
        except KafkaError as error:
            if error.code == ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
                continue
            raise NodeError(f"{name}: {error}") from None
        sys.stdout.write(f"created {name}\n")
    return 0


def delete_topics(client: Client, names: Sequence[str], *, if_exists: bool) -> int:
    """Delete topics."""
    for name in names:
        try:
            client.run(client.delete_topics([name], REQUEST_SECONDS))
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if if_exists:
                    continue
                raise NodeError(client.run(unknown(client, name)).message) from None
            raise NodeError(f"{name}: {error}") from None
        sys.stdout.write(f"deleted {name}\n")
    return 0


def list_partitions(client: Client, topic: str | None, *, internal: bool, as_json: bool) -> int:
    """Print leader, replicas, ISR and offsets of each partition, of one topic or of all."""
    found = client.run(repeat(lambda: partition_states(client, topic, internal)))
    if as_json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    elif found:
        rows = [partition_row(each) for each in found]
        sys.stdout.write(table(PARTITION_HEAD, rows))
    else:
        sys.stderr.write("no topics\n")
    return 0


PARTITION_HEAD = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END", "")


def partition_row(state: dict[str, Any]) -> tuple[object, ...]:
    """A row of the table: what is wrong with a partition stands at its end."""
    lacking = "offline" if state["leader"] < 0 else ""
    if not lacking and len(state["isr"]) < len(state["replicas"]):
        lacking = "under-replicated"
    return (
        f"{state['topic']}-{state['partition']}",
        "none" if state["leader"] < 0 else state["leader"],
        state["leader_epoch"],
        ",".join(map(str, state["replicas"])),
        ",".join(map(str, state["isr"])),
        state["start"],
        state["end"],
        lacking,
    )


def partition_states(
    admin: Admin, topic: str | None, internal: bool
) -> Steps[list[dict[str, Any]]]:
    """The partitions of a topic, or of all, as JSON objects. `end`: the high watermark; None, as
    `start`: no leader that could be asked."""
    metadata = yield from admin.metadata(None if topic is None else [topic])
    topics = [each for each in metadata.topics if topic or internal or not each.is_internal]
    if topic is not None and topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NodeError((yield from unknown(admin, topic)).message)
    brokers = admin.brokers_in(metadata)
    led = {
        (each.name, partition.partition_index): brokers[partition.leader_id]
        for each in topics
        for partition in each.partitions
        if partition.leader_id in brokers
    }
    starts = (yield from offsets(admin, led, EARLIEST)) if led else {}
    ends = (yield from offsets(admin, led, LATEST)) if led else {}
    return [
        {
            "topic": each.name,
            "partition": partition.partition_index,
            "leader": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replica_nodes),
            "isr": sorted(partition.isr_nodes),
            "start": starts.get((each.name, partition.partition_index)),
            "end": ends.get((each.name, partition.partition_index)),
        }
        for each in sorted(topics, key=lambda each: str(each.name))
        for partition in sorted(each.partitions, key=lambda each: int(each.partition_index))
    ]
