"""Client quotas that act: throttle times in answers, connections that are muted, and what is not counted."""

from __future__ import annotations

from typing import Any

import pytest
from login_kit import Client, Guarded
from test_client_quotas import alter

from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest

ALICE = {"user": "alice"}


def topic_client(user: str = "alice", password: str = "secret", broker: Any = None) -> Client:
    client = (broker or Guarded()).client()
    client.plain(user, password)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    return client


def produce(client: Client, size: int, acks: int = 1) -> Any:
    records = bytes(build_batch([Record(0, 0, None, bytes(size))]))
    data = TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=0, records=records)]
    )
    return client.ask(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data]), 9)


def fetch_request(session_id: int = 0, epoch: int = -1, replica_id: int = -1) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=replica_id,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[] if session_id else [FetchTopic(topic="t", partitions=[partition])],
    )


def records_of(response: Any) -> int:
    return sum(len(p.records or b"") for t in response.responses for p in t.partitions)


def test_a_producer_is_throttled_and_its_connection_muted() -> None:
    client = topic_client()
    alter(client, (ALICE, {"producer_byte_rate": 1000.0}))
    assert produce(client, 8000).throttle_time_ms == 0
    response = produce(client, 8000)
    # Some 16,200 bytes over ten windows of a second: 6.2 s too many.
    assert 6100 < response.throttle_time_ms < 6400
    assert client.session.busy
    assert produce(client, 10) is None  # muted: it waits
    client.broker.later(response.throttle_time_ms - 1)
    assert client.answer() is None
    client.broker.later(1)
    waited = client.answer()
    assert waited is not None and waited.responses[0].partition_responses[0].error_code == 0


def test_a_muted_connection_that_ends_is_forgotten() -> None:
    client = topic_client()
    alter(client, (ALICE, {"producer_byte_rate": 1000.0}))
    produce(client, 40_000)
    timers = client.broker.core.timers
    assert ("muted", client.connection) in timers
    client.broker.core.connection_closed(client.connection)
    assert ("muted", client.connection) not in timers


def test_neighbours_are_not_throttled() -> None:
    client = topic_client()
    alter(client, (ALICE, {"producer_byte_rate": 1000.0}))
    other = topic_client("bob", "b:o,b=", client.broker)
    assert produce(client, 40_000).throttle_time_ms > 0
    assert produce(other, 40_000).throttle_time_ms == 0
    assert not other.session.busy


def test_a_producer_without_acks_is_muted_too() -> None:
    client = topic_client()
    alter(client, (ALICE, {"producer_byte_rate": 1000.0}))
    client._asked.clear()
    assert produce(client, 40_000, acks=0) is None
    assert client.session.busy
    client.broker.later(40_000)
    assert not client.session.busy


def test_a_quota_acts_once_it_is_set_and_until_it_is_removed() -> None:
    client = topic_client()
    assert produce(client, 40_000).throttle_time_ms == 0
    assert client.broker.core.services.quotas is None
    alter(client, (ALICE, {"producer_byte_rate": 1000.0}))
    throttled = produce(client, 40_000).throttle_time_ms
    assert throttled > 0
    client.broker.later(throttled)
    alter(client, (ALICE, {"producer_byte_rate": None}))
    assert produce(client, 400_000).throttle_time_ms == 0


def test_a_large_request_is_throttled_too() -> None:
    client = topic_client()
    alter(client, (ALICE, {"producer_byte_rate": 1000.0}))
    client.post(MetadataRequest(topics=[]), 9)
    client.answer()
    response = produce(client, 600_000)
    while response is None:
        client.broker.core.tick()
        response = client.answer()
    assert response.throttle_time_ms > 500_000
    assert client.session.busy


def test_a_consumer_that_is_throttled_gets_nothing_and_then_all() -> None:
    client = topic_client()
    produce(client, 8000)
    alter(client, (ALICE, {"consumer_byte_rate": 1000.0}))
    assert records_of(client.ask(fetch_request(), 11)) > 8000
    response = client.ask(fetch_request(), 11)
    assert response.throttle_time_ms > 6000 and response.responses == []
    assert response.error_code == 0 and response.session_id == 0
    client.broker.later(11_000)  # until the first answer does not count; the second one never did
    assert records_of(client.ask(fetch_request(), 11)) > 8000


