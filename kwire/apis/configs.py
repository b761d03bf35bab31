"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74).

Answers to kafka.server.ConfigHelper and ConfigAdminManager: this module checks what only the
receiving broker can check (its id, the keys that it can change at run time), the controller the
rest (`replication/controller/configs.py`). DescribeConfigs 0-4 lists every key: v1 sources and
synonyms, v3 types and documentation. Topics, brokers (a broker itself; "" for the cluster-wide
values), broker loggers, client metrics, groups. ListConfigResources 0-1: v0 lists client metrics
only.

Left out: setting the level of a broker logger has no effect; the level is stored and shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kwire.apis.forwarding import ask_controller
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kwire.replication.config.entries import (
    DEFAULT,
    DYNAMIC_BROKER_LOGGER,
    ConfigEntry,
    broker_entries,
    client_metrics_entries,
    cluster_default_entries,
    group_entries,
    topic_entries,
)
from kwire.replication.config.run_time import check_at_run_time
from kwire.replication.controller.configs import DELETE, SET
from kwire.replication.core.metadata import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from kwire.replication.core.topic_names import topic_name_problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from kwire.apis.context import RequestContext, Services
    from kwire.protocol.schemas.configs import AlterConfigsResource, IncrementalAlterableConfig

_LOGGERS = ("kwire", "root")
_LOG_LEVELS = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
_UNKNOWN_TYPE = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)


# --- describe


def handle_describe_configs(ctx: RequestContext, request: DescribeConfigsRequest) -> None:
    """DescribeConfigs v0-4."""
    response = DescribeConfigsResponse()
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            entries = _entries(ctx.services, resource)
        except KafkaError as error:
            result.error_code, result.error_message = int(error.code), error.message or ""
        else:
            # As in Kafka, null and an empty list of keys both request all.
            wanted = resource.configuration_keys or None
            result.configs = [
                _config_result(entry, request, resource.resource_type, ctx.api_version)
                for entry in entries
                if wanted is None or entry.name in wanted
            ]
        response.results.append(result)
    ctx.reply(response)


def _entries(services: Services, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    """All entries of the resource; KafkaError if it does not exist."""
    kind, name = resource.resource_type, resource.resource_name
    metadata = services.metadata
    if kind == TOPIC_RESOURCE:
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if not metadata.contains(name):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_entries(metadata.topic_config(name), services.config)
    if kind == BROKER_RESOURCE:
        if not name:
            return cluster_default_entries(services.config)
        expected = (
            f"Unexpected broker id, expected {services.node_id} or empty string, but received"
        )
        _check_broker_id(services, name, "Broker", expected)
        return broker_entries(services.config)
    if kind == BROKER_LOGGER_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        expected = f"Unexpected broker id, expected {services.node_id} but received"
        _check_broker_id(services, name, "Broker", expected)
        return _logger_entries(metadata.config(BROKER_LOGGER_RESOURCE, name))
    if kind == CLIENT_METRICS_RESOURCE:
        if not name:
            message = "Client metrics subscription name must not be empty"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        return client_metrics_entries(metadata.config(kind, name))
    if kind == GROUP_RESOURCE and _has_groups(services):
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(metadata.config(kind, name), services.config)
    raise KafkaError(ErrorCode.INVALID_REQUEST, _UNKNOWN_TYPE)


def _check_broker_id(services: Services, name: str, what: str, expected: str) -> None:
    digits = name[1:] if name[:1] == "-" else name
    if not (digits.isascii() and digits.isdigit()):
        message = f"{what} id must be an integer, but it is: {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if int(name[:20]) != services.node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{expected} {name}")


def _logger_entries(levels: Mapping[str, str]) -> Iterable[ConfigEntry]:
    for logger in _LOGGERS:
        entry = ConfigEntry(logger, levels.get(logger, "INFO"), "STRING", DYNAMIC_BROKER_LOGGER, [])
        entry.type = 0  # Kafka sends UNKNOWN
        yield entry


