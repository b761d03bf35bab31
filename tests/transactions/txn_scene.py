"""What the scenes of transactions are told with: requests to any broker, and its responses in a comparable form.

A scene is a function that takes a `Scene`, and is played once for each profile: the versions of requests that a
generation of clients sends. `compat_tests/record_transactions.py` recorded the responses of real Kafkas in
tests/data/transactions-*.jsonl.gz; test_transaction_scenes.py compares kwire's. Masked are what no two brokers share:
producer ids (numbered in the order of their appearance in a scene), times, member ids, wording.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from txn_logs import batches_of, group_records, state_records

from kwire.protocol.language.schema import Struct
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.protocol.schemas.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TopicRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",  # the records are dated 2023
    "log.roll.ms": str(10**15),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
CLIENT_ID = "cl"
INIT, ADD, ADD_OFFSETS, END, OFFSETS, PRODUCE, FETCH, LIST = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
    "Produce",
    "Fetch",
    "ListOffsets",
)
_APIS = (INIT, ADD, ADD_OFFSETS, END, OFFSETS, PRODUCE, FETCH, LIST)
_VERSIONS = {
    "oldest": (0, 0, 0, 0, 0, 3, 4, 2),
    "fenced": (4, 3, 3, 3, 3, 9, 11, 6),
    "abortable": (5, 3, 4, 4, 4, 11, 12, 8),
    "bumping": (5, 3, 4, 5, 5, 12, 12, 8),
}
PROFILES = {name: dict(zip(_APIS, row, strict=True)) for name, row in _VERSIONS.items()}
"""Clients before PRODUCER_FENCED (KIP-588), with it, with TRANSACTION_ABORTABLE, and of TV2 (KIP-890)."""

UNSETTLED = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
PRODUCER_IDS = frozenset(
    {"producer_id", "ongoing_txn_producer_id", "previous_producer_id", "next_producer_id"}
)
TIMES = re.compile("timestamp|time_ms$")
DROPPED = frozenset({"throttle_time_ms", "unknown_tags", "session_id", "cluster_id"})


class Talker(Protocol):
    """A broker and a clock."""

    ranges: dict[int, tuple[int, int]]
    """API key → versions that the broker serves."""

    def ask(self, version: int, request: Any) -> Any:
        """The response, or "closed"."""
        ...

    def pass_ms(self, delay_ms: int) -> None: ...

    def hold(self, topic: str) -> None:
        """Create `topic` (one partition) to which records with acks=1 can be written, but no marker."""
        ...

    def release(self, topic: str) -> None:
        """Let the markers be written, including those that wait."""
        ...

    def wear_out(self, tid: str, epoch: int) -> int:
        """Have `tid` initialised until its producer has `epoch`; the producer id."""
        ...

    def restart(self) -> None:
        """Crash the broker and start it on its data; its coordinators have loaded their logs then."""
        ...


class Producer:
    """A transactional id with the producer id and epoch that the client believes to have."""

    def __init__(self, tid: str | None, producer_id: int, epoch: int) -> None:
        self.tid = tid
        self.id = producer_id
        self.epoch = epoch
        self.sequences: dict[tuple[str, int], int] = {}

    def but(self, **changed: Any) -> Producer:
        """The same with another `tid`, `id` or `epoch`."""
        other = Producer(self.tid, self.id, self.epoch)
        other.sequences = dict(self.sequences)
        for name, value in changed.items():
            setattr(other, name, value)
        return other


class Scene:
    """One scene in one profile; collects lines."""

    def __init__(self, talker: Talker, name: str, profile: str) -> None:
        self.talker = talker
        self.name = f"{name} ({profile})"
        self.prefix = f"{name}-{profile}"
        self.profile = profile
        self.versions = PROFILES[profile]
        self.lines: list[str] = []
        self.producer_ids: dict[int, str] = {}
        self.held: set[str] = set()
        self.log_starts = [0, 0, 0]

    @property
    def is_bumping(self) -> bool:
        """Whether the client is of TV2: no AddPartitionsToTxn, a new epoch with each end."""
        return self.profile == "bumping"

    # --- lines

    def note(self, label: str, answer: Any) -> None:
        line = json.dumps([self.name, label, self.plain(answer)], separators=(",", ":"))
        self.lines.append(UUID.sub("ID", line))

    def ask(self, label: str, version: int, request: Any) -> Any:
        answer = self.talker.ask(version, request)
        self.note(label, answer)
        return answer

    def plain(self, value: Any, field: str = "") -> Any:
        """Data for JSON: ids and times masked, lists out of hash maps sorted."""
        if isinstance(value, Struct):
            names = [name for name in type(value).__slots__ if name not in DROPPED]
            return {name: self.plain(getattr(value, name), name) for name in names}
        if isinstance(value, dict):
            return {name: self.plain(item, name) for name, item in value.items()}
        if field == "records" and value is not None and not isinstance(value, list):
            return self.plain(batches_of(bytes(value)))
        if isinstance(value, list | tuple):
            items = [self.plain(item) for item in value]
            if field in ("partitions", "partition_ids") and items and isinstance(items[0], int):
                items.sort()
            if (
                items
                and isinstance(value[0], Struct)
                and not isinstance(value[0], AbortedTransaction)
            ):
                items.sort(key=json.dumps)
            return items
        if isinstance(value, bytes | bytearray | memoryview) and field != "topic_id":
            return bytes(value).hex()
        return self._masked(field, value)

    def _masked(self, field: str, value: Any) -> Any:
        if field in PRODUCER_IDS and value >= 0:
            return self.producer_ids.setdefault(value, f"P{len(self.producer_ids)}")
        if TIMES.search(field) and value > 0:
            return "T"
        if field == "topic_id":
            return "ID" if any(value) else "none"
        if field in ("host", "rack") or (field in ("port", "node_id") and value >= 0):
            return "*"
        if "error_message" in field and value not in (None, "NONE", ""):
            return "some text"
        return value

    # --- topics, and time

    def tid(self, word: str = "x") -> str:
        return f"{self.prefix}-{word}"

    def topic(self, word: str = "t", partitions: int = 2) -> str:
        """Create a topic of the scene's own; its name."""
        name = f"{self.prefix}-{word}"
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = self.talker.ask(5, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert answer.topics[0].error_code == 0, answer
        self._until_led(name, partitions)
        return name

    def _until_led(self, topic: str, partitions: int) -> None:
        """Wait until the broker knows that it leads the partitions of a new topic."""
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=-1)
                        for index in range(partitions)
                    ],
                )
            ],
        )

        def is_led() -> bool:
            answer = self.talker.ask(4, request)
            return not any(row.error_code for row in answer.topics[0].partitions)

        self.until(is_led)

    def held_topic(self, word: str = "held") -> str:
        """Create a topic of one partition whose markers wait for `release`."""
        self.talker.hold(name := f"{self.prefix}-{word}")
        self.held.add(name)
        self._until_led(name, 1)
        return name

    def note_held(self, who: Producer, topic: str) -> None:
        """Note the transaction once the marker of `topic` is the only one that is missing."""

        for _ in range(500):
            if [row.topic for row in self.state(str(who.tid)).topics] == [topic]:
                break
            self.pass_ms(10)
        self.note("while ending", self.state(str(who.tid)))

    def release(self, topic: str) -> None:
        self.held.remove(topic)
        self.talker.release(topic)

    def pass_ms(self, delay_ms: int) -> None:
        self.talker.pass_ms(delay_ms)

    def wear_out(self, tid: str, epoch: int) -> Producer:
        """Bring `tid` to a high epoch; `logs` has only what is written to __transaction_state afterwards."""
        who = Producer(tid, self.talker.wear_out(tid, epoch), epoch)
        self.plain(who.id, "producer_id")
        for index in range(3):
            answer = self.raw_fetch("__transaction_state", index, 0, False, 12)
            self.log_starts[index] = answer.responses[0].partitions[0].high_watermark
        return who

    def restart(self) -> None:
        self.talker.restart()

    def state(self, tid: str) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[tid])
        return self.talker.ask(0, request).transaction_states[0]

    def settle(self, who: Producer | str, label: str = "settled") -> None:
        """Wait until the coordinator has completed what it prepared, and note the transaction."""
        tid = who if isinstance(who, str) else str(who.tid)
        for _ in range(500):
            if (state := self.state(tid)).transaction_state not in UNSETTLED:
                break
            self.pass_ms(10)
        else:
            raise AssertionError(f"{self.name}: {tid} stays {state.transaction_state}")
        self.note(label, state)

    def until(self, what: Callable[[], bool]) -> None:
        for _ in range(500):
            if what():
                return
            self.pass_ms(10)
        raise AssertionError(f"{self.name}: it never came")

    # --- requests of producers

    def init(
        self,
        tid: str | None,
        label: str = "init",
        *,
        timeout_ms: int = 60_000,
        producer_id: int = -1,
        epoch: int = -1,
        version: int | None = None,
    ) -> Producer:
        request = InitProducerIdRequest(
            transactional_id=tid,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer = self.ask(label, self.versions[INIT] if version is None else version, request)
        return Producer(tid, answer.producer_id, answer.producer_epoch)

    def add(
        self,
        who: Producer,
        *partitions: tuple[str, int],
        label: str = "add",
        version: int | None = None,
    ) -> Any:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=who.tid,
            v3_and_below_producer_id=who.id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in by_topic(partitions).items()
            ],
        )
        return self.ask(label, self.versions[ADD] if version is None else version, request)

    def begin(self, who: Producer, *partitions: tuple[str, int]) -> None:
        """Add and produce one record to each partition, as the profile's clients do."""
        if not self.is_bumping:
            self.add(who, *partitions)
        for topic, index in partitions:
            self.produce(who, topic, index, acks=1 if topic in self.held else -1)

    def produce(
        self,
        who: Producer,
        topic: str,
        index: int = 0,
        *,
        label: str = "produce",
        records: int = 1,
        sequence: int | None = None,
        acks: int = -1,
        is_transactional: bool = True,
        version: int | None = None,
        tid: str | None = "",
        batch: bytes | None = None,
    ) -> Any:
        """Produce with the next sequence number; after an error the number is used again."""
        expected = who.sequences.get((topic, index), 0)
        if batch is None:
            batch = build_batch(
                [Record(-1, 1_700_000_000_000 + i, b"k", b"v%d" % i) for i in range(records)],
                producer_id=who.id,
                producer_epoch=who.epoch,
                base_sequence=expected if sequence is None else sequence,
                is_transactional=is_transactional,
            )
        data = [PartitionProduceData(index=index, records=batch)]
        request = ProduceRequest(
            transactional_id=who.tid if tid == "" else tid,
            acks=acks,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        answer = self.ask(label, self.versions[PRODUCE] if version is None else version, request)
        if sequence is None and answer.responses[0].partition_responses[0].error_code == 0:
            who.sequences[topic, index] = expected + records
        return answer

    def plain_produce(self, topic: str, index: int = 0, records: int = 1) -> None:
        """Produce without a producer id."""
        self.produce(
            Producer(None, -1, -1),
            topic,
            index,
            sequence=-1,
            is_transactional=False,
            records=records,
            label="produce without an id",
        )

    def add_offsets(
        self, who: Producer, group: str, label: str = "add offsets", version: int | None = None
    ) -> Any:
        request = AddOffsetsToTxnRequest(
            transactional_id=who.tid, producer_id=who.id, producer_epoch=who.epoch, group_id=group
        )
        return self.ask(label, self.versions[ADD_OFFSETS] if version is None else version, request)

    def commit_offsets(
        self,
        who: Producer,
        group: str,
        *offsets: tuple[str, int, int],
        label: str = "commit offsets",
        version: int | None = None,
        metadata: str | None = "m",
        **member: Any,
    ) -> Any:
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for topic, index, offset in offsets
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=who.tid,
            group_id=group,
            producer_id=who.id,
            producer_epoch=who.epoch,
            topics=topics,
            **member,
        )
        return self.ask(label, self.versions[OFFSETS] if version is None else version, request)

    def end(self, who: Producer, commit: bool, label: str = "", version: int | None = None) -> Any:
        request = EndTxnRequest(
            transactional_id=who.tid, producer_id=who.id, producer_epoch=who.epoch, committed=commit
        )
        label = label or ("commit" if commit else "abort")
        self.pass_ms(3)  # no two markers of one time
        version = self.versions[END] if version is None else version
        answer = self.ask(label, version, request)
        if version >= 5 and answer.error_code == 0 and answer.producer_id >= 0:
            if (who.id, who.epoch) != (answer.producer_id, answer.producer_epoch):
                who.sequences.clear()  # as clients do: a new epoch starts at 0
            who.id, who.epoch = answer.producer_id, answer.producer_epoch
        return answer

    # --- requests of readers and administrators

    def offsets(
        self,
        group: str,
        topic: str,
        *indexes: int,
        stable: bool = True,
        label: str = "fetch offsets",
    ) -> None:
        wanted = [OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes))]
        request = OffsetFetchRequest(group_id=group, topics=wanted, require_stable=stable)
        self.ask(f"{label}, {'stable' if stable else 'unstable'}", 7, request)

    def fetch(
        self,
        topic: str,
        index: int = 0,
        *,
        offset: int = 0,
        committed: bool = True,
        version: int | None = None,
    ) -> Any:
        label = f"fetch from {offset}, read_{'' if committed else 'un'}committed"
        answer = self.raw_fetch(topic, index, offset, committed, version)
        self.note(label, answer.responses[0].partitions[0])
        return answer

    def raw_fetch(
        self, topic: str, index: int, offset: int, committed: bool, version: int | None = None
    ) -> Any:
        wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 24)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        return self.talker.ask(self.versions[FETCH] if version is None else version, request)

    def list_offsets(self, topic: str, index: int = 0) -> None:
        for committed in (False, True):
            for timestamp, word in (
                (-2, "earliest"),
                (-1, "latest"),
                (1_700_000_000_000, "time"),
                (-3, "largest"),
            ):
                version = self.versions[LIST]
                if timestamp == -3 and version < 7:
                    continue
                partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                request = ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=int(committed),
                    topics=[ListOffsetsTopic(name=topic, partitions=[partition])],
                )
                self.ask(
                    f"{word} offset, read_{'' if committed else 'un'}committed", version, request
                )

    def describe_producers(
        self, topic: str, *indexes: int, label: str = "describe producers"
    ) -> None:
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=topic, partition_indexes=list(indexes))]
        )
        self.ask(label, 0, request)

    def has_producers(self, topic: str) -> bool:
        """Whether partition 0 knows any producer."""
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
        return bool(self.talker.ask(0, request).topics[0].partitions[0].active_producers)

    # --- what the logs hold

    def logs(self, who: Producer | str, *groups: str) -> None:
        """Note the transaction's records in __transaction_state, and the groups' in __consumer_offsets."""
        tid = who if isinstance(who, str) else str(who.tid)
        found = [[i, state_records(self._log("__transaction_state", i), tid)] for i in range(3)]
        self.note("__transaction_state", [row for row in found if row[1]])
        for group in groups:
            logs = [[i, group_records(self._log("__consumer_offsets", i), group)] for i in range(3)]
            self.note("__consumer_offsets", [row for row in logs if row[1]])

    def _log(self, topic: str, index: int) -> bytes:
        start = self.log_starts[index] if topic == "__transaction_state" else 0
        answer = self.raw_fetch(topic, index, start, False, 12)
        return bytes(answer.responses[0].partitions[0].records or b"")

    def find_group(self, group: str) -> None:
        """Have the group's coordinator there; its log is loaded before any scene."""
        answer = self.talker.ask(3, FindCoordinatorRequest(key=group))
        assert answer.error_code == 0, answer


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics
