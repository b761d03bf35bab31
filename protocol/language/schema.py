"""The definition language: one class per message, for all its versions.

    class OffsetForLeaderTopic(Struct):
        topic: str = field(STRING)
        partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))

    class OffsetForLeaderEpochRequest(Message, versions="0-4", flexible="4+"):
        replica_id: int = field(INT32, "3+", default=-2, ignorable=True)
        topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))

Names and rules are those of Kafka's message definitions
(clients/src/main/resources/common/message/README.md of Apache Kafka): in a flexible version
strings, bytes and arrays are compact and every structure ends with tagged fields (KIP-482); a field
that a version does not have is left at its default when read, and when written must be at its
default or `ignorable`. `compiler.py` turns definitions into straight-line Python per (message,
version); before that pays, `interpreter.py` decodes and encodes the first messages field by field.
`reference.py` interprets definitions with construct, for tests, which compare the three.

Classes are slotted; every field has a default; constructors take keywords; type checkers understand
both (PEP 681: as no function is declared a field specifier, `= field(…)` reads as "has a default"
for them). A structure without lists that is the default of a field (`current_leader` of a Produce
response, say) is one shared, immutable instance: assign a new one.

Names of structures are Kafka's. Where two messages of a module use one name for different
structures, the later one is prefixed with its message's name, and `kafka_name` keeps the original.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Self, dataclass_transform

from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kwire.protocol.language.primitives import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    ZERO_UUID,
    ArrayKind,
    Buffer,
    Kind,
    VersionRange,
    array,
    parse_versions,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "BOOLEAN", "BYTES", "FLOAT64", "INT8", "INT16", "INT32", "INT64", "RECORDS", "STRING",
    "UINT16", "UINT32", "UUID", "ZERO_UUID", "Buffer", "Field", "Message", "Struct", "array",
    "construct_for", "field",
]  # fmt: skip


INTERPRETED_USES = 16
"""How many messages of one (message, version) are interpreted before it is compiled, which costs as
much as some twenty of them; 0: none."""
INTERPRETED_INSTANCES = 128
"""Likewise for instances of a class and its constructor."""


class Field:
    """One field of a structure, as defined; version ranges are text until compilation."""

    __slots__ = (
        "_default", "compact", "former", "ignorable", "kind", "name",
        "nullable", "tag", "versions",
    )  # fmt: skip

    def __init__(
        self,
        kind: Kind | type,
        versions: str | None,
        nullable: str | None,
        default: object,
        tag: int | None,
        ignorable: bool,
        compact: bool,
        former: str | None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = versions
        self.nullable = nullable
        self._default = default
        self.tag = tag
        self.ignorable = ignorable
        self.compact = compact
        self.former = former

    @property
    def default(self) -> Any:
        """The field's default value; a new object at each call if it is mutable."""
        if self._default is not ...:
            return self._default
        kind = self.kind
        if isinstance(kind, StructType):
            return kind() if kind.holds_mutable else kind.shared_default()
        if isinstance(kind, ArrayKind):
            return []
        assert isinstance(kind, Kind)
        return kind.default

    @property
    def default_is_fresh(self) -> bool:
        """Whether each message needs its own default: a list, or a structure with a list."""
        kind = self.kind
        return self._default is ... and (
            isinstance(kind, ArrayKind) or (isinstance(kind, StructType) and kind.holds_mutable)
        )

    @property
    def struct(self) -> StructType | None:
        """The class of the structure that the field or its elements hold."""
        kind = self.kind.element if isinstance(self.kind, ArrayKind) else self.kind
        return kind if isinstance(kind, StructType) else None


