"""Structured logs on stderr: one line an event, as text or as JSON.

The standard library's logging underneath (asyncio imports it anyway), so that modules of the core need nothing but
`logging.getLogger(__name__)`. Loggers are named like modules. `event()` adds fields to a line: text has them as
key=value after the event, JSON as keys of their own. A traceback is part of its line's record, not a line apart.
"""

from __future__ import annotations

import logging
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from kwire.replication.core.outbox import Log

_core_log = logging.getLogger("kwire.events")


def event(logger: logging.Logger, level: int, name: str, **fields: object) -> None:
    """Logs `name` with fields, if somebody listens at `level`."""
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={"fields": fields})


def write(effect: Log, node_id: int) -> None:
    """Logs an event of a node's core: its sentence; as JSON also its name, its fields and its own time."""
    kind = effect.event
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
            "event": getattr(record, "event", text),
            "message": text,
        }
        fields: dict[str, object] = getattr(record, "fields", {})
        values: dict[str, object] = getattr(record, "values", {})  # what the text has in words
        line.update((k, v) for k, v in {**values, **fields}.items() if k not in line)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=_json_value)


def _json_value(value: object) -> object:
    """Uuids as Kafka writes them; anything else as text."""
    if isinstance(value, bytes) and len(value) == 16:
        from kwire.replication.log.checkpoints import encode_uuid

        return encode_uuid(value).decode()
    return str(value)


def configure(level: str = "info", as_json: bool = False, stream: TextIO | None = None) -> None:
    """Sends what kwire and asyncio log at `level` or above to `stream` (stderr). Replaces an earlier call's handler."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    for name in ("kwire", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
