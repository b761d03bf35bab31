"""Print the code that decodes and encodes one version of a message, as `kwire.protocol.language`
generates it.

    python -m kwire.protocol.show ProduceRequest 9

Names are those of Kafka 3.9 or 4.x; a record of a coordinator may have its coordinator in front, as
in "coordinator/group/OffsetCommitKey". The comments above a function list its constants. An unknown
message or version is one line on stderr and exit status 2.
"""

from __future__ import annotations

import linecache
import sys
from types import BuiltinMethodType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FunctionType
    from typing import Any

    from kwire.protocol.language.schema import Message

USAGE = "usage: python -m kwire.protocol.show MESSAGE VERSION"


def generated(cls: type[Message], version: int) -> str:
    """The source of the decoder and the encoder of one version of a message."""
    functions: list[Any] = [cls.compiled_decoder(version), cls.compiled_encoder(version)]
    return "\n\n".join("".join(_lines(function)) for function in functions)


def _lines(function: FunctionType) -> Iterator[str]:
    yield f"# {function.__code__.co_filename[1:-1]}\n"
    used = function.__code__.co_names
    for name, value in function.__globals__.items():
        if name[-1].isdigit() and name in used:
            yield f"# {name} = {_described(value)}\n"
    yield from linecache.getlines(function.__code__.co_filename)


def _described(value: Any) -> str:
    """A constant of the generated code as source text."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, tuple):  # one of small_array's
        return f"({_described(value[0])}, …, {_described(value[-1])})"
    if isinstance(value, BuiltinMethodType):  # of a layout
        layout: Any = value.__self__
        return f"Struct({layout.format!r}).{value.__name__}"
    return repr(value)


def find_message(name: str) -> type[Message] | None:
    """The message of this name, with or without the coordinator in front."""
    from kwire.protocol.catalog import all_messages, classes_by_name

    named = classes_by_name().get(name)
    if named:
        return named[0]
    return next((cls for _, cls in all_messages() if cls.__name__ == name), None)


def _similar(name: str) -> str:
    from difflib import get_close_matches

    from kwire.protocol.catalog import classes_by_name

    found = get_close_matches(name, classes_by_name(), 1)
    return f"; the most similar name is {found[0]}" if found else ""


def main(arguments: list[str]) -> int:
    """Print the code or an error; returns the exit status."""
    if arguments in (["--help"], ["-h"]):
        print(__doc__.strip())  # noqa: T201
        return 0
    if len(arguments) != 2:
        return _refuse(USAGE)
    name, version = arguments
    cls = find_message(name)
    if cls is None:
        return _refuse(f"no message is called {name!r}{_similar(name)}")
    if not (version.isascii() and version.isdigit()):
        return _refuse(f"{version!r} is not a version")
    first, last = cls.versions
    if len(version) > 5 or not first <= int(version) <= last:
        return _refuse(f"{name} has versions {first}-{last}, not {version}")
    print(generated(cls, int(version)), end="")  # noqa: T201
    return 0


def _refuse(reason: str) -> int:
    print(reason, file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
