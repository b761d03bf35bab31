"""What each act does to a request at a broker's core, and that nothing is on the way without a rule."""

from __future__ import annotations

import pytest
from fault_kit import FaultKit, codes, fetch, produce

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.records import check_crc, iter_batches, parse_header
from kwire.protocol.schemas.groups import FindCoordinatorRequest, HeartbeatRequest
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
NOT_ENOUGH = int(ErrorCode.NOT_ENOUGH_REPLICAS)


@pytest.fixture
def kit() -> FaultKit:
    return FaultKit()


def test_without_a_rule_nothing_is_on_the_way(kit: FaultKit) -> None:
    sessions = kit.broker.sessions
    kit.ask(produce(A0))
    route = sessions._routes[ApiKey.PRODUCE << 16 | 9]
    plain = route.handler, route.large_bytes
    assert plain[0].__module__ == "kwire.apis.produce"
    rule = kit.inject("Produce", close=True, topic="b")
    kit.ask(produce(A0))
    kit.ask(fetch(A0))
    assert sessions._routes[ApiKey.PRODUCE << 16 | 9].handler is not plain[0]
    assert sessions._routes[ApiKey.FETCH << 16 | 12].handler.__module__ == "kwire.apis.fetch"
    table = sessions.faults
    assert table is not None and table.remove(rule.id) is rule
    kit.ask(produce(A0))
    route = sessions._routes[ApiKey.PRODUCE << 16 | 9]
    assert (route.handler, route.large_bytes) == plain
    assert sessions.faults is None and rule.hits == 0


def test_an_error_for_one_partition_leaves_the_others(kit: FaultKit) -> None:
    rule = kit.inject("Produce", error="NOT_ENOUGH_REPLICAS", topic="a", partition=1)
    answer = kit.ask(produce(A0, A1, B0))
    assert codes(answer) == {A0: 0, A1: NOT_ENOUGH, B0: 0}
    assert [kit.end_offset(*each) for each in (A0, A1, B0)] == [1, 0, 1]
    assert answer.responses[0].partition_responses[-1].base_offset == -1
    assert codes(kit.ask(produce(A0, B0))) == {A0: 0, B0: 0}
    assert rule.hits == 1 and [hit.what for hit in rule.kept] == ["NOT_ENOUGH_REPLICAS"]


def test_an_error_without_a_topic_is_for_all(kit: FaultKit) -> None:
    kit.inject("Produce", error="NOT_ENOUGH_REPLICAS", times=1)
    assert set(codes(kit.ask(produce(A0, B0))).values()) == {NOT_ENOUGH}
    assert kit.end_offset("a", 0) == 0
    assert set(codes(kit.ask(produce(A0, B0))).values()) == {0}


def test_after_an_error_that_comes_after_the_append_the_record_is_there(kit: FaultKit) -> None:
    kit.inject("Produce", error="NOT_ENOUGH_REPLICAS_AFTER_APPEND")
    assert codes(kit.ask(produce(A0))) == {A0: 20}
    assert kit.end_offset("a", 0) == 1


def test_an_error_of_a_produce_without_an_answer_closes_the_connection(kit: FaultKit) -> None:
    kit.inject("Produce", error="NOT_ENOUGH_REPLICAS")
    kit.send(produce(A0, acks=0))
    assert "NOT_ENOUGH_REPLICAS" in kit.closed[1]
    assert kit.end_offset("a", 0) == 0


def test_a_fetch_in_a_session_names_what_it_named_before(kit: FaultKit) -> None:
    kit.ask(produce(A0, B0))
    first = kit.ask(fetch(A0, B0, session=(0, 0)))
    rule = kit.inject("Fetch", error="OFFSET_OUT_OF_RANGE", topic="b")
    again = kit.ask(fetch(session=(first.session_id, 1), max_wait_ms=60_000))
    assert codes(again) == {A0: 0, B0: 1}
    assert rule.hits == 1
    kit.broker.sessions.faults.clear()  # type: ignore[union-attr]  # set above
    after = kit.ask(fetch(session=(first.session_id, 2)))
    assert codes(after) == {A0: 0, B0: 0}
    assert after.responses[-1].partitions[0].high_watermark == 1  # said again after the error


def test_metadata_of_a_topic(kit: FaultKit) -> None:
    kit.inject("Metadata", error="LEADER_NOT_AVAILABLE", topic="a")
    for topics in (None, [MetadataRequestTopic(name="a"), MetadataRequestTopic(name="b")]):
        answer = kit.ask(MetadataRequest(topics=topics))
        found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
        assert found == {"a": (5, 0), "b": (0, 2)}
        assert len(answer.brokers) == 1


def test_metadata_is_as_before_when_the_fault_is_gone(kit: FaultKit) -> None:
    before = kit.ask(MetadataRequest(topics=None))
    table = kit.inject("Metadata", error="LEADER_NOT_AVAILABLE", topic="a", times=1)
    assert {topic.error_code for topic in kit.ask(MetadataRequest(topics=None)).topics} == {0, 5}
    assert table.hits == 1
    assert kit.ask(MetadataRequest(topics=None)) == before


