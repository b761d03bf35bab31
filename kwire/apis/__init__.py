"""THE table of APIs: what kwire serves, in which versions, and where the handler is.

ApiVersions answers from it, dispatch and `--as-version` read it, docs/compatibility.md is printed from it
(`python -m kwire.apis.compatibility`). A handler's module is imported at the first request for one of its APIs.
Ranges are the union of what Kafka 3.9 and 4.4 serve, as far as kwire implements it. Produce starts at 0 as in Kafka
4.x's own answer (KAFKA-18659: librdkafka before 2.9 ties features to Produce versions 0-2).

To add an API: its definition in protocol/schemas/, a function in the module of its family, one line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.apis.context import RequestContext

    # Any: each handler knows the message of its API.
    Handler = Callable[[RequestContext, Any], None]


class Api:
    """One line of the table: `key` and `name` are Kafka's, `min_version` to `max_version` is what is served."""

    __slots__ = ("_handler", "function", "key", "max_version", "min_version", "module", "name")

    def __init__(
        self, key: int, name: str, module: str, function: str, min_version: int, max_version: int
    ) -> None:
        self.key = key
        self.name = name
        self.module = module
        self.function = function
        self.min_version = min_version
        self.max_version = max_version
        self._handler: Handler | None = None

    @property
    def handler(self) -> Handler:
        """The function that answers; imports its module at first use."""
        if self._handler is None:
            module = import_module(f"kwire.apis.{self.module}")
            self._handler = getattr(module, self.function)
        assert self._handler is not None
        return self._handler

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name!r}, {self.min_version}-{self.max_version})"


TABLE: tuple[Api, ...] = (
    Api(0, "Produce", "produce", "handle_produce", 0, 13),
    Api(1, "Fetch", "fetch", "handle_fetch", 0, 18),
    Api(2, "ListOffsets", "offsets", "handle_list_offsets", 0, 11),
    Api(3, "Metadata", "metadata", "handle_metadata", 0, 13),
    Api(8, "OffsetCommit", "group_offsets", "handle_offset_commit", 0, 10),
    Api(9, "OffsetFetch", "group_offsets", "handle_offset_fetch", 0, 10),
    Api(10, "FindCoordinator", "groups", "handle_find_coordinator", 0, 6),
    Api(11, "JoinGroup", "groups", "handle_join_group", 0, 9),
    Api(12, "Heartbeat", "groups", "handle_heartbeat", 0, 4),
    Api(13, "LeaveGroup", "groups", "handle_leave_group", 0, 5),
    Api(14, "SyncGroup", "groups", "handle_sync_group", 0, 5),
    Api(15, "DescribeGroups", "groups", "handle_describe_groups", 0, 6),
    Api(16, "ListGroups", "groups", "handle_list_groups", 0, 5),
    Api(18, "ApiVersions", "api_versions", "handle_api_versions", 0, 5),
    Api(19, "CreateTopics", "topics", "handle_create_topics", 0, 7),
    Api(20, "DeleteTopics", "topics", "handle_delete_topics", 0, 6),
    Api(21, "DeleteRecords", "offsets", "handle_delete_records", 0, 2),
    Api(22, "InitProducerId", "produce", "handle_init_producer_id", 0, 5),
    Api(23, "OffsetForLeaderEpoch", "offsets", "handle_offset_for_leader_epoch", 0, 4),
    Api(32, "DescribeConfigs", "configs", "handle_describe_configs", 0, 4),
    Api(33, "AlterConfigs", "configs", "handle_alter_configs", 0, 2),
    Api(34, "AlterReplicaLogDirs", "cluster", "handle_alter_replica_log_dirs", 0, 2),
    Api(35, "DescribeLogDirs", "cluster", "handle_describe_log_dirs", 0, 5),
    Api(37, "CreatePartitions", "topics", "handle_create_partitions", 0, 3),
    Api(42, "DeleteGroups", "groups", "handle_delete_groups", 0, 3),
    Api(43, "ElectLeaders", "elections", "handle_elect_leaders", 0, 2),
    Api(44, "IncrementalAlterConfigs", "configs", "handle_incremental_alter_configs", 0, 1),
    Api(
        45,
        "AlterPartitionReassignments",
        "elections",
        "handle_alter_partition_reassignments",
        0,
        1,
    ),
    Api(46, "ListPartitionReassignments", "elections", "handle_list_partition_reassignments", 0, 0),
    Api(47, "OffsetDelete", "group_offsets", "handle_offset_delete", 0, 0),
    Api(60, "DescribeCluster", "cluster", "handle_describe_cluster", 0, 2),
    Api(61, "DescribeProducers", "offsets", "handle_describe_producers", 0, 0),
    Api(64, "UnregisterBroker", "elections", "handle_unregister_broker", 0, 0),
    Api(74, "ListConfigResources", "configs", "handle_list_config_resources", 0, 1),
    Api(75, "DescribeTopicPartitions", "metadata", "handle_describe_topic_partitions", 0, 0),
)
"""In Kafka's order of keys. SaslHandshake (17) and SaslAuthenticate (36) will stand in module `sasl`."""

CONTROL_PLANE: tuple[Api, ...] = (
    Api(4, "LeaderAndIsr", "control_plane", "handle_leader_and_isr", 0, 7),
    Api(5, "StopReplica", "control_plane", "handle_stop_replica", 0, 4),
    Api(6, "UpdateMetadata", "control_plane", "handle_update_metadata", 0, 8),
    Api(58, "Envelope", "control_plane", "handle_envelope", 0, 0),
)
"""What a controller asks of a broker. Served on every listener, whatever release the broker passes for; advertised only
to a foreign cluster (as Kafka 3.9 in ZooKeeper mode does, without Envelope), for clients have no use for them."""

BY_KEY: dict[int, Api] = {api.key: api for api in (*TABLE, *CONTROL_PLANE)}
_FOLLOWERS = (1, 2, 23)  # Fetch, ListOffsets, OffsetForLeaderEpoch


def accepted_ranges(
    advertised: dict[int, tuple[int, int]], *, among_brokers: bool = False
) -> dict[int, tuple[int, int]]:
    """key → (min, max) as accepted: what is advertised, the control plane, and for `among_brokers` what followers ask
    of leaders in any version: a cluster that passes for an old release still speaks Kafka 3.9 within."""
    ranges = dict(advertised)
    for api in (*CONTROL_PLANE, *(BY_KEY[key] for key in _FOLLOWERS if among_brokers)):
        ranges[api.key] = (api.min_version, api.max_version)
    return ranges


def served_ranges(caps: dict[int, tuple[int, int]] | None = None) -> dict[int, tuple[int, int]]:
    """key → (min, max) as advertised to clients: the table, cut to `caps` (a release's own ranges).

    An API that the release does not have, or of which no common version is left, is not served.
    """
    ranges: dict[int, tuple[int, int]] = {}
    for api in TABLE:
        lowest, highest = api.min_version, api.max_version
        if caps is not None:
            if api.key not in caps:
                continue
            # Kafka 4 serves Produce from 3 and advertises it from 0 (see above).
            lowest = max(lowest, 0 if api.key == 0 else caps[api.key][0])
            highest = min(highest, caps[api.key][1])
        if lowest <= highest:
            ranges[api.key] = (lowest, highest)
    return ranges
