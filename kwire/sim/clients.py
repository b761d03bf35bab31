"""Simulated clients: producers, consumers and an administrator, each a core of its own.

They have the same steps as a broker, send through the same `Peers`, and know only what brokers
respond. `histories.py` checks the responses when a broker sends them; the clients just behave like
real ones: one request in flight per partition, retries with the same sequence numbers, a metadata
refresh after an error.
"""

from __future__ import annotations

from typing import Any, Final

from kwire.core import Core
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record, iter_batches
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.transactions import InitProducerIdRequest
from kwire.replication.core.peers import Peers
from kwire.replication.core.types import TopicPartition
from kwire.sim.compaction import PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kwire.protocol.language.schema import Message
    from kwire.replication.core.clock import Clock
    from kwire.replication.core.outbox import Buffer, Outbox
    from kwire.session import Session

PRODUCE, FETCH, LIST_OFFSETS = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS
METADATA, INIT_PRODUCER_ID = ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID
VERSIONS: Final[dict[int, int]] = {
    PRODUCE: 9,
    FETCH: 13,
    LIST_OFFSETS: 7,
    METADATA: 12,
    INIT_PRODUCER_ID: 4,
}
_MAX_TRIES = 60
_FATAL = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)


class Client(Core):
    """The base of all clients. `sent`: requests without a response yet, by correlation id."""

    def __init__(
        self, name: str, clock: Clock, outbox: Outbox, random: Random, brokers: list[int]
    ) -> None:
        super().__init__(clock, outbox)
        self.name = name
        self.random = random
        self.brokers = brokers
        self.peers = Peers(outbox, name)
        self.sent: dict[int, tuple[int, int, Message]] = {}
        self.stopping = False
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}
        self._asking_metadata = False

    # --- steps

    def connection_opened(self, connection: int, listener_name: str, peer_host: str) -> Session:
        raise AssertionError("nobody connects to a client")

    def connection_closed(self, connection: int) -> None:
        raise AssertionError("nobody connects to a client")

    def receive_frame(self, connection: int, frame: Buffer) -> None:
        raise AssertionError("nobody asks a client")

    def respond(self, correlation: int, frame: Buffer | None) -> str | None:
        reason = self.peers.respond(correlation, frame)
        self.sent.pop(correlation, None)
        return reason

    def channel_lost(self, node: int, channel: str) -> None:
        """Ignored: the next request opens a new connection."""

    def address_of(self, node: int) -> tuple[str, int] | None:
        return f"broker-{node}", 9092

    def tick(self) -> None:
        self.timers.fire(self.clock.now_ms)

    # --- helpers

    def ask(
        self,
        node: int,
        channel: str,
        key: int,
        request: Message,
        on_response: Callable[[Any], None],
        version: int | None = None,
    ) -> None:
        version = VERSIONS[key] if version is None else version
        correlation = self.peers.send(node, channel, key, version, request, on_response)
        self.sent[correlation] = key, version, request

    def later(self, key: object, delay_ms: int, call: Callable[[], None]) -> None:
        self.timers.schedule(key, self.clock.now_ms + delay_ms, call)

    def refresh(self) -> None:
        """Refresh metadata from a random broker; never go back to an older leader epoch (KIP-320)."""
        if self._asking_metadata:
            return
        self._asking_metadata = True
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        self.ask(self.random.choice(self.brokers), "metadata", METADATA, request, self._on_metadata)

    def _on_metadata(self, response: Any) -> None:
        self._asking_metadata = False
        if response is None:
            return
        known: dict[TopicPartition, tuple[int, int]] = {}
        for topic in response.topics:
            if topic.error_code or topic.is_internal:
                continue
            self.on_topic(topic.name, topic.topic_id)
            for partition in topic.partitions:
                key = topic.name, partition.partition_index
                epoch = partition.leader_epoch
                old = self.leaders.get(key)
                known[key] = (
                    old
                    if old is not None and epoch < old[1]
                    else (
                        partition.leader_id,
                        epoch,
                    )
                )
        self.leaders = known

    def on_topic(self, topic: str, topic_id: bytes) -> None:
        """Handle a topic in a metadata response; a new id means that it was created again."""

    @property
    def idle(self) -> bool:
        """Whether the client is stopping and has no request in flight."""
        return self.stopping and not self.sent