def test_list_offsets_of_a_partition(kit: FaultKit) -> None:
    kit.inject("ListOffsets", error="NOT_LEADER_OR_FOLLOWER", topic="a", partition=0)
    partitions = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in (0, 1)]
    asked = ListOffsetsRequest(topics=[ListOffsetsTopic(name="a", partitions=partitions)])
    (topic,) = kit.ask(asked).topics
    assert {p.partition_index: p.error_code for p in topic.partitions} == {0: 6, 1: 0}


def test_a_group_of_several(kit: FaultKit) -> None:
    kit.inject("OffsetFetch", error="NOT_COORDINATOR", group="g")
    kit.inject("OffsetFetch", error="UNSTABLE_OFFSET_COMMIT", group="h", topic="a", partition=1)
    topics = [OffsetFetchRequestTopics(name="a", partition_indexes=[0, 1])]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=topics) for name in "gh"]
    answer = kit.ask(OffsetFetchRequest(groups=groups), 8)
    found = {
        (g.group_id, p.partition_index): p.error_code
        for g in answer.groups
        for t in g.topics
        for p in t.partitions
    }
    assert {g.group_id: g.error_code for g in answer.groups}["g"] == 16
    assert ("h", 1) in found and found["h", 1] == 88


def test_a_coordinator_key(kit: FaultKit) -> None:
    rule = kit.inject("FindCoordinator", error="COORDINATOR_NOT_AVAILABLE", group="g")
    answer = kit.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    assert [(c.key, c.error_code, c.port) for c in answer.coordinators] == [("g", 15, -1)]
    assert kit.ask(FindCoordinatorRequest(key="g", key_type=0), 1).error_code == 15
    kit.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["g"]))
    assert rule.hits == 2


def test_a_whole_answer(kit: FaultKit) -> None:
    kit.inject("Heartbeat", error="REBALANCE_IN_PROGRESS", group="g")
    assert kit.ask(HeartbeatRequest(group_id="g", member_id="m")).error_code == 27
    assert kit.ask(HeartbeatRequest(group_id="h", member_id="m")).error_code != 27


def test_a_delayed_request_is_handled_later(kit: FaultKit) -> None:
    kit.inject("Produce", delay=50, times=1)
    assert kit.ask(produce(A0)) is None
    kit.advance(49)
    assert kit.end_offset("a", 0) == 0
    kit.advance(1)
    assert codes(kit.answers[1][-1]) == {A0: 0}
    assert codes(kit.ask(produce(A0))) == {A0: 0}


def test_the_bytes_of_a_delayed_request_are_kept_for_it(kit: FaultKit) -> None:
    kit.inject("Produce", delay=50)
    kit.send(produce(A0))
    session = kit.broker.sessions.find(1)
    assert session is not None and session.keeps_frame


def test_a_delayed_request_ends_with_its_connection(kit: FaultKit) -> None:
    kit.inject("Produce", delay=50)
    kit.send(produce(A0))
    kit.broker.connection_closed(1)
    kit.advance(60)
    assert kit.end_offset("a", 0) == 0


@pytest.mark.parametrize(("when", "end"), [("before", 0), ("after", 1)])
def test_an_answer_never_comes(kit: FaultKit, when: str, end: int) -> None:
    rule = kit.inject("Produce", drop=when, times=1)
    assert kit.ask(produce(A0)) is None
    assert kit.end_offset("a", 0) == end
    assert kit.ask(produce(A0)) is None  # the connection is mute
    kit.advance(3_600_000)
    assert kit.ask(produce(A1), connection=2) is not None  # others are not
    kit.broker.connection_closed(1)
    assert kit.end_offset("a", 0) == end and rule.hits == 1


def test_a_produce_without_an_answer_can_be_dropped_before_only(kit: FaultKit) -> None:
    after = kit.inject("Produce", drop="after")
    throttle = kit.inject("Produce", throttle=10)
    kit.send(produce(A0, acks=0))
    assert (after.hits, throttle.hits, kit.end_offset("a", 0)) == (0, 0, 1)
    before = kit.inject("Produce", drop="before")
    kit.send(produce(A0, acks=0))
    assert (before.hits, kit.end_offset("a", 0)) == (1, 1)
    assert kit.broker.sessions.by_connection[1].in_flight is None


def test_a_throttled_connection_is_mute_for_that_time(kit: FaultKit) -> None:
    kit.inject("Produce", throttle=100, times=1)
    assert kit.ask(produce(A0)).throttle_time_ms == 100
    assert kit.ask(produce(A0)) is None
    kit.advance(99)
    assert kit.end_offset("a", 0) == 1
    kit.advance(1)
    assert kit.end_offset("a", 0) == 2
    assert kit.answers[1][-1].throttle_time_ms == 0


