"""Decodes and encodes the first messages of a kind field by field, before compiling pays.

Compiling a (message, version) costs as much as interpreting some twenty, and most brokers of tests
see only a few. So `schema.py` puts a `FirstDecoder` and a `FirstEncoder` in the place of compiled
functions; after INTERPRETED_USES messages, or at the first one that is large, uncommon or wrong,
they compile, and the compiled function takes their place.

Invariants: what the interpreter returns is what the compiled function would return. Whatever it does
not know for certain it leaves to that function, which then starts from the beginning: errors,
and limits are the compiler's alone, and so is all that hostile bytes can bring about.
"""

from __future__ import annotations

from struct import unpack_from
from typing import Any

from kwire.protocol.language import schema
from kwire.protocol.language.primitives import (
    ArrayKind,
    Buffer,
    Kind,
    covers,
    layout,
    parse_versions,
)
from kwire.protocol.language.wire import continue_uvarint, uvarint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from struct import Struct as Layout

    from kwire.protocol.language.schema import Field, Message, StructType

    Read = Callable[["Reader", Any], Any]
    Write = Callable[["Writer", Any, Any], None]

_MOST_ELEMENTS = 128
"""A message with more elements in its arrays is worth compiling at once, likewise with more bytes."""
_MOST_BYTES = 4096


class LeftToCompiled(Exception):
    """The message is not for the interpreter."""


class FirstDecoder:
    """Decodes like the compiled function of one version, and lets that take its place."""

    __slots__ = ("_cls", "_plan", "_uses", "_version", "_views")

    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        self._uses = 0
        self._plan: ReadPlan | None = None
        self._views = False

    def __call__(self, data: Buffer, p: int) -> tuple[Any, int]:
        self._uses += 1
        if self._uses <= schema.INTERPRETED_USES:
            try:
                return self.interpret(data, p)
            except Exception:  # the compiled function finds out what it is, and says so
                self._uses = schema.INTERPRETED_USES
        function = self._cls.decoders[self._version] = self._cls.compiled_decoder(self._version)
        return function(data, p)

    def interpret(self, data: Buffer, p: int) -> tuple[Any, int]:
        """Decode without the compiler. An exception of whatever kind leaves the message to it."""
        plan = self._plan
        if plan is None:
            flexible = covers(self._cls.flexible, self._version)
            plan = self._plan = ReadPlan(self._cls, self._version, flexible)
            self._views = plan.holds_records
        if self._views:
            reader = Reader(data if type(data) is memoryview else memoryview(data), p)
        elif len(data) - p > _MOST_BYTES:
            raise LeftToCompiled
        else:
            reader = Reader(data if type(data) is bytes else bytes(data), p)
        message = reader.structure(plan)
        if reader.p > len(data):
            raise LeftToCompiled
        return message, reader.p


class FirstEncoder:
    """Encodes like the compiled function of one version, and lets that take its place."""

    __slots__ = ("_cls", "_plan", "_uses", "_version")

    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        self._uses = 0
        self._plan: WritePlan | None = None

    def __call__(self, message: Any, parts: list[Buffer], marks: list[int]) -> None:
        self._uses += 1
        if self._uses <= schema.INTERPRETED_USES:
            before = len(parts), len(marks)
            try:
                self.interpret(message, parts, marks)
                return
            except Exception:  # the compiled function finds out what it is, and says so
                self._uses = schema.INTERPRETED_USES
                del parts[before[0] :], marks[before[1] :]
        function = self._cls.encoders[self._version] = self._cls.compiled_encoder(self._version)
        function(message, parts, marks)

    def interpret(self, message: Any, parts: list[Buffer], marks: list[int]) -> None:
        """Encode without the compiler. An exception of whatever kind leaves the message to it."""
        plan = self._plan
        if plan is None:
            flexible = covers(self._cls.flexible, self._version)
            plan = self._plan = WritePlan(self._cls, self._version, flexible)
        Writer(parts, marks).structure(message, plan)


def _first_tags() -> Any:
    from kwire.protocol.language import first_tags

    return first_tags


# --- plans


