"""`python -m kwire.protocol.check FILE.jsonl.gz…`: check golden files against kwire's codecs, both
directions.

There are three kinds of line (tests/data/README.md): messages `{"name", "v", "hex", "json"}`, whose
bytes must decode to the JSON and whose JSON must encode to the bytes; record batches `{"case",
"hex", "valid_bytes", "batches"}`; and captured requests `{"api", "v", "request_frame_hex"}`, which
decode and encode must reproduce. Prints a line for each failure; the last line is `N passed, N
failed`; the exit status is 1 if anything failed.
"""

from __future__ import annotations

import json
import sys
from typing import IO, Any

from kwire.protocol.errors import KafkaError, MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kwire.protocol.language.schema import Message

_classes: dict[str, list[type[Message]]] = {}


def check_message(line: dict[str, Any]) -> str | None:
    """Check a line of golden messages: the problem, or None."""
    if not _classes:
        from kwire.protocol.catalog import classes_by_name

        _classes.update(classes_by_name())
    candidates = _classes.get(line["name"])
    if candidates is None:
        return "no such message"
    problems = [_check_message_as(cls, line) for cls in candidates]
    return None if None in problems else problems[0]


def _check_message_as(cls: type[Message], line: dict[str, Any]) -> str | None:
    from kwire.protocol.json_form import from_json, to_json

    version = line["v"]
    if cls.record_type is not None and cls.__name__.endswith("Key"):
        version = 0  # what Kafka 3.9 calls the version of a key is its record type
    data = bytes.fromhex(line["hex"])
    try:
        expected = from_json(cls, line["json"])
    except ValueError as error:
        return f"cannot be read from JSON: {error}"
    try:
        decoded, position = cls.decode_from(data, 0, version)
    except MalformedMessage as error:
        return f"does not decode: {error}"
    if position != len(data):
        return f"decoding stopped at byte {position} of {len(data)}"
    if decoded != expected:
        return f"decoded to {json.dumps(to_json(decoded, version))}"
    try:
        for message in (expected, decoded):
            if (encoded := message.encode(version)) != data:
                return f"encoded to {encoded.hex()}"
    except KafkaError as error:
        return f"does not encode: {error}"
    return None


def check_request(line: dict[str, Any]) -> str | None:
    """Check a line of captured request frames: the problem, or None."""
    from kwire.protocol import api

    frame = bytes.fromhex(line["request_frame_hex"])
    try:
        header = api.parse_request_header(frame)
        key, version = header.api_key, header.api_version
        if api.ApiKey(key).api_name != line["api"] or version != line["v"]:
            return f"has the header of {api.ApiKey(key).api_name} version {version}"
        body, end = api.request_class(key).decode_from(frame, header.body_position, version)
    except MalformedMessage as error:
        return f"does not decode: {error}"
    if end != len(frame):
        return f"decoding stopped at byte {end} of {len(frame)}"
    parts = api.encode_request(key, version, header.correlation_id, header.client_id, body)
    encoded = b"".join(parts)
    return None if encoded[4:] == frame else f"encoded to {encoded[4:].hex()}"


def check_batches(line: dict[str, Any]) -> str | None:
    """Check a line of golden record batches: the problem, or None."""
    from kwire.protocol.check_batches import check_batches

    return check_batches(line)


def _check_for(line: dict[str, Any]) -> Callable[[dict[str, Any]], str | None]:
    if "request_frame_hex" in line:
        return check_request
    if "batches" in line:
        return check_batches
    if "name" in line and "json" in line:
        return check_message
    raise ValueError("not a line of golden data")


def check_lines(lines: Iterator[bytes] | IO[bytes]) -> Iterator[tuple[str, str | None]]:
    """Yield (name of the line, problem or None). ValueError for a line that is not golden data."""
    for text in lines:
        line = json.loads(text)
        if not isinstance(line, dict):
            raise ValueError("not a line of golden data")
        check = _check_for(line)
        name = line.get("name") or line.get("api") or "batches"
        version = f" v{line['v']}" if "v" in line else ""
        case = f" {line['case']}" if "case" in line else ""
        try:
            problem = check(line)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            problem = f"cannot be checked: {error!r}"
        yield f"{name}{version}{case}", problem


def main(paths: list[str]) -> int:
    """Check the files and print the result; returns the exit status."""
    if not paths:
        print("usage: python -m kwire.protocol.check FILE.jsonl.gz…", file=sys.stderr)  # noqa: T201
        return 2
    from kwire.protocol.language import schema

    schema.INTERPRETED_USES = 0  # what is checked is the compiler; a test compares the interpreter
    passed = failed = 0
    unreadable = False
    for path in paths:
        try:
            with _open(path) as file:
                for what, problem in check_lines(file):
                    if problem is None:
                        passed += 1
                    else:
                        failed += 1
                        print(f"{path}: {what}: {problem}"[:2000])  # noqa: T201
        except (OSError, EOFError, ValueError) as error:
            unreadable = True
            print(f"{path}: cannot be read: {error}")  # noqa: T201
    print(f"{passed} passed, {failed} failed")  # noqa: T201
    return 1 if failed or unreadable else 0


def _open(path: str) -> IO[bytes]:
    import gzip

    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if zipped else open(path, "rb")  # type: ignore[return-value]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
