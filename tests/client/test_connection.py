"""The client's half of a connection, in bytes: versions, lengths, and what a broker may get
wrong."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.apis import served_ranges
from kwire.apis.releases import known_releases, release_ranges
from kwire.client.connection import (
    MAX_RESPONSE_BYTES,
    NEWEST,
    Connection,
    NoResponseError,
    parse_address,
)
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from kwire.protocol.schemas.topics import ElectLeadersRequest


def sent(data: bytes | None) -> api.RequestHeader:
    assert data is not None and int.from_bytes(data[:4], "big") == len(data) - 4
    return api.parse_request_header(data[4:])


def response(header: api.RequestHeader, message: Any) -> bytes:
    parts = api.encode_response(header.api_key, header.api_version, header.correlation_id, message)
    return b"".join(parts)


def serving(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    keys = [
        ApiVersion(api_key=ApiKey[name], min_version=low, max_version=high)
        for name, (low, high) in ranges.items()
    ]
    return ApiVersionsResponse(api_keys=keys)


def result(exchange: Any, data: bytes) -> Any:
    with pytest.raises(StopIteration) as done:
        exchange.send(data)
    return done.value.value


def test_a_request_becomes_bytes_and_bytes_the_response() -> None:
    exchange = Connection("me").ask(MetadataRequest(topics=[]), 9)
    header = sent(next(exchange))
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.METADATA, 9, "me")
    assert next(exchange) is None
    data = response(header, MetadataResponse(cluster_id="here"))
    for position in range(len(data) - 1):
        assert exchange.send(data[position : position + 1]) is None
    assert result(exchange, data[-1:]).cluster_id == "here"


@pytest.mark.parametrize(
    ("served", "chosen"), [((0, 13), NEWEST[ApiKey.METADATA]), ((0, 5), 5), ((11, 11), 11)]
)
def test_the_newest_version_that_both_sides_have(served: tuple[int, int], chosen: int) -> None:
    connection = Connection("me")
    exchange = connection.ask(MetadataRequest(topics=[]))
    header = sent(next(exchange))
    assert (header.api_key, header.api_version) == (ApiKey.API_VERSIONS, 0)
    assert next(exchange) is None
    header = sent(exchange.send(response(header, serving(METADATA=served))))
    assert (header.api_key, header.api_version) == (ApiKey.METADATA, chosen)
    assert next(exchange) is None
    result(exchange, response(header, MetadataResponse()))

    again = sent(next(connection.ask(MetadataRequest(topics=[]))))
    assert (again.api_key, again.api_version) == (ApiKey.METADATA, chosen)
    assert again.correlation_id == header.correlation_id + 1


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ({ApiKey.METADATA: (0, 12)}, "the broker serves no version of ElectLeaders"),
        ({ApiKey.ELECT_LEADERS: (3, 4)}, "the broker serves versions 3 to 4 of ElectLeaders"),
    ],
)
def test_no_common_version(ranges: dict[int, tuple[int, int]], words: str) -> None:
    with pytest.raises(KafkaError, match=words) as caught:
        next(Connection("me", ranges).ask(ElectLeadersRequest()))
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("size", [0, 3, MAX_RESPONSE_BYTES + 1, 2**32 - 1])
def test_a_length_is_checked_before_it_counts(size: int) -> None:
    exchange = Connection("me").ask(MetadataRequest(topics=[]), 9)
    assert next(exchange) and next(exchange) is None
    with pytest.raises(NoResponseError, match=f"^an answer of {size} bytes$"):
        exchange.send(size.to_bytes(4, "big"))


@pytest.mark.parametrize("received", [b"", b"\0\0", b"\0\0\0\x09", b"\0\0\0\x09\0\0\0\x01"])
def test_a_connection_that_ends_early(received: bytes) -> None:
    exchange = Connection("me").ask(MetadataRequest(topics=[]), 9)
    assert next(exchange) and next(exchange) is None
    with pytest.raises(NoResponseError, match=r"^the broker closed the connection$"):
        if received:
            assert exchange.send(received) is None
        exchange.send(b"")


def test_an_answer_that_is_none() -> None:
    exchange = Connection("me").ask(MetadataRequest(topics=[]), 9)
    assert next(exchange) and next(exchange) is None
    with pytest.raises(NoResponseError, match="MetadataResponse"):
        exchange.send(b"\0\0\0\x06\0\0\0\x01\0\xff")


def test_an_answer_to_another_request() -> None:
    exchange = Connection("me").ask(ApiVersionsRequest(), 0)
    header = sent(next(exchange))
    assert next(exchange) is None
    header.correlation_id += 1
    with pytest.raises(NoResponseError, match="request 2, which was not sent"):
        exchange.send(response(header, ApiVersionsResponse()))


def test_every_version_that_is_written_exists() -> None:
    for key, version in NEWEST.items():
        request = api.request_class(key)
        assert api.key_of(request()) == key
        assert request.versions[0] <= version <= request.versions[1]


def test_kwire_serves_every_version_that_is_written() -> None:
    ranges = served_ranges(None)
    for key, version in NEWEST.items():
        assert ranges[key][0] <= version <= ranges[key][1]


# The APIs that came later than a release.
_TRANSACTIONS = {"DESCRIBE_TRANSACTIONS", "LIST_TRANSACTIONS"}
_SINCE_2_6 = {
    "DESCRIBE_PRODUCERS",
    "DESCRIBE_CLIENT_QUOTAS",
    "ALTER_CLIENT_QUOTAS",
    "DESCRIBE_USER_SCRAM_CREDENTIALS",
    "ALTER_USER_SCRAM_CREDENTIALS",
    *_TRANSACTIONS,
}
LATER = {
    "2.8.2": _TRANSACTIONS,
    "2.4.1": _SINCE_2_6,
    "2.0.1": {
        *_SINCE_2_6,
        "ELECT_LEADERS",
        "INCREMENTAL_ALTER_CONFIGS",
        "ALTER_PARTITION_REASSIGNMENTS",
        "LIST_PARTITION_REASSIGNMENTS",
    },
}


@pytest.mark.parametrize("release", known_releases())
def test_every_release_serves_a_version_that_is_written(release: str) -> None:
    ranges = release_ranges(release)
    missing = {
        key.name
        for key, newest in NEWEST.items()
        if key not in ranges or not ranges[key][0] <= newest
    }
    assert missing == LATER.get(release, set())


@pytest.mark.parametrize("text", ["", "nowhere", ":1", "a:", "a:0", "a:65536", "a:١", "a:-1"])
def test_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is no HOST:PORT"):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address(" localhost:9092 ") == ("localhost", 9092)
    assert parse_address("[::1]:65535") == ("::1", 65535)
