"""What requests name, and where their responses have results of it, as a table: one row for each API and its versions.

`results.py` works with it.
"""

from __future__ import annotations

from typing import NamedTuple

from kwire.protocol.api import ApiKey, request_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ALL_VERSIONS = 1 << 15
# Kinds of what a level of a request names, by one letter each.
TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID = "t", "p", "g", "x"
KEY, RESOURCE, MARKER = "k", "r", "m"  # of a coordinator, a configuration; of one transaction
NAMES: dict[str, tuple[str, ...]] = {
    TOPIC: ("name", "topic", "topic_name"),
    PARTITION: ("partition_index", "index", "partition", "partition_id"),
    GROUP: ("group_id",),
    TRANSACTIONAL_ID: ("transactional_id",),
    KEY: ("key",),
    RESOURCE: ("resource_name",),
    MARKER: ("producer_id",),
}
"""Fields that say which one it is; messages differ."""


class Part(NamedTuple):
    """What is named at one place of a request; None: nothing of that kind, or an unknown topic id."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None


class Shape(NamedTuple):
    """A row: the lists of a request, from the outside in, and those of the response with the results.

    `kinds`: a letter for each list. `answered` "": results cannot be told apart. `fill`: values of a result that is
    refused. `later`: the results are changed after the handler has made them, since it does nothing or must run."""

    key: ApiKey
    versions: tuple[int, int]
    kinds: str
    asked: str
    answered: str
    fill: dict[str, Any]
    later: bool = False

    @property
    def depth(self) -> int:
        return len(self.kinds)


def _row(
    key: ApiKey,
    kinds: str,
    asked: str,
    answered: str = "",
    first: int = 0,
    last: int = _ALL_VERSIONS,
    *,
    later: bool = False,
    **fill: Any,
) -> Shape:
    return Shape(key, (first, last), kinds, asked, answered, fill, later)


_NO_OFFSET: dict[str, Any] = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}

TABLE = (
    _row(
        ApiKey.PRODUCE,
        "tp",
        "topic_data/partition_data",
        "responses/partition_responses",
        base_offset=-1,
    ),
    _row(ApiKey.FETCH, "tp", "topics/partitions", "responses/partitions", high_watermark=-1),
    _row(ApiKey.LIST_OFFSETS, "tp", "topics/partitions", "topics/partitions"),
    _row(ApiKey.METADATA, "t", "topics", "topics", later=True, partitions=[]),
    _row(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "t", "topics", "topics", later=True, partitions=[]),
    _row(ApiKey.OFFSET_COMMIT, "tp", "topics/partitions", "topics/partitions"),
    _row(
        ApiKey.OFFSET_FETCH,
        "tp",
        "topics/partition_indexes",
        "topics/partitions",
        last=7,
        **_NO_OFFSET,
    ),
    _row(
        ApiKey.OFFSET_FETCH,
        "gtp",
        "groups/topics/partition_indexes",
        "groups/topics/partitions",
        first=8,
        **_NO_OFFSET,
    ),
    _row(ApiKey.FIND_COORDINATOR, "k", "coordinator_keys", "coordinators", 4, node_id=-1, port=-1),
    _row(ApiKey.DESCRIBE_GROUPS, "g", "groups", "groups"),
    _row(ApiKey.CONSUMER_GROUP_DESCRIBE, "g", "group_ids", "groups"),
    _row(ApiKey.DELETE_GROUPS, "g", "groups_names", "results"),
    _row(ApiKey.CREATE_TOPICS, "t", "topics", "topics"),
    _row(ApiKey.DELETE_TOPICS, "t", "topic_names", "responses", last=5),
    _row(ApiKey.DELETE_TOPICS, "t", "topics", "responses", 6),
    _row(ApiKey.DELETE_RECORDS, "tp", "topics/partitions", "topics/partitions", low_watermark=-1),
    _row(ApiKey.CREATE_PARTITIONS, "t", "topics", "results"),
    _row(ApiKey.OFFSET_FOR_LEADER_EPOCH, "tp", "topics/partitions", "topics/partitions"),
    _row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        "tp",
        "v3_and_below_topics/partitions",
        "results_by_topic_v3_and_below/results_by_partition",
        last=3,
    ),
    _row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        "xtp",
        "transactions/topics/partitions",
        "results_by_transaction/topic_results/results_by_partition",
        4,
    ),
    _row(
        ApiKey.WRITE_TXN_MARKERS,
        "mtp",
        "markers/topics/partition_indexes",
        "markers/topics/partitions",
    ),
    _row(ApiKey.TXN_OFFSET_COMMIT, "tp", "topics/partitions", "topics/partitions"),
    _row(ApiKey.OFFSET_DELETE, "tp", "topics/partitions", "topics/partitions"),
    _row(ApiKey.DESCRIBE_PRODUCERS, "tp", "topics/partition_indexes", "topics/partitions"),
    _row(ApiKey.DESCRIBE_TRANSACTIONS, "x", "transactional_ids", "transaction_states"),
    _row(ApiKey.DESCRIBE_CONFIGS, "r", "resources", "results"),
    _row(ApiKey.ALTER_CONFIGS, "r", "resources", "responses"),
    _row(ApiKey.INCREMENTAL_ALTER_CONFIGS, "r", "resources", "responses"),
    _row(
        ApiKey.ELECT_LEADERS,
        "tp",
        "topic_partitions/partitions",
        "replica_election_results/partition_result",
    ),
    _row(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "tp", "topics/partitions", "responses/partitions"),
    _row(
        ApiKey.ALTER_PARTITION,
        "tp",
        "topics/partitions",
        "topics/partitions",
        leader_id=-1,
        leader_epoch=-1,
        partition_epoch=-1,
    ),
    # What is named can be selected by; the answers are for the whole.
    _row(ApiKey.LIST_PARTITION_REASSIGNMENTS, "tp", "topics/partition_indexes"),
    _row(ApiKey.DESCRIBE_LOG_DIRS, "tp", "topics/partitions"),
    _row(ApiKey.LEADER_AND_ISR, "tp", "ungrouped_partition_states/", last=1),
    _row(ApiKey.LEADER_AND_ISR, "tp", "topic_states/partition_states", first=2),
    _row(ApiKey.UPDATE_METADATA, "tp", "ungrouped_partition_states/", last=4),
    _row(ApiKey.UPDATE_METADATA, "tp", "topic_states/partition_states", first=5),
    _row(ApiKey.STOP_REPLICA, "tp", "ungrouped_partitions/", last=0),
    _row(ApiKey.STOP_REPLICA, "tp", "topics/partition_indexes", first=1, last=2),
    _row(ApiKey.STOP_REPLICA, "tp", "topic_states/partition_states", first=3),
)
OFFSET_FETCH_GROUPS = _row(ApiKey.OFFSET_FETCH, "g", "groups", "groups", 8)
"""Its groups have errors of their own."""
_BY_KEY: dict[int, list[Shape]] = {}
for _shape in TABLE:
    _BY_KEY.setdefault(int(_shape.key), []).append(_shape)


def shape_of(api_key: int, version: int) -> Shape | None:
    """The row of an API and version; None: a request names nothing but what its own fields say."""
    for shape in _BY_KEY.get(api_key, ()):
        if shape.versions[0] <= version <= shape.versions[1]:
            return shape
    return None


def kinds_of(api_key: int) -> frozenset[str]:
    """The fields of `Part` that some version of an API names."""
    kinds = {kind for shape in _BY_KEY.get(api_key, ()) for kind in shape.kinds}
    found = {
        name
        for name, its in (
            ("topic", {TOPIC, RESOURCE}),
            ("partition", {PARTITION}),
            ("group", {GROUP, KEY, RESOURCE}),
            ("transactional_id", {TRANSACTIONAL_ID, KEY}),
        )
        if kinds & its
    }
    fields = request_class(api_key).fields
    if "group_id" in fields:
        found.add("group")
    if "transactional_id" in fields:
        found.add("transactional_id")
    return frozenset(found)


def has_results(api_key: int) -> bool:
    """Whether each part of a request gets a result, and an error, of its own."""
    return any(shape.answered for shape in _BY_KEY.get(api_key, ()))
