"""The words in which the schemas of the OpenAPI document are written: JSON Schema, draft 2020-12."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

TEXT: Json = {"type": "string"}
INT: Json = {"type": "integer"}
NUMBER: Json = {"type": "number"}
BOOL: Json = {"type": "boolean"}
NODE_ID: Json = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
OBJECT: Json = {"type": "object"}
IN_PARTITION: Json = {"topic": TEXT, "partition": INT}


def described(shape: Json, text: str) -> Json:
    return {**shape, "description": text}


def ref(name: str) -> Json:
    """The schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(of: Json) -> Json:
    return {"type": "array", "items": of}


def by_key(value: Json) -> Json:
    """An object whose keys are data, of such values."""
    return {"type": "object", "additionalProperties": value}


def or_null(shape: Json) -> Json:
    if "type" in shape:
        return {**shape, "type": [shape["type"], "null"]}
    return {"oneOf": [shape, {"type": "null"}]}


def one_of(*shapes: Json) -> Json:
    return {"oneOf": list(shapes)}


def words(*values: str) -> Json:
    """One of these texts."""
    return {"type": "string", "enum": list(values)}


def fields(required: Json, optional: Json | None = None) -> Json:
    """An object with these keys; `optional`: those that it may not have."""
    found: Json = {"type": "object", "properties": {**required, **(optional or {})}}
    if required:
        found["required"] = list(required)
    return found