def _config_result(
    entry: ConfigEntry, request: DescribeConfigsRequest, resource_type: int, version: int
) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=version == 0 and entry.source == DEFAULT,  # sources came with v1
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=entry.type,
    )
    if resource_type in (TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE):
        result.documentation = None
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in entry.synonyms
        ]
    if request.include_documentation:
        from kwire.replication.config.docs import documentation

        result.documentation = documentation(resource_type, entry.name)
    return result


# --- alter


def handle_incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> None:
    """IncrementalAlterConfigs v0-1."""
    services = ctx.services
    answers: list[IncrementalAlterConfigsResourceResponse | None] = []
    forwarded: list[IncrementalAlterConfigsResource] = []
    identities = [(r.resource_type, r.resource_name) for r in request.resources]
    counts = Counter(identities)
    for resource, identity in zip(request.resources, identities, strict=True):
        answer = IncrementalAlterConfigsResourceResponse(
            error_message=None, resource_type=identity[0], resource_name=identity[1]
        )
        try:
            _check_once(counts[identity])
            _check_keys((c.name for c in resource.configs), _null_keys(resource.configs))
            if identity[0] == BROKER_LOGGER_RESOURCE:
                _alter_loggers(services, resource, request.validate_only)
                answers.append(answer)
                continue
            if identity[0] == BROKER_RESOURCE:
                _check_own_broker(services, identity[1])
                touched = _values_after(services, resource)
                own = identity[1] != ""
                check_at_run_time(services.config, touched, per_broker=own, replaces=False)
            _check_type(services, identity[0])
        except KafkaError as error:
            answer.error_code, answer.error_message = int(error.code), error.message
            answers.append(answer)
        else:
            forwarded.append(resource)
            answers.append(None)
    if not forwarded:
        decided_here = [answer for answer in answers if answer is not None]
        ctx.reply(IncrementalAlterConfigsResponse(responses=decided_here))
        return
    inner = IncrementalAlterConfigsRequest(resources=forwarded, validate_only=request.validate_only)

    def finish(decided: IncrementalAlterConfigsResponse) -> IncrementalAlterConfigsResponse:
        done = _done(services, request.validate_only, decided.responses)
        return IncrementalAlterConfigsResponse(responses=[a or next(done) for a in answers])

    ask_controller(ctx, inner, finish)


def _values_after(
    services: Services, resource: IncrementalAlterConfigsResource
) -> dict[str, str | None]:
    """The named keys with their values after the change.

    None: no value, or one that only the controller knows because it is another node."""
    if services.controller is None:
        return {c.name: c.value if c.config_operation == SET else None for c in resource.configs}
    values = services.controller.configs.apply_operations(
        resource.resource_type, resource.resource_name, resource.configs
    )
    return {c.name: values.get(c.name) for c in resource.configs}


def handle_alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> None:
    """AlterConfigs v0-2. Keys that are not named return to their defaults."""
    services = ctx.services
    answers: list[AlterConfigsResourceResponse | None] = []
    forwarded: list[AlterConfigsResource] = []
    identities = [(r.resource_type, r.resource_name) for r in request.resources]
    counts = Counter(identities)
    for resource, identity in zip(request.resources, identities, strict=True):
        answer = AlterConfigsResourceResponse(
            error_message=None, resource_type=identity[0], resource_name=identity[1]
        )
        try:
            _check_once(counts[identity])
            nulls = [config.name for config in resource.configs if config.value is None]
            _check_keys((c.name for c in resource.configs), nulls)
            if identity[0] == BROKER_RESOURCE:
                _check_own_broker(services, identity[1])
                values = {config.name: config.value for config in resource.configs}
                own = identity[1] != ""
                check_at_run_time(services.config, values, per_broker=own, replaces=True)
            _check_type(services, identity[0])
        except KafkaError as error:
            answer.error_code, answer.error_message = int(error.code), error.message
            answers.append(answer)
        else:
            forwarded.append(resource)
            answers.append(None)
    if not forwarded:
        ctx.reply(AlterConfigsResponse(responses=[a for a in answers if a is not None]))
        return
    inner = AlterConfigsRequest(resources=forwarded, validate_only=request.validate_only)

    def finish(decided: AlterConfigsResponse) -> AlterConfigsResponse:
        done = _done(services, request.validate_only, decided.responses)
        return AlterConfigsResponse(responses=[a or next(done) for a in answers])

    ask_controller(ctx, inner, finish)


