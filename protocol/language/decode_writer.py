"""Generates the Python source of decoders (see `compiler.py`)."""

from __future__ import annotations

import struct
from typing import Any

from kwire.protocol.language import wire
from kwire.protocol.language.primitives import ArrayKind, Kind, covers, layout, parse_versions
from kwire.protocol.language.source_writer import SMALL, Writer, small_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.language.schema import Field, Message, StructType

MAX_ELEMENTS = 1 << 21
"""Limit of array elements and tagged fields in one message. Two bytes of a hostile message can
become an object of a hundred; Kafka has no such limit, but no real message comes near."""


class DecodeWriter(Writer):
    """Writes `decode(data, p) -> (message, p)`."""

    def __init__(self, cls: type[Message], version: int, *, in_parts: bool = False) -> None:
        super().__init__(cls, version, in_parts=in_parts)
        self.views = in_parts or holds_records(cls, version)  # no copy of a large message

    def flush(self) -> None:
        """Write code that reads the collected run of fixed-size items."""
        if not self.run:
            return
        format = "".join(item[1] for item in self.run)
        targets = [item[0] for item in self.run]
        size = struct.calcsize(">" + format)
        if format == "B":
            self.line(f"{targets[0]} = data[p]")
        else:
            unpack = self.constant("unpack", layout(format).unpack_from)
            target = targets[0] + "," if len(targets) == 1 else ", ".join(targets)
            self.line(f"{target} = {unpack}(data, p)")
        self.line(f"p += {size}")
        self.run = []

    def struct(self, cls: StructType, target: str) -> str:
        """Read a structure into a new object; returns the object's name. Leaves a run."""
        this = self.fresh("o")
        self.line(f"{this} = new({self.constant('Class', cls)})")
        if target:
            self.line(target.replace("@", this))
        flexible = self.flexible
        inline: list[Field] = []
        tagged: list[Field] = []
        defaults: dict[str, list[str]] = {"None": ["unknown_tags"]}
        for field in cls.fields.values():
            if not self.present(field):
                defaults.setdefault(self.default(field), []).append(field.name)
            elif field.tag is not None:
                tagged.append(field)
                defaults.setdefault(self.default(field), []).append(field.name)
            else:
                inline.append(field)
        for default, attributes in defaults.items():
            if default.endswith(("[]", "()")):  # a new one for each
                for attribute in attributes:
                    self.line(f"{this}.{attribute} = {default}")
            else:
                self.line(" = ".join(f"{this}.{name}" for name in attributes) + f" = {default}")
        for field in inline:
            self.value(field, field.kind, f"{this}.{field.name}")
        if flexible:
            self.tags(this, sorted(tagged, key=lambda field: field.tag or 0))
        return this

    def value(self, field: Field, kind: Kind | type, target: str) -> None:
        """Read one field into the target."""
        if isinstance(kind, ArrayKind):
            self.array(field, kind, target)
        elif not isinstance(kind, Kind):
            self.inner_struct(field, kind, target)
        elif kind.format:
            self.run.append((target, kind.format))
        else:
            self.lengthy(kind, self.compact(field), self.nullable(field), target)

    def inner_struct(self, field: Field, kind: Any, target: str) -> None:
        if not self.nullable(field):
            self.struct(kind, f"{target} = @")
            return
        flag = self.fresh("n")
        if field.tag is None:
            self.run.append((flag, "b"))
            self.flush()
            self.line(f"if {flag} < 0:")
        else:
            self.flush()
            self.line(f"{flag}, p = read_uvarint(data, p)")
            self.line(f"if {flag} == 0:")
        self.line(f"    {target} = None")
        self.line("else:")
        self.indent += 1
        self.struct(kind, f"{target} = @")
        self.flush()
        self.indent -= 1

    def length(self, compact: bool, long_form: str, short_form: str) -> str:
        """Read a length or count; returns its variable, which is the length + 1 if compact."""
        size = self.fresh("n")
        self.run.append((size, "B" if compact else short_form))
        self.flush()
        if compact:
            self.line(f"if {size} > 127:")
            self.line(f"    {size}, p = {long_form}(data, p, {size})")
        return size

    def records_length(self) -> str:
        """Like a compact `length`, but two bytes, the common case, need no call."""
        size = self.fresh("n")
        self.run.append((size, "B"))
        self.flush()
        self.line(f"if {size} > 127:")
        self.line("    q = data[p]")
        self.line("    if q < 128:")
        self.line(f"        {size} = {size} & 127 | q << 7")
        self.line("        p += 1")
        self.line("    else:")
        self.line(f"        {size}, p = continue_uvarint(data, p, {size})")
        return size

    def lengthy(self, kind: Kind, compact: bool, nullable: bool, target: str) -> None:
        """Read a string, bytes or records."""
        is_string = kind.name == "string"
        if kind.name == "records" and compact:
            size = self.records_length()
        elif is_string:
            size = self.length(compact, "continue_string_length", "h")
        else:
            size = self.length(compact, "continue_uvarint", "i")
        if nullable:
            self.line(f"if {size}{' == 0' if compact else ' == -1'}:")
            self.line(f"    {target} = None")
            self.line(f"elif {size} < 0:" if not compact else "else:")
        else:
            self.line(f"if {size} < {1 if compact else 0}:")
        if not (nullable and compact):
            self.line(
                f"    raise MalformedMessage(f'{target[target.find('.') + 1 :]} of length {{{size}}}')"
            )
            if nullable:
                self.line("else:")
        self.indent += nullable
        self.line(f"q = p + {size}{' - 1' if compact else ''}")
        view = self.views
        if is_string:
            text = "data[p:q].tobytes().decode()" if view else "data[p:q].decode()"
        elif kind.name == "bytes":
            text = "data[p:q].tobytes()" if view else "data[p:q]"
        else:
            text = "data[p:q]"
        self.line(f"{target} = {text}")
        self.line("p = q")
        self.indent -= nullable

    def array(self, field: Field, kind: ArrayKind, target: str) -> None:
        compact, nullable = self.compact(field), self.nullable(field)
        count = self.length(compact, "continue_uvarint", "i")
        if nullable:
            self.line(f"if {count} == {0 if compact else -1}:")
            self.line(f"    {target} = None")
            self.line("else:")
        self.indent += nullable
        if compact:
            self.line(f"{count} -= 1")
        element = kind.element
        least = max(1, smallest_size(element, self.version, self.flexible))
        self.line(f"if {count} < 0 or {count} * {least} > end - p:")
        self.line(f"    raise MalformedMessage(f'{field.name} of {{{count}}} elements')")
        self.spend(count)
        if isinstance(element, Kind) and element.format and element.name != "uuid":
            self.numbers(element, count, target)
        else:
            items = self.fresh("items")
            self.line(f"{target} = {items} = []")
            self.line(f"for _ in range({count}):")
            self.indent += 1
            if not isinstance(element, Kind):
                self.struct(element, f"{items}.append(@)")  # type: ignore[arg-type]
                self.flush()
            elif element.format:
                copied = ".tobytes()" if self.views else ""
                self.line(f"{items}.append(data[p:p + {element.size}]{copied})")
                self.line(f"p += {element.size}")
            else:
                self.lengthy(element, compact, False, "item")
                self.line(f"{items}.append(item)")
            self.count_element()
            self.indent -= 1
        self.indent -= nullable

    def spend(self, count: str) -> None:
        """Count elements and tags against MAX_ELEMENTS."""
        self.line(f"budget -= {count}")
        self.line("if budget < 0:")
        self.line(f"    raise MalformedMessage('more than {MAX_ELEMENTS} elements')")

    def numbers(self, element: Kind, count: str, target: str) -> None:
        small = self.constant("small", small_array(element.format, "unpack_from"))
        self.names["unpack_from"] = struct.unpack_from
        self.line(f"if {count} <= {SMALL}:")
        self.line(f"    {target} = list({small}[{count}](data, p))")
        self.line("else:")
        self.line(f"    {target} = list(unpack_from(f'>{{{count}}}{element.format}', data, p))")
        self.line(f"p += {count} * {element.size}")

    def tags(self, this: str, fields: list[Field]) -> None:
        """Read the section of tagged fields that ends a structure."""
        count = self.fresh("n")
        self.run.append((count, "B"))
        self.flush()
        self.line(f"if {count}:")
        self.indent += 1
        if not fields:
            self.line(f"{this}.unknown_tags, p = continue_tags(data, p, {count}, budget)")
            self.spend(f"len({this}.unknown_tags or ())")
        else:
            tag, after = self.fresh("tag"), self.fresh("after")
            self.line(f"{count}, p = continue_uvarint(data, p, {count})")
            self.spend(count)
            self.line(f"{tag} = -1")
            self.line(f"for _ in range({count}):")
            self.indent += 1
            self.line(f"{tag}, p, {after} = read_tag(data, p, {tag})")
            keyword = "if"
            for field in fields:
                self.line(f"{keyword} {tag} == {field.tag}:")
                self.indent += 1
                self.value(field, field.kind, f"{this}.{field.name}")
                self.flush()
                self.indent -= 1
                keyword = "elif"
            self.line("else:")
            self.line(f"    if {this}.unknown_tags is None:")
            self.line(f"        {this}.unknown_tags = []")
            self.line(f"    {this}.unknown_tags.append(({tag}, bytes(data[p:{after}])))")
            self.line(f"    p = {after}")
            self.line(f"if p != {after}:")
            self.line(f"    raise MalformedMessage(f'tag {{{tag}}} does not fill its size')")
            self.indent -= 1
        self.indent -= 1


