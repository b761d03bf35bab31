"""`kwire produce` and `kwire consume`: lines to records of any Kafka, and back."""

from __future__ import annotations

import json
import sys
import time

from kwire.client.lines import line_chunks
from kwire.client.reader import Reader
from kwire.client.records import produce_all
from kwire.protocol.records import Record as Written
from kwire.server.errors import NodeError, SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kwire.client.blocking import Client
    from kwire.client.views import Record

    Header = tuple[str, bytes | None]

_WAIT_MS = 250
_STUCK_SECONDS = 5.0
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


# --- produce


class Lines:
    """How a line becomes a record."""

    def __init__(
        self,
        key: str | None,
        separator: str | None,
        headers: Sequence[Header],
        *,
        null_if_empty: bool,
    ) -> None:
        self._key = None if key is None else key.encode()
        self._separator = None if separator is None else separator.encode()
        self._headers = list(headers)
        self._null_if_empty = null_if_empty

    def record(self, line: bytes, number: int, now_ms: int) -> Written:
        """The record of a line. NodeError when it has no separator."""
        key, value = self._key, line
        if self._separator is not None:
            key, found, value = line.partition(self._separator)
            if not found:
                text = line.decode(errors="replace")
                raise NodeError(f"line {number} has no {self._separator.decode()!r}: {text}")
        of_value = None if not value and self._null_if_empty else value
        return Written(-1, now_ms, key, of_value, self._headers)


def produce(
    client: Client,
    topic: str,
    values: Sequence[str],
    lines: Lines,
    *,
    partition: int | None,
    as_json: bool,
) -> int:
    """Write the values, or else a record for each line of stdin; print where those of values are."""
    chunks = iter([[value.encode() for value in values]]) if values else _chunks_of_stdin()
    number = 0
    for chunk in chunks:
        now_ms = time.time_ns() // 1_000_000
        records: list[Written] = []
        failure: NodeError | None = None
        for line in chunk:
            number += 1
            try:
                records.append(lines.record(line, number, now_ms))
            except NodeError as error:
                failure = error
                break
        if records:  # also those before a line that is none
            written = client.run(produce_all(client, topic, records, partition=partition))
            _print_places(written if values or as_json else [], as_json)
        if failure is not None:
            raise NodeError(f"{failure}; {_before(number - 1, 'value' if values else 'line')}")
    return 0


def _before(count: int, what: str) -> str:
    """What has become of the lines, or values, before a bad one."""
    if count == 0:
        return "nothing is written"
    are = f"{what} before it is" if count == 1 else f"{count} {what}s before it are"
    return f"the {are} written"


def _print_places(written: list[Record], as_json: bool) -> None:
    for each in written:
        place = {"topic": each.topic, "partition": each.partition, "offset": each.offset}
        text = f"{each.topic}-{each.partition}@{each.offset}"
        sys.stdout.write((json.dumps(place) if as_json else text) + "\n")
    sys.stdout.flush()


def _chunks_of_stdin() -> Iterator[list[bytes]]:
    if sys.stdin is None:  # closed before Python started
        raise NodeError("stdin is closed: give values as arguments")
    yield from line_chunks(sys.stdin.fileno())


# --- consume


def consume(
    client: Client,
    topic: str,
    partition: int | None,
    start: int | None,
    *,
    follow: bool,
    count: int | None,
    seconds: float | None,
    to_bytes: Callable[[Record], bytes],
) -> int:
    """Print the records that there are, by partition and offset, then with `follow` those that come.

    `start`: as `Reader.seek`. `count`: how many at most. `seconds`: how long to follow; return 1
    when `count` has not been reached by then."""
    reader = Reader(client, topic, partition)
    client.run(reader.seek(start))
    _note_nothing_there(reader, start, follow=follow)
    deadline = None if seconds is None else time.monotonic() + seconds
    left = count
    for records in _read(client, reader, follow, deadline):
        some = records if left is None else records[:left]
        sys.stdout.buffer.write(b"".join(map(to_bytes, some)))
        sys.stdout.buffer.flush()
        if left is not None:
            left -= len(some)
            if left <= 0:
                return 0
    return 1 if follow and left else 0


def _note_nothing_there(reader: Reader, start: int | None, *, follow: bool) -> None:
    """Say on stderr that an offset is beyond the end of all partitions: nothing would be printed."""
    if start is None or start <= 0:
        return
    ends = reader.ends.items()
    if all(start > end or (start == end and not follow) for _, end in ends):
        where = ", ".join(f"{topic}-{index} ends at {end}" for (topic, index), end in ends)
        then = "; from the end on:" if follow else ""
        sys.stderr.write(f"kwire consume: nothing at offset {start}: {where}{then}\n")
        sys.stderr.flush()


def _read(
    client: Client, reader: Reader, follow: bool, deadline: float | None
) -> Iterator[list[Record]]:
    for key, end in reader.ends.items():
        progress = time.monotonic()
        while reader.positions[key] < end:
            before = reader.positions[key]
            records = client.run(reader.fetch([key], _WAIT_MS))
            yield records if follow else [each for each in records if each.offset < end]
            if reader.positions[key] > before:
                progress = time.monotonic()
            elif time.monotonic() > progress + _STUCK_SECONDS:
                raise NodeError(f"{key[0]}-{key[1]}: nothing at offset {before}, the end is {end}")
    while follow and (deadline is None or time.monotonic() < deadline):
        left_ms = _WAIT_MS if deadline is None else int((deadline - time.monotonic()) * 1000)
        yield client.run(reader.fetch(reader.positions, max(1, min(_WAIT_MS, left_ms))))


def as_line(separator: str | None) -> Callable[[Record], bytes]:
    """The value of a record, behind its key and `separator` if that is given; null is empty."""
    if separator is None:
        return lambda record: (record.value or b"") + b"\n"
    between = separator.encode()
    return lambda record: (record.key or b"") + between + (record.value or b"") + b"\n"


def as_json_line(record: Record) -> bytes:
    """A JSON object; what is not UTF-8 stands in base64, under key_base64, value_base64."""
    found: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
        "headers": [{"name": name, **_json_bytes("value", it)} for name, it in record.headers],
    }
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: bytes(data).decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {f"{name}_base64": b64encode(data).decode()}


def as_format(text: str) -> Callable[[Record], bytes]:
    """A record in kcat's notation: %t %p %o %k %s %T %h, escapes such as \\n. SettingsError."""
    parts: list[bytes | Callable[[Record], bytes]] = []
    rest = iter(text)
    for letter in rest:
        if letter == "\\":
            after = next(rest, "")
            parts.append(_ESCAPES.get(after, ("\\" + after).encode()))
        elif letter == "%":
            after = next(rest, "")
            if after not in _FIELDS:
                known = " ".join(f"%{name}" for name in _FIELDS)
                raise SettingsError(f"--format: expected one of {known}, not %{after}")
            parts.append(_FIELDS[after])
        else:
            parts.append(letter.encode("utf-8", "surrogateescape"))
    return lambda record: b"".join(
        part if isinstance(part, bytes) else part(record) for part in parts
    )


def _headers_text(record: Record) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if value is None else value)
        for name, value in record.headers
    )


_FIELDS: dict[str, Callable[[Record], bytes]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: b"" if record.key is None else bytes(record.key),
    "s": lambda record: b"" if record.value is None else bytes(record.value),
    "T": lambda record: b"%d" % record.timestamp,
    "h": _headers_text,
    "%": lambda _: b"%",
}
