"""The broker's API handlers, and the table of APIs with versions and handlers.

ApiVersions, dispatch and `--as-version` read the table; docs/compatibility.md is generated from it
(`python -m kwire.apis.compatibility`). A handler's module is imported at the first request for one
of its APIs. The rows of APIs that the controller answers are made from the controller's own table
(`replication/controller/table.py`). Ranges are the union of what Kafka 3.9 and 4.4 serve, as far as
kwire implements it. Produce starts at 0 as in Kafka 4.x's own answer (KAFKA-18659: librdkafka
before 2.9 ties features to Produce versions 0-2).

To add an API that a broker answers: its definition in protocol/schemas/, a function in the module
of its family, one line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kwire.protocol.api import ApiKey
from kwire.replication.controller.table import TABLE as CONTROLLER_TABLE
from kwire.replication.controller.table import AskedBy

__all__ = [
    "checks",
    "chunks",
    "context",
    "controller_plane",
    "group_offsets",
    "releases",
    "results",
]  # modules for other rooms, beside the table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.apis.context import RequestContext
    from kwire.replication.controller.table import ControllerApi

    # Any: each handler knows the message of its API.
    Handler = Callable[[RequestContext, Any], None]


class Api:
    """One row of the table: an API, its served versions and its handler."""

    __slots__ = ("_handler", "function", "key", "max_version", "min_version", "module")

    def __init__(
        self,
        key: ApiKey,
        module: str,
        function: str,
        min_version: int,
        max_version: int,
    ) -> None:
        self.key = key
        self.module = module
        self.function = function
        self.min_version = min_version
        self.max_version = max_version
        self._handler: Handler | None = None

    @property
    def name(self) -> str:
        """The name in Kafka's documentation."""
        return self.key.api_name

    @property
    def handler(self) -> Handler:
        """The handler function; its module is imported at first use."""
        if self._handler is None:
            module = import_module(f"kwire.apis.{self.module}")
            self._handler = getattr(module, self.function)
        assert self._handler is not None
        return self._handler

    def with_handler(self, handler: Handler) -> Api:
        """Copy the row with another handler: a controller's instead of a broker's."""
        other = Api(self.key, self.module, "", self.min_version, self.max_version)
        other._handler = handler
        return other

    def __repr__(self) -> str:
        return f"Api({self.name!r}, {self.min_version}-{self.max_version})"


_OWN: tuple[Api, ...] = (
    Api(ApiKey.PRODUCE, "produce", "handle_produce", 0, 13),
    Api(ApiKey.FETCH, "fetch", "handle_fetch", 0, 18),
    Api(ApiKey.LIST_OFFSETS, "offsets", "handle_list_offsets", 0, 11),
    Api(ApiKey.METADATA, "metadata", "handle_metadata", 0, 13),
    Api(ApiKey.OFFSET_COMMIT, "group_offsets", "handle_offset_commit", 0, 10),
    Api(ApiKey.OFFSET_FETCH, "group_offsets", "handle_offset_fetch", 0, 10),
    Api(ApiKey.FIND_COORDINATOR, "groups", "handle_find_coordinator", 0, 6),
    Api(ApiKey.JOIN_GROUP, "groups", "handle_join_group", 0, 9),
    Api(ApiKey.HEARTBEAT, "groups", "handle_heartbeat", 0, 4),
    Api(ApiKey.LEAVE_GROUP, "groups", "handle_leave_group", 0, 5),
    Api(ApiKey.SYNC_GROUP, "groups", "handle_sync_group", 0, 5),
    Api(ApiKey.DESCRIBE_GROUPS, "groups", "handle_describe_groups", 0, 6),
    Api(ApiKey.LIST_GROUPS, "groups", "handle_list_groups", 0, 5),
    Api(ApiKey.SASL_HANDSHAKE, "sasl", "handle_sasl_handshake", 0, 1),
    Api(ApiKey.API_VERSIONS, "api_versions", "handle_api_versions", 0, 5),
    Api(ApiKey.DELETE_RECORDS, "offsets", "handle_delete_records", 0, 2),
    Api(ApiKey.INIT_PRODUCER_ID, "transactions", "handle_init_producer_id", 0, 5),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "offsets", "handle_offset_for_leader_epoch", 0, 4),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, "transactions", "handle_add_partitions_to_txn", 0, 5),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, "transactions", "handle_add_offsets_to_txn", 0, 4),
    Api(ApiKey.END_TXN, "transactions", "handle_end_txn", 0, 5),
    Api(ApiKey.TXN_OFFSET_COMMIT, "txn_participants", "handle_txn_offset_commit", 0, 5),
    Api(ApiKey.WRITE_TXN_MARKERS, "txn_participants", "handle_write_txn_markers", 0, 2),
    Api(ApiKey.DESCRIBE_ACLS, "access.acls", "handle_describe_acls", 0, 3),
    Api(ApiKey.DESCRIBE_CONFIGS, "configs", "handle_describe_configs", 0, 4),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, "cluster", "handle_alter_replica_log_dirs", 0, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, "cluster", "handle_describe_log_dirs", 0, 5),
    Api(ApiKey.SASL_AUTHENTICATE, "sasl", "handle_sasl_authenticate", 0, 2),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, "parts.tokens", "handle_describe", 0, 3),
    Api(ApiKey.DELETE_GROUPS, "groups", "handle_delete_groups", 0, 3),
    Api(ApiKey.OFFSET_DELETE, "group_offsets", "handle_offset_delete", 0, 0),
    Api(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, "parts.client_quotas", "handle_describe_client_quotas", 0, 1
    ),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "sasl", "handle_describe_scram", 0, 0),
    Api(ApiKey.DESCRIBE_CLUSTER, "cluster", "handle_describe_cluster", 0, 2),
    Api(ApiKey.DESCRIBE_PRODUCERS, "offsets", "handle_describe_producers", 0, 0),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, "transactions", "handle_describe_transactions", 0, 0),
    Api(ApiKey.LIST_TRANSACTIONS, "transactions", "handle_list_transactions", 0, 2),
    Api(ApiKey.LIST_CONFIG_RESOURCES, "configs", "handle_list_config_resources", 0, 1),
)
"""APIs that a broker answers itself."""

