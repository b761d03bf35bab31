from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from recorded import RecordedContext

from kwire.apis import BY_KEY
from kwire.apis.api_versions import handle_api_versions
from kwire.apis.sasl import handle_sasl_authenticate, handle_sasl_handshake
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.cluster import (
    DescribableLogDirTopic,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
)
from kwire.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_described_for_the_clients_listener(admin: Any, version: int) -> None:
    admin.listener = "OUTSIDE"
    response = admin.call(DescribeClusterRequest(), version)
    assert (response.error_code, response.controller_id) == (0, 1)
    assert [(b.broker_id, b.host, b.port) for b in response.brokers] == [(1, "outside", 19092)]
    assert response.cluster_authorized_operations == -(2**31)


def test_authorized_operations_are_returned_when_requested(admin: Any) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert admin.call(request, 1).cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_a_broker_describes_brokers_only(admin: Any, endpoint_type: int, error: ErrorCode) -> None:
    response = admin.call(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert response.error_code == error
    assert response.brokers == []


def test_transactions_are_the_only_feature_that_is_claimed_and_no_quorum_is(admin: Any) -> None:
    """A metadata.version would promise what only KRaft has; the absence of others means classic protocols."""
    session: Any = SimpleNamespace(principal="User:ANONYMOUS", identify=lambda *_: None)
    context = RecordedContext(3, session, admin.services, key=ApiKey.API_VERSIONS)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = context.handled_by(BY_KEY[ApiKey.API_VERSIONS].handler, request)
    assert response.error_code == 0 and response.api_keys
    assert (
        response.supported_features == []
    )  # those from version 0 on are left out before version 4
    (feature,) = response.finalized_features
    assert (feature.name, feature.max_version_level) == ("transaction.version", 2)
    assert not response.zk_migration_ready
    # Whatever --as-version: it cuts what this table has.
    assert not {ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES} & BY_KEY.keys()


def test_log_directories_show_the_replicas_in_them(admin: Any) -> None:
    admin.create("a", 2)
    admin.create("b")
    response = admin.call(DescribeLogDirsRequest(topics=None), 4)
    (result,) = response.results
    shown = {(t.name, p.partition_index) for t in result.topics for p in t.partitions}
    assert shown == {("a", 0), ("a", 1), ("b", 0)}
    some = [DescribableLogDirTopic(topic="a", partitions=[1, 7])]
    (result,) = admin.call(DescribeLogDirsRequest(topics=some), 1).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in result.topics] == [
        ("a", [1])
    ]


def test_a_broker_is_described_to_clients_of_its_listeners(admin: Any) -> None:
    admin.listener = "ELSEWHERE"
    assert admin.call(DescribeClusterRequest(), 2).brokers == []


def log_dirs(admin: Any) -> Any:
    (result,) = admin.call(DescribeLogDirsRequest(topics=None), 4).results
    return result


def test_a_follower_that_is_behind_its_high_watermark_says_by_how_much(admin: Any) -> None:
    admin.create("a")
    log = admin.services.log_manager.get("a", 0)
    assert log_dirs(admin).topics[0].partitions[0].offset_lag == 0
    log.high_watermark = 3
    assert log_dirs(admin).topics[0].partitions[0].offset_lag == 3


def test_a_directory_whose_file_system_cannot_be_asked_has_failed(admin: Any) -> None:
    def disk_space(path: str) -> tuple[int, int]:
        raise OSError(5, "Input/output error")

    admin.services.disk_space = disk_space
    assert log_dirs(admin).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (directory,) = admin.services.log_manager.directories
    assert not directory.is_online


# ApiVersions


def versions(admin: Any, version: int = 3, **fields: Any) -> tuple[Any, list[tuple[str, str]]]:
    """The response, and as what the client has identified itself."""
    known: list[tuple[str, str]] = []
    session: Any = SimpleNamespace(
        listener_name="PLAINTEXT", identify=lambda *words: known.append(words)
    )
    context = RecordedContext(version, session, admin.services, key=18)
    names = {"client_software_name": "a-client", "client_software_version": "1.2"}
    request = ApiVersionsRequest(**({**names, **fields} if version >= 3 else fields))
    return context.handled_by(handle_api_versions, request), known


def test_a_client_is_known_by_its_software(admin: Any) -> None:
    response, known = versions(admin)
    assert (response.error_code, known) == (0, [("a-client", "1.2")])
    assert {key.api_key for key in response.api_keys} == set(admin.services.api_ranges)
    assert versions(admin, 2)[1] == []


@pytest.mark.parametrize("word", ["", "-a", "a-", ".a", "a.", "a b", "ä", "a/b"])
@pytest.mark.parametrize("field", ["client_software_name", "client_software_version"])
def test_software_is_letters_and_digits_with_dots_and_dashes_within(
    admin: Any, field: str, word: str
) -> None:
    response, known = versions(admin, **{field: word})
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.api_keys == [] and known == []


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"node_id": 1}, ErrorCode.NONE),
        ({"node_id": 2}, ErrorCode.REBOOTSTRAP_REQUIRED),
        ({"cluster_id": "another"}, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_a_client_that_expects_another_broker_bootstraps_again(
    admin: Any, fields: dict[str, Any], error: ErrorCode
) -> None:
    assert versions(admin, 5, **fields)[0].error_code == error
    assert versions(admin, 5, cluster_id=admin.services.cluster_id)[0].error_code == 0


# SASL


@pytest.mark.parametrize(
    ("handler", "request_"),
    [
        (handle_sasl_handshake, SaslHandshakeRequest(mechanism="PLAIN")),
        (handle_sasl_authenticate, SaslAuthenticateRequest()),
    ],
    ids=["handshake", "authenticate"],
)
def test_sasl_is_refused_and_ends_the_connection(admin: Any, handler: Any, request_: Any) -> None:
    context = RecordedContext(1, SimpleNamespace(listener_name="PLAINTEXT"), admin.services)
    response = context.handled_by(handler, request_)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert context.closed == ["SASL at a plaintext listener"]
