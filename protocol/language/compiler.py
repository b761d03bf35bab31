"""Straight-line Python out of definitions, written and compiled at first use, per (message, version).

A function has no loop over fields and no test of versions: what the version settles is settled here. Neighbouring
fields of fixed size, with the length or count that follows them, are read by one `unpack_from` and written by one
`pack`; structures are inlined; arrays of numbers are read at once. What is rare is left to functions of
`kwire.protocol.language.wire`.

Decoding trusts nothing. A position only moves forward, a slice past the end is short without harm, every number read
past the end raises, and a function ends by comparing its position with the end: so lengths need no check of their own.
Counts are compared with the bytes that remain before anything loops. One `try` turns all that Python raises into
MalformedMessage. Encoding has one `try` too: whatever Python raises for a null or an unfitting number is looked into by
`wire.refused`, which names the field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kwire.protocol.language.decode_writer import compile_decoder
from kwire.protocol.language.encode_writer import compile_encoder

if TYPE_CHECKING:
    from kwire.protocol.language.schema import StructType

__all__ = ["compile_constructor", "compile_decoder", "compile_encoder"]

_FRESH = object()


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
