"""Compiled messages beside hand-written `struct` code for the same bytes: `python bench/codec.py`.

The hand-written side is what one would write for exactly one version of one message: nested loops, one `struct` call
per run of numbers, plain slotted classes, and no care for what is rare (tagged fields are refused, nothing is checked
that `struct` does not check). It stays here as the yardstick: kwire is meant to be within 1.5 times.

Each message has 10 topics with 10 partitions; records are 1 KB each, decoded as views. The two sides are measured by
turns and the least of all rounds counts, so that a busy machine does not speak. `--check` makes ratios above 1.5 an
error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any

from kwire.protocol.language.schema import Message
from kwire.protocol.schemas import fetch, metadata, produce

LIMIT = 1.5
TOPICS = PARTITIONS = 10
RECORDS = bytes(range(256)) * 4


def plain(names: str) -> Any:
    """What a hand-written codec reads into: a slotted class with a constructor."""
    scope: dict[str, Any] = {}
    body = "".join(f"\n    self.{name} = {name}" for name in names.split())
    exec(f"def __init__(self, {', '.join(names.split())}):{body}", scope)
    return type("Plain", (), {"__slots__": names.split(), "__init__": scope["__init__"]})


HProduce = plain("acks timeout_ms topics transactional_id")
HTopic = plain("name partitions")
HPartition = plain("index records")
HFetch = plain(
    "replica_id max_wait_ms min_bytes max_bytes isolation_level session_id session_epoch topics forgotten rack_id"
)
HFetchPartition = plain("partition epoch offset last_epoch log_start max_bytes")
HFetched = plain("error_code session_id throttle_time_ms topics")
HFetchedPartition = plain("aborted error hw index log_start lso preferred records")
HMetadata = plain("brokers cluster_id controller_id throttle_time_ms topics")
HBroker = plain("host node_id port rack")
HMetadataTopic = plain("error internal name operations partitions topic_id")
HMetadataPartition = plain("epoch error index isr leader offline replicas")

S_h, S_i, S_ib, S_hi, S_iB = Struct(">h"), Struct(">i"), Struct(">ib"), Struct(">hi"), Struct(">iB")
S_fetch = Struct(">iiiibiiB")
S_fetch_partition = Struct(">iiqiqix")
S_fetched = Struct(">ihiB")
S_fetched_partition = Struct(">ihqqqB")
S_metadata_partition = Struct(">hiii")
S_uuid_flag = Struct(">16s?B")
ONE_BYTE = [bytes((value,)) for value in range(128)]
S_numbers = [Struct(f">{count}i") for count in range(10)]
S_counted = [Struct(f">B{count}i") for count in range(10)]


def varint(data: Any, p: int) -> tuple[int, int]:
    value = data[p]
    if value < 128:
        return value, p + 1
    value = shift = 0
    while True:
        byte = data[p]
        p += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, p
        shift += 7


def to_varint(value: int) -> bytes:
    if value < 128:
        return ONE_BYTE[value]
    if value < 16384:
        return bytes((value & 127 | 128, value >> 7))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(data: Any, p: int) -> tuple[str, int]:
    size = data[p] - 1
    p += 1
    return str(data[p : p + size], "utf-8"), p + size


def no_tags(data: Any, p: int) -> int:
    if data[p]:
        raise ValueError("tags")
    return p + 1


def read_produce(frame: bytes) -> Any:
    data = memoryview(frame)
    size, p = varint(data, 0)
    transactional_id = None
    if size:
        transactional_id = str(data[p : p + size - 1], "utf-8")
        p += size - 1
    acks, timeout = S_hi.unpack_from(data, p)
    p += 6
    count, p = varint(data, p)
    topics = []
    for _ in range(count - 1):
        name, p = text(data, p)
        inner, p = varint(data, p)
        partitions = []
        for _ in range(inner - 1):
            index, size = S_iB.unpack_from(data, p)
            p += 5
            if size > 127:
                size, p = size & 127 | data[p] << 7, p + 1  # enough for the records here
            end = p + size - 1
            partitions.append(HPartition(index, data[p:end]))
            if data[end]:
                raise ValueError("tags")
            p = end + 1
        p = no_tags(data, p)
        topics.append(HTopic(name, partitions))
    no_tags(data, p)
    return HProduce(acks, timeout, topics, transactional_id)


def write_produce(message: Any) -> bytes:
    out = [b"\0", S_hi.pack(message.acks, message.timeout_ms), to_varint(len(message.topics) + 1)]
    for topic in message.topics:
        name = topic.name.encode()
        out += (to_varint(len(name) + 1), name, to_varint(len(topic.partitions) + 1))
        for partition in topic.partitions:
            records = partition.records
            out += (S_i.pack(partition.index), to_varint(len(records) + 1), records, b"\0")
        out.append(b"\0")
    out.append(b"\0")
    return b"".join(out)


def read_fetch(frame: bytes) -> Any:
    replica, wait, least, most, isolation, session, epoch, count = S_fetch.unpack_from(frame)
    p = S_fetch.size
    topics = []
    for _ in range(count - 1):
        name, p = text(frame, p)
        inner, p = varint(frame, p)
        partitions = []
        for _ in range(inner - 1):
            fields = S_fetch_partition.unpack_from(frame, p)
            p += S_fetch_partition.size - 1
            partitions.append(HFetchPartition(*fields))
            p = no_tags(frame, p)
        p = no_tags(frame, p)
        topics.append(HTopic(name, partitions))
    _, p = varint(frame, p)
    rack, p = text(frame, p)
    no_tags(frame, p)
    return HFetch(replica, wait, least, most, isolation, session, epoch, topics, [], rack)


def write_fetch(m: Any) -> bytes:
    out = [
        S_fetch.pack(
            m.replica_id, m.max_wait_ms, m.min_bytes, m.max_bytes, m.isolation_level, m.session_id,
            m.session_epoch, len(m.topics) + 1,
        )
    ]  # fmt: skip
    for topic in m.topics:
        name = topic.name.encode()
        out += (to_varint(len(name) + 1), name, to_varint(len(topic.partitions) + 1))
        for x in topic.partitions:
            out.append(
                S_fetch_partition.pack(
                    x.partition, x.epoch, x.offset, x.last_epoch, x.log_start, x.max_bytes
                )
            )
        out.append(b"\0")
    out += (b"\1", to_varint(len(m.rack_id) + 1), m.rack_id.encode(), b"\0")
    return b"".join(out)


def read_fetched(frame: bytes) -> Any:
    data = memoryview(frame)
    throttle, error, session, count = S_fetched.unpack_from(data)
    p = S_fetched.size
    topics = []
    for _ in range(count - 1):
        name, p = text(data, p)
        inner, p = varint(data, p)
        partitions = []
        for _ in range(inner - 1):
            index, code, hw, lso, start, aborted = S_fetched_partition.unpack_from(data, p)
            p += S_fetched_partition.size
            if aborted > 1:
                raise ValueError("aborted transactions")
            preferred, size = S_iB.unpack_from(data, p)
            p += 5
            if size > 127:
                size, p = size & 127 | data[p] << 7, p + 1
            end = p + size - 1
            partitions.append(
                HFetchedPartition([], code, hw, index, start, lso, preferred, data[p:end])
            )
            if data[end]:
                raise ValueError("tags")
            p = end + 1
        p = no_tags(data, p)
        topics.append(HTopic(name, partitions))
    no_tags(data, p)
    return HFetched(error, session, throttle, topics)


def write_fetched(m: Any) -> bytes:
    out = [S_fetched.pack(m.throttle_time_ms, m.error_code, m.session_id, len(m.topics) + 1)]
    for topic in m.topics:
        name = topic.name.encode()
        out += (to_varint(len(name) + 1), name, to_varint(len(topic.partitions) + 1))
        for x in topic.partitions:
            records = x.records
            out += (
                S_fetched_partition.pack(x.index, x.error, x.hw, x.lso, x.log_start, 1),
                S_i.pack(x.preferred),
                to_varint(len(records) + 1),
                records,
                b"\0",
            )
        out.append(b"\0")
    out.append(b"\0")
    return b"".join(out)


def numbers(data: bytes, p: int) -> tuple[list[int], int]:
    count = data[p] - 1
    p += 1
    return list(S_numbers[count].unpack_from(data, p)), p + 4 * count


def read_metadata(data: bytes) -> Any:
    throttle, count = S_iB.unpack_from(data)
    p = 5
    brokers = []
    for _ in range(count - 1):
        (node,) = S_i.unpack_from(data, p)
        host, p = text(data, p + 4)
        (port,) = S_i.unpack_from(data, p)
        p += 4
        rack = None
        if data[p]:
            rack, p = text(data, p)
        else:
            p += 1
        p = no_tags(data, p)
        brokers.append(HBroker(host, node, port, rack))
    cluster, p = text(data, p)
    controller, count = S_iB.unpack_from(data, p)
    p += 5
    topics = []
    for _ in range(count - 1):
        (error,) = S_h.unpack_from(data, p)
        name, p = text(data, p + 2)
        topic_id, internal, inner = S_uuid_flag.unpack_from(data, p)
        p += 18
        partitions = []
        for _ in range(inner - 1):
            code, index, leader, epoch = S_metadata_partition.unpack_from(data, p)
            p += 14
            replicas, p = numbers(data, p)
            isr, p = numbers(data, p)
            offline, p = numbers(data, p)
            p = no_tags(data, p)
            partitions.append(
                HMetadataPartition(epoch, code, index, isr, leader, offline, replicas)
            )
        (operations,) = S_i.unpack_from(data, p)
        p = no_tags(data, p + 4)
        topics.append(HMetadataTopic(error, internal, name, operations, partitions, topic_id))
    no_tags(data, p)
    return HMetadata(brokers, cluster, controller, throttle, topics)


def write_numbers(values: list[int]) -> bytes:
    return S_counted[len(values)].pack(len(values) + 1, *values)


def write_metadata(m: Any) -> bytes:
    out = [S_iB.pack(m.throttle_time_ms, len(m.brokers) + 1)]
    for broker in m.brokers:
        host = broker.host.encode()
        out += (S_i.pack(broker.node_id), to_varint(len(host) + 1), host, S_i.pack(broker.port))
        if broker.rack is None:
            out.append(b"\0")
        else:
            rack = broker.rack.encode()
            out += (to_varint(len(rack) + 1), rack)
        out.append(b"\0")
    cluster = m.cluster_id.encode()
    out += (to_varint(len(cluster) + 1), cluster, S_iB.pack(m.controller_id, len(m.topics) + 1))
    for topic in m.topics:
        name = topic.name.encode()
        out += (
            S_h.pack(topic.error),
            to_varint(len(name) + 1),
            name,
            S_uuid_flag.pack(topic.topic_id, topic.internal, len(topic.partitions) + 1),
        )
        for x in topic.partitions:
            out += (
                S_metadata_partition.pack(x.error, x.index, x.leader, x.epoch),
                write_numbers(x.replicas),
                write_numbers(x.isr),
                write_numbers(x.offline),
                b"\0",
            )
        out.append(S_i.pack(topic.operations) + b"\0")
    out.append(b"\0")
    return b"".join(out)


def names() -> list[str]:
    return [f"topic-number-{index}" for index in range(TOPICS)]


def produce_request() -> produce.ProduceRequest:
    return produce.ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            produce.TopicProduceData(
                name=name,
                partition_data=[
                    produce.PartitionProduceData(index=index, records=RECORDS)
                    for index in range(PARTITIONS)
                ],
            )
            for name in names()
        ],
    )


def fetch_request() -> fetch.FetchRequest:
    return fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        rack_id="",
        topics=[
            fetch.FetchTopic(
                topic=name,
                partitions=[
                    fetch.FetchPartition(
                        partition=index, fetch_offset=1000, partition_max_bytes=1 << 20
                    )
                    for index in range(PARTITIONS)
                ],
            )
            for name in names()
        ],
    )


def fetch_response() -> fetch.FetchResponse:
    return fetch.FetchResponse(
        session_id=7,
        responses=[
            fetch.FetchableTopicResponse(
                topic=name,
                partitions=[
                    fetch.PartitionData(
                        partition_index=index,
                        high_watermark=99,
                        last_stable_offset=99,
                        records=RECORDS,
                    )
                    for index in range(PARTITIONS)
                ],
            )
            for name in names()
        ],
    )


def metadata_response() -> metadata.MetadataResponse:
    return metadata.MetadataResponse(
        cluster_id="kwire-cluster",
        controller_id=1,
        brokers=[
            metadata.MetadataResponseBroker(node_id=index, host="127.0.0.1", port=9092 + index)
            for index in range(3)
        ],
        topics=[
            metadata.MetadataResponseTopic(
                name=name,
                topic_id=bytes(range(16)),
                partitions=[
                    metadata.MetadataResponsePartition(
                        partition_index=index,
                        leader_id=1,
                        leader_epoch=3,
                        replica_nodes=[1, 2, 3],
                        isr_nodes=[1, 2, 3],
                    )
                    for index in range(PARTITIONS)
                ],
            )
            for name in names()
        ],
    )


@dataclass
class Case:
    """A message and its hand-written codec."""

    name: str
    message: Message
    version: int
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]


CASES = [
    Case("Produce v9 request", produce_request(), 9, read_produce, write_produce),
    Case("Fetch v12 request", fetch_request(), 12, read_fetch, write_fetch),
    Case("Fetch v12 response", fetch_response(), 12, read_fetched, write_fetched),
    Case("Metadata v12 response", metadata_response(), 12, read_metadata, write_metadata),
]


def least_us(functions: list[Callable[[], Any]], rounds: int = 15, repeat: int = 40) -> list[float]:
    """The least time of a call of each, measured by turns."""
    least = [float("inf")] * len(functions)
    for _ in range(rounds):
        for index, function in enumerate(functions):
            start = time.perf_counter_ns()
            for _ in range(repeat):
                function()
            least[index] = min(least[index], (time.perf_counter_ns() - start) / repeat / 1000)
    return least


def main() -> int:
    """Print the table; returns 1 if `--check` is given and a ratio is above the limit."""
    slow = False
    print("| message | decode kwire us | by hand | ratio | encode kwire us | by hand | ratio |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        message, version, read, write = case.message, case.version, case.read, case.write
        cls = type(message)
        data = message.encode(version)
        by_hand = read(data)
        assert write(by_hand) == data, f"the hand-written {case.name} is wrong"
        assert cls.decode(data, version) == message
        ours, theirs, our_encode, their_encode = least_us(
            [
                partial(cls.decode, data, version),
                partial(read, data),
                partial(message.encode, version),
                partial(write, by_hand),
            ]
        )
        decoding, encoding = ours / theirs, our_encode / their_encode
        slow = slow or decoding > LIMIT or encoding > LIMIT
        print(
            f"| {case.name} | {ours:.1f} | {theirs:.1f} | {decoding:.2f}"
            f" | {our_encode:.1f} | {their_encode:.1f} | {encoding:.2f} |"
        )
    return 1 if slow and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
