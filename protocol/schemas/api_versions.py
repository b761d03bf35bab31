"""The first request of every connection."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class ApiVersionsRequest(Message, versions="0-5", flexible="3+"):
    """Asks which APIs and versions a broker serves; the first request. Unknown versions are answered in version 0."""

    client_software_name: str = field(STRING, "3+", ignorable=True)
    client_software_version: str = field(STRING, "3+", ignorable=True)
    cluster_id: str | None = field(STRING, "5+", nullable="0+", default=None, ignorable=True)
    node_id: int = field(INT32, "5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class SupportedFeatureKey(Struct):
    name: str = field(STRING)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class FinalizedFeatureKey(Struct):
    name: str = field(STRING)
    max_version_level: int = field(INT16)
    min_version_level: int = field(INT16)


class ApiVersionsResponse(Message, versions="0-5", flexible="3+"):
    """The ranges, and feature levels from version 3 on (KIP-584). Its header is version 0 in every version."""

    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        array(SupportedFeatureKey), "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = field(INT64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        array(FinalizedFeatureKey), "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = field(BOOLEAN, "3+", tag=3, ignorable=True)
