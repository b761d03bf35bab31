"""Hostile bytes and generated messages: a decoder raises MalformedMessage or nothing, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import random
import time
import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kwire.protocol.catalog import classes_by_name
from kwire.protocol.errors import MalformedMessage
from kwire.protocol.fuzz import fuzz_message, fuzz_one, targets
from kwire.protocol.language.primitives import ArrayKind, Kind, covers, parse_versions
from kwire.protocol.language.schema import Field, Message, Struct, StructType
from kwire.protocol.schemas.fetch import FetchRequest
from kwire.protocol.schemas.metadata import MetadataRequest

DATA = Path(__file__).parents[1] / "data"
SECONDS_FOR_ONE = 2.0
"""Far more than a decode takes even on a busy machine; a loop on the word of a length takes minutes."""


@cache
def samples() -> list[tuple[type[Message], int, bytes]]:
    """One full golden message of each (message, version)."""
    classes = classes_by_name()
    best: dict[tuple[type[Message], int], bytes] = {}
    for name in ("golden-3.9", "golden-4.4"):
        with gzip.open(DATA / f"{name}.jsonl.gz") as lines:
            for line in map(json.loads, lines):
                cls = classes[line["name"]][0]
                version = line["v"]
                if line["case"] in ("filled", "tags") and version <= cls.versions[1]:
                    best[cls, version] = bytes.fromhex(line["hex"])
    return [(cls, version, data) for (cls, version), data in best.items()]


def timed(cls: type[Message], version: int, data: bytes) -> None:
    start = time.perf_counter()
    fuzz_message(cls, version, data)
    assert time.perf_counter() - start < SECONDS_FOR_ONE, (cls, version, data[:200].hex())


BOMBS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x01",
    b"\x80\x80\x80\x80\x08",
    b"\xff",
    b"\x00",
)


def mutations(source: random.Random, data: bytes, count: int) -> Iterator[bytes]:
    """Golden bytes with bits flipped, cut, doubled, or with a length where none fits."""
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(source.choice((1, 1, 2, 5))):
            position = source.randrange(len(changed) + 1)
            match source.randrange(5):
                case 0 if position < len(changed):
                    changed[position] ^= 1 << source.randrange(8)
                case 1:
                    del changed[position:]
                case 2:
                    changed[position:position] = source.randbytes(source.randrange(1, 9))
                case 3:
                    del changed[position : position + source.randrange(1, 9)]
                case _:
                    bomb = source.choice(BOMBS)
                    changed[position : position + len(bomb)] = bomb
        yield bytes(changed)


def test_mutated_golden_bytes_raise_nothing_but_malformed_message() -> None:
    source = random.Random(20240607)
    accepted = rejected = 0
    for cls, version, data in samples():
        for changed in mutations(source, data, 20):
            start = time.perf_counter()
            if fuzz_message(cls, version, changed):
                accepted += 1
            else:
                rejected += 1
            assert time.perf_counter() - start < SECONDS_FOR_ONE, (cls, version, changed.hex())
    assert rejected > accepted > 500  # both paths were taken


def test_a_length_that_claims_too_much_anywhere_costs_nothing() -> None:
    """At each of the first 50 positions: time and memory stay those of the bytes that are there."""
    tracemalloc.start()
    try:
        for cls, version, data in samples():
            if version != cls.versions[1]:
                continue
            for position in range(min(len(data), 50)):
                for bomb in BOMBS[:1] + BOMBS[5:6]:
                    timed(cls, version, data[:position] + bomb + data[position + len(bomb) :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF])
def test_a_megabyte_of_one_byte_is_nothing_to_any_decoder(byte: int) -> None:
    data = bytes((byte,)) * (1 << 20)
    for cls, version in targets():
        if version in cls.versions:
            timed(cls, version, data)


def test_the_size_of_a_decoded_message_is_bounded() -> None:
    """Two or three bytes can stand for an object; there is an end to how many."""
    elements = (4 << 20).to_bytes(4, "big")
    topics = bytes(12) + elements  # Fetch version 0: topics of 6 bytes each
    with pytest.raises(MalformedMessage, match="elements"):
        FetchRequest.decode(topics + bytes(6 * (4 << 20)), 0)
    tags = b"\x80\x80\x80\x02" + bytes(12 << 20)
    with pytest.raises(MalformedMessage):
        MetadataRequest.decode(b"\x00\x00\x00" + tags, 12)


def test_random_bytes_reach_the_fuzz_target_unharmed() -> None:
    source = random.Random(7)
    for _ in range(3000):
        fuzz_one(source.randbytes(source.randrange(0, 80)))
    fuzz_one(b"")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x00\x00", "early"),
        (b"\x02" + bytes(6), "topics of 1 elements"),
        (b"\x00\x00\x00\x02\x09\x01x\x08\x00", "tag 8 after tag 9"),
        (b"\x00\x00\x00\x02\x09\x00\x09\x00", "tag 9 after tag 9"),
        (b"\x00\x00\x00\x01\x09\x05abc", "tag 9 has 5 bytes"),
        (b"\x00\x00\x00\x80\x80\x80\x80\x80\x01", "varint is longer"),
        (b"\xff\xff\xff\xff\x0f\x00\x00\x00", "length or count"),
        (b"\x02" + bytes(16) + b"\xff\xff\x03" + bytes(65535), "string of"),
        (b"\x02" + bytes(16) + b"\x02\xff\x00\x00\x00\x00", "garbled"),
    ],
)
def test_errors_name_the_problem(data: bytes, what: str) -> None:
    with pytest.raises(MalformedMessage, match=what) as caught:
        MetadataRequest.decode(data, 12)
    assert str(caught.value).startswith("MetadataRequest v12")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
}
OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": TEXT,
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
}


@st.composite
def structures(draw: st.DrawFn, cls: StructType, version: int, flexible: bool) -> Struct:
    values = {
        name: draw(values_of(field, field.kind, version, flexible))
        for name, field in cls.fields.items()
        if field.versions is None or covers(parse_versions(field.versions), version)
    }
    struct: Struct = cls(**values)
    if flexible and draw(st.integers(0, 9)) == 0:
        tags = draw(st.dictionaries(st.integers(50, 1 << 20), st.binary(max_size=5), max_size=3))
        struct.unknown_tags = sorted(tags.items()) or None
    return struct


def values_of(
    field: Field, kind: Kind | type, version: int, flexible: bool
) -> st.SearchStrategy[Any]:
    if isinstance(kind, ArrayKind):
        strategy = st.lists(values_of(field, kind.element, version, flexible), max_size=3)
    elif isinstance(kind, StructType):
        strategy = structures(kind, version, flexible)
    else:
        assert isinstance(kind, Kind)
        if kind.name in NUMBERS:
            return st.integers(*NUMBERS[kind.name])
        strategy = OTHERS[kind.name]
    if kind is field.kind and covers(parse_versions(field.nullable), version):
        return st.none() | strategy
    return strategy


@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def round_trip(cls: type[Message], version: int, data: st.DataObject) -> None:
    flexible = covers(cls.flexible, version)
    message = data.draw(structures(cls, version, flexible))
    assert isinstance(message, cls)
    encoded = message.encode(version)
    decoded, position = cls.decode_from(encoded, 0, version)
    assert decoded == message
    assert position == len(encoded)
    assert decoded.encode(version) == encoded


GROUPS = 8


@pytest.mark.parametrize("group", range(GROUPS))
def test_generated_messages_come_back_the_same(group: int) -> None:
    for cls, version in targets()[group::GROUPS]:
        round_trip(cls, version)  # type: ignore[call-arg]