def field(
    kind: Kind | type,
    versions: str | None = None,
    *,
    nullable: str | None = None,
    default: object = ...,
    tag: int | None = None,
    ignorable: bool = False,
    compact: bool = True,
    former: str | None = None,
) -> Any:
    """Define a field.

    versions: those of the message that have it (None: all that have the structure). nullable: those
    that allow null. default: the kind's zero, if not given. tag: its tag, if it is a tagged field.
    ignorable: may be dropped silently when written in a version without it. compact=False: keeps
    the old form even in flexible versions. former: its name in Kafka 3.9, where 4.x renamed it.
    """
    return Field(kind, versions, nullable, default, tag, ignorable, compact, former)


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """The metaclass of structures: turns the fields of a class body into slots."""

    fields: dict[str, Field]
    kafka_name: str
    _shared_default: Any
    _made: int
    """How many instances were made before the constructor was compiled."""

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        kafka_name: str | None = None,
        versions: str | None = None,
        flexible: str | None = None,
        record_type: int | None = None,
        former: str | None = None,
    ) -> StructType:
        fields = {key: value for key, value in namespace.items() if type(value) is Field}
        for key, value in fields.items():
            value.name = key
            del namespace[key]
        if "__slots__" not in namespace:
            namespace["__slots__"] = tuple(fields)
        cls = super().__new__(mcls, name, bases, namespace)
        cls.fields = fields
        cls.kafka_name = kafka_name or name
        cls._shared_default = None
        cls._made = 0
        if versions is not None:
            message: Any = cls
            message.versions = parse_versions(versions)
            message.flexible = parse_versions(flexible)
            message.record_type = record_type
            message.former = former
            message.decoders = _ByVersion(message._first_decoder)
            message.encoders = _ByVersion(message._first_encoder)
        return cls

    @property
    def holds_mutable(cls) -> bool:
        """Whether an instance with default values contains a list."""
        return any(one.default_is_fresh for one in cls.fields.values())

    def shared_default(cls) -> Any:
        """The shared immutable instance for fields whose default is this structure."""
        if cls._shared_default is None:
            cls._shared_default = _frozen(cls)
        return cls._shared_default


