"""What each API needs: the operations, the resources, and what becomes of a request that may not do them.

The rows are those of kafka.server.KafkaApis, ControllerApis and AclApis of Kafka 3.9; docs/authorization.md is
generated from them (`python -m kwire.apis.access.page`). What is not here needs nothing (ApiVersions).
"""

from __future__ import annotations

from typing import NamedTuple

from kwire.apis.access import admin, checks, deletion, groups, tokens, topics, transactions
from kwire.protocol.api import ApiKey
from kwire.replication.core.acls import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOKENS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.apis.access.checks import Check


class Need(NamedTuple):
    """An operation on a resource. `without`: what becomes of the request, for people."""

    operation: int
    resource_type: int
    without: str


class Row(NamedTuple):
    """An API. `check` is given the row, and reads its needs by their places."""

    key: ApiKey
    check: Check
    needs: tuple[Need, ...]


_WHOLE = "The request is refused."
_PART = "What it names is refused, the rest is done."
_HIDDEN = "Left out of the answer."


def _cluster(key: ApiKey, operation: int) -> Row:
    return Row(key, checks.whole, (Need(operation, CLUSTER, _WHOLE),))


TABLE: tuple[Row, ...] = (
    Row(
        ApiKey.PRODUCE,
        topics.produce,
        (
            Need(WRITE, TRANSACTIONAL_ID, "A request with transactional records is refused."),
            Need(WRITE, TOPIC, _PART),
        ),
    ),
    Row(
        ApiKey.FETCH,
        checks.passed,
        (
            Need(CLUSTER_ACTION, CLUSTER, "A follower's request is refused."),
            Need(READ, TOPIC, _PART),
        ),
    ),
    Row(ApiKey.LIST_OFFSETS, checks.of_each("topics", "topics"), (Need(DESCRIBE, TOPIC, _PART),)),
    Row(
        ApiKey.METADATA,
        topics.metadata,
        (
            Need(DESCRIBE, TOPIC, "A topic that is named is refused, others are left out."),
            Need(CREATE, CLUSTER, "No topic is created, but for those with CREATE on themselves."),
            Need(CREATE, TOPIC, "The topic is not created, but for CREATE on the cluster."),
            Need(DESCRIBE, CLUSTER, "Authorized operations of the cluster are 0."),
        ),
    ),
    Row(
        ApiKey.OFFSET_COMMIT,
        groups.offset_commit,
        (Need(READ, GROUP, _WHOLE), Need(READ, TOPIC, _PART)),
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        groups.offset_fetch,
        (
            Need(DESCRIBE, GROUP, "The group is refused."),
            Need(DESCRIBE, TOPIC, "A topic that is named is refused, others are left out."),
        ),
    ),
    Row(
        ApiKey.FIND_COORDINATOR,
        groups.find_coordinator,
        (
            Need(DESCRIBE, GROUP, "The group is refused."),
            Need(DESCRIBE, TRANSACTIONAL_ID, "The transactional id is refused."),
            Need(CLUSTER_ACTION, CLUSTER, "The key of a share group is refused."),
        ),
    ),
    Row(ApiKey.JOIN_GROUP, checks.of_one("group_id"), (Need(READ, GROUP, _WHOLE),)),
    Row(ApiKey.HEARTBEAT, checks.of_one("group_id"), (Need(READ, GROUP, _WHOLE),)),
    Row(ApiKey.LEAVE_GROUP, checks.of_one("group_id"), (Need(READ, GROUP, _WHOLE),)),
    Row(ApiKey.SYNC_GROUP, groups.sync_group, (Need(READ, GROUP, _WHOLE),)),
    Row(ApiKey.DESCRIBE_GROUPS, groups.describe_groups, (Need(DESCRIBE, GROUP, _PART),)),
    Row(
        ApiKey.LIST_GROUPS,
        groups.list_groups,
        (
            Need(DESCRIBE, CLUSTER, "Only groups with DESCRIBE on themselves are listed."),
            Need(DESCRIBE, GROUP, _HIDDEN),
        ),
    ),
    Row(
        ApiKey.CREATE_TOPICS,
        topics.create_topics,
        (
            Need(CREATE, CLUSTER, "Only topics with CREATE on themselves are created."),
            Need(CREATE, TOPIC, _PART),
            Need(DESCRIBE_CONFIGS, TOPIC, "The answer has no configuration of the topic."),
        ),
    ),
    Row(
        ApiKey.DELETE_TOPICS,
        deletion.delete_topics,
        (
            Need(DELETE, CLUSTER, "Only topics with DELETE on themselves are deleted."),
            Need(DELETE, TOPIC, _PART),
            Need(DESCRIBE, TOPIC, "Refused, without the name of a topic that is named by id."),
        ),
    ),
    Row(ApiKey.DELETE_RECORDS, checks.of_each("topics", "topics"), (Need(DELETE, TOPIC, _PART),)),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        transactions.init_producer_id,
        (
            Need(WRITE, TRANSACTIONAL_ID, "A request with a transactional id is refused."),
            Need(IDEMPOTENT_WRITE, CLUSTER, "Refused, but for WRITE on some topic."),
            Need(WRITE, TOPIC, "Refused, but for IDEMPOTENT_WRITE on the cluster."),
        ),
    ),
    Row(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        topics.offset_for_leader_epoch,
        (
            Need(CLUSTER_ACTION, CLUSTER, "Only topics with DESCRIBE on themselves are served."),
            Need(DESCRIBE, TOPIC, _PART),
        ),
    ),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        transactions.add_partitions,
        (
            Need(CLUSTER_ACTION, CLUSTER, "A broker's request (version 4 and later) is refused."),
            Need(WRITE, TRANSACTIONAL_ID, _WHOLE),
            Need(WRITE, TOPIC, "None of the partitions is added."),
        ),
    ),
    Row(
        ApiKey.ADD_OFFSETS_TO_TXN,
        transactions.add_offsets,
        (Need(WRITE, TRANSACTIONAL_ID, _WHOLE), Need(READ, GROUP, _WHOLE)),
    ),
    Row(
        ApiKey.END_TXN, checks.of_one("transactional_id"), (Need(WRITE, TRANSACTIONAL_ID, _WHOLE),)
    ),
    Row(
        ApiKey.WRITE_TXN_MARKERS,
        transactions.write_markers,
        (
            Need(ALTER, CLUSTER, "Refused, but for CLUSTER_ACTION."),
            Need(CLUSTER_ACTION, CLUSTER, "Refused, but for ALTER."),
        ),
    ),
    Row(
        ApiKey.TXN_OFFSET_COMMIT,
        transactions.txn_offset_commit,
        (
            Need(WRITE, TRANSACTIONAL_ID, _WHOLE),
            Need(READ, GROUP, _WHOLE),
            Need(READ, TOPIC, _PART),
        ),
    ),
    _cluster(ApiKey.DESCRIBE_ACLS, DESCRIBE),
    _cluster(ApiKey.CREATE_ACLS, ALTER),
    _cluster(ApiKey.DELETE_ACLS, ALTER),
    Row(
        ApiKey.DESCRIBE_CONFIGS,
        admin.describe_configs,
        (
            Need(DESCRIBE_CONFIGS, TOPIC, _PART),
            Need(DESCRIBE_CONFIGS, GROUP, _PART),
            Need(DESCRIBE_CONFIGS, CLUSTER, "Brokers and what belongs to them are refused."),
        ),
    ),
    Row(
        ApiKey.ALTER_CONFIGS,
        admin.alter_configs,
        (
            Need(ALTER_CONFIGS, TOPIC, _PART),
            Need(ALTER_CONFIGS, GROUP, _PART),
            Need(ALTER_CONFIGS, CLUSTER, "Brokers and what belongs to them are refused."),
        ),
    ),
    _cluster(ApiKey.ALTER_REPLICA_LOG_DIRS, ALTER),
    _cluster(ApiKey.DESCRIBE_LOG_DIRS, DESCRIBE),
    Row(
        ApiKey.CREATE_PARTITIONS,
        checks.of_each("topics", "results", are_once=True),
        (Need(ALTER, TOPIC, _PART),),
    ),
    Row(
        ApiKey.CREATE_DELEGATION_TOKEN,
        tokens.create,
        (
            Need(
                CREATE_TOKENS,
                USER,
                "A token for somebody else, the owner that is named, is refused.",
            ),
        ),
    ),
    Row(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        checks.passed,
        (
            Need(DESCRIBE, DELEGATION_TOKEN, "Left out, but for DESCRIBE_TOKENS on its owner."),
            Need(DESCRIBE_TOKENS, USER, "Left out, but for DESCRIBE on the token."),
        ),
    ),
    Row(
        ApiKey.DELETE_GROUPS,
        checks.of_each("groups_names", "results", str),
        (Need(DELETE, GROUP, _PART),),
    ),
    _cluster(ApiKey.ELECT_LEADERS, ALTER),
    Row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        admin.alter_configs,
        (
            Need(ALTER_CONFIGS, TOPIC, _PART),
            Need(ALTER_CONFIGS, GROUP, _PART),
            Need(ALTER_CONFIGS, CLUSTER, "Brokers and what belongs to them are refused."),
        ),
    ),
    _cluster(ApiKey.ALTER_PARTITION_REASSIGNMENTS, ALTER),
    _cluster(ApiKey.LIST_PARTITION_REASSIGNMENTS, DESCRIBE),
    Row(
        ApiKey.OFFSET_DELETE,
        groups.offset_delete,
        (Need(DELETE, GROUP, _WHOLE), Need(READ, TOPIC, _PART)),
    ),
    _cluster(ApiKey.DESCRIBE_CLIENT_QUOTAS, DESCRIBE_CONFIGS),
    _cluster(ApiKey.ALTER_CLIENT_QUOTAS, ALTER_CONFIGS),
    _cluster(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, DESCRIBE),
    _cluster(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ALTER),
    Row(
        ApiKey.DESCRIBE_CLUSTER,
        admin.describe_cluster,
        (Need(DESCRIBE, CLUSTER, "Authorized operations of the cluster are 0."),),
    ),
    Row(ApiKey.DESCRIBE_PRODUCERS, topics.describe_producers, (Need(READ, TOPIC, _PART),)),
    _cluster(ApiKey.UNREGISTER_BROKER, ALTER),
    Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        transactions.describe_transactions,
        (Need(DESCRIBE, TRANSACTIONAL_ID, _PART), Need(DESCRIBE, TOPIC, _HIDDEN)),
    ),
    Row(
        ApiKey.LIST_TRANSACTIONS,
        transactions.list_transactions,
        (Need(DESCRIBE, TRANSACTIONAL_ID, _HIDDEN),),
    ),
    _cluster(ApiKey.LIST_CONFIG_RESOURCES, DESCRIBE_CONFIGS),
    Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        topics.describe_topic_partitions,
        (Need(DESCRIBE, TOPIC, "A topic that is named is refused, others are left out."),),
    ),
)
"""In Kafka's order of keys."""

_NODES = tuple(
    _cluster(key, CLUSTER_ACTION)
    for key in (
        *(ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA),
        *(ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE),
        *(ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.ALLOCATE_PRODUCER_IDS),
    )
)
AMONG_NODES: dict[int, Row] = {row.key: row for row in _NODES}
"""What nodes ask of each other: a controller's orders at brokers, and what brokers ask of the controller."""

ROWS: dict[int, Row] = {row.key: row for row in TABLE}