def test_an_answer_that_is_sent_empty_is_not_counted() -> None:
    client = topic_client()
    produce(client, 8000)
    alter(client, (ALICE, {"consumer_byte_rate": 1000.0}))
    client.ask(fetch_request(), 11)
    others = [client.broker.client() for _ in range(2)]  # the first connection is muted
    times = []
    for other in others:
        other.plain()
        times.append(other.ask(fetch_request(), 11).throttle_time_ms)
    assert times[0] == times[1] > 6000


def test_a_session_of_fetches_goes_on_after_a_throttle() -> None:
    client = topic_client()
    produce(client, 8000)
    alter(client, (ALICE, {"consumer_byte_rate": 1000.0}))
    first = client.ask(fetch_request(epoch=0), 11)
    assert records_of(first) > 8000 and first.session_id
    throttled = client.ask(fetch_request(first.session_id, 1), 11)
    assert throttled.throttle_time_ms > 6000 and throttled.session_id == first.session_id
    client.broker.later(20_000)
    again = client.ask(fetch_request(first.session_id, 2), 11)
    assert records_of(again) > 8000 and again.throttle_time_ms == 0


def test_one_response_is_no_larger_than_a_whole_window_allows() -> None:
    client = topic_client()
    for _ in range(8):
        produce(client, 4000)
    alter(client, (ALICE, {"consumer_byte_rate": 1000.0}))
    assert 8000 < records_of(client.ask(fetch_request(), 11)) < 10_001


def test_followers_are_not_throttled() -> None:
    client = topic_client()
    alter(client, (ALICE, {"consumer_byte_rate": 1.0, "request_percentage": 0.0001}))
    client.ask(fetch_request(replica_id=2), 11)
    assert not client.session.busy


@pytest.mark.parametrize(("spent_ms", "throttle_ms"), [(100, 0), (10, 0), (300, 1000), (101, 100)])
def test_the_time_of_requests_is_throttled_for_a_window_at_most(
    spent_ms: int, throttle_ms: int
) -> None:
    client = topic_client()
    alter(client, (ALICE, {"request_percentage": 1.0}))  # a percent of ten windows: 100 ms
    now = [0]

    def nanoseconds() -> int:
        now[0] += spent_ms * 1_000_000
        return now[0]

    client.broker.clock.nanoseconds = nanoseconds
    response = client.ask(MetadataRequest(topics=[]), 9)
    assert response.throttle_time_ms == throttle_ms
    assert client.session.busy == (throttle_ms > 0)


def create(client: Client, name: str, partitions: int) -> Any:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    return answer and (answer.topics[0].error_code, answer.throttle_time_ms)


def test_who_makes_too_many_partitions_is_refused_and_muted() -> None:
    client = topic_client()
    alter(client, (ALICE, {"controller_mutation_rate": 2.0}))
    assert create(client, "a", 23) == (0, 0)  # one above the burst of eleven windows
    assert not client.session.busy
    assert create(client, "b", 1) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 500)
    assert client.session.busy
    other = topic_client("bob", "b:o,b=", client.broker)
    assert create(other, "c", 30) == (0, 0)
    client.broker.later(500)
    assert not client.session.busy
    assert create(client, "b", 1) == (0, 0)


def test_topics_that_are_made_by_themselves_are_charged_to_the_client() -> None:
    client = topic_client()
    alter(client, (ALICE, {"controller_mutation_rate": 1.0}))
    create(client, "a", 12)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="auto")])
    request.allow_auto_topic_creation = True
    assert client.ask(request, 9).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client.broker.later(1000)
    assert client.ask(request, 9).topics[0].error_code == 0


def test_quotas_act_after_a_restart() -> None:
    client = topic_client()
    alter(client, (ALICE, {"producer_byte_rate": 1000.0}))
    client.broker.core.close()
    again = topic_client(broker=Guarded(client.broker.store))
    assert produce(again, 40_000).throttle_time_ms > 0