def _step(
    face: type[Reader | Writer], plan: ReadPlan | WritePlan, field: Field, version: int
) -> tuple[Any, Any]:
    """How a field is read or written: the method of `face` for its kind, and what that needs to know."""
    kind = field.kind
    compact = plan.flexible and field.compact
    nullable = field.nullable is not None and covers(parse_versions(field.nullable), version)
    if isinstance(kind, ArrayKind):
        element = kind.element
        if not isinstance(element, Kind):
            nested = plan._nested(element, version)  # type: ignore[arg-type]
            return face.structures, (compact, nullable, nested)
        if element.format:
            return face.numbers, (compact, nullable, element)
        return face.lengthy_elements, (compact, nullable, element.name)
    if not isinstance(kind, Kind):
        method = face.structure_or_null if nullable else face.structure
        return method, plan._nested(kind, version)  # type: ignore[arg-type]
    if kind.format:
        return face.number, layout(kind.format)
    return face.lengthy, (compact, nullable, kind.name)


# --- reading


class ReadPlan:
    """How one version of a structure is read: defaults first, then a step for each field."""

    __slots__ = ("cls", "defaults", "flexible", "fresh", "holds_records", "steps", "tags")

    def __init__(self, cls: StructType, version: int, flexible: bool) -> None:
        self.cls = cls
        self.flexible = flexible
        self.holds_records = False
        self.defaults: list[tuple[str, Any]] = [("unknown_tags", None)]
        self.fresh: list[Field] = []
        self.steps: list[tuple[str, Read, Any]] = []
        self.tags: dict[int, tuple[str, Read, Any]] = {}
        for name, field in cls.fields.items():
            present = field.versions is None or covers(parse_versions(field.versions), version)
            if not present or field.tag is not None:
                if field.default_is_fresh:
                    self.fresh.append(field)
                else:
                    self.defaults.append((name, field.default))
            if present:
                step = _step(Reader, self, field, version)
                self.holds_records |= isinstance(field.kind, Kind) and field.kind.name == "records"
                if field.tag is None:
                    self.steps.append((name, *step))
                elif step[0] is not Reader.structure_or_null:
                    self.tags[field.tag] = (name, *step)

    def _nested(self, kind: StructType, version: int) -> ReadPlan:
        plan = ReadPlan(kind, version, self.flexible)
        self.holds_records |= plan.holds_records
        return plan


class Reader:
    """A message's bytes and the position in them. A method reads a value of a kind."""

    __slots__ = ("_left", "data", "p")

    def __init__(self, data: bytes | memoryview, p: int) -> None:
        self.data = data
        self.p = p
        self._left = _MOST_ELEMENTS

    def structure(self, plan: ReadPlan) -> Any:
        this: Any = object.__new__(plan.cls)  # type: ignore[arg-type]  # a class of messages
        for name, value in plan.defaults:
            setattr(this, name, value)
        for field in plan.fresh:
            setattr(this, field.name, field.default)
        for name, read, argument in plan.steps:
            setattr(this, name, read(self, argument))
        if plan.flexible:
            if not self.data[self.p]:
                self.p += 1
            else:
                _first_tags().read_tagged(self, this, plan)
        return this

    def structure_or_null(self, plan: ReadPlan) -> Any:
        flag = self.data[self.p]
        self.p += 1
        return None if flag > 127 else self.structure(plan)

    def number(self, form: Layout) -> Any:
        (value,) = form.unpack_from(self.data, self.p)
        self.p += form.size
        return value

    def lengthy(self, argument: tuple[bool, bool, str]) -> Any:
        """A string, bytes or records."""
        compact, nullable, name = argument
        size = self._length(compact, "h" if name == "string" else "i")
        if size < 0:
            if size == -1 and nullable:
                return None
            raise LeftToCompiled
        start = self.p
        self.p = start + size
        content = self.data[start : self.p]
        if name == "string":
            if size > _MOST_BYTES:
                raise LeftToCompiled  # there is a limit
            return str(content, "utf-8")
        return bytes(content) if name == "bytes" else content

    def structures(self, argument: tuple[bool, bool, ReadPlan]) -> Any:
        compact, nullable, plan = argument
        count = self._count(compact, nullable)
        return None if count < 0 else [self.structure(plan) for _ in range(count)]

    def lengthy_elements(self, argument: tuple[bool, bool, str]) -> Any:
        compact, nullable, name = argument
        count = self._count(compact, nullable)
        one = compact, False, name
        return None if count < 0 else [self.lengthy(one) for _ in range(count)]

    def numbers(self, argument: tuple[bool, bool, Kind]) -> Any:
        compact, nullable, element = argument
        if element.name == "uuid":
            raise LeftToCompiled
        count = self._count(compact, nullable)
        if count < 0:
            return None
        values = list(unpack_from(f">{count}{element.format}", self.data, self.p))
        self.p += count * element.size
        return values

    def _count(self, compact: bool, nullable: bool) -> int:
        count = self._length(compact, "i")
        self._left -= count
        if self._left < 0 or count < (-1 if nullable else 0):
            raise LeftToCompiled
        return count

    def _length(self, compact: bool, format: str) -> int:
        """A length or count; -1 for null."""
        if not compact:
            return self.number(layout(format))  # type: ignore[no-any-return]
        size = self.data[self.p]
        self.p += 1
        if size > 127:
            size, self.p = continue_uvarint(self.data, self.p, size)
        return size - 1


