"""Seven hundred raw requests and what a broker answers: asked of Apache Kafka once, of kwire in every test run.

`speak(client)` asks and returns [(label, answer)]; an answer is plain data, with what no two brokers share masked.
`python -m compat_tests.record_dialogue` writes Kafka's answers to tests/data/kafka-3.9-dialogue.json.gz;
test_against_kafka.py compares. A client has `ask(key, version, request, client_id)` → response, or a string where there
is none ("no answer", "closed"), `says_nothing(key, version, request)` → "open" or "closed" (acks=0), `now_ms()` and
`settle()` (whatever a broker needs after topics were created).
"""

from __future__ import annotations

import itertools
from typing import Any

from kwire.protocol.message_set import build_message_set, iter_entries
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record, iter_batches
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kwire.protocol.schemas.transactions import (
    DescribeProducersRequest,
    InitProducerIdRequest,
    TopicRequest,
)

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS = 0, 1, 2, 3, 19
DELETE_RECORDS, INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_PRODUCERS = 21, 22, 23, 61

MASKED = frozenset(
    {"session_id", "topic_id", "host", "port", "error_message", "batch_index_error_message"}
    | {"last_timestamp", "producer_id", "unknown_tags"}
)


def plain(value: Any) -> Any:
    """A message as data that JSON keeps; arrays of partitions and producers in an order of their own."""
    if isinstance(value, list):
        items = [plain(item) for item in value]
        if items and isinstance(items[0], dict) and not _ordered(items[0]):
            items.sort(key=repr)
        return items
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, str | float) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    names = itertools.chain.from_iterable(getattr(c, "__slots__", ()) for c in type(value).__mro__)
    return {
        name: "*" if name in MASKED else plain(getattr(value, name))
        for name in names
        if not name.startswith("_") and name != "unknown_tags"
    }


def _ordered(item: dict[str, Any]) -> bool:
    """Fetch answers have an order that means something; Kafka's others come out of hash maps."""
    return "preferred_read_replica" in item or "partitions" in item


def batch(*values: bytes, key: bytes | None = None, ts: int = 1000, **options: Any) -> bytes:
    return build_batch([Record(-1, ts + i, key, v) for i, v in enumerate(values)], **options)


def message_set(magic: int, **options: Any) -> bytes:
    return build_message_set([Record(i, 500, b"k", b"v") for i in range(2)], magic, **options)


