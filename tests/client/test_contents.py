"""Groups and records over the wire, each request and each answer by hand: no socket, no loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kwire import errors
from kwire.client import retries
from kwire.client.admin import Admin, Ask, Pause, UnreachedBrokerError
from kwire.client.connection import NoResponseError, NotReachedError
from kwire.client.groups import assigned_partitions, describe_group, list_groups
from kwire.client.records import produce, produce_all, read_records
from kwire.client.views import Group, GroupOffset, Member
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.message_set import build_message_set
from kwire.protocol.record_builder import build_batch, end_transaction_marker
from kwire.protocol.records import CONTROL_COMMIT, Record, iter_batches, iter_records
from kwire.protocol.schemas.configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kwire.protocol.schemas.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from kwire.protocol.schemas.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kwire.protocol.schemas.groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    ListedGroup,
    ListGroupsResponse,
)
from kwire.protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kwire.protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kwire.client.connection import Address

ONE, TWO = ("a", 1), ("b", 2)


class Brokers:
    """Brokers 1 and 2 with topic `t`, whose answers a test may replace, one after the other."""

    def __init__(self, leaders: Sequence[int] = (1, 2)) -> None:
        self.leaders = list(leaders)
        self.topics = ["t", "__consumer_offsets"]
        self.logs: dict[int, bytes] = {}
        self.ends: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.answers: dict[str, list[Any]] = {}
        self.asked: list[tuple[str, Address]] = []
        self.sent: list[Any] = []
        self.pauses = 0

    def run(self, operation: Callable[[Admin], Any]) -> Any:
        steps = operation(Admin(lambda: [ONE, TWO]))
        outcome: Any = None
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Pause):
                    self.pauses += 1
                    outcome = None
                else:
                    outcome = self._answer(step)
        except StopIteration as done:
            return done.value

    def _answer(self, step: Ask) -> Any:
        name = type(step.request).__name__.removesuffix("Request")
        self.asked.append((name, step.address))
        self.sent.append(step.request)
        if self.answers.get(name):
            return self.answers[name].pop(0)
        return getattr(self, f"_{name}")(step.request, step.address)

    def _Metadata(self, request: Any, _: Address) -> MetadataResponse:
        wanted = self.topics if request.topics is None else [each.name for each in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host=host, port=port)
                for node_id, (host, port) in ((1, ONE), (2, TWO))
            ],
            topics=[
                MetadataResponseTopic(
                    name=name,
                    error_code=0 if name in self.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=index, leader_id=leader, leader_epoch=7
                        )
                        for index, leader in enumerate(self.leaders if name in self.topics else ())
                    ],
                )
                for name in wanted
            ],
        )

    def _ListOffsets(self, request: Any, _: Address) -> ListOffsetsResponse:
        def offset(each: Any) -> int:
            known = self.starts if each.timestamp == -2 else self.ends
            return known.get(each.partition_index, 0)

        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, offset=offset(each)
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _Fetch(self, request: Any, _: Address) -> FetchResponse:
        (wanted,) = request.topics[0].partitions
        log = self.logs[wanted.partition]
        return fetched(first_batch_at(log, wanted.fetch_offset))


def first_batch_at(log: bytes, offset: int) -> bytes:
    """One batch, as a broker with a small limit would send."""
    for header in iter_batches(log):
        if header.next_offset > offset:
            return log[header.position : header.end]
    return b""


def fetched(records: bytes, error: int = 0) -> FetchResponse:
    data = PartitionData(partition_index=0, error_code=error, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


def written(offset: int, error: int = 0) -> ProduceResponse:
    partition = PartitionProduceResponse(index=0, error_code=error, base_offset=offset)
    return ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[partition])]
    )


def batch(*values: str, base: int = 0, **options: Any) -> bytes:
    records = [
        Record(base + at, 1000 + base + at, None, value.encode(), [("h", b"1")])
        for at, value in enumerate(values)
    ]
    return build_batch(records, base_offset=base, partition_leader_epoch=3, **options)


def values(records: Sequence[Any]) -> list[tuple[int, int, bytes | None]]:
    return [(each.partition, each.offset, each.value) for each in records]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes with every look at the clock."""
    now = iter(range(1000))
    monkeypatch.setattr(retries, "monotonic", lambda: float(next(now)))


