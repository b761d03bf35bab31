"""A producer whose batches are broken: brokers must refuse each of them (I38)."""

from __future__ import annotations

from typing import Any

from fastcrc.crc32 import iscsi as crc32c

from kwire.protocol.api import ApiKey
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import ATTRIBUTES_POSITION, Record
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.sim.clients.base import Client, Setting

_CRC = slice(17, 21)
_LAST_OFFSET_DELTA = slice(23, 27)
_COUNT = slice(57, 61)
_FIRST_RECORD = 61


class Liar(Client):
    """Sends batches with a wrong CRC, a wrong count or last offset, a record of a wrong length."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._pause_ms = 4 * setting.plan.work_pause_ms
        self._broken = setting.answers.broken_batches
        self._written = 0
        self.later("work", 4, self._work)

    def _work(self) -> None:
        if self.stopping:
            return
        self.later("work", 1 + int(self._pause_ms * 2 * self.random.random()), self._work)
        if not self.leaders or self.random.random() < 0.1:
            self.refresh()
        leading = [key for key, (leader, _) in self.leaders.items() if leader >= 0]
        if not leading:
            return
        name, index = self.random.choice(leading)
        batch = self._make()
        self._broken.add(batch)
        data = PartitionProduceData(index=index, records=batch)
        topic = TopicProduceData(name=name, partition_data=[data])
        request = ProduceRequest(acks=1, timeout_ms=400, topic_data=[topic])

        def answered(response: Any) -> None:
            if response is None:
                self.refresh()

        leader = self.leaders[name, index][0]
        self.ask(leader, "lies", ApiKey.PRODUCE, request, answered, 9)

    def _make(self) -> bytes:
        self._written += 1
        value = b"%s/%d" % (self.name.encode(), self._written)
        record = Record(-1, self.clock.wall_ms, b"key", value)
        batch = bytearray(build_batch([record, record]))
        kind = int(self.random.random() * 4)
        if kind == 0:
            batch[_CRC.start + int(self.random.random() * 4)] ^= 1
            return bytes(batch)
        if kind == 1:
            batch[_LAST_OFFSET_DELTA] = (7).to_bytes(4, "big")
        elif kind == 2:
            batch[_COUNT] = (3).to_bytes(4, "big")
        else:
            batch[_FIRST_RECORD] += 8  # four bytes more than there are
        batch[_CRC] = crc32c(batch[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
        return bytes(batch)
