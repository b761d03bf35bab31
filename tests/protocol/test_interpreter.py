"""The first messages of a kind are interpreted: with the same result as compiled code, or not at all."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kwire.protocol.catalog import all_messages, classes_by_name
from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kwire.protocol.language import schema
from kwire.protocol.language.interpreter import FirstDecoder, FirstEncoder, LeftToCompiled
from kwire.protocol.language.schema import Message
from kwire.protocol.schemas.fetch import FetchResponse
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData

DATA = Path(__file__).parents[1] / "data"
USES = 3


@pytest.fixture
def some_uses(compiled: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Messages are interpreted three times, whatever the process has done with them before."""
    monkeypatch.setattr(schema, "INTERPRETED_USES", USES)
    for _, cls in all_messages():
        cls.decoders.clear()
        cls.encoders.clear()
    yield
    for _, cls in all_messages():
        cls.decoders.clear()
        cls.encoders.clear()


@cache
def golden() -> list[tuple[type[Message], int, bytes]]:
    """All golden messages of Kafka 4.4."""
    classes = classes_by_name()
    with gzip.open(DATA / "golden-4.4.jsonl.gz") as lines:
        found = [json.loads(line) for line in lines]
    return [(classes[line["name"]][0], line["v"], bytes.fromhex(line["hex"])) for line in found]


def interpreted(cls: type[Message], version: int, data: bytes) -> tuple[Any, int] | None:
    """What the interpreter decodes; None where it leaves that to compiled code."""
    try:
        return FirstDecoder(cls, version).interpret(data, 0)
    except Exception:
        return None


def encoded(message: Message, version: int) -> tuple[list[Any], list[int]] | None:
    """The parts that the interpreter encodes; None where it leaves that to compiled code."""
    parts: list[Any] = []
    marks: list[int] = []
    try:
        FirstEncoder(type(message), version).interpret(message, parts, marks)
    except Exception:
        return None
    return parts, marks


def shape(value: Any) -> Any:
    """A value with the types in it: True is not 1 here, a view is not bytes."""
    if isinstance(value, schema.Struct):
        names = ("unknown_tags", *type(value).fields)
        return type(value), [(name, shape(getattr(value, name))) for name in names]
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value), value


def test_golden_messages_are_decoded_as_by_compiled_code() -> None:
    known = 0
    for cls, version, data in golden():
        found = interpreted(cls, version, data)
        if found is not None:
            compiled = cls.decode_from(data, 0, version)
            assert (shape(found[0]), found[1]) == (shape(compiled[0]), compiled[1])
            known += 1
    assert known > len(golden()) * 0.7  # the others have tagged fields


def test_golden_messages_are_encoded_as_by_compiled_code() -> None:
    known = 0
    for cls, version, data in golden():
        message = cls.decode(data, version)
        found = encoded(message, version)
        if found is not None:
            parts, marks = found
            assert schema._join_pieces(parts, marks) == message.encode_parts(version) or not data
            assert b"".join(parts) == data
            known += 1
    assert known > len(golden()) * 0.7


def test_no_message_with_default_values_needs_the_compiler() -> None:
    left = []
    for _, cls in all_messages():
        for version in range(cls.versions[0], cls.versions[1] + 1):
            try:
                cls().encode(version)
            except KafkaError:
                continue  # a null that this version has not
            if encoded(cls(), version) is None:
                left.append((cls.__name__, version))
    assert left == []


BOMBS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff", b"\0", b"\x80")


def test_the_interpreter_accepts_no_bytes_that_compiled_code_refuses() -> None:
    source = random.Random(20261122)
    accepted = 0
    for cls, version, data in golden():
        for _ in range(4):
            changed = bytearray(data)
            position = source.randrange(len(changed) + 1)
            bomb = source.choice((*BOMBS, source.randbytes(source.randrange(9))))
            match source.randrange(3):
                case 0:
                    changed[position : position + len(bomb)] = bomb
                case 1:
                    changed[position:position] = bomb
                case _:
                    del changed[position:]
            found = interpreted(cls, version, bytes(changed))
            if found is not None:
                compiled = cls.decode_from(bytes(changed), 0, version)
                assert (shape(found[0]), found[1]) == (shape(compiled[0]), compiled[1])
                accepted += 1
    assert accepted > 500


@pytest.mark.usefixtures("some_uses")
def test_after_some_messages_a_compiled_function_takes_over() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    for _ in range(USES):
        data = request.encode(12)
        assert MetadataRequest.decode(data, 12) == request
        assert isinstance(MetadataRequest.encoders[12], FirstEncoder)
        assert isinstance(MetadataRequest.decoders[12], FirstDecoder)
    assert MetadataRequest.decode(request.encode(12), 12) == request
    assert MetadataRequest.encoders[12].__name__ == "encode"
    assert MetadataRequest.decoders[12].__name__ == "decode"
    assert not isinstance(MetadataRequest.decoders[11], type(MetadataRequest.decoders[12]))


@pytest.mark.usefixtures("some_uses")
@pytest.mark.parametrize("count", [129, 3000])
def test_a_large_message_is_compiled_at_once(count: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{n}") for n in range(count)])
    data = request.encode(12)
    assert MetadataRequest.encoders[12].__name__ == "encode"
    assert MetadataRequest.decode(data, 12) == request
    assert MetadataRequest.decoders[12].__name__ == "decode"


@pytest.mark.usefixtures("some_uses")
def test_errors_are_those_of_compiled_code() -> None:
    with pytest.raises(MalformedMessage, match="ProduceRequest v9: ends early"):
        ProduceRequest.decode(b"\0\0\1", 9)
    with pytest.raises(KafkaError, match=r"topic_data\[0\].name must not be null") as caught:
        ProduceRequest(topic_data=[TopicProduceData(name=None)]).encode(9)  # type: ignore[arg-type]
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.usefixtures("some_uses")
def test_nothing_is_left_of_an_encoding_that_was_given_up() -> None:
    """The tag comes last, after records."""
    partitions = [PartitionProduceData(index=0, records=b"r" * 300)]
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="a", partition_data=partitions)],
        unknown_tags=[(5, b"x")],
    )
    parts = request.encode_parts(9)
    assert parts.count(b"r" * 300) == 1
    assert ProduceRequest.decode(b"".join(parts), 9) == request


@pytest.mark.usefixtures("some_uses")
def test_records_are_views_and_parts_of_their_own() -> None:
    records = bytes(20_000)
    data = TopicProduceData(name="a", partition_data=[PartitionProduceData(records=records)])
    parts = ProduceRequest(topic_data=[data]).encode_parts(9)
    assert [part is records for part in parts].count(True) == 1
    frame = bytearray(b"".join(parts))
    view = ProduceRequest.decode(frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview) and view.obj is frame and len(view) == 20_000
    assert isinstance(ProduceRequest.decoders[9], FirstDecoder)


def test_what_the_interpreter_does_not_know_is_an_exception_of_its_own() -> None:
    with pytest.raises(LeftToCompiled):
        FirstEncoder(FetchResponse, 12).interpret(FetchResponse(unknown_tags=[(9, b"")]), [], [])