# --- records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_records_of_all_partitions_are_read_from_their_leaders(codec: str) -> None:
    brokers = Brokers()
    brokers.logs = {
        0: batch("a", "b", compression=codec) + batch("c", base=2),
        1: batch("d", base=5, compression=codec),
    }
    brokers.starts, brokers.ends = {1: 5}, {0: 3, 1: 6}
    found = brokers.run(lambda admin: read_records(admin, "t"))
    assert values(found) == [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"c"), (1, 5, b"d")]
    assert (found[0].timestamp, found[0].headers, found[0].leader_epoch) == (1000, [("h", b"1")], 3)
    fetches = [at for name, at in brokers.asked if name == "Fetch"]
    assert fetches == [ONE, ONE, TWO]


def test_a_part_of_a_log_is_read() -> None:
    brokers = Brokers([1])
    brokers.logs = {0: batch("a", "b", "c") + batch("d", "e", base=3)}
    brokers.starts, brokers.ends = {0: 1}, {0: 5}

    def read(**options: Any) -> list[int]:
        found = brokers.run(lambda admin: read_records(admin, "t", 0, **options))
        return [each.offset for each in found]

    assert read() == [1, 2, 3, 4]  # from the log start, in the middle of a batch
    assert read(start=2) == [2, 3, 4]
    assert read(start=2, end=4) == [2, 3]
    assert read(limit=3) == [1, 2, 3]
    assert read(start=5) == read(start=99) == read(end=0) == read(limit=0) == []


def test_what_is_above_the_high_watermark_is_not_read() -> None:
    brokers = Brokers([1])
    brokers.logs, brokers.ends = {0: batch("a", "b", "c")}, {0: 2}
    found = brokers.run(lambda admin: read_records(admin, "t"))
    assert values(found) == [(0, 0, b"a"), (0, 1, b"b")]


def test_control_records_and_gaps_of_compaction_are_passed_over() -> None:
    brokers = Brokers([1])
    marker = end_transaction_marker(
        CONTROL_COMMIT,
        producer_id=9,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=5,
        base_offset=1,
    )
    brokers.logs = {0: batch("a") + marker + batch("b", base=7, last_offset=9)}
    brokers.ends = {0: 10}
    found = brokers.run(lambda admin: read_records(admin, "t"))
    assert values(found) == [(0, 0, b"a"), (0, 7, b"b")]


def test_messages_of_old_brokers_are_read() -> None:
    brokers = Brokers([1])
    brokers.ends = {0: 1}
    old = build_message_set([Record(0, 5, b"k", b"v")], magic=1)
    brokers.answers["Fetch"] = [fetched(old)]
    (found,) = brokers.run(lambda admin: read_records(admin, "t"))
    assert (found.key, found.value, found.timestamp, found.leader_epoch) == (b"k", b"v", 5, -1)