class _ByVersion(dict[int, "Callable[..., Any]"]):
    """A message's decoders or encoders by version, each made at first use."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[int], Callable[..., Any]]) -> None:
        self._make = make

    def __missing__(self, version: int) -> Callable[..., Any]:
        function = self[version] = self._make(version)
        return function


class Struct(metaclass=StructType):
    """A structure inside messages."""

    __slots__ = ("unknown_tags",)

    if TYPE_CHECKING:  # a slot cannot have a value in the class
        unknown_tags: list[tuple[int, bytes]] | None = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        """Take one keyword per field. After some instances a compiled constructor takes over."""
        cls = type(self)
        cls._made += 1
        if cls._made > INTERPRETED_INSTANCES or not cls.fields.keys() >= values.keys():
            from kwire.protocol.language.compiler import compile_constructor

            compile_constructor(cls)  # replaces this very method
            cls.__init__(self, **values)
            return
        self.unknown_tags = None
        for name, one in cls.fields.items():
            if name not in values:
                values[name] = one.default
            setattr(self, name, values[name])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or type(other).fields is not type(self).fields:
            return NotImplemented
        names = type(self).fields
        return (self.unknown_tags or None) == (other.unknown_tags or None) and all(
            getattr(self, name) == getattr(other, name) for name in names
        )

    def __repr__(self) -> str:
        cls = type(self)
        shown = [
            f"{name}={value!r}"
            for name, one in cls.fields.items()
            if (value := getattr(self, name)) != one.default
        ]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{cls.__name__}({', '.join(shown)})"


class Message(Struct):
    """A top-level structure: the body of a request or response, a header, a payload in a log."""

    __slots__ = ()

    versions: ClassVar[VersionRange]
    """The first and the last version."""
    flexible: ClassVar[VersionRange | None]
    """The versions in which it is flexible (KIP-482), if any."""
    record_type: ClassVar[int | None]
    """For records of a coordinator's topic: the int16 before the key."""
    former: ClassVar[str | None]
    """Its name in Kafka 3.9, where 4.x renamed it."""
    decoders: ClassVar[dict[int, Callable[[Buffer, int], tuple[Any, int]]]]
    """By version, the functions behind `decode_from`. Look them up for each message: after some
    messages a compiled function takes the place of an interpreter."""
    encoders: ClassVar[dict[int, Callable[[Any, list[Buffer], list[int]], None]]]

    @classmethod
    def decode(cls, data: Buffer, version: int) -> Self:
        """Decode a message; as in Kafka bytes after it are ignored. Raises MalformedMessage."""
        message: Self = cls.decoders[version](data, 0)[0]
        return message

    @classmethod
    def decode_from(cls, data: Buffer, position: int, version: int) -> tuple[Self, int]:
        """Like `decode`, from a position on; also returns the position after the message."""
        return cls.decoders[version](data, position)

    def encode(self, version: int) -> bytes:
        """The message's bytes. KafkaError: UNSUPPORTED_VERSION where the version cannot carry a
        value that is set, INVALID_REQUEST for a null, a number or a length that the wire has no
        room for."""
        pieces: list[Buffer] = []
        self.encoders[version](self, pieces, [])
        return b"".join(pieces)

    def encode_parts(self, version: int) -> list[Buffer]:
        """Encode in several parts: records are separate parts and are not copied."""
        pieces: list[Buffer] = []
        records: list[int] = []  # which of the pieces are
        self.encoders[version](self, pieces, records)
        return _join_pieces(pieces, records) if records else [b"".join(pieces)]

    @classmethod
    def compiled_decoder(cls, version: int) -> Callable[[Buffer, int], tuple[Any, int]]:
        """Compile the decoder of a version. MalformedMessage for a version that is not there."""
        if not cls.versions[0] <= version <= cls.versions[1]:
            first, last = cls.versions
            raise MalformedMessage(f"{cls.__name__} has versions {first}-{last}, not {version}")
        from kwire.protocol.language.compiler import compile_decoder

        return compile_decoder(cls, version)  # type: ignore[no-any-return]

    @classmethod
    def compiled_encoder(cls, version: int) -> Callable[[Any, list[Buffer], list[int]], None]:
        """Compile the encoder of a version. KafkaError for a version that is not there."""
        if not cls.versions[0] <= version <= cls.versions[1]:
            first, last = cls.versions
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{cls.__name__} has versions {first}-{last}, not {version}",
            )
        from kwire.protocol.language.compiler import compile_encoder

        return compile_encoder(cls, version)  # type: ignore[no-any-return]

    @classmethod
    def _first_decoder(cls, version: int) -> Callable[[Buffer, int], tuple[Any, int]]:
        if not INTERPRETED_USES or not cls.versions[0] <= version <= cls.versions[1]:
            return cls.compiled_decoder(version)
        from kwire.protocol.language.interpreter import FirstDecoder

        return FirstDecoder(cls, version)

    @classmethod
    def _first_encoder(cls, version: int) -> Callable[[Any, list[Buffer], list[int]], None]:
        if not INTERPRETED_USES or not cls.versions[0] <= version <= cls.versions[1]:
            return cls.compiled_encoder(version)
        from kwire.protocol.language.interpreter import FirstEncoder

        return FirstEncoder(cls, version)


def _join_pieces(pieces: list[Buffer], records: list[int]) -> list[Buffer]:
    """Join adjacent pieces other than records, which are not copied."""
    parts: list[Buffer] = []
    start = 0
    for index in records:
        if start < index:
            parts.append(b"".join(pieces[start:index]))
        if pieces[index]:
            parts.append(pieces[index])
        start = index + 1
    if start < len(pieces):
        parts.append(b"".join(pieces[start:]))
    return parts


def construct_for(cls: type[Message], version: int) -> Any:
    """The message's definition for one version as a `construct.Construct` (reference.py)."""
    from kwire.protocol.language.reference import construct_for as build

    return build(cls, version)


def _refuse_change(self: Any, name: str, value: object) -> NoReturn:
    raise AttributeError(
        f"this {type(self).__mro__[1].__name__} is a default shared by many messages:"
        f" assign a new one instead of setting {name}"
    )


def _frozen(cls: StructType) -> Any:
    """An instance of `cls` with default values and read-only attributes."""
    namespace: dict[str, Any] = {"__slots__": (), "__setattr__": _refuse_change}
    frozen: Any = type.__new__(StructType, cls.__name__, (cls,), namespace)
    instance = object.__new__(frozen)
    write = object.__setattr__
    for name, one in cls.fields.items():
        write(instance, name, one.default)
    write(instance, "unknown_tags", None)
    return instance
