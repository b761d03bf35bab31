"""Schemas of a report (`kwire.report`): what happened in a cluster and how it stands, as a page draws it."""

from __future__ import annotations

from kwire.control.openapi.shapes import (
    BOOL,
    IN_PARTITION,
    INT,
    NODE_ID,
    OBJECT,
    TEXT,
    array,
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

_TIMES: Json = {"from": INT, "to": described(or_null(INT), "null: it lasts.")}
_LANES = described(array(TEXT), "Ids of lanes.")
_COUNTS: Json = dict.fromkeys(("dropped", "left_out", "partitions_left_out"), INT)

OF_REPORT: dict[str, Json] = {
    "Report": fields(
        {
            "format": INT,
            "kwire": TEXT,
            "made_ms": INT,
            "test": described(or_null(OBJECT), "null: not of a test."),
            "clusters": array(ref("ReportedCluster")),
        }
    ),
    "ReportedCluster": fields(
        {
            "title": TEXT,
            "bootstrap": TEXT,
            "notes": array(TEXT),
            "failures": array(TEXT),
            "from_ms": INT,
            "to_ms": INT,
            **_COUNTS,
            "partitions_error": or_null(TEXT),
            "lanes": array(fields(dict.fromkeys(("id", "kind", "label", "sub"), TEXT))),
            "spans": array(
                fields({**dict.fromkeys(("lane", "kind", "label", "text"), TEXT), **_TIMES})
            ),
            "links": array(fields({"kind": TEXT, "nodes": _LANES, **_TIMES, "text": TEXT})),
            "events": array(ref("ReportedEvent")),
            "brokers": array(
                fields(
                    {
                        "id": NODE_ID,
                        "kind": TEXT,
                        "address": TEXT,
                        "state": words("running", "paused", "down"),
                    }
                )
            ),
            "partitions": array(ref("ReportedPartition")),
            "groups": or_null(array(ref("ReportedGroup"))),
            "transactions": or_null(array(ref("ReportedTransaction"))),
            "requests": or_null(array(ref("ReportedRequest"))),
        }
    ),
    "ReportedEvent": fields(
        {
            "n": INT,
            "t": INT,
            "where": TEXT,
            "name": TEXT,
            "level": TEXT,
            "text": TEXT,
            "kind": TEXT,
            "lanes": _LANES,
            "label": TEXT,
        }
    ),
    "ReportedPartition": fields(
        {
            **IN_PARTITION,
            "internal": BOOL,
            "leader": INT,
            "leader_epoch": INT,
            "isr": array(INT),
            "high_watermark": or_null(INT),
            "replicas": array(
                one_of(
                    fields(
                        {
                            "broker": INT,
                            "start": INT,
                            "end": INT,
                            "hw": INT,
                            "epochs": or_null(array(array(INT))),
                        }
                    ),
                    fields({"broker": INT, "message": TEXT}),
                )
            ),
        }
    ),
    "ReportedGroup": fields(
        {
            "id": TEXT,
            "state": TEXT,
            "assignor": TEXT,
            "coordinator": or_null(INT),
            "lag": or_null(INT),
            "members": array(
                fields({"id": TEXT, "client_id": TEXT, "host": TEXT, "partitions": array(TEXT)})
            ),
            "offsets": array(
                fields(
                    {
                        **IN_PARTITION,
                        **dict.fromkeys(("committed", "end", "lag"), or_null(INT)),
                        "member_id": or_null(TEXT),
                    }
                )
            ),
        }
    ),
    "ReportedTransaction": fields(
        {
            "id": TEXT,
            "state": TEXT,
            "producer_id": INT,
            "producer_epoch": INT,
            "coordinator": INT,
            "start_ms": or_null(INT),
            "timeout_ms": INT,
            "partitions": array(
                fields(
                    {
                        **IN_PARTITION,
                        **dict.fromkeys(("start", "stable", "end"), or_null(INT)),
                        "holds": BOOL,
                    }
                )
            ),
            "similar": or_null(TEXT),
        }
    ),
    "ReportedRequest": fields(
        {
            "t": or_null(INT),
            "broker": INT,
            "client_id": TEXT,
            "api": TEXT,
            "outcome": TEXT,
            "count": INT,
            "error": BOOL,
        }
    ),
}