_SHARED = {
    ApiKey.ALTER_CONFIGS: ("configs", "handle_alter_configs"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("configs", "handle_incremental_alter_configs"),
    ApiKey.CREATE_DELEGATION_TOKEN: ("parts.tokens", "handle_create"),
    ApiKey.RENEW_DELEGATION_TOKEN: ("parts.tokens", "handle_change"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("parts.tokens", "handle_change"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("topic_pages", "handle_describe_topic_partitions"),
}
"""Controller APIs to which the broker contributes; the others are forwarded unchanged."""


def _forwarded_api(row: ControllerApi) -> Api:
    module, function = _SHARED.get(row.key, ("forwarding", "handle_forwarded"))
    return Api(row.key, module, function, row.min_version, row.max_version)


TABLE: tuple[Api, ...] = tuple(
    sorted(
        (
            *_OWN,
            *(
                _forwarded_api(row)
                for row in CONTROLLER_TABLE
                if row.asked_by is not AskedBy.BROKERS
            ),
        ),
        key=lambda api: api.key,
    )
)
"""In Kafka's order of keys."""

CONTROL_PLANE: tuple[Api, ...] = (
    Api(ApiKey.LEADER_AND_ISR, "control_plane", "handle_leader_and_isr", 0, 7),
    Api(ApiKey.STOP_REPLICA, "control_plane", "handle_stop_replica", 0, 4),
    Api(ApiKey.UPDATE_METADATA, "control_plane", "handle_update_metadata", 0, 8),
    Api(ApiKey.ENVELOPE, "control_plane", "handle_envelope", 0, 0),
)
"""Requests of a controller to a broker.

Served to controllers (`control_plane.py`), also with `--as-version`. Advertised only in a cluster of real Kafka nodes
(as Kafka 3.9 in ZooKeeper mode does, without Envelope), since clients have no use for them."""

BY_KEY: dict[int, Api] = {api.key: api for api in (*TABLE, *CONTROL_PLANE)}
_AMONG_BROKERS = (
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.WRITE_TXN_MARKERS,
)


def accepted_ranges(
    advertised: dict[int, tuple[int, int]], *, among_brokers: bool = False
) -> dict[int, tuple[int, int]]:
    """API key → accepted (min, max) versions: the advertised ones and the control plane.

    `among_brokers`: also all versions of the requests of followers and transaction coordinators, as
    brokers do not imitate a release to each other."""
    ranges = dict(advertised)
    for api in (*CONTROL_PLANE, *(BY_KEY[key] for key in _AMONG_BROKERS if among_brokers)):
        ranges[api.key] = (api.min_version, api.max_version)
    return ranges


def served_ranges(caps: dict[int, tuple[int, int]] | None = None) -> dict[int, tuple[int, int]]:
    """API key → advertised (min, max) versions: the table, limited to `caps` (a release's ranges).

    An API that the release lacks, or with no version in common, is not served.
    """
    ranges: dict[int, tuple[int, int]] = {}
    for api in TABLE:
        lowest, highest = api.min_version, api.max_version
        if caps is not None:
            if api.key not in caps:
                continue
            # Kafka 4 serves Produce from 3 and advertises it from 0 (see above).
            lowest = max(lowest, 0 if api.key is ApiKey.PRODUCE else caps[api.key][0])
            highest = min(highest, caps[api.key][1])
        if lowest <= highest:
            ranges[api.key] = (lowest, highest)
    return ranges
