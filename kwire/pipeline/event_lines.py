"""Lines of a cluster's event log: written from `cluster.events()`, and read, whatever stands in them.

The lines are those of `--log-json` (docs/observing.md); objects of `GET /v1/events` are read, too. Neither numpy nor
PyArrow is needed here.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.client.views import Event

LINE_BYTES_MAX: Final = 1 << 20
"""A longer line is cut here and counts as foreign."""
_SHOWN_CHARACTERS = 1000
_CONTROL_LOGGER = "kwire.aio"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, which Spark's timestamps end at."""
_HEAD = ("time", "level", "logger", "event", "message", "time_ms")


class Row(NamedTuple):
    """One line. All but `message` are None where it is no JSON object; `event` is None where it is no event."""

    time: datetime | None = None
    level: str | None = None
    event: str | None = None
    node: int | None = None
    """The broker or controller that reported it; None: it was asked of the cluster."""
    message: str | None = None
    topic: str | None = None
    partition: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    isr: list[int] | None = None
    broker: int | None = None
    """The broker that the event is about: `broker_id`, or `node_id` of what was asked of a broker."""
    reason: str | None = None
    fields: str | None = None
    """All fields, as a JSON object."""


def write(events: Iterable[Event], path: str | Path) -> int:
    """Append events (`cluster.events(since=…)`) to a file, a line each, as `--log-json` writes them.

    Returns the largest number among them, 0 without any: what to ask for the later ones with. OSError."""
    last = 0
    with Path(path).open("ab") as file:
        for each in events:
            file.write(_line(each) + b"\n")
            last = max(last, each.number)
    return last


def _line(event: Event) -> bytes:
    found: dict[str, object] = {
        "time": (_time(event.time_ms) or _EPOCH).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
        "level": event.level,
        "logger": _CONTROL_LOGGER if event.node is None else "kwire.events",
        "event": event.name,
        "message": event.text,
        "time_ms": event.time_ms,
    }
    found |= {name: value for name, value in event.fields.items() if name not in found}
    if event.node is not None:
        found["node_id"] = event.node
    return json.dumps(found, default=str).encode()


def parse(line: bytes) -> Row:
    """The row of a line, without its end; a field of a wrong kind is None. Raises nothing."""
    try:
        found = json.loads(line) if len(line) <= LINE_BYTES_MAX else None
    except (ValueError, RecursionError):  # no JSON, no UTF-8, or nested too deeply
        found = None
    if not isinstance(found, dict):
        return Row(message=line[:_SHOWN_CHARACTERS].decode(errors="replace").rstrip())
    if isinstance(found.get("fields"), dict) and "logger" not in found:  # of GET /v1/events
        fields, is_asked, node = found["fields"], found.get("node") is None, found.get("node")
    else:
        fields = {name: value for name, value in found.items() if name not in _HEAD}
        is_asked, node = found.get("logger") == _CONTROL_LOGGER, fields.get("node_id")
    about = fields.get("broker_id")
    if about is None and is_asked and fields.get("role") == "broker":
        about = fields.get("node_id")
    return Row(
        _time(found.get("time_ms")) or _iso(found.get("time")),
        _text(found.get("level")),
        _text(found.get("event")),
        None if is_asked else _integer(node),
        _text(found.get("message")),
        _text(fields.get("topic")),
        _integer(fields.get("partition")),
        _integer(fields.get("leader")),
        _integer(fields.get("leader_epoch")),
        _integer(fields.get("partition_epoch")),
        _integers(fields.get("isr")),
        _integer(about),
        _text(fields.get("reason")),
        json.dumps(fields),
    )


def _time(milliseconds: object) -> datetime | None:
    if type(milliseconds) is int and 0 <= milliseconds <= _LAST_MS:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    return None


def _iso(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
        return found.astimezone(UTC) if found is not None and found.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _text(value: object) -> str | None:
    # A lone surrogate of JSON's \ud800 is no text for Arrow.
    return value.encode(errors="replace").decode() if isinstance(value, str) else None


def _integer(value: object) -> int | None:
    return value if type(value) is int and -(1 << 31) <= value < 1 << 31 else None


def _integers(value: object) -> list[int] | None:
    if not isinstance(value, list) or any(_integer(each) is None for each in value):
        return None
    return value
