"""Base class of the writers of decoders and encoders: lines, names, runs of fixed-size items."""

from __future__ import annotations

import linecache
import struct
from typing import Any

from kwire.protocol.errors import MalformedMessage
from kwire.protocol.language.primitives import covers, layout, parse_versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.language.schema import Field, Message

SMALL = 16
"""Arrays of up to this many numbers use a precompiled layout."""

ELEMENTS_A_PART = 100
UNITS_AN_ELEMENT = 3
"""Of a structure in an array, or a string: about its microseconds (`replication.core.work`)."""

_small_arrays: dict[tuple[str, str], tuple[Any, ...]] = {}


def small_array(format: str, method: str) -> tuple[Any, ...]:
    """Bound methods for arrays of 0 to SMALL numbers."""
    key = format, method
    if key not in _small_arrays:
        _small_arrays[key] = tuple(
            getattr(layout(f"{count}{format}"), method) for count in range(SMALL + 1)
        )
    return _small_arrays[key]


def define(source: str, filename: str, names: dict[str, Any]) -> None:
    """Execute the source in `names`, and let tracebacks, profilers and debuggers show its lines."""
    exec(compile(source, filename, "exec"), names)
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename


class Writer:
    """The source being written, its names, and the pending run of fixed-size items."""

    def __init__(self, cls: type[Message], version: int, *, in_parts: bool = False) -> None:
        """`in_parts`: the function is a generator, which yields its cost after some elements."""
        self.cls = cls
        self.version = version
        self.in_parts = in_parts
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
        """The function that consists of `head`, the lines written and `tail`."""
        name = head[4:10]  # decode or encode
        what = f"{self.cls.__name__} v{self.version}"
        suffix = " in parts" if self.in_parts else ""
        source = "\n".join([head, "    try:", *self.lines, *tail, ""])
        self.names.update(error=struct.error, MalformedMessage=MalformedMessage, WHAT=what)
        define(source, f"<{name} of {what}{suffix}>", self.names)
        return self.names[name]

    def count_element(self, *at_yield: str) -> None:
        """Count an element of an array; let others have their turn after some, having done `at_yield`."""
        if self.in_parts:
            self.line("elements += 1")
            self.line(f"if elements >= {ELEMENTS_A_PART}:")
            for line in at_yield:
                self.line(f"    {line}")
            self.line("    elements = 0")
            self.line(f"    yield {ELEMENTS_A_PART * UNITS_AN_ELEMENT}")

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