class _Lane:
    """A producer's state for one partition."""

    __slots__ = ("batch", "batch_sequence", "count", "next_sequence", "producer", "tries")

    def __init__(self) -> None:
        self.batch: bytes | None = None
        self.batch_sequence = -1
        self.count = 0
        self.next_sequence = 0
        self.producer: tuple[int, int] | None = (
            None  # its own id and epoch, so that sequences start at 0
        )
        self.tries = 0


class Producer(Client):
    """Writes numbered values. `acks` -1 or 1; an idempotent producer writes no value twice."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        outbox: Outbox,
        random: Random,
        brokers: list[int],
        *,
        acks: int,
        idempotent: bool,
        pause_ms: int,
        timeout_ms: int,
    ) -> None:
        super().__init__(name, clock, outbox, random, brokers)
        self.acks = acks
        self.idempotent = idempotent
        self.timeout_ms = timeout_ms
        self._pause_ms = pause_ms
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._written = 0
        self._ids: dict[str, bytes] = {}
        self.later("work", 1, self._work)

    @property
    def idle(self) -> bool:
        return super().idle and all(lane.batch is None for lane in self._lanes.values())

    def on_topic(self, topic: str, topic_id: bytes) -> None:
        if self._ids.get(topic) != topic_id:
            self._ids[topic] = topic_id
            for key in [key for key in self._lanes if key[0] == topic]:
                if self._lanes[key].batch is None:
                    del self._lanes[key]

    def _work(self) -> None:
        if not self.stopping:
            self.later("work", 1 + int(self._pause_ms * 2 * self.random.random()), self._work)
            if not self.leaders or self.random.random() < 0.02:
                self.refresh()
            if self.leaders:
                self._begin(self.random.choice(list(self.leaders)))

    def _begin(self, key: TopicPartition) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        if lane.batch is not None:
            return
        lane.tries = 0
        if self.idempotent and lane.producer is None:
            lane.batch = b""
            self._get_id(key, lane)
            return
        self._make_batch(key, lane)
        self._send(key, lane)

    def _make_batch(self, key: TopicPartition, lane: _Lane) -> None:
        lane.count = 1 + int(self.random.random() * 3)
        records = []
        for _ in range(lane.count):
            self._written += 1
            value = b"%s/%d" % (self.name.encode(), self._written)
            record_key = None
            if key[0].startswith(PREFIX):
                record_key = b"key-%d" % int(self.random.random() * 5)
                if self.random.random() < 0.1:
                    records.append(Record(-1, self.clock.wall_ms, record_key, None))
                    continue
            records.append(Record(-1, self.clock.wall_ms, record_key, value))
        if lane.producer is None:
            lane.batch = build_batch(records)
            return
        lane.batch_sequence = lane.next_sequence
        lane.batch = build_batch(
            records,
            producer_id=lane.producer[0],
            producer_epoch=lane.producer[1],
            base_sequence=lane.batch_sequence,
        )

    def _get_id(self, key: TopicPartition, lane: _Lane) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)

        def answered(response: Any) -> None:
            if response is None or response.error_code:
                if self.stopping:
                    lane.batch = None
                else:
                    self.later(key, 50, lambda: self._get_id(key, lane))
                return
            lane.producer = response.producer_id, response.producer_epoch
            lane.next_sequence = 0
            self._make_batch(key, lane)
            self._send(key, lane)

        self.ask(self.random.choice(self.brokers), "ids", INIT_PRODUCER_ID, request, answered)

    def _send(self, key: TopicPartition, lane: _Lane) -> None:
        leader = self.leaders.get(key, (-1, -1))[0]
        if leader < 0:
            self._retry(key, lane)
            return
        request = ProduceRequest(
            acks=self.acks,
            timeout_ms=self.timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=key[0],
                    partition_data=[PartitionProduceData(index=key[1], records=lane.batch)],
                )
            ],
        )
        self.ask(
            leader,
            f"p{key[0]}-{key[1]}",
            PRODUCE,
            request,
            lambda r: self._on_produced(key, lane, r),
        )

    def _on_produced(self, key: TopicPartition, lane: _Lane, response: Any) -> None:
        error = -1
        if response is not None:
            error = response.responses[0].partition_responses[0].error_code
        if error in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            lane.next_sequence = lane.batch_sequence + lane.count
            lane.batch = None
        elif error in _FATAL:
            lane.batch = None
            lane.producer = None
        else:
            self._retry(key, lane)

    def _retry(self, key: TopicPartition, lane: _Lane) -> None:
        lane.tries += 1
        if (
            lane.tries > _MAX_TRIES
            or (self.stopping and lane.tries > 10)
            or (key not in self.leaders and lane.tries > 10)
        ):
            lane.batch = None
            lane.producer = None  # the batch's fate is unknown: restart sequences
            return
        self.refresh()
        self.later(key, 10 + int(40 * self.random.random()), lambda: self._send(key, lane))


class Consumer(Client):
    """Reads all partitions from the start; resets to the log start on OFFSET_OUT_OF_RANGE."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        outbox: Outbox,
        random: Random,
        brokers: list[int],
        *,
        isolation_level: int,
        pause_ms: int,
        on_delivered: Callable[[bytes, TopicPartition, int, bytes], None],
        on_reset: Callable[[bytes, TopicPartition], None],
    ) -> None:
        """`on_delivered(topic id, partition, position, records)`: for records the application sees."""
        super().__init__(name, clock, outbox, random, brokers)
        self._isolation_level = isolation_level
        self._pause_ms = pause_ms
        self._on_delivered = on_delivered
        self._on_reset = on_reset
        self._positions: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}  # of the last batch read
        self._ids: dict[str, bytes] = {}
        self._busy: set[TopicPartition] = set()
        self.later("work", 2, self._work)

    def on_topic(self, topic: str, topic_id: bytes) -> None:
        if self._ids.get(topic) != topic_id:
            self._ids[topic] = topic_id
            for key in [key for key in self._positions if key[0] == topic]:
                del self._positions[key]
                self._epochs.pop(key, None)

    def _work(self) -> None:
        if self.stopping:
            return
        self.later("work", 1 + int(self._pause_ms * 2 * self.random.random()), self._work)
        if not self.leaders or self.random.random() < 0.05:
            self.refresh()
        for key, (leader, epoch) in self.leaders.items():
            if leader >= 0 and key not in self._busy:
                self._busy.add(key)
                self._fetch(key, leader, epoch)

    def _fetch(self, key: TopicPartition, leader: int, epoch: int) -> None:
        position = self._positions.setdefault(key, 0)
        topic_id = self._ids[key[0]]
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self._isolation_level,
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition=key[1],
                            current_leader_epoch=epoch,
                            fetch_offset=position,
                            last_fetched_epoch=self._epochs.get(key, -1),
                            partition_max_bytes=1 << 16,
                        )
                    ],
                )
            ],
        )
        self.ask(
            leader,
            f"f{key[0]}-{key[1]}",
            FETCH,
            request,
            lambda r: self._on_fetched(key, topic_id, position, r),
        )

    def _on_fetched(
        self, key: TopicPartition, topic_id: bytes, position: int, response: Any
    ) -> None:
        self._busy.discard(key)
        if response is None or self._ids.get(key[0]) != topic_id:
            self.refresh()
            return
        if not response.responses:
            self.refresh()
            return
        data = response.responses[0].partitions[0]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._find_position(key, topic_id)
        elif data.error_code:
            self.refresh()
        elif data.diverging_epoch.epoch >= 0:
            self._on_reset(topic_id, key)
            self._positions[key] = min(position, data.diverging_epoch.end_offset)
            self._epochs[key] = data.diverging_epoch.epoch
        elif data.records:
            records = bytes(data.records)
            self._on_delivered(topic_id, key, position, records)
            for header in iter_batches(records):
                self._positions[key] = header.next_offset
                self._epochs[key] = header.partition_leader_epoch

    def _find_position(self, key: TopicPartition, topic_id: bytes) -> None:
        leader, epoch = self.leaders.get(key, (-1, -1))
        if leader < 0:
            return
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=key[0],
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=key[1], current_leader_epoch=epoch, timestamp=-2
                        )
                    ],
                )
            ],
        )

        def answered(response: Any) -> None:
            self._busy.discard(key)
            if response is None or self._ids.get(key[0]) != topic_id:
                return
            data = response.topics[0].partitions[0]
            if not data.error_code:
                self._on_reset(topic_id, key)
                self._positions[key] = data.offset
                self._epochs.pop(key, None)

        self._busy.add(key)
        self.ask(leader, f"f{key[0]}-{key[1]}", LIST_OFFSETS, request, answered)


class Administrator(Client):
    """Sends single admin requests to a given or random broker, without retries."""

    def request(
        self,
        key: int,
        version: int,
        request: Message,
        on_response: Callable[[Any], None],
        broker: int | None = None,
    ) -> None:
        node = self.random.choice(self.brokers) if broker is None else broker
        self.ask(node, f"admin{len(self.sent)}", key, request, on_response, version)
