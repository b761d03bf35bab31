"""Headers, message classes by key, and whole frames."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kwire.protocol.schemas.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.schemas.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kwire.protocol.schemas.headers import RequestHeaderData, ResponseHeaderData
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataResponse


def frame_of(parts: list[bytes | bytearray | memoryview]) -> bytes:
    data = b"".join(parts)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


@pytest.mark.parametrize("client_id", ["kwire", "", None, "é中😀"])
@pytest.mark.parametrize("version", [0, 8, 9, 12])
def test_a_request_is_encoded_and_decoded(version: int, client_id: str | None) -> None:
    request = MetadataRequest(topics=[])
    frame = frame_of(api.encode_request(ApiKey.METADATA, version, 77, client_id, request))
    for data in (frame, bytearray(frame), memoryview(frame)):
        header = api.parse_request_header(data)
        assert (header.api_key, header.api_version) == (ApiKey.METADATA, version)
        assert (header.correlation_id, header.client_id) == (77, client_id)
        assert MetadataRequest.decode_from(data, header.body_position, version)[1] == len(frame)


@pytest.mark.parametrize("key", list(ApiKey))
def test_headers_are_the_ones_that_are_defined_as_messages(key: ApiKey) -> None:
    cls, response = api.request_class(key), api.response_class(key)
    for version in {*cls.versions}:
        frame = frame_of(api.encode_request(key, version, 5, "c", cls()))
        header_version = api.request_header_version(key, version)
        header, end = RequestHeaderData.decode_from(frame, 0, header_version)
        assert header == RequestHeaderData(
            request_api_key=key,
            request_api_version=version,
            correlation_id=5,
            client_id="c" if header_version else "",
        )
        assert api.parse_request_header(frame).body_position == end
        header_version = api.response_header_version(key, version)
        expected = ResponseHeaderData(correlation_id=9).encode(header_version)
        if key != ApiKey.FETCH_SNAPSHOT:  # its default has a null where none may be
            message = response()
            assert frame_of(api.encode_response(key, version, 9, message)).startswith(expected)
            parsed = api.parse_response(key, version, expected + message.encode(version))
            assert parsed[0] == 9


def test_the_response_header_of_api_versions_is_never_flexible() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    frame = frame_of(api.encode_response(ApiKey.API_VERSIONS, 3, 1, response))
    assert frame == b"\0\0\0\1" + response.encode(3)
    assert api.parse_response(ApiKey.API_VERSIONS, 3, frame) == (1, response)


def test_controlled_shutdown_version_0_has_no_client_id() -> None:
    frame = b"\x00\x07\x00\x00" + b"\x00\x00\x00\x05" + b"\x00\x00\x00\x02"
    header = api.parse_request_header(frame)
    assert (header.client_id, header.body_position) == (None, 8)


def test_a_flexible_request_header_keeps_the_old_form_of_the_client_id() -> None:
    frame = frame_of(api.encode_request(18, 3, 1, "abc", ApiVersionsRequest()))
    assert frame.startswith(b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x03abc\x00")


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x03abc" + b"\x01\x05\x02xy" + b"body"
    assert api.parse_request_header(frame).body_position == len(frame) - 4
    response = b"\x00\x00\x00\x01" + b"\x01\x05\x02xy" + MetadataResponse().encode(12)
    assert api.parse_response(ApiKey.METADATA, 12, response) == (1, MetadataResponse())


def test_a_version_after_the_last_has_the_header_of_the_last() -> None:
    frame = b"\x00\x12\x7f\xff\x00\x00\x00\x01\x00\x00\x00"
    assert api.parse_request_header(frame).body_position == len(frame)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x12\x00\x03\x00\x00\x00",
        b"\x00\x12\x00\x03\x00\x00\x00\x01\x00",
        b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x05ab",
        b"\x00\x12\x00\x03\x00\x00\x00\x01\xff\xfe\x00",
        b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x02\xff\xff\x00",
        b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00",
        b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00\x01",
        b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x00\xff\xff\xff\xff\x7f",
        b"\x7f\xff\x00\x03\x00\x00\x00\x01\x00\x00\x00",
        b"\xff\xff\x00\x03\x00\x00\x00\x01\x00\x00\x00",
    ],
)
def test_a_bad_request_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        api.parse_request_header(frame)
    with pytest.raises(MalformedMessage):
        api.parse_request_header(memoryview(frame))


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1\5"])
def test_a_bad_response_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        api.parse_response(ApiKey.METADATA, 12, frame)


def test_records_of_a_response_are_not_copied() -> None:
    records = memoryview(bytes(1 << 20))
    partition = PartitionData(records=records)
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[partition, partition])]
    )
    for version in (4, 12):
        parts = api.encode_response(ApiKey.FETCH, version, 1, response)
        assert sum(part is records for part in parts) == 2
        frame_of(parts)


def test_a_version_that_is_not_there_cannot_be_sent() -> None:
    with pytest.raises(KafkaError) as caught:
        api.encode_request(ApiKey.METADATA, 99, 1, None, MetadataRequest())
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_importing_the_keys_imports_no_definitions() -> None:
    code = (
        "import sys, kwire.protocol.api\n"
        "heavy = [m for m in sys.modules if m.startswith(('kwire.protocol.language.schema', 'construct',"
        " 'dataclasses', 'inspect', 'json', 'kwire.protocol.language.compiler'))]\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_importing_definitions_compiles_nothing() -> None:
    code = (
        "import sys\n"
        "from kwire.protocol.schemas import produce, fetch, metadata\n"
        "assert 'kwire.protocol.language.compiler' not in sys.modules\n"
        "assert not produce.ProduceRequest.decoders"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


@pytest.mark.parametrize("key", list(ApiKey))
def test_a_message_knows_its_api(key: ApiKey) -> None:
    assert api.key_of(api.request_class(key)()) is key
    assert api.key_of(api.response_class(key)()) is key


def test_a_message_that_is_no_request_or_response_has_no_api() -> None:
    with pytest.raises(KeyError):
        api.key_of(RequestHeaderData())
