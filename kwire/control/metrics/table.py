"""The metrics of `GET /metrics`: name, type, labels, what it is.

Names are those that the common configurations of the JMX exporter make of Kafka's beans (kafka-2_0_0.yml of
jmx_exporter, kafka-metrics.yaml of Strimzi): domain, type, name and attribute in lower case, `PerSec` meters as
`_total`, other keys of the bean as labels, in Kafka's spelling. `kafka_consumergroup_…` and
`kafka_topic_partition…` are those of kafka_exporter, `kwire_…` have no counterpart. `tools/metrics.py` writes the
table of docs/observing.md.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

COUNTER, GAUGE, UNTYPED = "counter", "gauge", "untyped"
BROKER: Final = "broker"
"""The label with the id of the node; of all metrics but those that `OF_CLUSTER` names."""

MANAGER: Final = "kafka_server_replicamanager_"
CONTROLLER: Final = "kafka_controller_kafkacontroller_"
GROUPS: Final = "kafka_coordinator_group_groupmetadatamanager_numgroups"


class Metric(NamedTuple):
    """A metric. `labels`: besides `broker`. The name of a counter ends with `_total`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


class Answer(NamedTuple):
    """What a node has answered, in pages (`counts.py`); none: it does not answer. `role`: broker or controller."""

    node_id: int
    role: str
    pages: list[dict[str, Any]]


_IN = ("topic", "partition")
_REPLICA = ("clientId",)
_TOPICS = "kafka_server_brokertopicmetrics_"
_FETCHERS = "kafka_server_replicafetchermanager_"
_PARTITION = "kafka_cluster_partition_"
_LOG = "kafka_log_log_"
_EXPORTED = "kafka_topic_partition_"

