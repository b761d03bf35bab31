"""Elections, reassignments, log directories and deletion of records in any Kafka.

Answers to electLeaders, alterPartitionReassignments, listPartitionReassignments, describeLogDirs and
deleteRecords of KafkaAdminClient. Each function is a generator of requests (`admin.py`).
"""

from __future__ import annotations

from kwire.client.admin import REQUEST_SECONDS
from kwire.client.connection import check
from kwire.client.offsets import partitions
from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from kwire.client.admin import Admin, Steps
    from kwire.client.offsets import Key


def elect_leaders(
    admin: Admin, keys: Iterable[Key] | None, kind: int, seconds: float = REQUEST_SECONDS
) -> Steps[dict[Key, KafkaError | None]]:
    """ElectLeaders of these partitions, None: of all. `kind`: PREFERRED or UNCLEAN.

    The error of each partition, ELECTION_NOT_NEEDED too; of all partitions, only those that another
    replica leads now."""
    from kwire.protocol.schemas.topics import ElectLeadersRequest, TopicPartitions

    named = None
    if keys is not None:
        named = [TopicPartitions(topic=t, partitions=i) for t, i in _by_topic(keys).items()]
    timeout_ms = int(seconds * 1000)
    request = ElectLeadersRequest(election_type=kind, topic_partitions=named, timeout_ms=timeout_ms)
    response = yield from admin.ask_controller(request, seconds)
    check(response.error_code, "the election")
    return {
        (topic.topic, each.partition_id): _error(each.error_code, each.error_message)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


def reassign(
    admin: Admin, replicas: Mapping[Key, Sequence[int] | None], seconds: float = REQUEST_SECONDS
) -> Steps[dict[Key, KafkaError | None]]:
    """AlterPartitionReassignments: the replicas that each partition is to have, None cancels.

    The error of each partition."""
    from kwire.protocol.schemas.topics import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    def wanted(key: Key) -> list[int] | None:
        brokers = replicas[key]
        return None if brokers is None else list(brokers)

    topics = [
        ReassignableTopic(
            name=topic,
            partitions=[
                ReassignablePartition(partition_index=index, replicas=wanted((topic, index)))
                for index in indexes
            ],
        )
        for topic, indexes in _by_topic(replicas).items()
    ]
    request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=int(seconds * 1000))
    response = yield from admin.ask_controller(request, seconds)
    check(response.error_code, response.error_message)
    return {
        (topic.name, each.partition_index): _error(each.error_code, each.error_message)
        for topic in response.responses
        for each in topic.partitions
    }


def reassignments(admin: Admin, seconds: float = REQUEST_SECONDS) -> Steps[dict[Key, Any]]:
    """ListPartitionReassignments: `replicas`, `adding_replicas` and `removing_replicas` of each
    partition that is being moved."""
    from kwire.protocol.schemas.topics import ListPartitionReassignmentsRequest

    request = ListPartitionReassignmentsRequest(timeout_ms=int(seconds * 1000))
    response = yield from admin.ask_controller(request, seconds)
    check(response.error_code, response.error_message)
    return {(t.name, p.partition_index): p for t in response.topics for p in t.partitions}


def log_dirs(admin: Admin, brokers: Iterable[int] | None = None) -> Steps[dict[int, list[Any]]]:
    """DescribeLogDirs of these brokers, None: all: the results, a directory each, by broker.

    KafkaError for a broker that is not alive."""
    from kwire.protocol.schemas.cluster import DescribeLogDirsRequest

    known = admin.brokers_in((yield from admin.metadata()))
    found: dict[int, list[Any]] = {}
    for broker in sorted(known) if brokers is None else brokers:
        if broker not in known:
            alive = ", ".join(map(str, sorted(known)))
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker}; alive: {alive}"
            )
        response = yield from admin.ask_at(known[broker], DescribeLogDirsRequest(topics=None))
        check(response.error_code, f"the log directories of broker {broker}")
        found[broker] = list(response.results)
    return found


def delete_records(
    admin: Admin, before: Mapping[Key, int], seconds: float = REQUEST_SECONDS
) -> Steps[dict[Key, int | KafkaError]]:
    """DeleteRecords: all before an offset; -1: all below the high watermark. The new start of each
    log, or the error of the partition."""
    from kwire.protocol.schemas.topics import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    found: dict[Key, int | KafkaError] = {}
    for key, offset in before.items():
        topic, index = key
        try:
            led = yield from partitions(admin, topic, index)
            wanted = DeleteRecordsPartition(partition_index=index, offset=offset)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])],
                timeout_ms=int(seconds * 1000),
            )
            response = yield from admin.ask_at(led[key], request, seconds)
            result = response.topics[0].partitions[0]
            check(result.error_code, None)
            found[key] = result.low_watermark
        except KafkaError as error:
            found[key] = error
    return found


def _by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in keys:
        found.setdefault(topic, []).append(index)
    return found


def _error(code: int, message: str | None) -> KafkaError | None:
    try:
        check(code, message)
    except KafkaError as error:
        return error
    return None
