"""Straight-line Python out of definitions, written and compiled at first use, per (message, version).

A function has no loop over fields and no test of versions: what the version settles is settled here. Neighbouring
fields of fixed size, with the length or count that follows them, are read by one `unpack_from` and written by one
`pack`; structures are inlined; arrays of numbers are read at once. What is rare is left to functions of
`kwire.protocol.wire`.

Decoding trusts nothing. A position only moves forward, a slice past the end is short without harm, every number read
past the end raises, and a function ends by comparing its position with the end: so lengths need no check of their own.
Counts are compared with the bytes that remain before anything loops. One `try` turns all that Python raises into
MalformedMessage. Encoding has one `try` too: whatever Python raises for a null or an unfitting number is looked into by
`wire.refused`, which names the field.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from . import wire
from .errors import MalformedMessage
from .primitives import ArrayKind, Kind, covers, parse_versions

if TYPE_CHECKING:
    from .schema import Field, Message, StructType

_SMALL = 16
"""Arrays of up to this many numbers use a layout made beforehand."""

_FRESH = object()
_BYTE = tuple(bytes((value,)) for value in range(128))

_layouts: dict[str, struct.Struct] = {}
_small_arrays: dict[tuple[str, str], tuple[Any, ...]] = {}


def _layout(format: str) -> struct.Struct:
    found = _layouts.get(format)
    if found is None:
        found = _layouts[format] = struct.Struct(">" + format)
    return found


def _small_array(format: str, method: str) -> tuple[Any, ...]:
    """Bound methods for arrays of 0 to _SMALL numbers."""
    key = format, method
    if key not in _small_arrays:
        _small_arrays[key] = tuple(
            getattr(_layout(f"{count}{format}"), method) for count in range(_SMALL + 1)
        )
    return _small_arrays[key]


class _Writer:
    """The source being written, the names it uses, and the run of fixed-size items not yet written."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = covers(cls.flexible, version)
        self.lines: list[str] = []
        self.indent = 2
        self.names: dict[str, Any] = {}
        self.run: list[tuple[str, str]] = []
        self.count = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, prefix: str, value: Any) -> str:
        """A global name for the value; the same one for the same object."""
        for name, known in self.names.items():
            if known is value and name.startswith(prefix):
                return name
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def function(self, head: str, tail: list[str]) -> Any:
        what = f"{self.cls.__name__} v{self.version}"
        source = "\n".join([head, "    try:", *self.lines, *tail])
        self.names.update(error=struct.error, MalformedMessage=MalformedMessage, WHAT=what)
        exec(compile(source, f"<{head[4:10]} of {what}>", "exec"), self.names)
        return self.names[head[4:10]]

    def present(self, field: Field) -> bool:
        return field.versions is None or covers(parse_versions(field.versions), self.version)

    def nullable(self, field: Field) -> bool:
        return covers(parse_versions(field.nullable), self.version)

    def compact(self, field: Field) -> bool:
        return self.flexible and field.compact

    def default(self, field: Field) -> str:
        """An expression for the field's default."""
        if field.default_is_fresh:
            if field.struct is field.kind:
                return self.constant("Default", field.kind) + "()"
            return "[]"
        value = field.default
        if value is None or isinstance(value, (int, float, str)):
            return repr(value)
        return self.constant("default", value)


class _DecodeWriter(_Writer):
    """Writes `decode(data, p) -> (message, p)`."""

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__(cls, version)
        self.views = holds_records(cls, version)

    def flush(self) -> None:
        """Read the run that has gathered."""
        if not self.run:
            return
        format = "".join(item[1] for item in self.run)
        targets = [item[0] for item in self.run]
        size = struct.calcsize(">" + format)
        if format == "B":
            self.line(f"{targets[0]} = data[p]")
        else:
            unpack = self.constant("unpack", _layout(format).unpack_from)
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
            if default.endswith(("[]", "()")):  # each its own
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
        """Like a compact `length`, but two bytes, the common case, are no call."""
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
                self.line(f"{items}.append(data[p:p + {element.size}])")
                self.line(f"p += {element.size}")
            else:
                self.lengthy(element, compact, False, "item")
                self.line(f"{items}.append(item)")
            self.indent -= 1
        self.indent -= nullable

    def numbers(self, element: Kind, count: str, target: str) -> None:
        small = self.constant("small", _small_array(element.format, "unpack_from"))
        self.names["unpack_from"] = struct.unpack_from
        self.line(f"if {count} <= {_SMALL}:")
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
            self.line(f"{this}.unknown_tags, p = continue_tags(data, p, {count})")
        else:
            tag, after = self.fresh("tag"), self.fresh("after")
            self.line(f"{count}, p = continue_uvarint(data, p, {count})")
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