BROKERS = (
    Metric(f"{MANAGER}partitioncount", GAUGE, (), "Replicas on this broker."),
    Metric(f"{MANAGER}leadercount", GAUGE, (), "Partitions that this broker leads."),
    Metric(f"{MANAGER}offlinereplicacount", GAUGE, (), "Replicas whose disk has failed."),
    Metric(
        f"{MANAGER}underreplicatedpartitions",
        GAUGE,
        (),
        "Partitions led here with fewer replicas in sync than there are.",
    ),
    Metric(
        f"{MANAGER}underminisrpartitioncount",
        GAUGE,
        (),
        "Partitions led here with fewer replicas in sync than min.insync.replicas.",
    ),
    Metric(
        f"{MANAGER}atminisrpartitioncount",
        GAUGE,
        (),
        "Partitions led here with as many replicas in sync as min.insync.replicas.",
    ),
    Metric(f"{MANAGER}produceridcount", GAUGE, (), "Producers that the replicas here remember."),
    Metric(
        f"{MANAGER}isrshrinks_total", COUNTER, (), "Shrinks of ISRs that leaders here asked for."
    ),
    Metric(
        f"{MANAGER}isrexpands_total", COUNTER, (), "Expands of ISRs that leaders here asked for."
    ),
    Metric(f"{MANAGER}failedisrupdates_total", COUNTER, (), "Changes of ISRs that were not taken."),
    Metric(
        "kafka_log_logmanager_offlinelogdirectorycount", GAUGE, (), "Log directories that failed."
    ),
    Metric("kafka_server_kafkaserver_brokerstate", GAUGE, (), "3: it runs."),
    Metric(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        GAUGE,
        ("delayedOperation",),
        "Requests that wait: Produce for followers, Fetch for records, DeleteRecords.",
    ),
    Metric(
        "kafka_server_socket_server_metrics_connection_count",
        GAUGE,
        ("listener", "networkProcessor"),
        "Open connections.",
    ),
    Metric(
        "kafka_network_requestmetrics_requests_total",
        COUNTER,
        ("request", "version"),
        "Requests by API and version; those of other nodes, too.",
    ),
    Metric(f"{_FETCHERS}maxlag", GAUGE, _REPLICA, "The furthest that a replica here is behind."),
    Metric(f"{_FETCHERS}minfetchrate", GAUGE, _REPLICA, "Fetches a second of the slowest fetcher."),
    Metric(
        f"{_FETCHERS}failedpartitionscount", GAUGE, _REPLICA, "Partitions not followed any more."
    ),
    Metric(f"{_FETCHERS}deadthreadcount", GAUGE, _REPLICA, "Fetchers that wait for nothing: 0."),
    Metric(f"{GROUPS}", GAUGE, (), "Groups that this broker coordinates."),
    *(
        Metric(f"{GROUPS}{state}", GAUGE, (), f"Those in the state {name}.")
        for state, name in (
            ("empty", "Empty"),
            ("preparingrebalance", "PreparingRebalance"),
            ("completingrebalance", "CompletingRebalance"),
            ("stable", "Stable"),
            ("dead", "Dead"),
        )
    ),
    Metric(
        "kwire_transactions",
        GAUGE,
        ("state",),
        "Transactional ids that this broker coordinates, by state: Ongoing is an open transaction.",
    ),
    Metric("kwire_node_up", GAUGE, ("role",), "1: the node answers."),
)
TOPICS = (
    Metric(f"{_TOPICS}messagesin_total", COUNTER, ("topic",), "Records appended by leaders."),
    Metric(f"{_TOPICS}bytesin_total", COUNTER, ("topic",), "Bytes appended by leaders."),
    Metric(f"{_TOPICS}bytesout_total", COUNTER, ("topic",), "Bytes read by consumers."),
    Metric(f"{_TOPICS}replicationbytesout_total", COUNTER, ("topic",), "Bytes read by followers."),
    Metric(
        f"{_TOPICS}totalproducerequests_total",
        COUNTER,
        ("topic",),
        "Partitions of Produce requests.",
    ),
    Metric(
        f"{_TOPICS}failedproducerequests_total",
        COUNTER,
        ("topic",),
        "Partitions of Produce requests that were refused for what was in them.",
    ),
    Metric(
        f"{_TOPICS}totalfetchrequests_total",
        COUNTER,
        ("topic",),
        "Reads of partitions for Fetch requests, of followers, too.",
    ),
    Metric(
        f"{_TOPICS}failedfetchrequests_total",
        COUNTER,
        ("topic",),
        "Reads that failed, but for what clients mend themselves: another leader, an offset out of range.",
    ),
)
"""In the order of `TOPIC_COUNTS`. Without `topic`: of the broker, also of topics that are gone."""
TOPIC_COUNTS = (
    *("messages_in", "bytes_in", "bytes_out", "replication_bytes_out"),
    *("produces", "failed_produces", "fetches", "failed_fetches"),
)
PARTITIONS = (
    Metric(f"{_LOG}size", GAUGE, _IN, "Bytes of the log's segments."),
    Metric(f"{_LOG}numlogsegments", GAUGE, _IN, "Segments."),
    Metric(f"{_LOG}logstartoffset", GAUGE, _IN, "The first offset."),
    Metric(f"{_LOG}logendoffset", GAUGE, _IN, "The offset of the next record."),
    Metric(
        f"{_PARTITION}laststableoffsetlag", GAUGE, _IN, "High watermark less last stable offset."
    ),
    Metric(
        f"{_PARTITION}underreplicated", GAUGE, _IN, "1: fewer in sync than replicas; leaders only."
    ),
    Metric(
        f"{_PARTITION}underminisr", GAUGE, _IN, "1: fewer than min.insync.replicas; leaders only."
    ),
    Metric(f"{_PARTITION}atminisr", GAUGE, _IN, "1: as many as min.insync.replicas; leaders only."),
    Metric(f"{_PARTITION}insyncreplicascount", GAUGE, _IN, "Replicas in sync; 0 at followers."),
    Metric(f"{_PARTITION}replicascount", GAUGE, _IN, "Replicas; 0 at followers."),
    Metric(
        "kafka_server_fetcherlagmetrics_consumerlag",
        GAUGE,
        ("clientId", *_IN),
        "Records that a follower is behind its leader.",
    ),
)
CONTROLLERS = (
    Metric(f"{CONTROLLER}activecontrollercount", GAUGE, (), "1: the active controller."),
    Metric(f"{CONTROLLER}activebrokercount", GAUGE, (), "Brokers that are registered and alive."),
    Metric(f"{CONTROLLER}globaltopiccount", GAUGE, (), "Topics of the cluster."),
    Metric(f"{CONTROLLER}globalpartitioncount", GAUGE, (), "Partitions of the cluster."),
    Metric(f"{CONTROLLER}offlinepartitionscount", GAUGE, (), "Partitions without a leader."),
    Metric(
        f"{CONTROLLER}preferredreplicaimbalancecount",
        GAUGE,
        (),
        "Partitions that their first replica does not lead.",
    ),
    Metric(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        COUNTER,
        (),
        "Leaders elected that were not in sync.",
    ),
    Metric(
        "kafka_controller_controllerstats_leaderelectionrateandtimems_count",
        UNTYPED,
        (),
        "Elections of leaders.",
    ),
)
OF_CLUSTER = (
    Metric("kafka_brokers", GAUGE, (), "Brokers that answer."),
    Metric("kafka_topic_partitions", GAUGE, ("topic",), "Partitions with a leader that answers."),
    Metric(f"{_EXPORTED}current_offset", GAUGE, _IN, "The leader's high watermark."),
    Metric(f"{_EXPORTED}oldest_offset", GAUGE, _IN, "The leader's first offset."),
    Metric(f"{_EXPORTED}in_sync_replica", GAUGE, _IN, "Replicas in sync."),
    Metric(f"{_EXPORTED}replicas", GAUGE, _IN, "Replicas."),
    Metric(f"{_EXPORTED}leader", GAUGE, _IN, "The id of the leader."),
    Metric(f"{_EXPORTED}leader_is_preferred", GAUGE, _IN, "1: the first replica leads."),
    Metric(f"{_EXPORTED}under_replicated_partition", GAUGE, _IN, "1: fewer in sync than replicas."),
    Metric("kafka_consumergroup_members", GAUGE, ("consumergroup",), "Members of a group."),
    Metric(
        "kafka_consumergroup_current_offset", GAUGE, ("consumergroup", *_IN), "Committed offset."
    ),
    Metric(
        "kafka_consumergroup_lag",
        GAUGE,
        ("consumergroup", *_IN),
        "High watermark less committed offset; none where the leader does not answer.",
    ),
)
METRICS: tuple[Metric, ...] = (*BROKERS, *TOPICS, *PARTITIONS, *CONTROLLERS, *OF_CLUSTER)
ROW = (
    *("topic", "partition", "size", "segments", "start", "end", "lso_lag", "under_replicated"),
    *("under_min", "at_min", "isr", "replicas", "client", "lag", "high_watermark", "preferred"),
    *("leader", "producers"),
)
"""The fields of a partition in a page (`counts.py`): those of `PARTITIONS` in their order, then others."""
