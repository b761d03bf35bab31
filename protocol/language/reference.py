"""Interprets message definitions field by field with construct; the reference for compiled code.

Slow (6 to 18 times the compiled code, and construct takes 13 ms to import) and lenient: it checks
no limits. It is for tests, and for tools that inspect a format piece by piece: `construct_for(cls,
version)` is an ordinary `construct.Construct` that parses into containers by field name, with
`unknown_tags` in flexible structures.
"""

from __future__ import annotations

import io
from typing import Any

import construct as con

from kwire.protocol.language.primitives import ArrayKind, Kind, covers, parse_versions
from kwire.protocol.language.schema import Field, Message, Struct, StructType

_NUMBERS = {
    "int8": con.Int8sb,
    "int16": con.Int16sb,
    "int32": con.Int32sb,
    "int64": con.Int64sb,
    "uint16": con.Int16ub,
    "uint32": con.Int32ub,
    "float64": con.Float64b,
    "boolean": con.Flag,
    "uuid": con.Bytes(16),
}

COMPACT_LENGTH = con.ExprAdapter(
    con.VarInt, lambda value, context: value - 1, lambda value, context: value + 1
)
"""An unsigned varint of length + 1; 0, which is null, is read as -1."""


def construct_for(cls: type[Message], version: int) -> Any:
    """The construct of one version of a message."""
    flexible = covers(cls.flexible, version)
    return _structure(cls, version, flexible)


def plain(struct: Struct, version: int, flexible: bool) -> dict[str, Any]:
    """The fields that the version has, as the construct parses and builds them."""
    result = {
        name: _plain_value(field.kind, getattr(struct, name), version, flexible)
        for name, field in type(struct).fields.items()
        if _present(field, version)
    }
    if flexible:
        result["unknown_tags"] = struct.unknown_tags or []
    return result


def _plain_value(kind: Kind | type, value: Any, version: int, flexible: bool) -> Any:
    if value is None:
        return None
    if isinstance(kind, ArrayKind):
        return [_plain_value(kind.element, one, version, flexible) for one in value]
    if not isinstance(kind, Kind):
        return plain(value, version, flexible)
    return bytes(value) if kind.name in ("bytes", "records") else value


def _present(field: Field, version: int) -> bool:
    return field.versions is None or covers(parse_versions(field.versions), version)


def _structure(cls: StructType, version: int, flexible: bool) -> Any:
    fields = [field for field in cls.fields.values() if _present(field, version)]
    inline = [
        field.name / _value(field, field.kind, version, flexible)
        for field in fields
        if field.tag is None
    ]
    if not flexible:
        return con.Struct(*inline)
    tagged = sorted(
        (field for field in fields if field.tag is not None), key=lambda one: one.tag or 0
    )
    section = _TaggedFields(tagged, version)
    return _Flattened(con.Struct(*inline, "tagged fields" / section), [one.name for one in tagged])


def _value(field: Field, kind: Kind | type, version: int, flexible: bool) -> Any:
    compact = flexible and field.compact
    if isinstance(kind, ArrayKind):
        element = _value(field, kind.element, version, flexible)
        return _Array(COMPACT_LENGTH if compact else con.Int32sb, element)
    if not isinstance(kind, Kind):
        structure = _structure(kind, version, flexible)  # type: ignore[arg-type]
        nullable = field.kind is kind and covers(parse_versions(field.nullable), version)
        if not nullable:
            return structure
        return _NullableStructure(con.Int8sb if field.tag is None else con.VarInt, structure)
    if kind.format:
        return _NUMBERS[kind.name]
    if kind.name == "string":
        return _Text(COMPACT_LENGTH if compact else con.Int16sb)
    return _Sized(COMPACT_LENGTH if compact else con.Int32sb)


class _Sized(con.Construct):  # type: ignore[misc]
    """A length and that many bytes; -1 is null."""

    def __init__(self, length: Any) -> None:
        super().__init__()
        self.length = length

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        size = self.length._parsereport(stream, context, path)
        return None if size == -1 else con.stream_read(stream, size, path)

    def _build(self, value: Any, stream: Any, context: Any, path: str) -> Any:
        self.length._build(-1 if value is None else len(value), stream, context, path)
        if value is not None:
            con.stream_write(stream, value, len(value), path)
        return value


