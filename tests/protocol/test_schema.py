"""The definition language: classes, defaults, constructors, and what the encoder refuses."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.protocol.catalog import all_messages, classes_by_name
from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kwire.protocol.language.primitives import covers, parse_versions
from kwire.protocol.language.reference import plain
from kwire.protocol.language.schema import ZERO_UUID, Message, construct_for
from kwire.protocol.schemas.fetch import EpochEndOffset, FetchResponse, PartitionData
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.protocol.schemas.offsets import OffsetCommitRequest
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData

DATA = Path(__file__).parents[1] / "data"


def test_every_field_has_a_default_and_lists_are_not_shared() -> None:
    first, second = ProduceRequest(), ProduceRequest()
    assert (first.transactional_id, first.acks, first.topic_data) == (None, 0, [])
    first.topic_data.append(TopicProduceData(name="a"))
    assert second.topic_data == []
    assert TopicProduceData().topic_id == ZERO_UUID


def test_a_default_structure_cannot_be_changed_by_accident() -> None:
    partition = PartitionData()
    with pytest.raises(AttributeError, match="assign a new one"):
        partition.diverging_epoch.epoch = 3
    partition.diverging_epoch = EpochEndOffset(epoch=3)
    assert PartitionData().diverging_epoch == EpochEndOffset() != partition.diverging_epoch


def test_an_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        ProduceRequest(ack=1)  # type: ignore[call-arg]


def test_equality_is_by_fields_and_the_form_for_people_leaves_defaults_out() -> None:
    one, other = MetadataRequestTopic(name="a"), MetadataRequestTopic(name="a")
    assert one == other != MetadataRequestTopic(name="b")
    assert one != TopicProduceData(name="a")
    assert repr(MetadataRequest(topics=[one])) == (
        "MetadataRequest(topics=[MetadataRequestTopic(name='a')])"
    )


def test_version_ranges() -> None:
    assert parse_versions("3-5") == (3, 5)
    assert parse_versions("7") == (7, 7)
    assert covers(parse_versions("9+"), 12)
    assert not covers(parse_versions(None), 0)
    assert ProduceRequest.versions == (0, 13)
    assert ProduceRequest.flexible is not None
    assert ProduceRequest.flexible[0] == 9


def refusal(message: Message, version: int) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        message.encode(version)
    return caught.value


def test_a_value_that_the_version_cannot_carry_is_refused_unless_ignorable() -> None:
    request = ProduceRequest(transactional_id="t")
    error = refusal(request, 2)
    assert error.code == ErrorCode.UNSUPPORTED_VERSION
    assert "transactional_id" in str(error)
    with_id = ProduceRequest(topic_data=[TopicProduceData(name="a", topic_id=bytes(range(16)))])
    assert ProduceRequest.decode(with_id.encode(9), 9).topic_data[0].topic_id == ZERO_UUID
    group_instance = OffsetCommitRequest(group_id="g", group_instance_id="i")
    assert refusal(group_instance, 6).code == ErrorCode.UNSUPPORTED_VERSION


def test_a_version_that_does_not_exist_is_refused_both_ways() -> None:
    assert refusal(ProduceRequest(), 14).code == ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(MalformedMessage, match="versions 0-13"):
        ProduceRequest.decode(b"", 14)


@pytest.mark.parametrize("version", [8, 9])
def test_values_that_do_not_fit_the_wire_are_refused_by_name(version: int) -> None:
    def produce(**values: Any) -> ProduceRequest:
        return ProduceRequest(topic_data=[TopicProduceData(**values)])

    cases = [
        (produce(name=None), "topic_data[0].name must not be null"),
        (produce(name="x" * 32768), "topic_data[0].name has 32768 bytes"),
        (produce(name="\ud800"), "topic_data[0].name is not valid Unicode"),
        (produce(partition_data=None), "partition_data must not be null"),
        (ProduceRequest(acks=32768), "acks is out of range: 32768"),
        (produce(partition_data=[PartitionProduceData(index=1 << 31)]), "partition_data[0].index"),
    ]
    for message, text in cases:
        error = refusal(message, version)
        assert error.code == ErrorCode.INVALID_REQUEST
        assert text in str(error)


def test_a_tagged_field_cannot_be_written_in_an_inflexible_version() -> None:
    message = ProduceRequest(unknown_tags=[(5, b"x")])
    assert ProduceRequest.decode(message.encode(9), 9).unknown_tags == [(5, b"x")]
    assert refusal(message, 8).code == ErrorCode.UNSUPPORTED_VERSION


def test_records_are_views_when_read_and_parts_of_their_own_when_written() -> None:
    records = bytes(5000)
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(
                name="a",
                partition_data=[
                    PartitionProduceData(index=0, records=records),
                    PartitionProduceData(index=1, records=None),
                    PartitionProduceData(index=2, records=memoryview(records)),
                ],
            )
        ]
    )
    for version in (3, 9):
        parts = request.encode_parts(version)
        assert [part is records for part in parts].count(True) == 1
        assert sum(isinstance(part, memoryview) for part in parts) == 1
        assert b"".join(parts) == request.encode(version)
        frame = bytearray(request.encode(version))
        decoded = ProduceRequest.decode(frame, version)
        view = decoded.topic_data[0].partition_data[0].records
        assert isinstance(view, memoryview)
        assert view.obj is frame
        assert decoded == request
        assert decoded.topic_data[0].partition_data[1].records is None


def test_unfit_records_length_does_not_reach_past_the_frame() -> None:
    response = FetchResponse().encode(12)
    with pytest.raises(MalformedMessage):
        FetchResponse.decode(response[:-1], 12)


def golden_samples() -> Iterator[tuple[str, type[Message], int, bytes]]:
    """The fullest golden line of each (message, version)."""
    classes = classes_by_name()
    best: dict[tuple[str, int], dict[str, Any]] = {}
    for name in ("golden-3.9", "golden-4.4"):
        with gzip.open(DATA / f"{name}.jsonl.gz") as lines:
            for line in map(json.loads, lines):
                if line["case"] in ("filled", "tags"):
                    best[line["name"], line["v"]] = line
    for (name, version), line in best.items():
        cls = classes[name][0]
        if cls.record_type is not None and name.endswith("Key"):
            version = 0
        yield name, cls, version, bytes.fromhex(line["hex"])


def test_compiled_code_equals_the_interpreted_definition() -> None:
    seen = set()
    for name, cls, version, data in golden_samples():
        message = cls.decode(data, version)
        flexible = covers(cls.flexible, version)
        interpreted = construct_for(cls, version)
        assert interpreted.parse(data) == plain(message, version, flexible), (name, version)
        assert interpreted.build(plain(message, version, flexible)) == message.encode(version)
        seen.add((cls, version))
    missing = {
        (cls.__name__, version)
        for _, cls in all_messages()
        for version in range(cls.versions[0], cls.versions[1] + 1)
        if (cls, version) not in seen
    }
    assert {name for name, _ in missing} <= NOT_GOLDEN


NOT_GOLDEN = {
    "UnstableReadShareGroupStateSummaryResponse",  # samples of these two come under the stable names
    "UnstableShareGroupMetadataValue",
}
