"""Record batches that a broker may refuse, sent one by one: to Apache Kafka once, to kwire in every test run.

`send(client, …)` produces the batches of a case and returns their verdicts; a client is as in kafka_dialogue.py.
Bases are whole batches, kept in the data file because compressors differ from release to release; `flipped` makes the
n-th odd batch of them: one or two bits flipped, and a right CRC. `crafted` are batches with one defect each.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from fastcrc.crc32 import iscsi as crc32c

from kwire.protocol.compression import compress
from kwire.protocol.errors import KafkaError
from kwire.protocol.record_builder import append_record, build_batch
from kwire.protocol.records import (
    HEADER,
    HEADER_SIZE,
    Record,
    iter_batches,
    iter_records,
    parse_header,
)
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kwire.protocol.varint import append_varint

PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
BASE_MS = 1_700_000_000_000
INT64_MAX = (1 << 63) - 1

# Timestamps are judged alike by every release, and nothing rolls or expires.
ALIKE = {
    "message.timestamp.after.max.ms": str(INT64_MAX),
    "retention.ms": "-1",
    "segment.ms": str(INT64_MAX),
}
TOPICS: dict[str, tuple[dict[str, str], int]] = {
    "plain": ({}, 4000),
    "compacted": ({"cleanup.policy": "compact"}, 600),
    "append-time": ({"message.timestamp.type": "LogAppendTime"}, 600),
    "to-gzip": ({"compression.type": "gzip"}, 600),
    "to-none": ({"compression.type": "uncompressed"}, 600),
    "bounded": ({"message.timestamp.before.max.ms": "1000"}, 100),
}
"""Topic: (settings, how many flipped batches it gets)."""


# --- batches


def bases() -> list[bytes]:
    """Whole batches, in order; made once and kept in the data file."""
    few = [Record(-1, BASE_MS + i, b"k%d" % i, b"value %d" % i * (i + 1)) for i in range(5)]
    headed = [
        Record(-1, BASE_MS, b"key", b"value", (("h", b"1"), ("long-name", None))),
        Record(-1, BASE_MS - 5, b"other", b"", (("", b""),)),
        Record(-1, BASE_MS + 70, b"", b"x" * 70, tuple((f"n{i}", b"v" * i) for i in range(9))),
    ]
    bare = [
        Record(-1, BASE_MS, None, b"v"),
        Record(-1, BASE_MS, None, None),
        Record(-1, -1, b"k", None),
    ]
    many = [Record(-1, BASE_MS + 3 * i, b"%d" % i, b"%d" % (i * i)) for i in range(120)]
    alike = [Record(-1, BASE_MS + i // 2, None, b"0123456789") for i in range(150)]
    large = [Record(-1, BASE_MS + i, b"k" * 65, b"v" * (300 + i)) for i in range(2)]
    batches = [build_batch(records) for records in (few, headed, bare, many, alike, large, few[:1])]
    batches.append(build_batch(few, producer_id=77, producer_epoch=3, base_sequence=0))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        batches += [build_batch(records, compression=codec) for records in (few, headed, many)]
    return batches


def right_crc(batch: bytes | bytearray) -> bytes:
    """The batch with the CRC of what follows it."""
    batch = bytearray(batch)
    if len(batch) >= HEADER_SIZE:
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def flipped(batches: list[bytes], number: int, topic: str) -> bytes:
    """The odd batch `number` of a topic: a base with one or two bits flipped, in its header or behind it."""
    draw = int.from_bytes(sha256(f"{topic} {number}".encode()).digest(), "big")
    batch = bytearray(batches[number % len(batches)])
    draw, flips = divmod(draw, 2)
    for _ in range(flips + 1):
        draw, in_header = divmod(draw, 3)
        first, last = (8, HEADER_SIZE) if in_header == 0 else (HEADER_SIZE, len(batch))
        draw, at = divmod(draw, last - first)
        draw, bit = divmod(draw, 8)
        batch[first + at] ^= 1 << bit
    return right_crc(batch)


def with_fields(batch: bytes, **changes: int) -> bytes:
    """The batch with fields of its header changed."""
    names = ("base_offset", "length", "epoch", "magic", "crc", "attributes", "last_offset_delta")
    names += (
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "sequence",
        "count",
    )
    fields = dict(zip(names, HEADER.unpack_from(batch), strict=True)) | changes
    return right_crc(HEADER.pack(*fields.values()) + batch[HEADER_SIZE:])


def raw(section: bytes, count: int, attributes: int = 0, **changes: int) -> bytes:
    """A batch around any bytes."""
    batch = build_batch([Record(-1, BASE_MS, b"k", b"v")])[:HEADER_SIZE] + section
    fields = {"length": len(batch) - 12, "count": count, "last_offset_delta": count - 1}
    return with_fields(batch, **fields | {"attributes": attributes} | changes)


def varint(value: int) -> bytes:
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


def record(
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    offset: int = 0,
    delta: int = 0,
    headers: Any = (),
) -> bytes:
    out = bytearray()
    append_record(out, offset, delta, key, value, headers)
    return bytes(out)


def body(*parts: bytes, size: int | None = None) -> bytes:
    """A record out of its parts, with their size or another before them."""
    joined = b"".join(parts)
    return varint(len(joined) if size is None else size) + joined


def _crafted_records() -> Iterator[tuple[str, bytes, int]]:
    """(name, records, count)."""
    good = record() + record(offset=1)
    head = b"\x00" + varint(0) + varint(0)  # attributes, timestamp, offset
    key_value = varint(1) + b"k" + varint(1) + b"v"
    yield "good", good, 2
    yield "one record too few", good, 3
    yield "one record too many", good, 1
    yield "no bytes", b"", 2
    yield "garbage", bytes(range(90)), 2
    yield "ones", b"\xff" * 90, 2
    yield "zeros", bytes(90), 2
    yield "junk after the last record", good + b"junk", 2
    yield "half a record", good[:-3], 2
    yield "size 0", body(size=0) + record(offset=1), 2
    yield "size -1", body(head, key_value, b"\x00", size=-1), 1
    yield "size too small", body(head, key_value, b"\x00", size=7), 1
    yield "size too large", body(head, key_value, b"\x00", size=9), 1
    yield (
        "size too large before another",
        body(head, key_value, b"\x00", size=9) + record(offset=1),
        2,
    )
    yield "size of two bytes for a small one", b"\x90\x00" + body(head, key_value, b"\x00")[1:], 1
    yield "size that does not end", b"\x80\x80\x80\x80\x80\x01" + head, 1
    yield "size cut off", b"\x80", 1
    yield "size of 2^31-1", body(head, key_value, b"\x00", size=(1 << 31) - 1), 1
    yield "attributes 255", body(b"\xff\x00\x00", key_value, b"\x00"), 1
    yield "long timestamp", body(b"\x00" + varint(1 << 62) + b"\x00", key_value, b"\x00"), 1
    yield (
        "timestamp that does not end",
        body(b"\x00" + b"\x80" * 10 + b"\x00", key_value, b"\x00"),
        1,
    )
    yield "timestamp of ten bytes", body(b"\x00" + b"\x80" * 9 + b"\x00\x00", key_value, b"\x00"), 1
    yield "offset of five bytes", body(b"\x00\x00\x80\x80\x80\x80\x00", key_value, b"\x00"), 1
    yield (
        "offset that does not end",
        body(b"\x00\x00\x80\x80\x80\x80\x80\x00", key_value, b"\x00"),
        1,
    )
    yield "offsets all 0", record() + record(), 2
    yield "offsets backwards", record(offset=1) + record(), 2
    yield "offset negative", record(offset=-3) + record(offset=1), 2
    yield "offsets with a gap", record() + record(offset=7), 2
    yield "key too long", body(head, varint(90), b"k", varint(1), b"v\x00"), 1
    yield "key of 2^31-1", body(head, varint((1 << 31) - 1), b"k", varint(1), b"v\x00"), 1
    yield "key length -2", body(head, varint(-2), varint(1), b"v\x00"), 1
    yield "key length -2^31", body(head, varint(-(1 << 31)), varint(1), b"v\x00"), 1
    yield "value too long", body(head, varint(1), b"k", varint(90), b"v\x00"), 1
    yield "value length -7", body(head, varint(1), b"k", varint(-7), b"\x00"), 1
    yield (
        "value over the next record",
        body(head, varint(1), b"k", varint(5), b"v\x00") + record(offset=1),
        2,
    )
    yield "key takes all", body(head, varint(3), b"kkk"), 1
    yield "no headers field", body(head, key_value), 1
    yield "no headers field before another", body(head, key_value) + record(offset=1), 2
    yield "headers -1", body(head, key_value, varint(-1)), 1
    yield "headers 9 without bytes", body(head, key_value, varint(9)), 1
    yield "headers 2^31-1", body(head, key_value, varint((1 << 31) - 1)), 1
    yield "header", body(head, key_value, varint(1), varint(1), b"h", varint(1), b"v"), 1
    yield "header with key -1", body(head, key_value, varint(1), varint(-1), varint(1), b"v"), 1
    yield "header with value -5", body(head, key_value, varint(1), varint(1), b"h", varint(-5)), 1
    yield (
        "header key too long",
        body(head, key_value, varint(1), varint(60), b"h", varint(1), b"v"),
        1,
    )
    yield (
        "header value too long",
        body(head, key_value, varint(1), varint(1), b"h", varint(9), b"v"),
        1,
    )
    yield (
        "header key not UTF-8",
        body(head, key_value, varint(1), varint(1), b"\xff", varint(1), b"v"),
        1,
    )
    yield "bytes after the headers", body(head, key_value, b"\x00", b"more"), 1
    yield "no key", record(None) + record(offset=1), 2
    yield "no keys", record(None) + record(None, offset=1) + record(None, offset=2), 3
    yield "no key, then cut off", record(None) + record(offset=1)[:-4], 2
    yield "timestamps apart", record(delta=-5000) + record(offset=1, delta=9000), 2
    yield "timestamp -1", record(delta=-BASE_MS - 1), 1
    yield "timestamp -2", record(delta=-BASE_MS - 2), 1


def _crafted_headers() -> Iterator[tuple[str, bytes]]:
    good = build_batch([Record(-1, BASE_MS + i, b"k", b"v%d" % i) for i in range(2)])
    yield "count 2^31-1", with_fields(good, count=2**31 - 1, last_offset_delta=2**31 - 2)
    yield "count 0", with_fields(good, count=0, last_offset_delta=-1)
    yield "count 0 alone", with_fields(good, count=0)
    yield "count -1", with_fields(good, count=-1)
    yield "last offset delta too large", with_fields(good, last_offset_delta=2)
    yield "last offset delta negative", with_fields(good, last_offset_delta=-2)
    yield "base offset 5", with_fields(good, base_offset=5)
    yield "control", with_fields(good, attributes=0x20)
    yield "append time", with_fields(good, attributes=0x08)
    yield "append time of -1", with_fields(good, attributes=0x08, max_timestamp=-1)
    yield "delete horizon", with_fields(good, attributes=0x40)
    yield "unused attributes", with_fields(good, attributes=0x7F80)
    yield "unused attributes, wrong maximum", with_fields(good, attributes=0x7F80, max_timestamp=5)
    yield "codec 5", with_fields(good, attributes=5)
    yield "codec 7 and count 0", with_fields(good, attributes=7, count=0)
    yield "codec of a compressed one", with_fields(good, attributes=1)
    yield "max timestamp too small", with_fields(good, max_timestamp=BASE_MS - 9)
    yield "max timestamp too large", with_fields(good, max_timestamp=BASE_MS + 10**14)
    yield "base timestamp -2^63", with_fields(good, base_timestamp=-(1 << 63))
    yield "base timestamp 2^63-1", with_fields(good, base_timestamp=(1 << 63) - 1)
    yield "producer without sequence", with_fields(good, producer_id=5, producer_epoch=0)
    yield "sequence without producer", with_fields(good, sequence=5)
    yield "leader epoch 9", with_fields(good, epoch=9)
    yield "magic 3", with_fields(good, magic=3)
    yield "magic 1", with_fields(good, magic=1)
    yield "magic -1", with_fields(good, magic=-1)
    yield "magic 3 and too long", with_fields(good, magic=3, length=900)
    yield "length 900", with_fields(good, length=900)
    yield "length 13", with_fields(good, length=13)
    yield "length 14", with_fields(good, length=14)
    yield "length 48", with_fields(good, length=48)
    yield "length -1", with_fields(good, length=-1)
    yield "length 1 less", with_fields(good, length=len(good) - 13)
    yield "wrong crc", good[:17] + b"\0\0\0\0" + good[21:]
    yield "twice", good + good
    yield "junk after the batch", good + b"\xff" * 90
    yield "zeros after the batch", good + bytes(90)
    yield "a few bytes after the batch", good + b"\x00" * 11
    yield "16 bytes after the batch", good + b"\x00" * 8 + b"\x00\x00\x00\x50" + b"\x00" * 4
    yield (
        "bad magic after the batch",
        good + b"\x00" * 8 + b"\x00\x00\x00\x50" + b"\x00" * 4 + b"\x09",
    )
    yield "half a batch after the batch", good + good[:-5]
    yield "half a batch", good[:-5]
    yield "16 bytes", good[:16]
    yield "header alone", with_fields(good[:HEADER_SIZE], length=HEADER_SIZE - 12)
    yield "nothing", b""


def _crafted_streams() -> Iterator[tuple[str, bytes, int]]:
    """(name, compressed records, attributes): two good records, and a defect of the stream."""
    good = record() + record(offset=1)
    zipped = gzip.compress(good, mtime=0)
    yield "gzip, raw bytes", good, 1
    yield (
        "gzip, two members",
        gzip.compress(good[:9], mtime=0) + gzip.compress(good[9:], mtime=0),
        1,
    )
    yield "gzip, junk after it", zipped + b"junk", 1
    yield "gzip, zeros after it", zipped + bytes(30), 1
    yield "gzip, wrong crc", zipped[:-8] + b"abcd" + zipped[-4:], 1
    yield "gzip, wrong size", zipped[:-4] + b"abcd", 1
    yield "gzip, no trailer", zipped[:-8], 1
    yield "gzip, half a trailer", zipped[:-3], 1
    yield "gzip, cut off", zipped[:-12], 1
    yield "gzip, with a name", zipped[:3] + b"\x08" + zipped[4:10] + b"name\0" + zipped[10:], 1
    yield "zlib", zlib.compress(good), 1
    raw_snappy = compress("snappy", good)[20:]
    yield "snappy, raw block", raw_snappy, 2
    yield "snappy, raw bytes", good, 2
    stream = compress("snappy", good)
    yield "snappy, version 0", stream[:8] + bytes(8) + stream[16:], 2
    yield "snappy, version 7", stream[:8] + b"\0\0\0\7\0\0\0\7" + stream[16:], 2
    yield "snappy, header alone", stream[:16], 2
    yield "snappy, half a header", stream[:12], 2
    yield "snappy, two streams", compress("snappy", good[:9]) + compress("snappy", good[9:]), 2
    yield "snappy, three bytes after it", stream + b"\0\0\0", 2
    yield "snappy, length 0 after it", stream + b"\0\0\0\0", 2
    yield "snappy, junk after it", stream + b"junkjunk", 2
    yield "snappy, cut off", stream[:-2], 2
    frame = compress("lz4", good)
    yield "lz4, raw bytes", good, 3
    yield "lz4, junk after it", frame + b"junk", 3
    yield "lz4, two frames", compress("lz4", good[:9]) + compress("lz4", good[9:]), 3
    yield "lz4, no end mark", frame[:-4], 3
    yield "lz4, half an end mark", frame[:-2], 3
    yield "lz4, cut off", frame[:-9], 3
    import cramjam

    def lz4(**options: bool) -> bytes:
        compressor = cramjam.lz4.Compressor(level=0, **options)
        compressor.compress(good * 9 if options.get("block_linked") else good)
        return bytes(compressor.finish())

    checked = lz4(content_checksum=True, block_linked=False)
    yield "lz4, content checksum", checked, 3
    yield "lz4, wrong content checksum", checked[:-4] + b"abcd", 3
    yield "lz4, no content checksum", checked[:-4], 3
    yield "lz4, dependent blocks", lz4(content_checksum=False, block_linked=True), 3
    yield "lz4, wrong header checksum", frame[:6] + bytes([frame[6] ^ 1]) + frame[7:], 3
    block = compress("zstd", good)
    yield "zstd, raw bytes", good, 4
    yield "zstd, junk after it", block + b"junkjunk", 4
    yield "zstd, two frames", compress("zstd", good[:9]) + compress("zstd", good[9:]), 4
    yield "zstd, skippable frame", b"\x50\x2a\x4d\x18\x03\0\0\0abc" + block, 4
    yield "zstd, cut off", block[:-2], 4
    for codec, name in enumerate(("gzip", "snappy", "lz4", "zstd"), 1):
        yield f"{name}, nothing", b"", codec
        yield f"{name}, no records", compress(name, b""), codec


def crafted() -> list[tuple[str, bytes]]:
    """(name, batch): each with one defect or one oddity. Streams depend on the compressors of this machine."""
    found: list[tuple[str, bytes]] = []
    for name, section, count in _crafted_records():
        found.append((name, raw(section, count, max_timestamp=BASE_MS)))
        for codec_id, codec in enumerate(("gzip", "snappy", "lz4", "zstd"), 1):
            found.append((f"{codec}: {name}", raw(compress(codec, section), count, codec_id)))
    found += _crafted_headers()
    found += [(name, raw(section, 2, codec)) for name, section, codec in _crafted_streams()]
    return found


# --- verdicts


def create_topics(client: Any) -> None:
    """Create the topics of all cases, with one partition each."""
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=key, value=value)
                for key, value in {**ALIKE, **settings}.items()
            ],
        )
        for name, (settings, _) in TOPICS.items()
    ]
    response = client.ask(CREATE_TOPICS, 5, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
    assert all(topic.error_code == 0 for topic in response.topics), response
    client.settle()


def produce(client: Any, topic: str, batch: bytes) -> list[Any]:
    """The verdict: [error code, base offset, indexes of record errors]."""
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
    answer = client.ask(PRODUCE, 9, request)
    if isinstance(answer, str):
        return [answer, -1, []]
    partition = answer.responses[0].partition_responses[0]
    indexes = [error.batch_index for error in partition.record_errors]
    return [int(partition.error_code), partition.base_offset, indexes]


def stored(client: Any, topic: str) -> dict[int, str]:
    """Digests of the batches in the log by base offset: of their bytes without offset, epoch and CRC."""
    digests: dict[int, str] = {}
    offset = 0
    while True:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        answer = client.ask(FETCH, 11, request).responses[0].partitions[0]
        assert answer.error_code == 0, answer
        records = bytes(answer.records or b"")
        headers = list(iter_batches(records))
        if not headers:
            return digests
        for header in headers:
            digests[header.base_offset] = _digest(records, header, topic)
            offset = header.next_offset


def _digest(records: bytes, header: Any, topic: str) -> str:
    if topic.startswith("to-"):  # written anew by the broker: what readers see of it
        start = records[header.position : header.end]
        try:
            content = [_seen(record) for record in iter_records(start, parse_header(start))]
        except KafkaError:  # not written anew: its codec is the topic's
            content = [tuple(start[HEADER_SIZE:])]
        seen = (header.attributes, header.max_timestamp, *header[10:], content)
        return sha256(repr(seen).encode()).hexdigest()[:10]
    batch = bytearray(records[header.position : header.end])
    if topic == "append-time":  # the broker's clock
        batch[35:43] = bytes(8)
    return sha256(batch[21:]).hexdigest()[:10]


def _seen(record: Record) -> tuple[Any, ...]:
    """A record with names of headers as Kafka rewrites them: bytes that are no UTF-8 are lost."""
    names = (name.encode("utf-8", "surrogateescape") for name, _ in record.headers)
    values = (value for _, value in record.headers)
    headers = [*zip((name.decode("utf-8", "replace") for name in names), values, strict=True)]
    return tuple(record._replace(headers=headers or ()))


def observe(client: Any) -> dict[str, Any]:
    """Send all batches to a broker; what the data file holds of Apache Kafka."""
    create_topics(client)
    batches = bases()
    odd = crafted()
    found: dict[str, Any] = {
        "bases": [batch.hex() for batch in batches],
        "crafted": [[name, batch.hex()] for name, batch in odd],
        "verdicts": {},
        "stored": {},
    }
    for topic in TOPICS:
        sent = sent_to(found, topic)
        found["verdicts"][topic] = [produce(client, topic, batch) for _, batch in sent]
        found["stored"][topic] = stored(client, topic)
    return found


def sent_to(found: dict[str, Any], topic: str) -> list[tuple[str, bytes]]:
    """(name, batch) of all that `observe` has sent to a topic."""
    batches = [bytes.fromhex(batch) for batch in found["bases"]]
    crafted = [(name, bytes.fromhex(batch)) for name, batch in found["crafted"]]
    count = TOPICS[topic][1]
    return crafted + [(f"flipped {n}", flipped(batches, n, topic)) for n in range(count)]


def is_known_difference(name: str, theirs: list[Any], ours: list[Any]) -> bool:
    """Whether kwire means to answer differently; both refuse the batch.

    A compressed record that claims 2 GB, in a topic that stores another codec: the JVM runs out of
    memory, -1 (UNKNOWN_SERVER_ERROR); kwire sees that the batch is shorter, 87 (INVALID_RECORD).
    """
    codes = theirs[0], ours[0]
    return codes == (-1, 87) and name.endswith("size of 2^31-1")