class Dialogue:
    def __init__(self, client: Any) -> None:
        self.client = client
        self.heard: list[tuple[str, Any]] = []
        self.topic_ids: dict[str, bytes] = {}

    def note(self, label: str, answer: Any) -> None:
        self.heard.append((label, plain(answer)))

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        config["retention_ms"] = "-1"  # the records are dated 1970
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in config.items()
            ],
        )
        request = CreateTopicsRequest(timeout_ms=10_000, topics=[topic])
        response = self.client.ask(CREATE_TOPICS, 5, request)
        assert response.topics[0].error_code == 0, response

    def learn_topic_ids(self) -> None:
        response = self.client.ask(METADATA, 12, MetadataRequest(topics=None))
        self.topic_ids = {topic.name: topic.topic_id for topic in response.topics}

    # Produce

    def produce(
        self,
        label: str,
        records: bytes | None,
        *,
        topic: str = "t",
        index: int = 0,
        version: int = 9,
        acks: int = -1,
    ) -> None:
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=index, records=records)]
        )
        request = ProduceRequest(acks=acks, timeout_ms=2000, topic_data=[data])
        if acks == 0:
            answer = self.client.says_nothing(PRODUCE, version, request)
        else:
            answer = self.client.ask(PRODUCE, version, request)
        if topic == "stamped" and not isinstance(answer, str):
            partition = answer.responses[0].partition_responses[0]
            assert partition.log_append_time_ms > 0
            partition.log_append_time_ms = 1
        self.note(f"produce {label}", answer)

    def produce_shapes(self) -> None:
        for version in range(3, 12):
            self.produce(f"v{version}", batch(b"a%d" % version, b"b"), version=version)
        self.produce("empty", b"")
        self.produce("junk", b"x" * 20)
        self.produce("zeros", bytes(100))
        self.produce("empty set", b"", version=2)
        self.produce("junk set", b"junk" * 10, version=2)
        self.produce("trailing bytes", batch(b"a") + bytes(3))
        self.produce("two batches", batch(b"a") + batch(b"b"))
        self.produce("truncated", batch(b"a")[:-3])
        for magic in (0, 1):
            for version in (0, 1, 2, 3):
                self.produce(f"magic {magic} v{version}", message_set(magic), version=version)
            zipped = message_set(magic, compression="gzip")
            self.produce(f"magic {magic} gzip", zipped, version=2)
            self.produce(f"magic {magic} gzip twice", zipped * 2, version=2)
        self.produce("batch in v2", batch(b"a"), version=2)
        damaged = bytearray(batch(b"hello"))
        damaged[-2] ^= 1
        self.produce("crc", bytes(damaged))
        zstd = batch(b"a" * 1000, compression="zstd")
        self.produce("zstd v6", zstd, version=6)
        self.produce("zstd v7", zstd, topic="other", version=7)
        self.produce("base offset 5", batch(b"a", base_offset=5))
        self.produce("control", batch(b"a", is_control=True, producer_id=5, producer_epoch=0))
        said = batch(b"a", timestamp_type="LogAppendTime", log_append_time_ms=77)
        self.produce("client says LogAppendTime", said)

    def produce_rules(self) -> None:
        for version in (7, 9):
            keyless = batch(b"a", b"b")
            self.produce(f"no key v{version}", keyless, topic="compact", version=version)
        self.produce("too large", batch(b"x" * 300), topic="small")
        self.produce("too large by default", batch(b"x" * 1_200_000))
        self.produce("log append time", batch(b"x"), topic="stamped")
        now_ms = self.client.now_ms()
        self.produce("old", batch(b"x", ts=5), topic="timely")
        self.produce("of the future", batch(b"x", ts=now_ms + 100_000), topic="timely")
        self.produce("of now", batch(b"x", ts=now_ms), topic="timely")
        self.produce("without timestamp", batch(b"x", ts=-1))
        self.produce("min isr 3", batch(b"a"), topic="isr3")
        self.produce("unknown topic", batch(b"a"), topic="nope")
        self.produce("unknown partition", batch(b"a"), index=9)
        self.produce("bad name", batch(b"a"), topic="bad name")
        self.produce("unknown partition, empty", b"", index=9)
        self.produce("unknown partition, junk", b"junk" * 10, index=9)
        self.produce("internal", batch(b"a"), topic="__consumer_offsets")
        for acks in (2, -2, 1):
            self.produce(f"acks {acks}", batch(b"a"), acks=acks)
        self.produce("acks 0", batch(b"a"), acks=0)
        self.produce("acks 0, unknown", batch(b"a"), acks=0, topic="nope")
        parts = [PartitionProduceData(index=i, records=batch(b"z")) for i in (0, 1, 8)]
        for label, topics in (
            ("three partitions", [TopicProduceData(name="t", partition_data=parts)]),
            ("nothing", []),
            ("no partitions", [TopicProduceData(name="t", partition_data=[])]),
        ):
            request = ProduceRequest(acks=1, timeout_ms=10, topic_data=topics)
            self.note(f"produce {label}", self.client.ask(PRODUCE, 9, request))

    def produce_idempotent(self) -> None:
        def send(label: str, sequence: int, producer: int = 1, epoch: int = 0) -> None:
            records = batch(
                b"v",
                b"v",
                producer_id=1_000_000 + producer,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            self.produce(f"idempotent {label}", records, index=1)

        send("first", 0)
        send("second", 2)
        send("first again", 0)
        send("second again", 2)
        send("gap", 7)
        send("third", 4)
        send("new epoch", 0, epoch=1)
        send("old epoch", 6)
        send("new epoch, not from 0", 5, epoch=2)
        send("unknown producer, not from 0", 100, producer=2)
        send("before the wrap", 2_147_483_646, producer=3)
        send("after the wrap", 0, producer=3)
        send("negative sequence", -1, producer=4)
        for number in range(6):
            send(f"batch {number}", 2 * number, producer=5)
        send("batch 0 again", 0, producer=5)

    # Fetch

    def fetch(
        self,
        label: str,
        partitions: list[FetchPartition],
        *,
        topic: str = "t",
        version: int = 12,
        forget: tuple[int, ...] = (),
        **fields: Any,
    ) -> Any:
        by_id = version >= 13
        name = "" if by_id else topic
        topic_id = self.topic_ids.get(topic, b"x" * 16) if by_id else bytes(16)
        asked = FetchTopic(topic=name, topic_id=topic_id, partitions=partitions)
        request = FetchRequest(topics=[asked] if partitions else [], **fields)
        if forget:
            forgotten = ForgottenTopic(topic=name, topic_id=topic_id, partitions=list(forget))
            request.forgotten_topics_data = [forgotten]
        before_ms = self.client.now_ms()
        response = self.client.ask(FETCH, version, request)
        waited = self.client.now_ms() - before_ms > 300
        if not isinstance(response, str):
            for answered in response.responses:
                for partition in answered.partitions:
                    _summarise(partition, version)
        self.note(f"fetch {label}{' (waited)' if waited else ''}", response)
        return response

    def fetches(self) -> None:
        def at(offset: int, index: int = 0, limit: int = 1 << 20, **more: int) -> FetchPartition:
            return FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=limit, **more
            )

        for version in range(18):
            self.fetch(f"v{version}", [at(0)], version=version)
        self.produce("zstd topic", batch(b"q" * 100), topic="zstd")
        for version in (2, 4, 9, 10, 12):
            self.fetch(f"zstd v{version}", [at(0)], topic="zstd", version=version)
            self.fetch(f"zstd end v{version}", [at(1)], topic="zstd", version=version)
        for offset in (-1, 1, 3, 10**6, -5):
            self.fetch(f"offset {offset}", [at(offset)])
        self.fetch("partition max 10", [at(0, limit=10)])
        self.fetch("partition max 0", [at(0, limit=0)])
        self.fetch("max 0", [at(0)], max_bytes=0)
        self.fetch("two, max 10", [at(0), at(0, 1)], max_bytes=10)
        self.fetch("two, the other order", [at(0, 1), at(0)])
        self.fetch("the same twice", [at(0), at(0)])
        self.fetch("the same twice, other offset", [at(0), at(2)])
        for version in (12, 13):
            self.fetch(f"unknown topic v{version}", [at(0)], topic="nope", version=version)
            self.fetch(f"unknown partition v{version}", [at(0, 7)], version=version)
        for epoch in (0, 1, 2, 5):
            self.fetch(f"leader epoch {epoch}", [at(0, current_leader_epoch=epoch)])
        for epoch, offset in ((0, 0), (0, 5), (1, 1), (5, 0), (0, 10**6)):
            self.fetch(f"last epoch {epoch} at {offset}", [at(offset, last_fetched_epoch=epoch)])
        self.fetch("committed", [at(0)], isolation_level=1)
        self.fetch("committed, empty", [at(0)], topic="empty", isolation_level=1)
        self.fetch("replica 7", [at(0)], replica_id=7)
        self.fetch("replica 7, epoch", [at(0, current_leader_epoch=0)], replica_id=7)
        self.fetch("replica 1", [at(0)], replica_id=1)
        self.fetch("debug replica", [at(0)], replica_id=-2)
        self.fetch("nothing", [])
        long_poll = {"max_wait_ms": 400, "min_bytes": 1}
        self.fetch("wait", [at(0)], topic="empty", **long_poll)
        self.fetch("wait for 0 bytes", [at(0)], topic="empty", max_wait_ms=400, min_bytes=0)
        self.fetch("wait, unknown topic", [at(0)], topic="nope", **long_poll)
        self.fetch("wait, out of range", [at(5)], topic="empty", **long_poll)
        self.fetch("wait, unknown and empty", [at(0), at(0, 9)], topic="empty", **long_poll)
        for version in (12, 13, 17):
            self.session(version, at)

    def session(self, version: int, at: Any) -> None:
        session_id = self.fetch(
            f"session v{version} full", [at(0), at(0, 1)], version=version, session_epoch=0
        ).session_id

        def go_on(
            epoch: int, *partitions: FetchPartition, id_: int = session_id, **more: Any
        ) -> None:
            more.setdefault("version", version)
            label = f"session v{version} epoch {epoch}"
            self.fetch(label, list(partitions), session_id=id_, session_epoch=epoch, **more)

        go_on(1)
        go_on(2, at(10**5))
        go_on(3, at(3))
        go_on(4, at(0, 1), forget=(0,))
        go_on(9)
        go_on(5, version=13 if version == 12 else 12)
        go_on(5)
        go_on(6, at(0, 5))
        go_on(7)
        go_on(8, forget=(5, 1))
        go_on(9)
        go_on(1, id_=12345)
        go_on(0, id_=12345)
        go_on(5, id_=0)
        go_on(-1, at(0), id_=12345)

    # Offsets

    def list_offset(
        self,
        version: int,
        timestamp: int,
        label: str = "",
        *,
        topic: str = "times",
        index: int = 0,
        replica: int = -1,
        epoch: int = -1,
        isolation: int = 0,
        times: int = 1,
    ) -> None:
        asked = ListOffsetsPartition(
            partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
        )
        if version == 0:
            asked.max_num_offsets = 5
        topics = [ListOffsetsTopic(name=topic, partitions=[asked] * times)]
        request = ListOffsetsRequest(replica_id=replica, topics=topics)
        if version >= 2:
            request.isolation_level = isolation
        answer = self.client.ask(LIST_OFFSETS, version, request)
        self.note(f"list offsets v{version} {timestamp} {topic} {label}", answer)

    def list_offsets(self) -> None:
        plain_records = [Record(-1, ts, None, b"v") for ts in (100, 300, 200, 300)]
        self.produce("times", build_batch(plain_records), topic="times")
        zipped = [Record(-1, ts, None, b"v" * 50) for ts in (250, 150)]
        self.produce("more times", build_batch(zipped, compression="gzip"), topic="times")
        for version in range(10):
            for timestamp in (-1, -2, -3, -4, -5, -6, -9, 0, 100, 101, 250, 299, 10**15):
                self.list_offset(version, timestamp)
            for timestamp in (-1, -2, -3, 0):
                self.list_offset(version, timestamp, topic="empty")
            if version:
                for timestamp in (300, 301):
                    self.list_offset(version, timestamp)
            self.list_offset(version, -1, topic="nope")
            self.list_offset(version, -1, "partition 5", index=5)
            self.list_offset(version, -1, "twice", times=2)
            self.list_offset(version, -1, "replica 5", replica=5)
            self.list_offset(version, -1, "debug replica", replica=-2)
            self.list_offset(version, -1, "committed", isolation=1)
            for epoch in (0, 1, 7):
                self.list_offset(version, -1, f"epoch {epoch}", epoch=epoch)

    def leader_epochs(self) -> None:
        for version, epoch, (topic, index) in itertools.product(
            range(5), (-1, 0, 1, 5), (("times", 0), ("nope", 0), ("times", 4))
        ):
            for current in (-1, 0, 1, 9) if version >= 2 else (-1,):
                asked = OffsetForLeaderPartition(
                    partition=index, leader_epoch=epoch, current_leader_epoch=current
                )
                topics = [OffsetForLeaderTopic(topic=topic, partitions=[asked])]
                request = OffsetForLeaderEpochRequest(topics=topics)
                answer = self.client.ask(OFFSET_FOR_LEADER_EPOCH, version, request)
                self.note(f"epoch v{version} {epoch} {current} {topic}-{index}", answer)

    def delete_records(self) -> None:
        for version in range(3):
            for topic, index, offset in (
                ("times", 0, 1 + version),
                ("times", 0, 0),
                ("times", 0, 99),
                ("times", 0, -5),
                ("times", 3, 0),
                ("compact", 0, 0),
                ("nope", 0, 0),
                ("__consumer_offsets", 0, 0),
                ("t", 0, -1),
            ):
                asked = [DeleteRecordsPartition(partition_index=index, offset=offset)]
                topics = [DeleteRecordsTopic(name=topic, partitions=asked)]
                request = DeleteRecordsRequest(timeout_ms=1000, topics=topics)
                answer = self.client.ask(DELETE_RECORDS, version, request)
                self.note(f"delete v{version} {topic}-{index} to {offset}", answer)
        for timestamp in (-2, -4, 100):
            self.list_offset(9, timestamp, "after deletion")
        for label, last_epoch, offset in (("", -1, 0), (", last epoch", 0, 2), (" at", -1, 3)):
            asked_fetch = FetchPartition(
                fetch_offset=offset, last_fetched_epoch=last_epoch, partition_max_bytes=1 << 20
            )
            self.fetch(f"below log start{label}", [asked_fetch], topic="times")

    def producers(self) -> None:
        for version in range(6):
            for transactional_id, timeout_ms in ((None, 0), (None, -5), ("", 10), ("x", 10**9)):
                self.init(version, transactional_id, timeout_ms)
            if version >= 3:
                for producer_id, epoch in ((5, -1), (-1, 5), (5, 5), (1_000_001, 1)):
                    self.init(version, None, 0, producer_id, epoch)
        topics = [
            TopicRequest(name="t", partition_indexes=[0, 1, 7]),
            TopicRequest(name="nope", partition_indexes=[0]),
        ]
        request = DescribeProducersRequest(topics=topics)
        self.note("producers", self.client.ask(DESCRIBE_PRODUCERS, 0, request))

    def init(
        self, version: int, name: str | None, timeout_ms: int, id_: int = -1, epoch: int = -1
    ) -> None:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        if version >= 3:
            request.producer_id, request.producer_epoch = id_, epoch
        answer = self.client.ask(INIT_PRODUCER_ID, version, request)
        self.note(f"init v{version} {name!r} {timeout_ms} {id_} {epoch}", answer)


