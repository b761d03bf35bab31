"""What must be true after a soak, and how it is found out: all records read back, batch headers, acknowledgements."""

import time
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from compat_tests.soak_clients import PARTITIONS, TOPIC, Writer, number_of
from kwire.protocol.records import iter_batches

Records = dict[int, list[tuple[int, bytes]]]
"""All records by partition: offset, value."""


def read_back(bootstrap: str) -> Records:
    """All records by partition, as a consumer sees them: offset, value."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "soak", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "error"})
    found: Records = defaultdict(list)
    try:
        ends = {}
        for index in range(PARTITIONS):
            _, ends[index] = consumer.get_watermark_offsets(TopicPartition(TOPIC, index), 20)
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        deadline = time.monotonic() + 60
        reached = dict.fromkeys(ends, 0)
        while any(reached[index] < end for index, end in ends.items()):
            if time.monotonic() > deadline:
                raise AssertionError(f"read up to {reached} only, not to {ends}")
            for message in consumer.consume(1000, 0.2):
                if message.error() is not None:
                    raise AssertionError(f"reading: {message.error()}")
                place: Any = message.partition(), message.offset()
                found[place[0]].append((place[1], message.value() or b""))
                reached[place[0]] = place[1] + 1
    finally:
        consumer.close()
    return found


@dataclass
class Sessions:
    """Under which producer id and epoch the batches of a partition were written."""

    first_offsets: list[int] = field(default_factory=list)
    sessions: list[tuple[int, int]] = field(default_factory=list)  # producer id, producer epoch

    @classmethod
    def of(cls, log: bytes) -> "Sessions":
        found = cls()
        for batch in iter_batches(log):
            found.first_offsets.append(batch.base_offset)
            found.sessions.append((batch.producer_id, batch.producer_epoch))
        return found

    def at(self, offset: int) -> tuple[int, int]:
        return self.sessions[bisect_right(self.first_offsets, offset) - 1]


def sent_anew(
    places: dict[tuple[str, int], list[tuple[int, int]]], sessions: dict[int, Sessions]
) -> set[tuple[str, int]]:
    """The records that are there twice since their client wrote them anew under a later epoch of its producer id.

    No broker can know these for what they are, and Apache Kafka stores them, too. librdkafka does it with more than one
    request in flight: the first of them, already in the log, is sent again after a change of leader and refused
    (NOT_ENOUGH_REPLICAS, say), a later one then has OUT_OF_ORDER_SEQUENCE_NUMBER, and librdkafka bumps its epoch
    (https://github.com/confluentinc/librdkafka/issues/4953).
    """
    found = set()
    for key, where in places.items():
        if len(where) > 1 and len({index for index, _ in where}) == 1:
            copies = [sessions[index].at(offset) for index, offset in sorted(where)]
            same_producer = len({producer_id for producer_id, _ in copies}) == 1
            epochs = [epoch for _, epoch in copies]
            if same_producer and all(a < b for a, b in pairwise(epochs)):
                found.add(key)
    return found


def faults_of(
    writers: list[Writer], found: Records, sessions: dict[int, Sessions] | None = None
) -> list[str]:
    """What is wrong with what was read, in one line each.

    With `sessions` those repetitions of `confluent-2` that are the client's own are counted (`Writer.sent_anew`), not
    told."""
    wrong: list[str] = []
    places: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for index, records in found.items():
        for offset, value in records:
            places[number_of(value)].append((index, offset))
    may_repeat = {writer.name for writer in writers if writer.may_send_anew}
    own = (
        {key for key in sent_anew(places, sessions or {}) if key[0] in may_repeat}
        if sessions
        else set()
    )
    for index, records in found.items():
        last: dict[str, int] = {}
        for offset, value in records:
            name, number = key = number_of(value)
            if key in own and (index, offset) != min(places[key]):
                continue
            if number <= last.get(name, -1):
                wrong.append(f"{TOPIC}-{index} at {offset}: {name} {number} after {last[name]}")
            last[name] = number
    for key, where in places.items():
        if len(where) > 1 and key not in own:
            wrong.append(f"{key[0]} {key[1]} is there {len(where)} times: {where}")
    for writer in writers:
        writer.sent_anew = sum(name == writer.name for name, _ in own)
        wrong += _unacknowledged(writer, places)
    return wrong


def _unacknowledged(
    writer: Writer, places: dict[tuple[str, int], list[tuple[int, int]]]
) -> list[str]:
    wrong = []
    for number, place in writer.acked.items():
        where = places.get((writer.name, number), [])
        if not where:
            wrong.append(f"LOST: {writer.name} {number}, acknowledged at {place}")
        elif place not in where and place[1] >= 0:  # -1: a duplicate of what has left the window
            wrong.append(f"{writer.name} {number} acknowledged at {place}, is at {where}")
    wrong += [f"{writer.name}: {error}" for error in writer.errors]
    if writer.sent != len(writer.acked):
        wrong.append(
            f"{writer.name}: of {writer.sent} records {len(writer.acked)} are acknowledged"
        )
    return wrong
