"""Compiles message definitions to straight-line Python, per (message, version), after some uses.

A generated function has no loop over fields and no test of versions. Neighbouring fields of fixed
size, with the length or count that follows them, are read by one `unpack_from` and written by one
`pack`; structures are inlined; an array of numbers is one read. Rare cases are calls of functions
in `kwire.protocol.language.wire`.

Decoding trusts no input. Positions only move forward, a slice past the end is harmlessly short,
reading a number past the end raises, and a function ends by comparing its position with the end: so
lengths need no checks of their own. Counts are compared with the remaining bytes before a loop. One
`try` turns Python's exceptions into MalformedMessage. In encoders one `try` passes exceptions, for
a null or a number out of range, to `wire.refused`, which names the field.

`python -m kwire.protocol.show HeartbeatResponse 4` prints

    # decode of HeartbeatResponse v4
    # Class2 = HeartbeatResponse
    # unpack4 = Struct('>ihB').unpack_from
    def decode(data, p):
        try:
            if type(data) is not bytes:
                data = bytes(data)
            end = len(data)
            budget = 2097152
            o1 = new(Class2)
            o1.unknown_tags = None
            o1.throttle_time_ms, o1.error_code, n3 = unpack4(data, p)
            p += 7
            if n3:
                o1.unknown_tags, p = continue_tags(data, p, n3, budget)
                budget -= len(o1.unknown_tags or ())
                if budget < 0:
                    raise MalformedMessage('more than 2097152 elements')
            if p > end:
                raise MalformedMessage(f'{p - end} bytes are missing')
            return o1, p
        except (error, IndexError, UnicodeDecodeError, OverflowError, MalformedMessage) as e:
            raise malformed(WHAT, data, p, e) from None


    # encode of HeartbeatResponse v4
    # pack1 = Struct('>ihx').pack
    # pack2 = Struct('>ih').pack
    def encode(message, parts, marks):
        try:
            if not message.unknown_tags:
                parts.append(pack1(message.throttle_time_ms, message.error_code))
            else:
                parts.append(pack2(message.throttle_time_ms, message.error_code))
                tags3 = []
                write_tags(parts, tags3, message.unknown_tags)
            return
        except (error, AttributeError, TypeError, OverflowError, UnicodeEncodeError) as e:
            raise refused(message, 4, e) from e
"""

from __future__ import annotations

from typing import Any

from kwire.protocol.language.decode_writer import compile_decoder
from kwire.protocol.language.encode_writer import compile_encoder
from kwire.protocol.language.source_writer import define

TYPE_CHECKING = False
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
    define(source + "\n", f"<constructor of {cls.__module__}.{cls.__name__}>", names)
    cls.__init__ = names["__init__"]  # type: ignore[misc]
