"""Large requests in parts: the answer is that of the whole request, and no part is large."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from recorded import RecordedContext

from kwire import session
from kwire.apis.parts import chunks
from kwire.broker import Broker
from kwire.protocol.api import ApiKey, encode_request, key_of, parse_response
from kwire.protocol.errors import ErrorCode
from kwire.protocol.language.schema import Message
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire.protocol.schemas.configs import IncrementalAlterableConfig as Change
from kwire.protocol.schemas.configs import IncrementalAlterConfigsResource as Resource
from kwire.protocol.schemas.control_plane import LeaderAndIsrRequest, UpdateMetadataRequest
from kwire.protocol.schemas.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import Endpoint
from kwire.replication.core.outbox import Close, Outbox, Reply
from kwire.replication.core.work import FIRST_UNITS, TURN_UNITS

VALUE = Record(-1, 1, None, b"v")
Requests = list[tuple[Message, int]]


class Client:
    """A broker, and one connection to it."""

    def __init__(self, units: int = FIRST_UNITS) -> None:
        """`units`: of a turn."""
        self.outbox, self.clock = Outbox(), Clock(1, 1)
        store = MemoryLogStore(lambda: 1)
        config = BrokerConfig({"node.id": "1", "offsets.topic.num.partitions": "1"})
        self.broker = Broker(config, store, self.clock, self.outbox, random.Random(1))
        self.broker.work.first_units = self.broker.work.turn_units = units
        self.broker.start([Endpoint("PLAINTEXT", "127.0.0.1", 9092)])
        self.broker.connection_opened(1, "PLAINTEXT", "127.0.0.1")
        self.steps = 0

    def ask(self, request: Message, version: int) -> Any:
        key = key_of(request)
        frame = b"".join(bytes(part) for part in encode_request(key, version, 7, "x", request))[4:]
        self.broker.receive_frame(1, memoryview(bytearray(frame)))
        self.steps = 1
        for _ in range(10_000):
            for effect in self.outbox.drain():
                if isinstance(effect, Reply):
                    assert not self.broker.failed
                    return parse_response(key, version, b"".join(effect.parts)[4:])[1]
            self.clock.now_ms += 1
            self.broker.tick()
            self.steps += 1
        raise AssertionError("no answer")


def topics(count: int, partitions: int) -> Iterator[tuple[str, range]]:
    """Of these some exist (`small-0` to `-9` with 30 partitions) and some do not."""
    for number in range(count):
        yield f"small-{number}", range(partitions)


def requests() -> Requests:
    names = [f"new-{i}" for i in range(60)]
    partitions = [(name, list(indexes)) for name, indexes in topics(15, 300)]
    return [
        (
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=n, num_partitions=2, replication_factor=1)
                    for n in [*names, "new-3", "a b"]
                ]
            ),
            4,
        ),
        (
            CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(name=n, count=3, assignments=None)
                    for n in [*names, "new-7", "unknown"]
                ]
            ),
            3,
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=[
                    Resource(
                        resource_type=2,
                        resource_name=n,
                        configs=[Change(name="retention.ms", value="5")],
                    )
                    for n in [*names * 2, "unknown"]
                ]
            ),
            1,
        ),
        (
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=2, resource_name=n, configuration_keys=["retention.ms"]
                    )
                    for n in [*names, "unknown"]
                ]
            ),
            4,
        ),
        (
            ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name=n,
                        partitions=[
                            ListOffsetsPartition(partition_index=i, timestamp=-1) for i in p
                        ],
                    )
                    for n, p in partitions
                ],
            ),
            6,
        ),
        (
            OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    OffsetForLeaderTopic(
                        topic=n,
                        partitions=[
                            OffsetForLeaderPartition(partition=i, leader_epoch=0) for i in p
                        ],
                    )
                    for n, p in partitions
                ],
            ),
            4,
        ),
        (
            DeleteRecordsRequest(
                timeout_ms=1000,
                topics=[
                    DeleteRecordsTopic(
                        name=n,
                        partitions=[DeleteRecordsPartition(partition_index=i, offset=0) for i in p],
                    )
                    for n, p in partitions
                ],
            ),
            2,
        ),
        (
            OffsetCommitRequest(
                group_id="g",
                topics=[
                    OffsetCommitRequestTopic(
                        name=n,
                        partitions=[
                            OffsetCommitRequestPartition(partition_index=i, committed_offset=i)
                            for i in p
                        ],
                    )
                    for n, p in partitions
                ],
            ),
            8,
        ),
        (
            OffsetFetchRequest(
                group_id="g",
                topics=[
                    OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in partitions * 3
                ],
            ),
            7,
        ),
        (
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=g,
                        topics=[
                            OffsetFetchRequestTopics(name=n, partition_indexes=p)
                            for n, p in partitions * 3
                        ],
                    )
                    for g in "gh"
                ]
            ),
            8,
        ),
        (produce_request([*topics(10, 30), ("unknown", range(40))], build_batch([VALUE])), 9),
        (produce_request([("small-0", range(200))], b"no batch"), 8),
        (
            DescribeGroupsRequest(
                groups=[f"a-rather-long-name-of-a-group-{i}" for i in range(700)]
            ),
            5,
        ),
        (
            DeleteGroupsRequest(
                groups_names=[f"a-rather-long-name-of-a-group-{i}" for i in range(700)]
            ),
            2,
        ),
        (
            DeleteTopicsRequest(
                topic_names=[
                    *names[:40],
                    "unknown",
                    "new-5",
                    *(f"unknown-{i}" for i in range(100)),
                ],
                timeout_ms=1000,
            ),
            5,
        ),
        (
            DeleteTopicsRequest(
                topics=[
                    DeleteTopicState(name=n)
                    for n in [*names[40:], "new-45", *(f"unknown-{i}" for i in range(100))]
                ],
                timeout_ms=1000,
            ),
            6,
        ),
    ]


def produce_request(names: list[tuple[str, Any]], records: bytes, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index=i, records=records) for i in indexes],
            )
            for name, indexes in names
        ],
    )


def prepared(units: int = FIRST_UNITS) -> Client:
    client = Client(units)
    for name, indexes in topics(10, 30):
        client.ask(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=name, num_partitions=len(indexes), replication_factor=1)
                ]
            ),
            4,
        )
    for _ in range(100):  # the coordinator's topic
        response = client.ask(DescribeGroupsRequest(groups=["g"]), 5)
        if response.groups[0].error_code == ErrorCode.NONE:
            break
        client.ask(OffsetFetchRequest(group_id="g", topics=[]), 5)
    return client


def comparable(response: Any) -> Any:
    """The response, in an order that does not depend on parts; without ids drawn at random."""
    for name in type(response).fields:
        value = getattr(response, name)
        if isinstance(value, list):
            for element in value:
                if "topic_id" in type(element).fields:
                    element.topic_id = bytes(16)
            value.sort(key=repr)
    return response


def test_the_answer_is_that_of_the_whole_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LARGE_FRAME_BYTES", 256)
    monkeypatch.setattr(session, "_LARGE_BYTES", {})
    in_parts, whole = prepared(100), prepared()
    for request, version in requests():
        found = in_parts.ask(request, version)
        assert in_parts.steps > 1, type(request).__name__
        with monkeypatch.context() as patch:
            patch.setattr(chunks, "cut_of", lambda *_: None)
            expected = whole.ask(request, version)
        assert comparable(found) == comparable(expected), type(request).__name__


def test_parts_are_small() -> None:
    """Units of one part, of which TURN_UNITS are a turn."""
    seen = set()
    for request, version in requests():
        key = key_of(request)
        cut = chunks.cut_of(key, version, request)
        assert cut is not None
        sizes = [size for _, size in chunks._chunks(getattr(request, cut.items), cut)]
        assert len(sizes) > 1
        assert max(sizes) * cut.units <= 3 * TURN_UNITS, key
        seen.add(key)
    assert len(seen) >= 12
    assert FIRST_UNITS < TURN_UNITS


def test_a_change_in_parts_is_made_though_its_connection_ends() -> None:
    client = prepared()
    names = [f"new-{i}" for i in range(100)]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
    )
    key = key_of(request)
    frame = b"".join(bytes(part) for part in encode_request(key, 4, 7, "x", request))[4:]
    client.broker.receive_frame(1, frame)
    assert client.broker.work.jobs
    client.broker.connection_closed(1)
    while client.broker.work.jobs:
        client.broker.tick()
    assert all(client.broker.services.metadata.topics.get(name) for name in names)


def test_a_connection_that_ends_ends_a_question_in_parts() -> None:
    client = prepared()
    names = [f"unknown-{i}" for i in range(10_000)]
    request = DescribeGroupsRequest(groups=names)
    key = key_of(request)
    frame = b"".join(bytes(part) for part in encode_request(key, 4, 7, "x", request))[4:]
    client.broker.receive_frame(1, frame)
    assert client.broker.work.jobs
    client.broker.connection_closed(1)
    client.broker.tick()
    assert not client.broker.work.jobs


def test_a_produce_without_an_answer_is_done_in_parts_and_has_none() -> None:
    client = prepared()
    batch = build_batch([VALUE])
    end_offsets = []
    for request in (
        produce_request(topics(10, 30), batch, acks=0),
        produce_request([*topics(10, 30), ("unknown", range(2))], batch, acks=0),
    ):
        frame = b"".join(bytes(part) for part in encode_request(0, 9, 7, "x", request))[4:]
        client.outbox.drain()
        client.broker.receive_frame(1, frame)
        assert client.broker.work.jobs
        while client.broker.work.jobs:
            client.broker.tick()
        effects = client.outbox.drain()
        assert not any(isinstance(effect, Reply) for effect in effects)
        end_offsets.append(
            client.broker.services.replica_manager.by_key["small-9", 29].log.log_end_offset
        )
    assert end_offsets == [1, 2]
    assert any(isinstance(effect, Close) and "unknown" in effect.reason for effect in effects)


def test_a_wide_topic_is_created_and_deleted_in_parts() -> None:
    """Its roles first, its metadata last: no client sees a topic with some of its partitions."""
    client = prepared()
    metadata = client.broker.services.metadata
    seen = set()
    tick = client.broker.tick

    def looking() -> None:
        tick()
        seen.add(len(metadata.topics["wide"].partitions) if "wide" in metadata.topics else 0)

    client.broker.tick = looking  # type: ignore[method-assign]
    for _ in range(2):
        topic = CreatableTopic(name="wide", num_partitions=1000, replication_factor=1)
        response = client.ask(CreateTopicsRequest(topics=[topic]), 4)
        assert response.topics[0].error_code == ErrorCode.NONE
        assert client.steps >= 1000 * 100 // TURN_UNITS
        manager = client.broker.services.replica_manager
        assert sum(name == "wide" for name, _ in manager.by_key) == 1000
        assert len(metadata.topics["wide"].partitions) == 1000
        response = client.ask(DeleteTopicsRequest(topic_names=["wide"], timeout_ms=1000), 5)
        assert response.responses[0].error_code == ErrorCode.NONE
        assert client.steps >= 1000 * 100 // TURN_UNITS
        assert sum(name == "wide" for name, _ in manager.by_key) == 0
        assert "wide" not in metadata.topics
    assert seen == {0, 1000} or seen == {0}


def test_orders_about_other_topics_wait_behind_a_wide_one() -> None:
    client = prepared()
    client.broker.connection_opened(2, "PLAINTEXT", "127.0.0.1")
    topics = [CreatableTopic(name="wide", num_partitions=500, replication_factor=1)]
    frames = [
        b"".join(encode_request(19, 4, 7, "x", CreateTopicsRequest(topics=topics)))[4:],
        b"".join(encode_request(20, 4, 7, "x", DeleteTopicsRequest(topic_names=["wide"])))[4:],
    ]
    for connection, frame in enumerate(frames, 1):
        client.broker.receive_frame(connection, frame)
    assert client.broker.work.jobs
    while client.broker.work.jobs:
        client.clock.now_ms += 1
        client.broker.tick()
    assert [e.connection for e in client.outbox.drain() if isinstance(e, Reply)] == [1, 2]
    assert "wide" not in client.broker.services.metadata.topics
    assert not [key for key in client.broker.services.replica_manager.by_key if key[0] == "wide"]


def test_elements_with_equal_keys_stay_in_one_part() -> None:
    cut = chunks.Cut("items", "answers", 4, 1, key=lambda item: item[0])
    items = [(name, number) for number in range(3) for name in "abcdefg"]
    found = [chunk for chunk, _ in chunks._chunks(items, cut)]
    assert len(found) > 1 and sorted(item for chunk in found for item in chunk) == sorted(items)
    for name in "abcdefg":
        assert sum(any(item[0] == name for item in chunk) for chunk in found) == 1


def test_a_long_topic_is_cut_and_its_answers_are_joined() -> None:
    topic = ListOffsetsTopic(
        name="t", partitions=[ListOffsetsPartition(partition_index=i) for i in range(1000)]
    )
    request = ListOffsetsRequest(replica_id=-1, topics=[topic])
    cut = chunks.cut_of(ApiKey.LIST_OFFSETS, 5, request)
    assert cut is not None
    sizes = [size for _, size in chunks._chunks(request.topics, cut)]
    assert len(sizes) >= 5 and max(sizes) <= 2 * cut.most
    (answered,) = prepared(100).ask(request, 5).topics
    assert [partition.partition_index for partition in answered.partitions] == list(range(1000))


@pytest.mark.parametrize(
    ("key", "version", "kind"),
    [
        (ApiKey.LEADER_AND_ISR, 7, LeaderAndIsrRequest),
        (ApiKey.UPDATE_METADATA, 8, UpdateMetadataRequest),
    ],
    ids=["LeaderAndIsr", "UpdateMetadata"],
)
def test_an_order_that_lists_everything_is_not_cut(key: int, version: int, kind: Any) -> None:
    """What it does not list is deleted."""
    assert chunks.cut_of(key, version, kind(type=1)) is not None
    assert chunks.cut_of(key, version, kind(type=2)) is None


def test_parts_that_wait_are_cancelled_with_the_connection_and_answered_together() -> None:
    parked: list[Any] = []
    cancelled: list[Any] = []

    def park(ctx: Any, request: Any) -> None:
        parked.append(ctx)
        ctx.on_disconnect = lambda: cancelled.append(ctx)

    names = [f"g{number}" for number in range(250)]
    for ends in (False, True):
        parked.clear()
        whole = RecordedContext(5, None, None, key=ApiKey.DESCRIBE_GROUPS)
        for _ in chunks.handle_in_parts(whole, DescribeGroupsRequest(groups=names), park):
            pass
        assert len(parked) == 3 and not whole.answered
        if ends:
            whole.disconnected()
            assert cancelled == parked
            continue
        for part in parked:
            assert not whole.answered
            part.reply(DescribeGroupsResponse())
        assert whole.answered


def test_the_error_of_a_part_is_that_of_the_whole() -> None:
    responses = [ListGroupsResponse(error_code=code) for code in (0, 15, 16)]
    for other in responses[1:]:
        chunks._join(responses[0], other, "groups", "", "")
    assert responses[0].error_code == 15
