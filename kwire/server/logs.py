"""Structured logs on stderr: one line per event, as text or as JSON.

Built on the standard library's logging (asyncio imports it anyway). Loggers are named like modules;
the core's is kwire.events. The text format is the event's sentence, for drivers' events followed by
key=value for each field that the sentence does not contain; the JSON format has its name, its
sentence, and a key for each field. A traceback belongs to the record of its line.
"""

from __future__ import annotations

import logging
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from kwire.replication.core.events import EventType
    from kwire.replication.core.outbox import Log

_core_log = logging.getLogger("kwire.events")


def event(
    logger: logging.Logger,
    kind: EventType,
    error: BaseException | None = None,
    /,
    **fields: object,
) -> None:
    """Log an event of a driver if its level is enabled, with the traceback of `error`."""
    if logger.isEnabledFor(kind.level):
        more = kind.more_fields
        shown = {name: fields[name] for name in more if fields.get(name) is not None}
        extra = {"event": kind.name, "fields": shown, "values": fields}
        logger.log(kind.level, "%s", kind.text(fields), exc_info=error, extra=extra)


def write(effect: Log, node_id: int) -> None:
    """Log an event of a node's core: its sentence; in JSON also its name, its fields and its time."""
    kind = effect.event
    if kind.level < logging.ERROR and not _core_log.hasHandlers():
        return  # a script without logging: it has asked for the faults that Python would print to stderr
    if _core_log.isEnabledFor(kind.level):
        values = {"time_ms": effect.time_ms, **effect.fields}
        extra = {"event": kind.name, "fields": {"node_id": node_id}, "values": values}
        _core_log.log(kind.level, "%s", effect.text, extra=extra)


def _time_text(created: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
    return f"{whole}.{int(created * 1000) % 1000:03d}Z"


def _value_text(value: object) -> str:
    text = str(value)
    if text and text.isprintable() and not any(letter in ' "=' for letter in text):
        return text
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


class TextFormatter(logging.Formatter):
    """2026-01-31T12:00:00.000Z INFO  kwire.server.node: listening listener=PLAINTEXT port=9092"""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = getattr(record, "fields", {})
        parts = [
            _time_text(record.created),
            f"{record.levelname:<7}",
            f"{record.name}:",
            record.getMessage(),
            *(f"{key}={_value_text(value)}" for key, value in fields.items()),
        ]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """{"time": …, "level": …, "logger": …, "event": …, "message": …, fields…}"""

    def format(self, record: logging.LogRecord) -> str:
        import json

        text = record.getMessage()
        line: dict[str, object] = {
            "time": _time_text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", None),
            "message": text,
            "time_ms": int(record.created * 1000),
        }
        fields: dict[str, object] = getattr(record, "fields", {})
        values: dict[str, object] = getattr(
            record, "values", {}
        )  # the fields that the text contains
        line |= {k: v for k, v in (fields | values).items() if k == "time_ms" or k not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=_json_value)


def _json_value(value: object) -> object:
    """Convert a value for JSON: Uuids as Kafka writes them; anything else as text."""
    if isinstance(value, bytes) and len(value) == 16:
        from kwire.replication.log.checkpoints import encode_uuid

        return encode_uuid(value).decode()
    return str(value)


def configure(level: str = "info", as_json: bool = False, stream: TextIO | None = None) -> None:
    """Send the logs of kwire and asyncio at `level` or above to `stream` (default: stderr).

    Replaces the handler of an earlier call."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    for name in ("kwire", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
