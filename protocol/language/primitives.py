"""The kinds of values on the wire, and version ranges such as "3-5", "9+" or "2".

Answers to org.apache.kafka.common.protocol.types.Type and to the type names of Kafka's message
definitions. A kind is independent of versions: fields define in which versions a string is nullable
or compact (`kwire.protocol.language.schema`).
"""

from __future__ import annotations

from struct import Struct as Layout

Buffer = bytes | bytearray | memoryview

ZERO_UUID = bytes(16)

MAX_VERSION = 0x7FFF
"""The open end of a range such as "9+": versions are int16 on the wire."""

VersionRange = tuple[int, int]


class Kind:
    """A wire type: its name in Kafka's definitions and, for a fixed size, its `struct` format."""

    __slots__ = ("default", "format", "name", "size")

    def __init__(self, name: str, format: str = "", size: int = 0, default: object = None) -> None:
        self.name = name
        self.format = format
        self.size = size
        self.default = default

    def __repr__(self) -> str:
        return self.name


INT8 = Kind("int8", "b", 1, 0)
INT16 = Kind("int16", "h", 2, 0)
INT32 = Kind("int32", "i", 4, 0)
INT64 = Kind("int64", "q", 8, 0)
UINT16 = Kind("uint16", "H", 2, 0)
UINT32 = Kind("uint32", "I", 4, 0)
FLOAT64 = Kind("float64", "d", 8, 0.0)
BOOLEAN = Kind("boolean", "?", 1, False)
UUID = Kind("uuid", "16s", 16, ZERO_UUID)
STRING = Kind("string", default="")
BYTES = Kind("bytes", default=b"")
RECORDS = Kind("records", default=b"")


class ArrayKind(Kind):
    """`array<element>`; the element is a kind of fixed size, STRING, or a structure's class."""

    __slots__ = ("element",)

    def __init__(self, element: Kind | type) -> None:
        super().__init__("array")
        self.element = element


def array(element: Kind | type) -> ArrayKind:
    """The kind of a list of `element`."""
    return ArrayKind(element)


def parse_versions(text: str | None) -> VersionRange | None:
    """ "3-5" → (3, 5), "9+" → (9, MAX_VERSION), "2" → (2, 2), None → None (no version at all)."""
    if text is None:
        return None
    if text.endswith("+"):
        return int(text[:-1]), MAX_VERSION
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def covers(versions: VersionRange | None, version: int) -> bool:
    """Whether the range includes the version."""
    return versions is not None and versions[0] <= version <= versions[1]


_layouts: dict[str, Layout] = {}


def layout(format: str) -> Layout:
    """The big-endian layout of a `struct` format; the same object for the same format."""
    found = _layouts.get(format)
    if found is None:
        found = _layouts[format] = Layout(">" + format)
    return found