class _Text(_Sized):
    """A string: UTF-8 with its length in bytes."""

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        content = super()._parse(stream, context, path)
        return None if content is None else content.decode()

    def _build(self, value: Any, stream: Any, context: Any, path: str) -> Any:
        super()._build(None if value is None else value.encode(), stream, context, path)
        return value


class _Array(con.Construct):  # type: ignore[misc]
    """A count and that many elements; -1 is null."""

    def __init__(self, count: Any, element: Any) -> None:
        super().__init__()
        self.count = count
        self.element = element

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        count = self.count._parsereport(stream, context, path)
        if count == -1:
            return None
        return [self.element._parsereport(stream, context, path) for _ in range(count)]

    def _build(self, value: Any, stream: Any, context: Any, path: str) -> Any:
        self.count._build(-1 if value is None else len(value), stream, context, path)
        for one in value or ():
            self.element._build(one, stream, context, path)
        return value


class _NullableStructure(con.Construct):  # type: ignore[misc]
    """-1 is null and 1 comes before a structure; in a tagged field the two are 0 and 1."""

    def __init__(self, flag: Any, structure: Any) -> None:
        super().__init__()
        self.flag = flag
        self.structure = structure
        self.null = 0 if flag is con.VarInt else -1

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        if self.flag._parsereport(stream, context, path) == self.null:
            return None
        return self.structure._parsereport(stream, context, path)

    def _build(self, value: Any, stream: Any, context: Any, path: str) -> Any:
        self.flag._build(self.null if value is None else 1, stream, context, path)
        if value is not None:
            self.structure._build(value, stream, context, path)
        return value


class _TaggedFields(con.Construct):  # type: ignore[misc]
    """The section that ends a structure of a flexible version (KIP-482)."""

    def __init__(self, fields: list[Field], version: int) -> None:
        super().__init__()
        self.known = {
            field.tag: (field.name, _value(field, field.kind, version, True)) for field in fields
        }
        self.defaults = {
            field.name: _plain_value(field.kind, field.default, version, True) for field in fields
        }

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        result: dict[str, Any] = {**self.defaults, "unknown_tags": []}
        for _ in range(con.VarInt._parsereport(stream, context, path)):
            tag = con.VarInt._parsereport(stream, context, path)
            size = con.VarInt._parsereport(stream, context, path)
            content = con.stream_read(stream, size, path)
            if tag in self.known:
                name, subcon = self.known[tag]
                result[name] = subcon._parsereport(io.BytesIO(content), context, path)
            else:
                result["unknown_tags"].append((tag, content))
        return result

    def _build(self, value: Any, stream: Any, context: Any, path: str) -> Any:
        tags = list(value["unknown_tags"])
        for tag, (name, subcon) in self.known.items():
            if value[name] != self.defaults[name]:
                content = io.BytesIO()
                subcon._build(value[name], content, context, path)
                tags.append((tag, content.getvalue()))
        con.VarInt._build(len(tags), stream, context, path)
        for tag, one in sorted(tags):
            con.VarInt._build(tag, stream, context, path)
            con.VarInt._build(len(one), stream, context, path)
            con.stream_write(stream, one, len(one), path)
        return value


class _Flattened(con.Adapter):  # type: ignore[misc]
    """Moves tagged fields up among the other fields."""

    def __init__(self, subcon: Any, tagged: list[str]) -> None:
        super().__init__(subcon)
        self.tagged = [*tagged, "unknown_tags"]

    def _decode(self, value: Any, context: Any, path: str) -> Any:
        tagged = value.pop("tagged fields")
        value.update(tagged)
        return value

    def _encode(self, value: Any, context: Any, path: str) -> Any:
        inline = {name: one for name, one in value.items() if name not in self.tagged}
        return {**inline, "tagged fields": {name: value[name] for name in self.tagged}}
