"""The last client requests that a broker keeps, and how they are listed."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.protocol.api import RequestHeader
from kwire.protocol.errors import ErrorCode
from kwire.protocol.language.schema import Message
from kwire.protocol.schemas.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kwire.protocol.schemas.groups import HeartbeatResponse, JoinGroupResponse
from kwire.protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.protocol.schemas.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kwire.protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kwire.recent import (
    KEPT,
    MAX_CLIENTS,
    RecentRequests,
    add_age,
    format_requests,
    select,
    to_objects,
)
from kwire.replication.core.clock import Clock
from kwire.session import Request, Sessions

PRODUCE, FETCH, METADATA, OFFSET_FETCH, JOIN, HEARTBEAT = 0, 1, 3, 9, 11, 12
T_ID = b"t" * 16


class Names:
    """As much of a metadata cache as is needed."""

    def topic_name(self, topic_id: bytes) -> str | None:
        return "t" if topic_id == T_ID else None


@pytest.fixture
def clock() -> Clock:
    return Clock(now_ms=1000)


@pytest.fixture
def recent(clock: Clock) -> RecentRequests:
    return RecentRequests(clock, Names())  # type: ignore[arg-type]


def context(key: int, version: int = 9, client: str | None = "shop") -> Request:
    nothing: Any = None
    return Request(
        RequestHeader(key, version, 1, client, 0),
        Sessions(nothing, nothing, {}).open(1, "PLAINTEXT", "h"),
        nothing,
    )


def produced(codes: dict[int, int], topic: str = "t") -> Message:
    partitions = [
        PartitionProduceResponse(index=index, error_code=code, base_offset=0)
        for index, code in codes.items()
    ]
    return ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=partitions)]
    )


def test_topics_partitions_and_errors_are_listed(recent: RecentRequests, clock: Clock) -> None:
    recent.record(context(PRODUCE), produced({0: 0, 1: 0, 2: ErrorCode.NOT_ENOUGH_REPLICAS}))
    clock.now_ms += 250
    partition = PartitionData(partition_index=3, error_code=0)
    topic = FetchableTopicResponse(topic_id=T_ID, partitions=[partition])
    recent.record(context(FETCH, 13), FetchResponse(responses=[topic]))
    topic.partitions = []  # summarised when it was recorded
    recent.record(context(FETCH, 13), FetchResponse(error_code=71))
    error = int(ErrorCode.REBALANCE_IN_PROGRESS)
    recent.record(context(HEARTBEAT, 4, None), HeartbeatResponse(error_code=error))
    recent.record(context(PRODUCE), None)
    unknown = MetadataResponseTopic(name="x", error_code=3, topic_id=T_ID)
    recent.record(context(METADATA, 12), MetadataResponse(topics=[unknown]))
    recent.record(context(HEARTBEAT, 4), HeartbeatResponse(error_code=999))
    assert recent.list_requests([]) == [
        [250, "shop", "Produce v9", "t-0 t-1: ok; t-2: NOT_ENOUGH_REPLICAS", 1],
        [0, "shop", "Fetch v13", "t-3: ok", 1],
        [0, "shop", "Fetch v13", "INVALID_FETCH_SESSION_EPOCH", 1],
        [0, "", "Heartbeat v4", "REBALANCE_IN_PROGRESS", 1],
        [0, "shop", "Produce v9", "wants no answer", 1],
        [0, "shop", "Metadata v12", "x: UNKNOWN_TOPIC_OR_PARTITION", 1],
        [0, "shop", "Heartbeat v4", "error 999", 1],
    ]


def test_many_partitions_are_counted(recent: RecentRequests) -> None:
    recent.record(context(PRODUCE), produced(dict.fromkeys(range(7), 0)))
    assert recent.list_requests([])[0][3] == "t-0 t-1 t-2 t-3 and 3 more: ok"


def test_only_the_last_are_kept_and_none_of_other_nodes(recent: RecentRequests) -> None:
    for number in range(KEPT + 5):
        recent.record(context(PRODUCE, number % 10), produced({number: 0}))
        for other in ("broker-2", "controller-1000", "kwire-admin"):
            recent.record(context(FETCH, 17, other), FetchResponse())
    listed = recent.list_requests([])
    assert [entry[3] for entry in listed] == [f"t-{n}: ok" for n in range(5, KEPT + 5)]
    recent.record(context(FETCH, 17, "broker-of-mine"), FetchResponse())
    assert recent.list_requests([])[-1] == [0, "broker-of-mine", "Fetch v17", "ok", 1]


def test_polls_are_counted_and_push_nothing_else_out(recent: RecentRequests, clock: Clock) -> None:
    topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=0)])
    recent.record(context(JOIN, 9), JoinGroupResponse(error_code=0))
    for number in range(500):
        clock.now_ms += 1
        recent.record(context(FETCH, 12), FetchResponse(responses=[topic] if number % 7 else []))
        recent.record(context(HEARTBEAT, 4), HeartbeatResponse())
        recent.record(context(PRODUCE, 9), produced({0: 0}))  # not a repetition: another offset
    listed = recent.list_requests([])
    assert listed[0] == [500, "shop", "JoinGroup v9", "ok", 1]
    assert len(listed) == KEPT
    of_polls = [each for each in listed if each[2] == "Fetch v12"]
    assert of_polls[-1] == [0, "shop", "Fetch v12", "t-0: ok", 2]
    assert {each[4] for each in of_polls[:-1]} == {1, 6}
    (beats,) = (each for each in listed if each[2] == "Heartbeat v4")
    assert beats == [0, "shop", "Heartbeat v4", "ok", 500]
    lines = [line.strip() for line in format_requests({1: listed})]
    assert lines[0] == "-0.500 s  broker 1  shop  JoinGroup v9  ok"
    assert sum("Produce" in line for line in lines) == 1


def test_clients_without_number_do_not_take_memory_without_bound(recent: RecentRequests) -> None:
    for number in range(MAX_CLIENTS * 3):
        recent.record(context(PRODUCE, 9, f"client-{number}"), None)
        recent.record(context(PRODUCE, 9, "client-0"), None)
    clients = {each[1] for each in recent.list_requests([])}
    last = {f"client-{MAX_CLIENTS * 3 - 1 - number}" for number in range(MAX_CLIENTS - 1)}
    assert clients == {*last, "client-0"}


def test_unanswered_and_refused_requests_are_listed(recent: RecentRequests) -> None:
    nothing: Any = None
    sessions = Sessions(nothing, nothing, {})
    waiting, idle, follower = (sessions.open(number, "PLAINTEXT", "h") for number in range(3))
    waiting.in_flight, follower.in_flight = context(FETCH), context(FETCH, 17, "broker-3")
    idle.identify("librdkafka", "2")
    recent.record_close(idle, "malformed request: oh")
    assert recent.list_requests([waiting, idle, follower]) == [
        [0, "librdkafka", "connection closed", "malformed request: oh", 1],
        [-1, "shop", "Fetch v9", "not answered yet", 1],
    ]


def test_what_a_broker_had_when_it_ended_grows_older() -> None:
    entries = [[5, "c", "Metadata v1", "ok", 1], [-1, "c", "Fetch v13", "not answered yet", 1]]
    assert add_age(entries, 300) == [
        [305, "c", "Metadata v1", "ok", 1],
        [300, "c", "Fetch v13", "not answered when the broker ended", 1],
    ]


def test_entries_of_all_brokers_are_formatted_in_the_order_of_time() -> None:
    poll = ["c", "Fetch v13", "ok", 1]
    lines = format_requests(
        {
            1: [[1500, "", "Metadata v1", "ok", 1], [20, *poll], [10, *poll], [-1, *poll]],
            2: [[700, "p", "Produce v9", "t-0: ok", 1]],
        }
    )
    assert [line.strip() for line in lines] == [
        "-1.500 s  broker 1  ?  Metadata v1  ok",
        "-0.700 s  broker 2  p  Produce v9  t-0: ok",
        "-0.010 s  broker 1  c  Fetch v13  ok (2 times)",
        "now  broker 1  c  Fetch v13  ok",
    ]


def test_the_client_that_was_silent_longest_gives_way(recent: RecentRequests) -> None:
    for number in range(MAX_CLIENTS):
        recent.record(context(PRODUCE, 9, f"client-{number}"), None)
    recent.record(context(PRODUCE, 9, "client-0"), None)
    recent.record(context(PRODUCE, 9, "newcomer"), None)
    clients = {each[1] for each in recent.list_requests([])}
    assert "client-0" in clients and "client-1" not in clients


def test_the_same_outcome_in_another_version_is_an_entry_of_its_own(recent: RecentRequests) -> None:
    for version in (4, 4, 3):
        recent.record(context(HEARTBEAT, version), HeartbeatResponse())
    listed = recent.list_requests([])
    assert [(each[2], each[4]) for each in listed] == [("Heartbeat v4", 2), ("Heartbeat v3", 1)]


def test_an_error_of_the_whole_and_one_of_a_topic_are_shown_beside_others(
    recent: RecentRequests,
) -> None:
    partition = MetadataResponsePartition(partition_index=0)
    topic = MetadataResponseTopic(name="x", error_code=3, partitions=[partition])
    recent.record(context(METADATA, 12), MetadataResponse(topics=[topic]))
    assert recent.list_requests([])[-1][3] == "x-0: ok; x: UNKNOWN_TOPIC_OR_PARTITION"
    partitions = OffsetFetchResponsePartition(
        partition_index=0, committed_offset=1, metadata="", error_code=0
    )
    fetched = OffsetFetchResponseTopic(name="t", partitions=[partitions])
    recent.record(context(OFFSET_FETCH, 7), OffsetFetchResponse(error_code=14, topics=[fetched]))
    assert recent.list_requests([])[-1][3] == "COORDINATOR_LOAD_IN_PROGRESS; t-0: ok"


def test_an_api_is_selected_in_all_its_versions_or_in_one(recent: RecentRequests) -> None:
    for version in (8, 9):
        recent.record(context(PRODUCE, version), produced({0: 0}))
    found = to_objects({1: recent.list_requests([])})
    assert len(select(found, "Produce", None, None)["requests"]) == 2
    assert len(select(found, "Produce v9", "shop", 1)["requests"]) == 1
    assert select(found, "Produce v9", None, 2) == {"requests": []}