def _summarise(partition: Any, version: int) -> None:
    """Which batches or how many messages, instead of bytes: compressors differ. An error has none or empty ones."""
    data = bytes(partition.records or b"")
    if partition.error_code and not data:
        partition.records = None
    elif version < 4:
        partition.records = b"%d" % len(list(iter_entries(data)))
    else:
        partition.records = b",".join(
            b"%d+%d" % (header.base_offset, header.count) for header in iter_batches(data)
        )


def speak(client: Any) -> list[tuple[str, Any]]:
    """The whole dialogue on a broker that has no topics yet."""
    dialogue = Dialogue(client)
    dialogue.create("t", 2)
    for name in ("other", "times", "empty", "bysize"):
        dialogue.create(name)
    dialogue.create("compact", cleanup_policy="compact")
    dialogue.create("small", max_message_bytes="200")
    dialogue.create("stamped", message_timestamp_type="LogAppendTime")
    window = {"message_timestamp_after_max_ms": "1000", "message_timestamp_before_max_ms": "1000"}
    dialogue.create("timely", **window)
    dialogue.create("zstd", compression_type="zstd")
    dialogue.create("isr3", min_insync_replicas="3")
    client.settle()
    dialogue.learn_topic_ids()
    dialogue.produce_shapes()
    dialogue.produce_rules()
    dialogue.produce_idempotent()
    dialogue.fetches()
    dialogue.list_offsets()
    dialogue.leader_epochs()
    dialogue.delete_records()
    dialogue.producers()
    return dialogue.heard