def holds_records(cls: StructType, version: int) -> bool:
    """Whether the version contains records at any depth."""
    for field in cls.fields.values():
        if field.versions is None or covers(parse_versions(field.versions), version):
            if isinstance(field.kind, Kind) and field.kind.name == "records":
                return True
            if field.struct is not None and holds_records(field.struct, version):
                return True
    return False


def smallest_size(kind: Any, version: int, flexible: bool) -> int:
    """The smallest size of a value of the kind, in bytes."""
    if isinstance(kind, ArrayKind):
        return 1 if flexible else 4
    if isinstance(kind, Kind):
        return kind.size or (1 if flexible else 2 if kind.name == "string" else 4)
    size = 1 if flexible else 0
    for field in kind.fields.values():
        if field.tag is None and (
            field.versions is None or covers(parse_versions(field.versions), version)
        ):
            null = field.struct is field.kind and covers(parse_versions(field.nullable), version)
            size += 1 if null else smallest_size(field.kind, version, flexible)
    return size


def compile_decoder(cls: type[Message], version: int, *, in_parts: bool = False) -> Any:
    """The function `decode(data, position) -> (message, position)` of one version.

    `in_parts`: a generator that yields its cost and returns these."""
    writer = DecodeWriter(cls, version, in_parts=in_parts)
    kind = "memoryview" if writer.views else "bytes"
    writer.line(f"if type(data) is not {kind}:")
    writer.line(f"    data = {kind}(data)")
    writer.line("end = len(data)")
    writer.line(f"budget = {MAX_ELEMENTS}")
    if in_parts:
        writer.line("elements = 0")
        writer.line("yield 1")
    this = writer.struct(cls, "")
    writer.flush()
    writer.line("if p > end:")
    writer.line("    raise MalformedMessage(f'{p - end} bytes are missing')")
    writer.line(f"return {this}, p")
    writer.names.update(
        new=object.__new__,
        malformed=wire.malformed,
        read_uvarint=wire.read_uvarint,
        continue_uvarint=wire.continue_uvarint,
        continue_string_length=wire.continue_string_length,
        continue_tags=wire.continue_tags,
        read_tag=wire.read_tag,
    )
    tail = [
        "    except (error, IndexError, UnicodeDecodeError, OverflowError, MalformedMessage) as e:",
        "        raise malformed(WHAT, data, p, e) from None",
    ]
    return writer.function("def decode(data, p):", tail)
