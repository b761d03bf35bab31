"""Generates the Python source of encoders (see `compiler.py`)."""

from __future__ import annotations

import struct
from typing import Any

from kwire.protocol.language import wire
from kwire.protocol.language.primitives import ArrayKind, Kind, layout
from kwire.protocol.language.source_writer import SMALL, Writer, small_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.language.schema import Field, Message, StructType

_PIECES_A_CHUNK = 4000
_BYTE = tuple(bytes((value,)) for value in range(128))


class EncodeWriter(Writer):
    """Writes `encode(message, parts, marks)`."""

    def flush(self, more: str = "", formats: str = "") -> None:
        """Write code for the collected run of fixed-size items, with one more item."""
        items = [item[0] for item in self.run if item[0]]
        format = "".join(item[1] for item in self.run) + formats
        if more:
            items.append(more)
        self.run = []
        if not format:
            return
        if format == "B":
            self.line(f"parts.append(BYTE[{items[0]}])")
        elif not items:
            self.line(f"parts.append({bytes(len(format))!r})")
        else:
            pack = self.constant("pack", layout(format).pack)
            self.line(f"parts.append({pack}({', '.join(items)}))")

    def is_default(self, field: Field, value: str) -> str:
        """An expression that is true if the value is the field's default."""
        default = self.default(field)
        if default == "[]":
            return f"{value} == []" if field.nullable else f"not {value}"
        if default == "None":
            return f"{value} is None"
        if default == "False":
            return f"not {value}"
        if default.startswith("default") and field.struct is not None:
            return f"({value} is {default} or {self.equals(field.default, value, default)})"
        return f"{value} == {default}"

    def equals(self, default: Any, value: str, name: str) -> str:
        """`value == default`, of structures of numbers without the call."""
        fields = type(default).fields
        if not all(isinstance(getattr(default, each), int) for each in fields):
            return f"{value} == {name}"
        return f"not {value}.unknown_tags" + "".join(
            f" and {value}.{each} == {getattr(default, each)!r}" for each in fields
        )

    def struct(self, cls: StructType, this: str) -> None:
        """Write a structure. Leaves a run."""
        tagged: list[Field] = []
        inline: list[Field] = []
        for field in cls.fields.values():
            if not self.present(field):
                if not field.ignorable:
                    self.line(f"if not ({self.is_default(field, f'{this}.{field.name}')}):")
                    self.line(f"    raise unsupported(WHAT, '{field.name}', {self.version})")
            elif field.tag is not None:
                tagged.append(field)
            else:
                inline.append(field)
        for field in inline:
            self.value(field, field.kind, f"{this}.{field.name}")
        if self.flexible:
            self.tags(this, sorted(tagged, key=lambda field: field.tag or 0))
        else:
            self.line(f"if {this}.unknown_tags:")
            self.line(f"    raise unsupported(WHAT, 'tagged field', {self.version})")

    def value(self, field: Field, kind: Kind | type, value: str) -> None:
        """Write one field."""
        if isinstance(kind, ArrayKind):
            self.array(field, kind, value)
        elif not isinstance(kind, Kind):
            self.inner_struct(field, kind, value)
        elif kind.format:
            self.run.append((value, kind.format))
        else:
            self.lengthy(kind, self.compact(field), self.nullable(field), value)

    def inner_struct(self, field: Field, kind: Any, value: str) -> None:
        this = self.fresh("o")
        self.line(f"{this} = {value}")
        if not self.nullable(field):
            self.struct(kind, this)
            return
        self.flush()
        absent, present = ("\\xff", "\\1") if field.tag is None else ("\\0", "\\1")
        self.line(f"if {this} is None:")
        self.line(f"    parts.append(b'{absent}')")
        self.line("else:")
        self.indent += 1
        self.line(f"parts.append(b'{present}')")
        self.struct(kind, this)
        self.flush()
        self.indent -= 1

    def lengthy(self, kind: Kind, compact: bool, nullable: bool, value: str) -> None:
        """Write a string, bytes or records."""
        content, size = self.fresh("b"), self.fresh("n")
        is_string = kind.name == "string"
        encoded = f"{value}.encode()" if is_string else value
        length = f"len({content}){' + 1' if compact else ''}"
        if nullable:
            self.line(f"{content} = {value}")
            self.line(f"if {content} is None:")
            self.line(f"    {content} = b''; {size} = {0 if compact else -1}")
            self.line("else:")
            if is_string:
                self.line(f"    {content} = {content}.encode()")
            self.line(f"    {size} = {length}")
        else:
            self.line(f"{content} = {encoded}")
            self.line(f"{size} = {length}")
        self.size(
            size, compact, "h" if is_string else "i", "string_length" if is_string else "uvarint"
        )
        if kind.name == "records":
            self.line(f"if {content}:")
            self.line("    marks.append(len(parts))")
            self.line(f"    parts.append({content})")
        else:
            self.line(f"parts.append({content})")

    def size(self, size: str, compact: bool, short_form: str, long_form: str) -> None:
        """Write a length or count, with the run before it."""
        if not compact:
            self.flush(size, short_form)
            return
        run = list(self.run)
        self.line(f"if {size} < 128:")
        self.indented(run, size, "B")
        if long_form == "uvarint":
            self.line(f"elif {size} < 16384:")
            self.indented(run, f"{size} & 127 | 128, {size} >> 7", "BB")
        self.line("else:")
        self.indented(run, "", "")
        self.line(f"    parts.append({long_form}({size}))")
        self.run = []

    def indented(self, run: list[tuple[str, str]], more: str, formats: str) -> None:
        self.run = list(run)
        self.indent += 1
        self.flush(more, formats)
        self.indent -= 1

    def array(self, field: Field, kind: ArrayKind, value: str) -> None:
        compact, nullable = self.compact(field), self.nullable(field)
        items, count = self.fresh("items"), self.fresh("n")
        self.line(f"{items} = {value}")
        length = f"len({items}){' + 1' if compact else ''}"
        if nullable:
            self.line(f"if {items} is None:")
            self.line(f"    {items} = (); {count} = {0 if compact else -1}")
            self.line("else:")
            self.line(f"    {count} = {length}")
        else:
            self.line(f"{count} = {length}")
        self.size(count, compact, "i", "uvarint")
        element = kind.element
        if isinstance(element, Kind) and element.format:
            self.numbers(element, items)
            return
        this = self.fresh("o")
        self.line(f"for {this} in {items}:")
        self.indent += 1
        if isinstance(element, Kind):
            self.lengthy(element, compact, False, this)
        else:
            self.struct(element, this)  # type: ignore[arg-type]
            self.flush()
        self.count_element(
            f"if parts is whole and not marks and len(parts) > {_PIECES_A_CHUNK}:",
            "    chunks.append(join(parts))",
            "    parts.clear()",
        )
        self.indent -= 1

    def numbers(self, element: Kind, items: str) -> None:
        """Write an array of numbers or uuids."""
        format = element.format
        self.names["pack"] = struct.pack
        small = (
            self.constant("small", small_array(format, "pack")) if element.name != "uuid" else ""
        )
        if small:
            self.line(f"if len({items}) <= {SMALL}:")
            self.line(f"    parts.append({small}[len({items})](*{items}))")
            self.line("else:")
            self.line(f"    parts.append(pack(f'>{{len({items})}}{format}', *{items}))")
        else:
            self.line(f"parts.append(pack('>' + '16s' * len({items}), *{items}))")

    def tags(self, this: str, fields: list[Field]) -> None:
        """Write the section of tagged fields that ends a structure."""
        conditions = [f"not {this}.unknown_tags"]
        conditions += [self.is_default(field, f"{this}.{field.name}") for field in fields]
        self.line(f"if {' and '.join(conditions)}:")
        run = list(self.run)
        self.indent += 1
        self.run.append(("", "x"))
        self.flush()
        self.indent -= 1
        self.line("else:")
        self.run = run
        self.indent += 1
        self.flush()
        known = self.fresh("tags")
        self.line(f"{known} = []")
        for field in fields:
            outer = self.fresh("outer")
            self.line(f"if not ({self.is_default(field, f'{this}.{field.name}')}):")
            self.indent += 1
            self.line(f"{outer} = parts; parts = []")
            self.value(field, field.kind, f"{this}.{field.name}")
            self.flush()
            self.line(f"{known}.append(({field.tag}, b''.join(parts))); parts = {outer}")
            self.indent -= 1
        self.line(f"write_tags(parts, {known}, {this}.unknown_tags)")
        self.indent -= 1


def compile_encoder(cls: type[Message], version: int, *, in_parts: bool = False) -> Any:
    """The function `encode(message, pieces, indexes of records)` of one version.

    `in_parts`: a generator that yields its cost, `encode(message, pieces, indexes, chunks)`: as
    long as there are no records it joins pieces into chunks, which come before the pieces."""
    writer = EncodeWriter(cls, version, in_parts=in_parts)
    if in_parts:
        writer.line("whole, elements = parts, 0")
        writer.line("yield 1")
    writer.struct(cls, "message")
    writer.flush()
    writer.line("return")
    writer.names.update(
        BYTE=_BYTE,
        uvarint=wire.uvarint,
        string_length=wire.string_length,
        write_tags=wire.write_tags,
        unsupported=wire.unsupported,
        refused=wire.refused,
        join=b"".join,
    )
    tail = [
        "    except (error, AttributeError, TypeError, OverflowError, UnicodeEncodeError) as e:",
        f"        raise refused(message, {version}, e) from e",
    ]
    more = ", chunks" if in_parts else ""
    return writer.function(f"def encode(message, parts, marks{more}):", tail)
