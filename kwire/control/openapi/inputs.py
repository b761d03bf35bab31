"""Schemas of what requests have in path, query and body: of each kind, and of the fields that need more than that."""

from __future__ import annotations

from kwire.control.openapi.shapes import (
    BOOL,
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

_IDS = described(one_of(NODE_ID, array(NODE_ID)), "One node, or several.")
_DATA = one_of(TEXT, ref("Base64"), {"type": "null"})

_KINDS: dict[str, Json] = {
    "": TEXT,
    "text": TEXT,
    "int": INT,
    "number": NUMBER,
    "bool": BOOL,
    "ids": _IDS,
    "object": OBJECT,
    "data": _DATA,
    "list": array({}),
    "error": described(one_of(TEXT, INT), "Kafka's name of an error, or its number."),
    "event": described(TEXT, "The name of an event, in any case of letters."),
    "api": described(
        TEXT, "The name of an API, Fetch for example; its version may follow, Fetch v12."
    ),
}
_FIELDS: dict[str, Json] = {
    "assignment": described(
        array(array(NODE_ID)), "The replicas of each partition, instead of the two numbers."
    ),
    "commands": described(array(TEXT), '"cut NODE" or "delay NODE MILLISECONDS".'),
    "config": described(
        by_key({"type": ["string", "number", "boolean", "array"]}),
        "Kafka's keys of topics, and values.",
    ),
    "drop": described(words("before", "after"), "Before or after the work is done."),
    "encoding": described(words("text", "base64"), "Of all keys and values."),
    "end": described(INT, "Up to before this offset."),
    "headers": array(fields({"name": TEXT}, {"value": _DATA})),
    "max_bytes": described(INT, "Of all keys and values; one record at least."),
    "more": described(BOOL, "Groups, transactions and requests, too."),
    "internal": described(BOOL, "With __consumer_offsets and the like."),
    "keep_clients": described(BOOL, "Clients that are connected go on."),
    "leader": described(NODE_ID, "The broker that is to lead."),
    "limit": described(INT, "At most so many records."),
    "probability": {"type": "number", "minimum": 0, "maximum": 1},
    "rules": array(one_of(fields({"to": NODE_ID, "delay_ms": or_null(INT)}), TEXT)),
    "since": described(INT, "Only events with a number above this one."),
    "start": described(INT, "From this offset on."),
    "timestamp": described(INT, "Unix milliseconds."),
    "unclean": described(BOOL, "Out of the ISR, too: records may be lost."),
}


def field_schema(name: str, kind: str) -> Json:
    """The schema of a field in a body."""
    return _FIELDS.get(name) or _KINDS[kind]


def path_schema(kind: str) -> Json:
    """The schema of a parameter in a path. `kind`: as a route has it."""
    return words(*kind.split("|")) if "|" in kind else _KINDS[kind]


def query_parameter(name: str, kind: str, is_optional: bool) -> Json:
    """A field in the query."""
    found: Json = {"name": name, "in": "query", "required": not is_optional}
    if kind == "ids":
        return {**found, "style": "form", "explode": False, "schema": array(NODE_ID)}
    return {**found, "schema": field_schema(name, kind)}
