"""Structured logs on stderr: one line per event, as text or as JSON.

Built on the standard library's logging (asyncio imports it anyway). Loggers are named like modules;
the core's is kwire.events. The text format is the event's sentence, for drivers' events followed by
key=value for each field that the sentence does not contain; the node it is of stands in front. The
JSON format has its name, its sentence, and a key for each field. A traceback belongs to the record of
its line.
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
    from kwire.server.terminal import TerminalHandler

_core_log = logging.getLogger("kwire.events")


def event(
    logger: logging.Logger,
    kind: EventType,
    error: BaseException | None = None,
    node: str | None = None,
    /,
    **fields: object,
) -> None:
    """Log an event of a driver if its level is enabled, with the traceback of `error`.

    `node`: which node the event is of, "broker 1" for example; None: of none, or of several."""
    if is_wanted(logger, kind.level):
        emit(logger, kind, kind.text(fields), node, kind.more_fields, fields, error)


def write(effect: Log, node_id: int, node: str | None = None) -> None:
    """Log an event of a node's core: its sentence; in JSON also its name, its fields and its time."""
    kind = effect.event
    if is_wanted(_core_log, kind.level):
        fields = {"time_ms": effect.time_ms, **effect.fields, "node_id": node_id}
        emit(_core_log, kind, effect.text, node, ("node_id",), fields)


def is_wanted(logger: logging.Logger, level: int) -> bool:
    """Whether the level is enabled, and somebody has set up logging or it is an error.

    A script that has not asked for logs would get warnings on stderr, from Python's last resort: faults
    that it has made itself, as a rule."""
    return logger.isEnabledFor(level) and (level >= logging.ERROR or logger.hasHandlers())


def emit(
    logger: logging.Logger,
    kind: EventType,
    sentence: str,
    node: str | None,
    more: tuple[str, ...],
    fields: dict[str, object],
    error: BaseException | None = None,
    where: tuple[str, int, str] | None = None,
) -> None:
    """Log a record whose location is `where` (file, line, function), else that of the caller's caller.

    Its message is for the handlers of others (pytest's, an application's): the node, the sentence and
    the fields that `more` names. The formatters below read its attributes instead: event, node,
    sentence, more, fields (all of them)."""
    is_named = node is None or sentence.startswith(node + " ")
    message = sentence if is_named else f"{node}: {sentence}"
    names = more if node is None else tuple(name for name in more if name != "node_id")
    if shown := _fields_text(fields, names):
        message = f"{message} {shown}"
    extra = {"event": kind.name, "node": node, "sentence": sentence, "more": more, "fields": fields}
    if where is None:
        logger.log(kind.level, "%s", message, exc_info=error, extra=extra, stacklevel=3)
        return
    file, line, function = where
    place = (logger.name, kind.level, file, line)
    logger.handle(logger.makeRecord(*place, "%s", (message,), None, function, extra))


def _time_text(created: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
    return f"{whole}.{int(created * 1000) % 1000:03d}Z"


def _value_text(value: object) -> str:
    text = str(value)
    if text and text.isprintable() and not any(letter in ' "=' for letter in text):
        return text
    # As the codec unicode_escape does, which would be imported now: there may be no descriptor left.
    return '"' + ascii(f'"{text}')[2:-1].replace("\\'", "'").replace('"', '\\"') + '"'


def _fields_text(fields: dict[str, object], names: tuple[str, ...]) -> str:
    """The fields of these names that have a value, as key=value."""
    items = ((name, fields.get(name)) for name in names)
    return " ".join(f"{name}={_value_text(value)}" for name, value in items if value is not None)


class TextFormatter(logging.Formatter):
    """2026-01-31T12:00:00.000Z INFO    kwire.server.node: broker 1: stopped node_id=1"""

    def format(self, record: logging.LogRecord) -> str:
        more = _fields_text(getattr(record, "fields", {}), getattr(record, "more", ()))
        text, node = getattr(record, "sentence", None), getattr(record, "node", None)
        parts = [
            _time_text(record.created),
            f"{record.levelname:<7}",
            f"{record.name}:",
            *([] if node is None else [f"{node}:"]),
            record.getMessage() if text is None else text,
            *([more] if more else []),
        ]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """{"time": …, "level": …, "logger": …, "event": …, "message": …, fields…}"""

    def format(self, record: logging.LogRecord) -> str:
        import json

        sentence: str | None = getattr(record, "sentence", None)
        text = record.getMessage() if sentence is None else sentence
        line: dict[str, object] = {
            "time": _time_text(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", None),
            "message": text,
            "time_ms": int(record.created * 1000),
        }
        fields: dict[str, object] = getattr(record, "fields", {})
        line |= {k: v for k, v in fields.items() if k == "time_ms" or k not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=json_value)


def json_value(value: object) -> object:
    """Convert a value for JSON: Uuids as Kafka writes them; anything else as text."""
    if isinstance(value, bytes) and len(value) == 16:
        from kwire.replication.log.checkpoints import encode_uuid

        return encode_uuid(value).decode()
    return str(value)


def configure(
    level: str = "info",
    as_json: bool = False,
    stream: TextIO | None = None,
    *,
    in_cluster: bool = False,
    is_quiet: bool = False,
) -> None:
    """Send the logs of kwire and asyncio at `level` or above to `stream` (default: stderr).

    On a terminal as people like to read it (terminal.py); `in_cluster`: with room for the names of
    controllers, `is_quiet`: see `set_quiet`. Replaces the handler of an earlier call."""
    stream = stream or sys.stderr
    handler = handler_for(stream, as_json, in_cluster=in_cluster)
    for name in ("kwire", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    set_quiet(is_quiet)


def handler_for(stream: TextIO, as_json: bool, *, in_cluster: bool = False) -> logging.Handler:
    """A handler that writes to a stream as JSON, as text, or for a terminal."""
    if not as_json and stream.isatty():
        from kwire.server.terminal import CLUSTER_COLUMNS, NODE_COLUMNS, TerminalHandler

        return TerminalHandler(stream, CLUSTER_COLUMNS if in_cluster else NODE_COLUMNS)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    return handler


def terminal() -> TerminalHandler | None:
    """The handler of the terminal that the logs go to; None: they go elsewhere, or are JSON."""
    handlers = logging.getLogger("kwire").handlers
    if not handlers or type(handlers[0]) is logging.StreamHandler:
        return None  # without importing the other
    from kwire.server.terminal import TerminalHandler

    return handlers[0] if isinstance(handlers[0], TerminalHandler) else None


def set_quiet(is_quiet: bool) -> None:
    """Leave out on a terminal, or not any more, what nodes report while they start and stop."""
    handler = terminal()
    if handler is not None:
        handler.is_quiet = is_quiet