def test_reading_goes_on_with_another_leader() -> None:
    brokers = Brokers([1])
    brokers.logs, brokers.ends = {0: batch("a")}, {0: 1}
    brokers.answers["Fetch"] = [
        fetched(b"", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        NoResponseError("gone"),
        fetched(b""),  # does not know yet what its predecessor told
    ]
    found = brokers.run(lambda admin: read_records(admin, "t"))
    assert values(found) == [(0, 0, b"a")] and brokers.pauses == 3


def test_reading_ends_with_the_reason() -> None:
    brokers = Brokers([-1])
    with pytest.raises(KafkaError, match="t-0 has no leader"):
        brokers.run(lambda admin: read_records(admin, "t"))
    assert 0 < brokers.pauses < 10
    for topic, partition, said in (("u", None, "no topic u"), ("t", 9, "no partition t-9")):
        with pytest.raises(KafkaError, match=said) as caught:
            brokers.run(lambda admin, t=topic, p=partition: read_records(admin, t, p))
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_record_is_written_to_the_leader() -> None:
    brokers = Brokers([2])
    brokers.answers["Produce"] = [written(41)]
    found = brokers.run(
        lambda admin: produce(admin, "t", b"v", b"k", headers=[("h", None)], timestamp=5)
    )
    assert (found.partition, found.offset, found.timestamp, found.leader_epoch) == (0, 41, 5, 7)
    assert (found.key, found.value, found.headers) == (b"k", b"v", [("h", None)])
    assert brokers.asked[-1] == ("Produce", TWO)
    request = brokers.sent[-1]
    data = request.topic_data[0].partition_data[0].records
    (header,) = iter_batches(data)
    assert request.acks == -1
    assert list(iter_records(data, header)) == [Record(0, 5, b"k", b"v", [("h", None)])]


def test_keys_choose_the_partition_as_in_java_and_others_take_turns() -> None:
    brokers = Brokers([1] * 5)
    admin = Admin(lambda: [ONE])

    def chosen(key: bytes | None, **options: Any) -> int:
        brokers.answers["Produce"] = [written(0)]
        return int(brokers.run(lambda _: produce(admin, "t", b"", key, **options)).partition)

    assert [chosen(None) for _ in range(6)] == [0, 1, 2, 3, 4, 0]
    # org.apache.kafka.common.utils.Utils.murmur2 of these keys, modulo 5
    assert [chosen(key) for key in (b"21", b"foobar", b"abc")] == [0, 1, 2]
    assert chosen(b"21", partition=3) == 3
    with pytest.raises(KafkaError, match="no partition t-5"):
        chosen(None, partition=5)


def test_the_leaders_of_many_partitions_are_looked_up_once_and_again_after_an_error() -> None:
    brokers = Brokers([1] * 50)
    records = [Record(-1, 5, None, b"v", []) for _ in range(50)]
    answers = [written(0) for _ in range(50)]
    brokers.answers["Produce"] = list(answers)
    found = brokers.run(lambda admin: produce_all(admin, "t", records))
    assert [each.partition for each in found] == list(range(50))
    assert [name for name, _ in brokers.asked] == ["Metadata"] + ["Produce"] * 50
    brokers.asked.clear()
    brokers.answers["Produce"] = [written(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), *answers]
    brokers.run(lambda admin: produce_all(admin, "t", records))
    assert [name for name, _ in brokers.asked].count("Metadata") == 2


def test_writing_goes_on_with_another_leader_but_never_writes_twice() -> None:
    brokers = Brokers([1])
    brokers.answers["Produce"] = [
        written(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        NotReachedError("refused", refused=True),
        written(4),
    ]
    assert brokers.run(lambda admin: produce(admin, "t", b"v")).offset == 4
    brokers.answers["Produce"] = [NoResponseError("closed"), written(5)]
    with pytest.raises(UnreachedBrokerError, match="closed"):
        brokers.run(lambda admin: produce(admin, "t", b"v"))
    brokers.answers["Produce"] = [written(-1, ErrorCode.NOT_ENOUGH_REPLICAS)]
    with pytest.raises(KafkaError) as caught:
        brokers.run(lambda admin: produce(admin, "t", b"v"))
    assert caught.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("value", ["true", "false"])
def test_a_topic_is_waited_for_where_the_brokers_create_it(value: str) -> None:
    brokers = Brokers([1])
    config = DescribeConfigsResourceResult(name="auto.create.topics.enable", value=value)
    configs = DescribeConfigsResponse(results=[DescribeConfigsResult(configs=[config])])
    brokers.answers = {"DescribeConfigs": [configs], "Produce": [written(0)]}
    unknown = MetadataResponseTopic(name="t", error_code=3)
    first = brokers._Metadata(type("All", (), {"topics": None})(), ONE)
    first.topics = [unknown]
    brokers.answers["Metadata"] = [first]
    if value == "true":
        assert brokers.run(lambda admin: produce(admin, "t", b"v")).offset == 0
        assert brokers.pauses == 1
        return
    with pytest.raises(KafkaError) as caught:
        brokers.run(lambda admin: produce(admin, "t", b"v"))
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not brokers.pauses


# --- groups


def test_the_groups_of_all_brokers_are_listed() -> None:
    brokers = Brokers()
    brokers.answers["ListGroups"] = [
        ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ListGroupsResponse(groups=[ListedGroup(group_id="b", group_state="Empty")]),
        ListGroupsResponse(groups=[ListedGroup(group_id="a", group_state="Stable")]),
    ]
    assert brokers.run(list_groups) == {"a": "Stable", "b": "Empty"}


def assignment(**partitions: list[int]) -> bytes:
    assigned = [TopicPartition(topic=t, partitions=found) for t, found in partitions.items()]
    message = ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=None)
    return b"\0\0" + message.encode(0)


def test_a_group_is_asked_at_its_coordinator() -> None:
    brokers = Brokers([1, 2, -1])
    brokers.ends, brokers.starts = {0: 10, 1: 7}, {1: 3}
    member = DescribedGroupMember(
        member_id="m-1",
        client_id="app",
        client_host="/10.0.0.1",
        group_instance_id="i",
        member_assignment=assignment(t=[0, 1, 2]),
    )
    state = DescribedGroup(
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[member],
    )
    committed = [
        OffsetFetchResponsePartition(partition_index=0, committed_offset=4, metadata="note"),
        OffsetFetchResponsePartition(partition_index=1, committed_offset=-1, metadata=None),
    ]
    brokers.answers = {
        "FindCoordinator": [
            FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE),
            FindCoordinatorResponse(node_id=2),
        ],
        "DescribeGroups": [DescribeGroupsResponse(groups=[state])],
        "OffsetFetch": [
            OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=committed)])
        ],
    }
    group = brokers.run(lambda admin: describe_group(admin, "g"))
    assert (group.state, group.assignor, group.coordinator) == ("Stable", "range", 2)
    keys = [("t", 0), ("t", 1), ("t", 2)]
    assert group.members == [Member("m-1", "app", "10.0.0.1", "i", keys)]
    assert group.offsets == [
        GroupOffset("t", 0, 4, 10, 6, "m-1", "note"),
        GroupOffset("t", 1, None, 7, 4, "m-1", ""),  # all that is there
        GroupOffset("t", 2, None, None, None, "m-1", ""),
    ]
    with pytest.raises(errors.BrokerNotAvailableError, match="the end of t-2 is unknown"):
        assert group.lag
    assert str(group).splitlines() == [
        "group g: Stable (range), coordinator 2, lag 10 and more",
        "  partition  committed  end  lag  member",
        "  t-0                4   10    6  app at 10.0.0.1 (i) m-1",
        "  t-1                -    7    4  app at 10.0.0.1 (i) m-1",
        "  t-2                -    -    -  app at 10.0.0.1 (i) m-1",
    ]


