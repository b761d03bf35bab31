"""Straight-line Python out of definitions, written at first use (placeholder for decode and encode: coming)."""

from __future__ import annotations

from typing import Any

from .schema import Struct, StructType

_FRESH = object()


def compile_constructor(cls: StructType) -> None:
    """Give the class an `__init__` with one keyword per field."""
    names: dict[str, Any] = {"FRESH": _FRESH}
    parameters = ["self"]
    if cls.fields:
        parameters.append("*")
    body = ["self.unknown_tags = None"]
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


def compile_decoder(cls: type[Struct], version: int) -> Any:
    raise NotImplementedError


def compile_encoder(cls: type[Struct], version: int) -> Any:
    raise NotImplementedError
