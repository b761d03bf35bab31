from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from recorded import RecordedContext

from kwire.apis import BY_KEY
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.cluster import (
    DescribableLogDirTopic,
    DescribeClusterRequest,
    DescribeLogDirsRequest,
)


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


def test_no_feature_is_claimed_and_no_quorum(admin: Any) -> None:
    """A metadata.version would promise what only KRaft has; the absence of others means classic protocols."""
    session: Any = SimpleNamespace(identify=lambda *_: None)
    context = RecordedContext(3, session, admin.services, key=ApiKey.API_VERSIONS)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = context.handled_by(BY_KEY[ApiKey.API_VERSIONS].handler, request)
    assert response.error_code == 0 and response.api_keys
    assert (response.supported_features, response.finalized_features) == ([], [])
    assert (response.finalized_features_epoch, response.zk_migration_ready) == (-1, False)
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
