"""Messages decoded and encoded in parts: the same as in one piece, with turns in between."""

from __future__ import annotations

import gzip
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from kwire.protocol.catalog import classes_by_name
from kwire.protocol.errors import KafkaError, MalformedMessage
from kwire.protocol.language.parts import decode_in_parts, encode_in_parts
from kwire.protocol.language.source_writer import ELEMENTS_A_PART, UNITS_AN_ELEMENT
from kwire.protocol.schemas.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kwire.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

DATA = Path(__file__).parents[1] / "data"


def all_of(parts: Generator[int, None, Any]) -> tuple[Any, list[int]]:
    costs = []
    try:
        while True:
            costs.append(next(parts))
    except StopIteration as done:
        return done.value, costs


@pytest.mark.parametrize("version", range(14))
def test_a_large_request_is_decoded_in_parts(version: int) -> None:
    names = [MetadataRequestTopic(name=f"t{i}") for i in range(1000)]
    data = b"before" + MetadataRequest(topics=names).encode(version)
    message, costs = all_of(decode_in_parts(MetadataRequest, memoryview(data), 6, version))
    assert message == MetadataRequest.decode(data[6:], version)
    assert len(costs) == 1 + 1000 // ELEMENTS_A_PART
    assert max(costs) == ELEMENTS_A_PART * UNITS_AN_ELEMENT
    with pytest.raises(MalformedMessage) as cut:
        all_of(decode_in_parts(MetadataRequest, memoryview(data)[:-50], 6, version))
    with pytest.raises(MalformedMessage) as whole:
        MetadataRequest.decode(data[6:-50], version)
    assert str(cut.value).partition("near")[0] == str(whole.value).partition("near")[0]


@pytest.mark.parametrize("version", range(14))
def test_a_large_response_is_encoded_in_parts(version: int) -> None:
    partitions = [MetadataResponsePartition(partition_index=i) for i in range(3)]
    topics = [
        MetadataResponseTopic(name=f"t{i}", partitions=partitions if i % 2 else [])
        for i in range(3000)
    ]
    response = MetadataResponse(topics=topics)
    parts, costs = all_of(encode_in_parts(response, version))
    assert b"".join(parts) == response.encode(version)
    assert len(parts) > 1
    assert max(costs) == ELEMENTS_A_PART * UNITS_AN_ELEMENT
    assert len(costs) > 3000 // ELEMENTS_A_PART


def test_records_stay_views() -> None:
    records = memoryview(bytes(100))
    partitions = [PartitionData(partition_index=i, records=records) for i in range(500)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    parts, _ = all_of(encode_in_parts(response, 12))
    assert sum(part is records for part in parts) == 500
    assert b"".join(parts) == response.encode(12)


def test_what_cannot_be_encoded_is_refused() -> None:
    topics = [MetadataResponseTopic(name="t", partitions=None)]  # type: ignore[arg-type]
    with pytest.raises(KafkaError, match="partitions"):
        all_of(encode_in_parts(MetadataResponse(topics=topics), 9))


def test_kafkas_own_messages_are_decoded_and_encoded_alike() -> None:
    """All kinds of fields, arrays of uuids and tagged fields among them. Every fifth: each compiles."""
    classes = classes_by_name()
    with gzip.open(DATA / "golden-4.4.jsonl.gz") as lines:
        some = [json.loads(text) for text in list(lines)[::5]]
    for line in some:
        kind, data, version = classes[line["name"]][0], bytes.fromhex(line["hex"]), line["v"]
        message = kind.decode(data, version)
        found, _ = all_of(decode_in_parts(kind, memoryview(data), 0, version))
        assert found == message
        parts, _ = all_of(encode_in_parts(message, version))
        assert b"".join(parts) == message.encode(version)
    assert len(some) > 700
