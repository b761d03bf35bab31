"""Tagged fields in messages that are interpreted: the few that are known, in their order, and small.

Beside `interpreter.py`, and imported with the first tagged field: most messages have none. What is
unusual in any way is left to the compiled function, as there.
"""

from __future__ import annotations

from kwire.protocol.language.interpreter import LeftToCompiled
from kwire.protocol.language.wire import uvarint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.protocol.language.interpreter import Reader, ReadPlan, WritePlan, Writer

_ONE_BYTE = 127
"""Tags and sizes up to this are one byte."""


def read_tagged(reader: Reader, this: Any, plan: ReadPlan) -> None:
    """Read the tagged fields of a structure."""
    data = reader.data
    count = data[reader.p]
    reader.p += 1
    if count > len(plan.tags):
        raise LeftToCompiled
    last = -1
    for _ in range(count):
        tag, size = data[reader.p], data[reader.p + 1]
        step = plan.tags.get(tag)
        if step is None or tag <= last or size > _ONE_BYTE:
            raise LeftToCompiled
        reader.p += 2
        end = reader.p + size
        name, read, argument = step
        setattr(this, name, read(reader, argument))
        if reader.p != end:
            raise LeftToCompiled
        last = tag


def write_tagged(writer: Writer, this: Any, plan: WritePlan) -> None:
    """Write the tagged fields that are not at their default."""
    given = [step for step in sorted(plan.tags) if getattr(this, step[1]) != step[2]]
    if len(given) > _ONE_BYTE:
        raise LeftToCompiled
    parts, marks = writer.parts, writer.marks
    parts.append(uvarint(len(given)))
    for tag, name, _, write, argument in given:
        writer.parts, writer.marks = [], []
        write(writer, getattr(this, name), argument)
        content = b"".join(writer.parts)
        if writer.marks:
            raise LeftToCompiled  # records are never joined
        writer.parts, writer.marks = parts, marks
        parts += (uvarint(tag), uvarint(len(content)), content)