# --- writing


class WritePlan:
    """How one version of a structure is written: what must be at its default, then the fields."""

    __slots__ = ("defaults", "flexible", "steps", "tags")

    def __init__(self, cls: StructType, version: int, flexible: bool) -> None:
        self.flexible = flexible
        self.defaults: list[tuple[str, Any]] = []
        self.steps: list[tuple[str, Write, Any]] = []
        self.tags: list[tuple[int, str, Any, Write, Any]] = []
        for name, field in cls.fields.items():
            present = field.versions is None or covers(parse_versions(field.versions), version)
            if not present:
                if not field.ignorable:
                    self.defaults.append((name, field.default))
                continue
            step = _step(Writer, self, field, version)
            if field.tag is None:
                self.steps.append((name, *step))
            elif step[0] is Writer.structure_or_null:
                self.defaults.append((name, field.default))
            else:
                self.tags.append((field.tag, name, field.default, *step))

    def _nested(self, kind: StructType, version: int) -> WritePlan:
        return WritePlan(kind, version, self.flexible)


class Writer:
    """A message's parts and the indexes of records among them. A method writes a value of a kind."""

    __slots__ = ("_left", "marks", "parts")

    def __init__(self, parts: list[Buffer], marks: list[int]) -> None:
        self.parts = parts
        self.marks = marks
        self._left = _MOST_ELEMENTS

    def structure(self, this: Any, plan: WritePlan) -> None:
        if this.unknown_tags or any(getattr(this, name) != value for name, value in plan.defaults):
            raise LeftToCompiled  # such as a field that the version lacks
        for name, write, argument in plan.steps:
            write(self, getattr(this, name), argument)
        if plan.flexible:
            if all(getattr(this, name) == default for _, name, default, *_ in plan.tags):
                self.parts.append(b"\0")
            else:
                _first_tags().write_tagged(self, this, plan)

    def structure_or_null(self, this: Any, plan: WritePlan) -> None:
        self.parts.append(b"\xff" if this is None else b"\1")
        if this is not None:
            self.structure(this, plan)

    def number(self, value: Any, form: Layout) -> None:
        self.parts.append(form.pack(value))

    def lengthy(self, value: Any, argument: tuple[bool, bool, str]) -> None:
        """A string, bytes or records."""
        compact, nullable, name = argument
        if value is None:
            self._null(compact, nullable, "h" if name == "string" else "i")
            return
        if name == "string":
            content = value.encode()
            if len(content) > _MOST_BYTES:
                raise LeftToCompiled  # there is a limit
            self._length(len(content), compact, "h")
        else:
            content = value
            self._length(len(content), compact, "i")
        if name == "records":
            if not content:
                return
            self.marks.append(len(self.parts))
        self.parts.append(content)

    def structures(self, values: Any, argument: tuple[bool, bool, WritePlan]) -> None:
        compact, nullable, plan = argument
        if self._count(values, compact, nullable):
            for value in values:
                self.structure(value, plan)

    def lengthy_elements(self, values: Any, argument: tuple[bool, bool, str]) -> None:
        compact, nullable, name = argument
        if self._count(values, compact, nullable):
            one = compact, False, name
            for value in values:
                self.lengthy(value, one)

    def numbers(self, values: Any, argument: tuple[bool, bool, Kind]) -> None:
        compact, nullable, element = argument
        if self._count(values, compact, nullable):
            pack = layout(element.format).pack
            for value in values:
                self.parts.append(pack(value))

    def _count(self, values: Any, compact: bool, nullable: bool) -> bool:
        """Write an array's count; returns whether elements follow."""
        if values is None:
            self._null(compact, nullable, "i")
            return False
        self._left -= len(values)
        if self._left < 0:
            raise LeftToCompiled
        self._length(len(values), compact, "i")
        return bool(values)

    def _null(self, compact: bool, nullable: bool, format: str) -> None:
        if not nullable:
            raise LeftToCompiled
        self.parts.append(b"\0" if compact else layout(format).pack(-1))

    def _length(self, size: int, compact: bool, format: str) -> None:
        self.parts.append(uvarint(size + 1) if compact else layout(format).pack(size))
