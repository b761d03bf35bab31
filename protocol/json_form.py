"""Convert messages from and to the JSON of Kafka's own converters, as in golden files.

Answers to the generated `…JsonConverter` classes: names in camel case, bytes and records in base64,
uuids as 22 characters of base64url, tagged fields left out at their default, unknown ones as
`_unknownTaggedFields`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from typing import Any, TypeVar

from kwire.protocol.language.primitives import ArrayKind, Kind, covers, parse_versions
from kwire.protocol.language.schema import Field, Struct

UNKNOWN_TAGS = "_unknownTaggedFields"

AnyStruct = TypeVar("AnyStruct", bound=Struct)


def json_name(name: str) -> str:
    """ "is_kraft_controller" → "isKRaftController"."""
    first, *others = name.split("_")
    head = "kRaft" if first == "kraft" else first
    return head + "".join(
        "KRaft" if word == "kraft" else word[:1].upper() + word[1:] for word in others
    )


def uuid_text(value: bytes) -> str:
    """A uuid as Kafka writes it: 22 characters of base64url."""
    return urlsafe_b64encode(value).decode().rstrip("=")


def parse_uuid(text: str) -> bytes:
    """The 16 bytes of a uuid as Kafka writes it."""
    return urlsafe_b64decode(text + "==")


def from_json(cls: type[AnyStruct], value: dict[str, Any]) -> AnyStruct:
    """Make a structure from JSON; absent fields get defaults. ValueError for an unknown name."""
    result = cls()
    left = dict(value)
    for name, field in cls.fields.items():
        for key in (json_name(name), json_name(field.former or name)):
            if key in left:
                setattr(result, name, _value_from_json(field.kind, left.pop(key)))
                break
    unknown = left.pop(UNKNOWN_TAGS, None)
    if unknown:
        result.unknown_tags = [(tag, b64decode(content)) for tag, content in unknown]
    if left:
        raise ValueError(f"{cls.__name__} has no {', '.join(left)}")
    return result


def to_json(struct: Struct, version: int) -> dict[str, Any]:
    """Convert a structure in one version to JSON."""
    result: dict[str, Any] = {}
    for name, field in type(struct).fields.items():
        value = getattr(struct, name)
        if _shown(field, value, version):
            result[json_name(name)] = _value_to_json(field.kind, value, version)
    if struct.unknown_tags:
        result[UNKNOWN_TAGS] = [
            [tag, b64encode(content).decode()] for tag, content in struct.unknown_tags
        ]
    return result


def _shown(field: Field, value: Any, version: int) -> bool:
    if field.versions is not None and not covers(parse_versions(field.versions), version):
        return False
    return field.tag is None or bool(value != field.default)


def _value_from_json(kind: Kind | type, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [_value_from_json(kind.element, one) for one in value]
    if not isinstance(kind, Kind):
        return from_json(kind, value)
    if kind.name in ("bytes", "records"):
        return b64decode(value)
    if kind.name == "uuid":
        return parse_uuid(value)
    return float(value) if kind.name == "float64" else value


def _value_to_json(kind: Kind | type, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [_value_to_json(kind.element, one, version) for one in value]
    if not isinstance(kind, Kind):
        return to_json(value, version)
    if kind.name in ("bytes", "records"):
        return b64encode(value).decode()
    return uuid_text(value) if kind.name == "uuid" else value
