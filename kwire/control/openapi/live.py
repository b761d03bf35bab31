"""Schemas of what the page lives on: of a cluster, and of the nodes that it is put together from."""

from __future__ import annotations

from kwire.control.openapi.shapes import (
    BOOL,
    INT,
    NODE_ID,
    TEXT,
    array,
    by_key,
    described,
    fields,
    or_null,
    ref,
    words,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

_ROW = array({})
_PARTITIONS = described(
    array(_ROW), "Each: topic, partition, leader (-1: none), leader epoch, replicas, ISR."
)
_REPLICAS: Json = {
    "names": described(array(_ROW), "Each: a number for a replica, its topic and partition."),
    "offsets": described(
        array(INT),
        "Six numbers for each replica: its own, log start, high watermark, log end, leader epoch, and 1 if the broker"
        " believes that it leads.",
    ),
}
_GONE = described(array(INT), "Numbers of replicas that the broker has no more.")
_FAULT = {"id": TEXT, "text": TEXT, "hits": INT}
_PAIRS = described(array(_ROW), "Each: topic, partition.")
_CONTENTS: Json = {
    "groups": array(ref("LiveGroup")),
    "transactions": array(ref("LiveTransaction")),
    "rates": described(array(_ROW), "Each: client id, API, requests a second."),
    "requests": described(
        array(_ROW), "Each: Unix milliseconds, client id, API and version, outcome, count."
    ),
    "offline": described(array(_ROW), "Each: topic, partition whose log has failed."),
}
_AT_BROKER = "As of a node, with the broker before each."

OF_LIVE: dict[str, Json] = {
    "Live": fields(
        {
            "at_ms": INT,
            "kwire": TEXT,
            "bootstrap": TEXT,
            "nodes": array(ref("LiveNode")),
            "controller": fields({"id": or_null(INT), "epoch": or_null(INT)}),
            "partitions": _PARTITIONS,
            "replicas": by_key(fields(_REPLICAS, {"whole": BOOL, "gone": _GONE})),
            **_CONTENTS,
            **{
                name: described(array(_ROW), _AT_BROKER)
                for name in ("rates", "requests", "offline")
            },
            "clock": fields({"offset_ms": INT, "frozen": BOOL}, {"now_ms": INT}),
            "network": fields({"cuts": array(_ROW), "delays": array(_ROW)}),
            "faults": array(fields(_FAULT)),
            "disks": array(fields(_FAULT | {"node": NODE_ID})),
            "events": array(ref("LiveEvent")),
        },
        {"begin": BOOL, "all": BOOL, "gone": described(array(TEXT), "Topics.")},
    ),
    "LiveNode": fields(
        {
            "id": NODE_ID,
            "role": words("broker", "controller"),
            "address": TEXT,
            "running": BOOL,
            "paused": BOOL,
            "rack": or_null(TEXT),
            "alone": described(BOOL, "It is its own controller."),
        }
    ),
    "LiveGroup": fields(
        {
            "id": TEXT,
            "coordinator": INT,
            "state": TEXT,
            "generation": INT,
            "assignor": TEXT,
            "members": array(
                fields({"id": TEXT, "client_id": TEXT, "host": TEXT, "partitions": _PAIRS})
            ),
            "offsets": described(array(_ROW), "Each: topic, partition, committed offset."),
        }
    ),
    "LiveTransaction": fields(
        {
            "id": TEXT,
            "coordinator": INT,
            "state": TEXT,
            "producer_id": INT,
            "producer_epoch": INT,
            "start_ms": INT,
            "timeout_ms": INT,
            "partitions": _PAIRS,
        }
    ),
    "LiveEvent": fields(
        {
            "number": INT,
            "time_ms": INT,
            "node": or_null(INT),
            "event": TEXT,
            "level": TEXT,
            "words": TEXT,
            "message": TEXT,
            "kind": TEXT,
        },
        {"topic": TEXT, "partition": INT},
    ),
    "Changes": fields({"nodes": array(ref("NodeChanges"))}),
    "NodeChanges": fields(
        {
            "id": NODE_ID,
            "number": described(INT, "The next request says it as since."),
            "whole": described(BOOL, "Everything: what was told before is void."),
            "events": array(ref("EventHere")),
            "dropped": INT,
        },
        {
            "replicas": fields({**_REPLICAS, "gone": _GONE}),
            "controller": fields(
                {"active": BOOL, "epoch": INT, "partitions": _PARTITIONS, "gone": array(TEXT)}
            ),
            **_CONTENTS,
        },
    ),
}