def test_a_group_in_a_cluster_without_groups_is_dead_and_stays_so() -> None:
    brokers = Brokers()
    brokers.topics.remove("__consumer_offsets")
    group = brokers.run(lambda admin: describe_group(admin, "g"))
    assert (group.state, group.members, group.offsets, group.lag) == ("Dead", [], [], None)
    assert [name for name, _ in brokers.asked] == ["Metadata"]  # FindCoordinator would create it
    assert str(group) == "group g: there is no such group"


def test_a_group_without_offsets_and_members_in_words() -> None:
    empty = Group("g", "Empty", "consumer", "", 1, [], [])
    assert str(empty).splitlines() == [
        "group g: Empty, coordinator 1, lag -",
        "  no members, no committed offsets",
    ]
    idle = Group("g", "Stable", "consumer", "range", 1, [Member("m", "c", "h", None, [])], [])
    assert str(idle).splitlines()[1:] == ["  member c at h m has no partitions"]


def test_a_group_that_has_nothing_to_read_yet_has_no_lag() -> None:
    member = Member("m", "c", "h", None, [])
    for state, members in (("Dead", []), ("Empty", []), ("PreparingRebalance", [member])):
        group = Group("g", state, "consumer", "", 1, members, [])
        assert (group.lag, group.known_lag) == (None, None)
    for lags, known in (([0, 0], 0), ([2, 1], 3), ([2, None], None)):
        offsets = [GroupOffset("t", i, 1, 1, lag, None, "") for i, lag in enumerate(lags)]
        group = Group("g", "Empty", "consumer", "", 1, [], offsets)
        assert group.known_lag == known
        assert known is None or group.lag == known


def test_an_assignment_of_another_protocol_has_no_partitions() -> None:
    assert assigned_partitions(assignment(t=[1, 0])) == [("t", 0), ("t", 1)]
    for other in (b"", b"\0", b"\0\1\0\0\0\xff", b"\xff" * 12):
        assert assigned_partitions(other) == []
