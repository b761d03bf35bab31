"""Functions called by compiled decoders and encoders in rare cases: long varints, tags, errors.

Answers to org.apache.kafka.common.protocol.ByteBufferAccessor and RawTaggedFieldWriter. Stricter
than Kafka in two places: tags must ascend when read, and a known tagged field must fill its size
exactly.
"""

from __future__ import annotations

from typing import Any

from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kwire.protocol.language.primitives import ArrayKind, Buffer, Kind, covers, parse_versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.language.schema import Field, Struct

MAX_STRING_BYTES = 0x7FFF
"""Kafka's limit for strings, compact ones included."""


MAX_HEADER_TAGS = 1000
"""Limit of tagged fields in a header; none is in use."""


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """(value, position after it) of an unsigned 31-bit varint; IndexError past the end."""
    return continue_uvarint(data, position + 1, data[position])


def continue_uvarint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Like `read_uvarint` when the first byte has been read already."""
    value = first & 0x7F
    shift = 7
    byte = first
    while byte > 0x7F:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 35:
            raise MalformedMessage("a varint is longer than 5 bytes")
    if value > 0x7FFFFFFF:
        raise MalformedMessage(f"a length or count of {value}")
    return value, position


def continue_string_length(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """The length + 1 of a compact string when its first byte has been read already."""
    value, position = continue_uvarint(data, position, first)
    if value > MAX_STRING_BYTES + 1:
        raise MalformedMessage(f"a string of {value - 1} bytes")
    return value, position


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(length_plus_1: int) -> bytes:
    """The length of a compact string; OverflowError above Kafka's limit."""
    if length_plus_1 > MAX_STRING_BYTES + 1:
        raise OverflowError(f"a string of {length_plus_1 - 1} bytes")
    return uvarint(length_plus_1)


def read_tag(data: Buffer, position: int, last: int) -> tuple[int, int, int]:
    """(tag, position of its field, position after it); `last`: the previous tag, or -1."""
    tag, size = data[position], data[position + 1]
    if tag < 128 and size < 128:  # one byte each, as nearly always
        position += 2
    else:
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
    if tag <= last:
        raise MalformedMessage(f"tag {tag} after tag {last}")
    if position + size > len(data):
        raise MalformedMessage(f"tag {tag} has {size} bytes, {len(data) - position} remain")
    return tag, position, position + size


def continue_tags(
    data: Buffer, position: int, first: int, most: int = MAX_HEADER_TAGS
) -> tuple[list[tuple[int, bytes]] | None, int]:
    """Read a section of unknown tagged fields, whose count's first byte has been read already."""
    count, position = continue_uvarint(data, position, first)
    if count > most:
        raise MalformedMessage(f"{count} tagged fields")
    tags: list[tuple[int, bytes]] = []
    last = -1
    for _ in range(count):
        last, start, position = read_tag(data, position, last)
        tags.append((last, bytes(data[start:position])))
    return tags or None, position


def read_tags(data: Buffer, position: int) -> tuple[list[tuple[int, bytes]] | None, int]:
    """Read a section of unknown tagged fields. Raises MalformedMessage."""
    try:
        return continue_tags(data, position + 1, data[position])
    except IndexError:
        raise MalformedMessage("tagged fields end early") from None


def write_tags(
    pieces: list[Buffer],
    known: list[tuple[int, bytes]],
    unknown: list[tuple[int, bytes]] | None,
) -> None:
    """Append a section of tagged fields, tags ascending. KafkaError if a tag is there twice."""
    tags = sorted(known + unknown) if unknown else known
    if unknown and len({tag for tag, _ in tags}) != len(tags):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a tag is written twice")
    pieces.append(uvarint(len(tags)))
    for tag, content in tags:
        size = len(content)
        small = tag < 128 and size < 128
        pieces.append(bytes((tag, size)) if small else uvarint(tag) + uvarint(size))
        pieces.append(content)


def malformed(what: str, data: Buffer, position: int, error: Exception) -> MalformedMessage:
    """The error of decoders, with the message's name and the approximate position."""
    if isinstance(error, MalformedMessage) and not error.args[0].startswith(what):
        return MalformedMessage(f"{what}: {error}, near byte {position} of {len(data)}")
    return MalformedMessage(f"{what}: ends early or is garbled near byte {position} of {len(data)}")


def unsupported(what: str, name: str, version: int) -> KafkaError:
    """The error for a set field that the version lacks (Kafka's UnsupportedVersionException)."""
    return KafkaError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{what}: version {version} cannot carry a non-default {name}",
    )


def refused(message: Struct, version: int, error: Exception) -> Exception:
    """The KafkaError, naming the field, for a failed encoding; `error` itself if that is a bug."""
    reason = _find_reason(message, type(message).__name__, version)
    return error if reason is None else KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _find_reason(struct: Struct, path: str, version: int) -> str | None:
    for name, field in type(struct).fields.items():
        if field.versions is not None and not covers(parse_versions(field.versions), version):
            continue
        reason = _why_not(field, field.kind, getattr(struct, name), f"{path}.{name}", version)
        if reason is not None:
            return reason
    return None


def _why_not(
    field: Field, kind: Kind | type, value: Any, path: str, version: int, element: bool = False
) -> str | None:
    if value is None:
        nullable = not element and covers(parse_versions(field.nullable), version)
        return None if nullable else f"{path} must not be null in version {version}"
    if isinstance(kind, ArrayKind):
        for index, one in enumerate(value):
            reason = _why_not(field, kind.element, one, f"{path}[{index}]", version, True)
            if reason is not None:
                return reason
        return None
    if not isinstance(kind, Kind):
        return _find_reason(value, path, version)
    if kind.name == "string":
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            return f"{path} is not valid Unicode"
        return f"{path} has {size} bytes, more than 32767" if size > MAX_STRING_BYTES else None
    if kind.format and kind.name != "boolean":
        from struct import error, pack

        try:
            pack(">" + kind.format, value)
        except error:
            return f"{path} is out of range: {value!r}"
        if kind.name == "uuid" and len(value) != 16:
            return f"{path} has {len(value)} bytes, not 16"
    return None
