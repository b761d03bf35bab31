"""The answers of the control API, by name. Objects have the keys named here; later versions of kwire may add some."""

from __future__ import annotations

from kwire.control.openapi.live import OF_LIVE
from kwire.control.openapi.report import OF_REPORT
from kwire.control.openapi.shapes import (
    BOOL,
    IN_PARTITION,
    INT,
    NODE_ID,
    NUMBER,
    OBJECT,
    TEXT,
    array,
    by_key,
    described,
    fields,
    one_of,
    or_null,
    ref,
    words,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

_OFFSETS: Json = {"log_start_offset": INT, "log_end_offset": INT, "high_watermark": INT}
_EPOCHS = described(
    array({"type": "array", "items": INT, "minItems": 2, "maxItems": 2}),
    "Leader epochs in the log, oldest first, each with its first offset.",
)
_LEADER = described(INT, "A broker's id; -1: none.")
_DATA = described(
    one_of(TEXT, ref("Base64"), {"type": "null"}),
    "A text, or base64 where the bytes are not UTF-8.",
)
_NODE: Json = {
    "id": NODE_ID,
    "address": TEXT,
    "running": BOOL,
    "paused": BOOL,
    "rack": or_null(TEXT),
}
_ACTIVE: Json = {"active": described(BOOL, "Whether it is the active controller.")}
_HIT: Json = {
    "broker": INT,
    "client_id": TEXT,
    "api": described(TEXT, "Its name and version."),
    "outcome": TEXT,
    "count": described(INT, "Requests in a row with this outcome."),
    "milliseconds_ago": or_null(INT),
}
_FAULT: Json = {
    "id": TEXT,
    "rule": described(OBJECT, "As it was given."),
    "hits": INT,
}
_DISK_FAULT: Json = {**_FAULT, "node": NODE_ID}
_EVENT: Json = {
    "number": INT,
    "time_ms": INT,
    "node": described(or_null(INT), "null: it was asked of the cluster."),
    "event": TEXT,
    "level": words("debug", "info", "warning", "error"),
    "message": TEXT,
    "fields": OBJECT,
}
_LAST_HIT = "The last that were hit."

_OF_NODES: dict[str, Json] = {
    "Node": fields(_NODE),
    "Cluster": fields(
        {
            "bootstrap": TEXT,
            "brokers": array(ref("Node")),
            "controllers": array(fields({**_NODE, **_ACTIVE})),
        }
    ),
    "NodesHere": fields(
        {
            "brokers": array(ref("Node")),
            "controllers": array(fields({**_NODE, **_ACTIVE, "epoch": INT})),
        }
    ),
    "BrokerStatus": fields(
        {
            "counts": by_key(NUMBER),
            "partitions": array(ref("HostedPartition")),
            "fetchers": array(ref("Fetcher")),
            "truncations": array(TEXT),
        },
        {"failed": described(array(TEXT), "Partitions that are not followed any more.")},
    ),
    "ControllerStatus": fields({"role": TEXT, "counts": by_key(NUMBER), "events": array(TEXT)}),
    "NodeStatus": one_of(ref("BrokerStatus"), ref("ControllerStatus")),
    "NodeStatuses": fields({"nodes": array(fields({"id": NODE_ID, "status": ref("NodeStatus")}))}),
    "HostedPartition": fields(
        {
            **IN_PARTITION,
            "topic_id": TEXT,
            "leads": BOOL,
            "leader_id": _LEADER,
            "leader_epoch": INT,
            "partition_epoch": INT,
            "replicas": array(INT),
            "isr": array(INT),
            "pending_isr": described(
                or_null(array(INT)), "The ISR that is proposed to the controller."
            ),
            **_OFFSETS,
            "last_stable_offset": INT,
            "size_bytes": INT,
            "followers": array(ref("Follower")),
            **dict.fromkeys(("under_replicated", "under_min_isr", "at_min_isr"), BOOL),
        },
        {"lag": or_null(INT), "lag_ms": or_null(INT)},
    ),
    "Follower": fields(
        {
            "broker_id": INT,
            "broker_epoch": INT,
            "log_start_offset": INT,
            "log_end_offset": INT,
            "lag": INT,
            "caught_up_ms_ago": INT,
            "in_isr": BOOL,
        }
    ),
    "Fetcher": fields(
        {
            "leader": INT,
            "id": INT,
            "partitions": INT,
            "requests_per_second": NUMBER,
            "bytes_per_second": NUMBER,
            "answers": INT,
            "failures": INT,
            "latency_ms": NUMBER,
            "latency_max_ms": NUMBER,
            "answered_ms_ago": INT,
        }
    ),
}

_OF_CONTENTS: dict[str, Json] = {
    "Base64": fields({"base64": TEXT}),
    "Topics": fields({"topics": described(by_key(INT), "Partitions by topic.")}),
    "Topic": fields({"topic": TEXT, "partitions": array(ref("Partition"))}),
    "Partitions": fields({"partitions": array(ref("Partition"))}),
    "Partition": fields(
        {
            **IN_PARTITION,
            "leader": _LEADER,
            "leader_epoch": INT,
            "isr": array(INT),
            "high_watermark": described(or_null(INT), "null: no leader answers."),
            "replicas": array(one_of(ref("Replica"), ref("SilentReplica"))),
        }
    ),
    "Replica": fields({"broker": INT, **_OFFSETS, "epochs": _EPOCHS}),
    "SilentReplica": described(
        fields({"broker": INT, "message": or_null(TEXT)}),
        "One that cannot be asked, and why.",
    ),
    "PartitionAtController": fields(
        {
            "leader": _LEADER,
            "leader_epoch": INT,
            "partition_epoch": INT,
            "isr": array(INT),
            "replicas": array(INT),
        }
    ),
    "ReplicaHere": fields({"leads": BOOL, "leader_epoch": INT, **_OFFSETS, "epochs": _EPOCHS}),
    "Compaction": fields({"cleaning": array(INT), "waiting": by_key(TEXT), "failed": by_key(TEXT)}),
    "Segments": fields({"segments": INT}),
    "Records": fields({"records": array(ref("Record"))}),
    "Record": fields(
        {
            **IN_PARTITION,
            "offset": INT,
            "timestamp": INT,
            "key": _DATA,
            "value": _DATA,
            "headers": array(fields({"name": TEXT, "value": _DATA})),
            "leader_epoch": INT,
        }
    ),
    "Groups": fields({"groups": array(TEXT)}),
    "Group": fields(
        {
            "id": TEXT,
            "state": described(TEXT, "Kafka's name of it; Dead: there is no such group."),
            "protocol_type": TEXT,
            "assignor": TEXT,
            "coordinator": INT,
            "members": array(ref("Member")),
            "offsets": array(ref("GroupOffset")),
            "similar": described(or_null(TEXT), "A group that may be meant."),
            "lag": described(or_null(INT), "null: unknown, or nothing to lag behind."),
        }
    ),
    "Member": fields(
        {
            "id": TEXT,
            "client_id": TEXT,
            "host": TEXT,
            "instance_id": or_null(TEXT),
            "partitions": array(fields(IN_PARTITION)),
        }
    ),
    "GroupOffset": fields(
        {
            **IN_PARTITION,
            "committed": or_null(INT),
            "end": or_null(INT),
            "lag": or_null(INT),
            "member_id": or_null(TEXT),
            "metadata": TEXT,
        }
    ),
    "Transactions": fields({"transactions": array(ref("Transaction"))}),
    "Transaction": fields(
        {
            "id": TEXT,
            "state": described(TEXT, "Kafka's name of it; Dead: there is no such id."),
            "producer_id": INT,
            "producer_epoch": INT,
            "coordinator": INT,
            "start_ms": or_null(INT),
            "timeout_ms": INT,
            "partitions": array(
                fields({**IN_PARTITION, **dict.fromkeys(("start", "stable", "end"), or_null(INT))})
            ),
            "similar": described(or_null(TEXT), "An id that may be meant."),
        }
    ),
    "Clients": fields({"clients": array(ref("Client"))}),
    "Client": fields(
        {
            "broker": INT,
            "address": TEXT,
            "client_id": TEXT,
            "software": TEXT,
            "group": or_null(TEXT),
            "api": TEXT,
            "idle_ms": INT,
        }
    ),
    "Requests": fields({"requests": array(ref("Request"))}),
    "Request": fields(_HIT),
    "Leftovers": fields(
        {
            "clients": array(
                fields({"broker": INT, "client_id": TEXT, "address": TEXT, "group": or_null(TEXT)})
            )
        }
    ),
    "LiveBrokers": fields({"brokers": array(NODE_ID)}),
    "ConfiguredBrokers": fields({"brokers": array(TEXT)}),
}

_OF_TESTS: dict[str, Json] = {
    "Network": fields(
        {
            "cuts": array(fields({"a": INT, "b": INT}, {"one_way": BOOL})),
            "delays": array(
                fields({"a": INT, "b": INT, "milliseconds": NUMBER}, {"one_way": BOOL})
            ),
        }
    ),
    "Links": fields({"rules": array(fields({"to": INT, "delay_ms": or_null(INT)}))}),
    "Faults": fields({"faults": array(ref("Fault"))}),
    "Fault": fields(
        {
            **_FAULT,
            "requests": described(array(fields({**_HIT, "api": TEXT, "version": INT})), _LAST_HIT),
        }
    ),
    "FaultsHere": fields({"faults": array(ref("FaultHere"))}),
    "FaultHere": fields({**_FAULT, "requests": described(array(ref("Request")), _LAST_HIT)}),
    "FaultId": fields({"id": TEXT}),
    "DiskFault": fields(_DISK_FAULT),
    "DiskFaults": fields({"faults": array(ref("DiskFault"))}),
    "DisksHere": fields(
        {
            "faults": array(ref("DiskFault")),
            "directories": array(fields({"path": TEXT, "failure": or_null(TEXT)})),
        }
    ),
    "Snapshots": fields({"snapshots": array(ref("Snapshot"))}),
    "Snapshot": fields(
        {
            "name": TEXT,
            "path": TEXT,
            "created_ms": INT,
            "cluster_id": TEXT,
            "first_id": INT,
            "brokers": INT,
            "controllers": described(INT, "0: of a standalone broker."),
            "log_dirs": INT,
            "of_containers": BOOL,
            "size_bytes": INT,
        }
    ),
    "Clock": fields(
        {
            "now_ms": described(INT, "Unix milliseconds."),
            "offset_ms": described(INT, "How far it is ahead of real time."),
            "frozen": BOOL,
        }
    ),
    "ClockPart": fields(
        {
            "next_ms": or_null(INT),
            "awaited": array(TEXT),
            "under_way": array(TEXT),
            "offset_ms": INT,
        }
    ),
    "Events": fields(
        {"events": array(ref("Event")), "dropped": described(INT, "Older ones, not kept.")}
    ),
    "EventsHere": fields(
        {"events": array(ref("EventHere")), "dropped": described(INT, "Older ones, not kept.")}
    ),
    "Event": fields(
        {
            **_EVENT,
            "words": described(TEXT, "What happened, for people."),
        }
    ),
    "EventHere": fields(_EVENT),
    "MetricsPage": fields(
        {
            "next": described(or_null(INT), "Where the next page starts; null: this is the last."),
            "nodes": array(ref("CountsHere")),
        }
    ),
    "CountsHere": described(
        fields(
            {
                "id": NODE_ID,
                "role": words("broker", "controller"),
                **dict.fromkeys(
                    ("samples", "partitions", "topics", "offsets", "members"), array(array({}))
                ),
            }
        ),
        "Rows of what a node counts, for GET /metrics.",
    ),
    "Failures": fields({"failures": described(array(TEXT), "Tracebacks.")}),
    "Held": fields({"broker_epoch": or_null(INT), "incarnation": or_null(TEXT)}),
}

SCHEMAS: dict[str, Json] = {
    "Error": fields(
        {
            "error": described(or_null(TEXT), "Kafka's name of the error; null: Kafka has none."),
            "message": TEXT,
        }
    ),
    "Done": described(OBJECT, "An empty object: it is done."),
    "Index": fields({"kwire": TEXT, "requests": by_key(by_key(TEXT))}),
    "Document": described(OBJECT, "An OpenAPI document."),
    "Health": fields({"status": words("ok")}),
    **_OF_NODES,
    **_OF_CONTENTS,
    **_OF_TESTS,
    **OF_REPORT,
    **OF_LIVE,
}
