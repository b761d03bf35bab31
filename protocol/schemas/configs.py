"""Configuration of brokers, topics, groups and clients."""

from __future__ import annotations

from kwire.protocol.language.schema import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class DescribeConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(array(STRING), nullable="0+")


class DescribeConfigsRequest(Message, versions="0-4", flexible="4+"):
    """Asks for configuration values of brokers, topics, groups and clients."""

    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOLEAN, "1+")
    include_documentation: bool = field(BOOLEAN, "3+")


class DescribeConfigsSynonym(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    source: int = field(INT8)


class DescribeConfigsResourceResult(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    read_only: bool = field(BOOLEAN)
    is_default: bool = field(BOOLEAN, "0")
    config_source: int = field(INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOLEAN)
    synonyms: list[DescribeConfigsSynonym] = field(
        array(DescribeConfigsSynonym), "1+", ignorable=True
    )
    config_type: int = field(INT8, "3+", ignorable=True)
    documentation: str | None = field(STRING, "3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult))


class DescribeConfigsResponse(Message, versions="0-4", flexible="4+"):
    """Values with source, synonyms, type and documentation."""

    throttle_time_ms: int = field(INT32)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult))


class AlterableConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


class AlterConfigsRequest(Message, versions="0-2", flexible="2+"):
    """Replaces the whole dynamic configuration of resources; superseded by IncrementalAlterConfigs."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOLEAN)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class AlterConfigsResponse(Message, versions="0-2", flexible="2+"):
    """The outcome per resource."""

    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))


class IncrementalAlterableConfig(Struct, kafka_name="AlterableConfig"):
    name: str = field(STRING)
    config_operation: int = field(INT8)
    value: str | None = field(STRING, nullable="0+")


class IncrementalAlterConfigsResource(Struct, kafka_name="AlterConfigsResource"):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[IncrementalAlterableConfig] = field(array(IncrementalAlterableConfig))


class IncrementalAlterConfigsRequest(Message, versions="0-1", flexible="1+"):
    """Sets, deletes, appends to or subtracts from single configuration keys (KIP-339)."""

    resources: list[IncrementalAlterConfigsResource] = field(array(IncrementalAlterConfigsResource))
    validate_only: bool = field(BOOLEAN)


class IncrementalAlterConfigsResourceResponse(Struct, kafka_name="AlterConfigsResourceResponse"):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class IncrementalAlterConfigsResponse(Message, versions="0-1", flexible="1+"):
    """The outcome per resource."""

    throttle_time_ms: int = field(INT32)
    responses: list[IncrementalAlterConfigsResourceResponse] = field(
        array(IncrementalAlterConfigsResourceResponse)
    )


class ListConfigResourcesRequest(
    Message, versions="0-1", flexible="0+", former="ListClientMetricsResourcesRequest"
):
    """Asks which resources have a configuration (KIP-1142); version 0 knows client metrics only (KIP-1000)."""

    resource_types: list[int] = field(array(INT8), "1+")


class ConfigResource(Struct):
    resource_name: str = field(STRING, former="name")
    resource_type: int = field(INT8, "1+", default=16, ignorable=True)


class ListConfigResourcesResponse(
    Message, versions="0-1", flexible="0+", former="ListClientMetricsResourcesResponse"
):
    """The resources, with their type from version 1 on."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    config_resources: list[ConfigResource] = field(
        array(ConfigResource), former="client_metrics_resources"
    )
