"""Producers: numbered values, idempotent or not, one partition a request or several."""

from __future__ import annotations

from typing import Any, Final

from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.transactions import InitProducerIdRequest
from kwire.replication.core.types import TopicPartition
from kwire.sim.clients.base import Client, Setting
from kwire.sim.compaction import PREFIX

_TIMEOUT_MS: Final = 400
_MAX_TRIES: Final = 60
_FATAL: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_TIMESTAMP,  # a broker's clock is an hour behind
)


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
    """Writes numbered values; an idempotent producer writes no value twice."""

    def __init__(
        self, setting: Setting, *, acks: int = -1, idempotent: bool = True, wide: bool = False
    ) -> None:
        """`acks`: -1 or 1. `wide`: batches for several partitions of a leader in one request."""
        super().__init__(setting)
        self.acks = acks
        self.idempotent = idempotent
        self.wide = wide
        self._pause_ms = setting.plan.work_pause_ms
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
                keys = list(self.leaders)
                count = min(len(keys), 4) if self.wide else 1
                self._send([k for k in self.random.sample(keys, count) if self._begin(k)])

    def _begin(self, key: TopicPartition) -> bool:
        """Make the next batch of a partition; False while one is on its way or has no id."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        if lane.batch is not None:
            return False
        lane.tries = 0
        if self.idempotent and lane.producer is None:
            lane.batch = b""
            self._get_id(key, lane)
            return False
        self._make_batch(key, lane)
        return True

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
            self._send([key])

        node = self.random.choice(self.brokers)
        self.ask(node, "ids", ApiKey.INIT_PRODUCER_ID, request, answered, 4)

    def _send(self, keys: list[TopicPartition]) -> None:
        """Send the batches of some partitions, those of one leader together."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in keys:
            leader = self.leaders.get(key, (-1, -1))[0]
            if leader < 0:
                self._retry(key)
            else:
                by_leader.setdefault(leader, []).append(key)
        for leader, together in by_leader.items():
            self._send_to(leader, together)

    def _send_to(self, leader: int, keys: list[TopicPartition]) -> None:
        topics: dict[str, TopicProduceData] = {}
        for name, index in keys:
            if name not in topics:
                topics[name] = TopicProduceData(name=name, partition_data=[])
            batch = self._lanes[name, index].batch
            topics[name].partition_data.append(PartitionProduceData(index=index, records=batch))
        request = ProduceRequest(
            acks=self.acks, timeout_ms=_TIMEOUT_MS, topic_data=list(topics.values())
        )
        channel = f"p{keys[0][0]}-{keys[0][1]}"  # a broker serves one request of a connection
        self.ask(leader, channel, ApiKey.PRODUCE, request, lambda r: self._on_produced(keys, r), 9)

    def _on_produced(self, keys: list[TopicPartition], response: Any) -> None:
        errors = {
            (topic.name, partition.index): partition.error_code
            for topic in (response.responses if response is not None else ())
            for partition in topic.partition_responses
        }
        for key in keys:
            lane, error = self._lanes[key], errors.get(key, -1)
            if error in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                lane.next_sequence = lane.batch_sequence + lane.count
                lane.batch = None
            elif error in _FATAL:
                lane.batch = None
                lane.producer = None
            else:
                self._retry(key)

    def _retry(self, key: TopicPartition) -> None:
        lane = self._lanes[key]
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
        self.later(key, 10 + int(40 * self.random.random()), lambda: self._send([key]))
