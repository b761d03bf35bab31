"""Dynamic configurations: overrides of topics, brokers, groups and client metrics.

Answers to KRaft's ConfigurationControlManager and ControllerConfigurationValidator. Checks that
only the receiving broker can make (its own dynamic keys, its id) come before, in
kwire.apis.configs.

Invariants: only overrides that are valid together are journaled; unchanged ones are not
journaled again.
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.config.broker_config import (
    ConfigError,
    broker_key,
    parse_value,
    topic_log_config,
    validate_topic_config,
)
from kwire.replication.config.table import GROUP_KEYS, TOPIC_KEYS
from kwire.replication.controller.state import config_record
from kwire.replication.core.metadata import (
    ACL_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    QUOTA_RESOURCE,
    SCRAM_RESOURCE,
    TOKEN_RESOURCE,
    TOPIC_RESOURCE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.schemas.configs import (
        AlterConfigsRequest,
        AlterConfigsResponse,
        IncrementalAlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from kwire.protocol.schemas.quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from kwire.replication.config.table import Row
    from kwire.replication.controller.batch import Orders
    from kwire.replication.controller.changes import ChangeLog
    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.controller.partitions import PartitionControl

SET, DELETE, APPEND, SUBTRACT = range(4)
_WITH_OWN_APIS = (QUOTA_RESOURCE, SCRAM_RESOURCE, ACL_RESOURCE, TOKEN_RESOURCE)
_OPERATIONS = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


class ConfigControl:
    """Handles AlterConfigs and IncrementalAlterConfigs."""

    def __init__(
        self,
        context: ControllerContext,
        changelog: ChangeLog,
        orders: Orders,
        partitions: PartitionControl,
    ) -> None:
        self._context = context
        self._changelog = changelog
        self._orders = orders
        self._partitions = partitions

    def start(self) -> None:
        """Let the brokers know what the journal has."""
        for (resource_type, name), overrides in self._context.state.configs.items():
            self._orders.config_changed(resource_type, name, overrides)
            if resource_type == QUOTA_RESOURCE:
                from kwire.replication.controller.security.quotas import mutation_quota_changed

                mutation_quota_changed(self._context, name, overrides)

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest, version: int
    ) -> AlterClientQuotasResponse:
        """Handle AlterClientQuotas v0-1. Imported on first use: most clusters have no quotas."""
        from kwire.replication.controller.security.quotas import alter_client_quotas

        return alter_client_quotas(self._context, self._changelog, self._orders, request)

    def check_topic_config(self, values: Mapping[str, str | None]) -> dict[str, str]:
        """Return the overrides of a topic. KafkaError(INVALID_CONFIG) when they are not allowed."""
        if not values:
            return {}
        validate_topic_config(values)
        overrides = {key: text for key, text in values.items() if text is not None}
        topic_log_config(overrides, self._context.config)
        return overrides

    def alter_configs(self, request: AlterConfigsRequest, version: int) -> AlterConfigsResponse:
        """Handle AlterConfigs v0-2: replace all overrides of each resource."""
        from kwire.protocol.schemas.configs import (
            AlterConfigsResourceResponse,
            AlterConfigsResponse,
        )

        responses = []
        for resource in request.resources:
            response = AlterConfigsResourceResponse(
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            try:
                values = {config.name: config.value for config in resource.configs}
                self._replace(
                    resource.resource_type, resource.resource_name, values, request.validate_only
                )
            except KafkaError as error:
                response.error_code, response.error_message = int(error.code), error.message
            responses.append(response)
        return AlterConfigsResponse(responses=responses)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, version: int
    ) -> IncrementalAlterConfigsResponse:
        """Handle IncrementalAlterConfigs v0-1: set, delete, append to or subtract from keys
        (KIP-339)."""
        from kwire.protocol.schemas.configs import (
            IncrementalAlterConfigsResourceResponse,
            IncrementalAlterConfigsResponse,
        )

        responses = []
        for resource in request.resources:
            kind, name = resource.resource_type, resource.resource_name
            response = IncrementalAlterConfigsResourceResponse(
                error_message=None, resource_type=kind, resource_name=name
            )
            try:
                self._check_exists(kind, name)
                values = self.apply_operations(kind, name, resource.configs)
                self._replace(kind, name, values, request.validate_only)
            except KafkaError as error:
                response.error_code, response.error_message = int(error.code), error.message
            responses.append(response)
        return IncrementalAlterConfigsResponse(responses=responses)

    def apply_operations(
        self, resource_type: int, name: str, operations: list[IncrementalAlterableConfig]
    ) -> dict[str, str | None]:
        """Return the resource's overrides after the operations.

        KafkaError for an operation that the key's type does not have."""
        values: dict[str, str | None] = {
            **self._context.state.configs.get((resource_type, name), {})
        }
        for operation in operations:
            key, text = operation.name, operation.value
            if operation.config_operation == SET:
                values[key] = text
            elif operation.config_operation == DELETE:
                values.pop(key, None)
            else:
                word = _OPERATIONS.get(operation.config_operation)
                if word is None:  # as in Kafka, whose lookup of the operation fails here
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
                row = _row(resource_type, key)
                if row is None or row[0] != "LIST":
                    message = f"Can't {word} to key {key} because its type is not LIST."
                    raise KafkaError(ErrorCode.INVALID_CONFIG, message)
                current = values.get(key) if key in values else self._default(resource_type, key)
                values[key] = _edit_list(current, text, append=word == "APPEND")
        return values

    def _default(self, resource_type: int, key: str) -> str | None:
        config = self._context.config
        if resource_type == TOPIC_RESOURCE:
            return config.topic_default_text(key)
        return config.text(key) if resource_type == BROKER_RESOURCE else None

    def _check_exists(self, resource_type: int, name: str) -> None:
        """Raise KafkaError for a resource that cannot be configured: unknown topic, missing
        name."""
        if resource_type == TOPIC_RESOURCE:
            if not name:
                message = "Default topic resources are not allowed."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            from kwire.replication.core.topic_names import topic_name_problem

            problem = topic_name_problem(name)
            if problem is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            if name not in self._context.state.topics:
                message = f"The topic '{name}' does not exist."
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        elif resource_type == GROUP_RESOURCE and not name:
            message = "Default group resources are not allowed."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        elif resource_type == CLIENT_METRICS_RESOURCE and not name:
            message = "Client metrics subscription name must not be empty"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        elif resource_type in _WITH_OWN_APIS:
            message = f"Unknown resource type {resource_type}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)

    def _replace(
        self, resource_type: int, name: str, values: Mapping[str, str | None], validate_only: bool
    ) -> None:
        self._check_exists(resource_type, name)
        overrides = self._validate(resource_type, values)
        current = self._context.state.configs.get((resource_type, name), {})
        if validate_only or overrides == current:
            return
        self._changelog.commit([config_record(resource_type, name, overrides)])
        self._orders.config_changed(resource_type, name, overrides)
        if resource_type in (TOPIC_RESOURCE, BROKER_RESOURCE):
            self._partitions.shrink_elr()
            self._partitions.retry_offline_elections()

    def _validate(self, resource_type: int, values: Mapping[str, str | None]) -> dict[str, str]:
        if resource_type == TOPIC_RESOURCE:
            return self.check_topic_config(values)
        overrides: dict[str, str] = {}
        for key, text in values.items():
            row = _row(resource_type, key)
            if row is None and resource_type == GROUP_RESOURCE:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {key}")
            if row is None and resource_type == CLIENT_METRICS_RESOURCE:
                message = f"Unknown client metrics configuration: {key}"
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            if row is not None:
                try:
                    parse_value(key, row, text)
                except ConfigError as error:
                    raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
            if text is not None:
                overrides[key] = text
        if resource_type == GROUP_RESOURCE:
            self._check_group_limits(overrides)
        return overrides

    def _check_group_limits(self, overrides: Mapping[str, str]) -> None:
        """Check a group's overrides against the broker's limits (Kafka: GroupConfig.validate)."""
        config = self._context.config
        for key in ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"):
            if key not in overrides:
                continue
            value = int(overrides[key])
            kind, _, rest = key.partition(".")
            for limit, word in (("min", "greater"), ("max", "less")):
                name = f"group.{kind}.{limit}.{rest}"
                bound = int(config.text(name) or 0)
                if value < bound if limit == "min" else value > bound:
                    message = f"{key} must be {word} than or equal to {name}"
                    raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def _row(resource_type: int, key: str) -> Row | None:
    if resource_type == TOPIC_RESOURCE:
        return TOPIC_KEYS.get(key)
    if resource_type == BROKER_RESOURCE:
        return broker_key(key)
    if resource_type == GROUP_RESOURCE:
        return GROUP_KEYS.get(key)
    from kwire.replication.config.entries import CLIENT_METRICS_KEYS

    return CLIENT_METRICS_KEYS.get(key)


def _edit_list(current: str | None, change: str | None, *, append: bool) -> str:
    """Return a comma-separated list with the items of `change` added (if missing) or removed."""
    items = [part.strip() for part in (current or "").split(",") if part.strip()]
    changes = [part.strip() for part in (change or "").split(",") if part.strip()]
    if append:
        items += [item for item in changes if item not in items]
    else:
        items = [item for item in items if item not in changes]
    return ",".join(items)