def _done(services: Services, validate_only: bool, decided: list[Any]) -> Iterator[Any]:
    """What the controller has decided. A change of this broker's own keys has it read changed key stores again."""
    stores, own = services.config.stores, (BROKER_RESOURCE, str(services.node_id), 0)
    changed = ((each.resource_type, each.resource_name, each.error_code) for each in decided)
    if stores is not None and not validate_only and own in changed:
        stores.reread()
    return iter(decided)


def _check_once(count: int) -> None:
    if count > 1:
        message = "Each resource must appear at most once."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _null_keys(configs: list[IncrementalAlterableConfig]) -> list[str]:
    return [c.name for c in configs if c.value is None and c.config_operation != DELETE]


def _check_keys(names: Iterable[str], nulls: list[str]) -> None:
    keys = list(names)
    if len(set(keys)) < len(keys):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        message = f"Null value not supported for : {','.join(nulls)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _has_groups(services: Services) -> bool:
    """Whether groups are resources: Kafka 3.9 refuses their type, unless its coordinator is replaced."""
    release = services.config.release
    return release is None or release.has_group_resources


def _check_type(services: Services, resource_type: int) -> None:
    known = (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
    no_groups = resource_type == GROUP_RESOURCE and not _has_groups(services)
    if no_groups or resource_type not in known:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _check_own_broker(services: Services, name: str) -> None:
    if name:
        expected = f"Unexpected broker id, expected {services.node_id}, but received"
        _check_broker_id(services, name, "Node", expected)


def _alter_loggers(
    services: Services, resource: IncrementalAlterConfigsResource, validate_only: bool
) -> None:
    name = resource.resource_name
    expected = f"Unexpected broker id, expected {services.node_id}, but received"
    _check_broker_id(services, name, "Node", expected)
    levels = dict(services.metadata.config(BROKER_LOGGER_RESOURCE, name))
    for change in resource.configs:
        if change.name not in _LOGGERS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        if change.config_operation == DELETE:
            levels.pop(change.name, None)
            continue
        if change.value not in _LOG_LEVELS:
            message = (
                f"Cannot set the log level of {change.name} to {change.value} as it is not a "
                f"supported log level. Valid log levels are {', '.join(_LOG_LEVELS)}"
            )
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
        levels[change.name] = change.value
    if not validate_only:
        # As in Kafka, levels are local to the broker and lost at a restart: no controller, no disk.
        services.metadata.set_config(BROKER_LOGGER_RESOURCE, name, levels)


# --- list


def handle_list_config_resources(ctx: RequestContext, request: ListConfigResourcesRequest) -> None:
    """ListConfigResources v0-1 (KIP-1000, KIP-1142): resources that can have a configuration."""
    metadata = ctx.services.metadata
    brokers = [str(broker_id) for broker_id in sorted(metadata.brokers)]
    lists = {
        TOPIC_RESOURCE: lambda: sorted(metadata.topics),
        BROKER_RESOURCE: lambda: brokers,
        BROKER_LOGGER_RESOURCE: lambda: brokers,
        CLIENT_METRICS_RESOURCE: lambda: metadata.config_names(CLIENT_METRICS_RESOURCE),
        GROUP_RESOURCE: lambda: metadata.config_names(GROUP_RESOURCE),
    }
    if ctx.api_version == 0:
        types = [CLIENT_METRICS_RESOURCE]
    else:
        types = list(dict.fromkeys(request.resource_types)) or list(lists)
    if any(kind not in lists for kind in types):
        ctx.reply(ListConfigResourcesResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION)))
        return
    resources = [
        ConfigResource(resource_name=name, resource_type=kind)
        for kind in types
        for name in lists[kind]()
    ]
    ctx.reply(ListConfigResourcesResponse(config_resources=resources))