class _EncodeWriter(_Writer):
    """Writes `encode(message, parts, marks)`."""

    def flush(self, more: str = "", formats: str = "") -> None:
        """Write the run that has gathered, with one more item."""
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
            pack = self.constant("pack", _layout(format).pack)
            self.line(f"parts.append({pack}({', '.join(items)}))")

    def is_default(self, field: Field, value: str) -> str:
        """An expression that holds if the value is the field's default."""
        default = self.default(field)
        if default == "[]":
            return f"{value} == []" if field.nullable else f"not {value}"
        if default == "None":
            return f"{value} is None"
        if default == "False":
            return f"not {value}"
        if default.startswith("default") and field.struct is not None:
            return f"({value} is {default} or {value} == {default})"
        return f"{value} == {default}"

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
            format = element.format
            self.names["pack"] = struct.pack
            small = (
                self.constant("small", _small_array(format, "pack"))
                if element.name != "uuid"
                else ""
            )
            if small:
                self.line(f"if len({items}) <= {_SMALL}:")
                self.line(f"    parts.append({small}[len({items})](*{items}))")
                self.line("else:")
                self.line(f"    parts.append(pack(f'>{{len({items})}}{format}', *{items}))")
            else:
                self.line(f"parts.append(pack('>' + '16s' * len({items}), *{items}))")
            return
        this = self.fresh("o")
        self.line(f"for {this} in {items}:")
        self.indent += 1
        if isinstance(element, Kind):
            self.lengthy(element, compact, False, this)
        else:
            self.struct(element, this)  # type: ignore[arg-type]
            self.flush()
        self.indent -= 1

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


def holds_records(cls: StructType, version: int) -> bool:
    """Whether the version has records somewhere inside."""
    for field in cls.fields.values():
        if field.versions is None or covers(parse_versions(field.versions), version):
            if isinstance(field.kind, Kind) and field.kind.name == "records":
                return True
            if field.struct is not None and holds_records(field.struct, version):
                return True
    return False


def smallest_size(kind: Any, version: int, flexible: bool) -> int:
    """The bytes that a value of the kind has at least."""
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


def compile_decoder(cls: type[Message], version: int) -> Any:
    """The function `decode(data, position) -> (message, position)` of one version."""
    writer = _DecodeWriter(cls, version)
    kind = "memoryview" if writer.views else "bytes"
    writer.line(f"if type(data) is not {kind}:")
    writer.line(f"    data = {kind}(data)")
    writer.line("end = len(data)")
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


def compile_encoder(cls: type[Message], version: int) -> Any:
    """The function `encode(message, pieces, indexes of records)` of one version."""
    writer = _EncodeWriter(cls, version)
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
    )
    tail = [
        "    except (error, AttributeError, TypeError, OverflowError, UnicodeEncodeError) as e:",
        f"        raise refused(message, {version}, e) from e",
    ]
    return writer.function("def encode(message, parts, marks):", tail)


def compile_constructor(cls: StructType) -> None:
    """Give the class an `__init__` with one keyword per field."""
    names: dict[str, Any] = {"FRESH": _FRESH}
    parameters = ["self", "*", "unknown_tags=None"]
    body = ["self.unknown_tags = unknown_tags"]
    for name, field in cls.fields.items():
        if field.default_is_fresh:
            make = "[]"
            if field.struct is field.kind:
                names[f"make_{name}"] = field.kind
                make = f"make_{name}()"
            parameters.append(f"{name}=FRESH")
            body.append(f"self.{name} = {make} if {name} is FRESH else {name}")
        else:
            names[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
            body.append(f"self.{name} = {name}")
    source = f"def __init__({', '.join(parameters)}):\n    " + "\n    ".join(body)
    exec(compile(source, f"<constructor of {cls.__name__}>", "exec"), names)
    cls.__init__ = names["__init__"]  # type: ignore[misc]