def test_a_throttled_connection_may_close(kit: FaultKit) -> None:
    kit.inject("Produce", throttle=100)
    kit.ask(produce(A0))
    kit.broker.connection_closed(1)
    kit.advance(200)


def test_corrupt_records_have_wrong_checksums(kit: FaultKit) -> None:
    kit.ask(produce(A0, B0))
    rule = kit.inject("Fetch", corrupt=True, topic="a", times=1)
    assert kit.ask(fetch(A1)).responses[0].partitions[0].error_code == 0
    assert rule.hits == 0  # there were no records
    answer = kit.ask(fetch(A0, B0))
    first, second = (bytes(topic.partitions[0].records) for topic in answer.responses)
    assert (_is_whole(first), _is_whole(second)) == (False, True)
    assert rule.hits == 1
    (topic,) = kit.ask(fetch(A0)).responses
    assert _is_whole(bytes(topic.partitions[0].records))


def test_every_batch_has_a_wrong_checksum(kit: FaultKit) -> None:
    for _ in range(3):
        kit.ask(produce(A0))
    kit.inject("Fetch", corrupt=True)
    (topic,) = kit.ask(fetch(A0)).responses
    records = bytes(topic.partitions[0].records)
    assert [check_crc(records, header) for header in iter_batches(records)] == [False] * 3


def _is_whole(records: bytes) -> bool:
    return check_crc(records, parse_header(records))


def test_older_records_have_wrong_checksums(kit: FaultKit) -> None:
    kit.ask(produce(A0))
    plain = bytes(kit.ask(fetch(A0), 2).responses[0].partitions[0].records)
    kit.inject("Fetch", corrupt=True)
    found = bytes(kit.ask(fetch(A0), 2).responses[0].partitions[0].records)
    assert [i for i in range(len(plain)) if plain[i] != found[i]] == [12]


def test_a_connection_is_closed_instead(kit: FaultKit) -> None:
    kit.inject("Produce", close=True)
    kit.send(produce(A0))
    assert "a test has set this fault" in kit.closed[1]
    assert kit.end_offset("a", 0) == 0


def test_a_rule_is_about_what_it_names(kit: FaultKit) -> None:
    for given in (
        {"client_id": "y"},
        {"version": 8},
        {"broker": 2},
        {"listener": "OTHER"},
        {"user": "alice"},
        {"topic": "b"},
        {"partition": 1},
        {"transactional_id": "t"},
    ):
        kit.inject("Produce", close=True, **given)
    assert codes(kit.ask(produce(A0))) == {A0: 0}
    assert kit.broker.sessions.faults is not None
    assert not any(rule.hits for rule in kit.broker.sessions.faults.rules.values())
    kit.send(produce(A0), client="y")
    assert 1 in kit.closed


def test_a_rule_without_an_api_is_about_all_of_them(kit: FaultKit) -> None:
    rule = kit.inject(delay=5, topic="a")
    kit.send(produce(A0))
    kit.send(fetch(A0), connection=2)
    assert rule.hits == 2


def test_nodes_and_administration_are_spared_unless_they_are_named(kit: FaultKit) -> None:
    rule = kit.inject("Produce", error="NOT_ENOUGH_REPLICAS")
    for client in ("kwire-admin", "broker-2"):
        assert codes(kit.ask(produce(A0), client=client)) == {A0: 0}
    assert rule.hits == 0
    kit.inject("Produce", error="NOT_ENOUGH_REPLICAS", client_id="broker-2")
    assert codes(kit.ask(produce(A0), client="broker-2")) == {A0: NOT_ENOUGH}


def test_several_rules_act_one_after_the_other(kit: FaultKit) -> None:
    kit.inject("Produce", delay=10)
    kit.inject("Produce", error="NOT_ENOUGH_REPLICAS", topic="a")
    kit.inject("Produce", error="KAFKA_STORAGE_ERROR", topic="b")
    assert kit.ask(produce(A0, B0)) is None
    kit.advance(10)
    assert codes(kit.answers[1][-1]) == {A0: NOT_ENOUGH, B0: 56}


def test_a_large_request_is_hit_once(kit: FaultKit) -> None:
    rule = kit.inject("Metadata", delay=1)
    kit.send(MetadataRequest(topics=[MetadataRequestTopic(name=f"t{n:05}") for n in range(3000)]))
    assert rule.hits == 1
    kit.advance(1)
    assert len(kit.answers[1][-1].topics) == 3000


def test_clients_of_an_earlier_test_are_spared(kit: FaultKit) -> None:
    from kwire.control.clients_api import set_clients_aside

    set_clients_aside(kit.broker)
    rule = kit.inject(close=True)
    kit.send(MetadataRequest(topics=[]))
    assert rule.hits == 0 and not kit.closed
    kit.open(3)
    kit.send(MetadataRequest(topics=[]), connection=3)
    assert rule.hits == 1
