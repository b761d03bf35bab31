"""Log lines on a terminal: local time, the node in front and in colour, no more than people read.

    12:24:48.852 controller 1000  warning: broker 2 (epoch 2) has failed: its connection has ended

Lines are wrapped between words, below the text. NO_COLOR and TERM=dumb switch colours off. What the
nodes report while they start and stop in order is left out; so is what a leader reports of an ISR that
the controller reports, too; and of many partitions with the same change all but the first are counted.
`--log-level debug`, `--log-json` and a pipe leave nothing out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

NODE_COLUMNS, CLUSTER_COLUMNS = len("broker 1"), len("controller 1000")
_LEAST_TEXT_COLUMNS = 40
# Reported by the controller in almost the same words.
_LEFT_OUT = frozenset({"ISR_EXPAND_PROPOSED", "ISR_UPDATED"})
_BURST_SECONDS = 0.5
_BURST_SHOWN = 5
"""How many partitions are shown of those that change alike within _BURST_SECONDS."""
# What a person wants to know even during a start.
_ALWAYS = frozenset({"CONTROLLER_AWAITED", "NODE_STATUS", "NODE_STARTING", "NODE_NOT_RUNNING"})
# What a warning is about when nodes start and stop, and they do it not all at once.
_OF_STOPS = frozenset({"LEADER_UNREACHABLE"})
_CONTROL = "control: "

_DIM, _BOLD, _RED, _YELLOW = "2", "1", "31", "33"
_BROKERS = ("36", "32", "35", "34", "96", "92", "95", "94")
"""Colours of brokers in turn: cyan, green, magenta, blue; neither red nor yellow, nor black or white."""


class TerminalHandler(logging.StreamHandler["TextIO"]):
    """Writes log records to a terminal."""

    def __init__(self, stream: TextIO, columns: int = NODE_COLUMNS) -> None:
        """`columns`: for the name of the node."""
        super().__init__(stream)
        self.setFormatter(TerminalFormatter(stream, columns))
        self._registered: set[object] = set()
        self._has_happened = False  # anything but what a restart of the cluster leaves to be done
        self._bursts: dict[tuple[str | None, str], list[logging.LogRecord]] = {}
        self.is_ending: Callable[[], bool] = lambda: False
        """Whether the cluster stops, which this process may not have been told yet."""
        self.is_quiet = False
        """Whether nodes start or stop in order: below WARNING only what must be known is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            is_shown = self._is_shown(record)
        else:
            is_of_stop = getattr(record, "event", None) in _OF_STOPS
            is_shown = not (is_of_stop and (self.is_quiet or self.is_ending()))
        if is_shown and not self._is_counted(record):
            self._has_happened |= not self.is_quiet
            super().emit(record)

    def _is_counted(self, record: logging.LogRecord) -> bool:
        """Count a change of a partition; whether it is one of so many that it is not shown itself."""
        if not isinstance(getattr(record, "fields", {}).get("partition"), int) or _is_debugging():
            return False
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        key = getattr(record, "node", None), getattr(record, "event", "")
        if key not in self._bursts:
            loop.call_later(_BURST_SECONDS, self._end_burst, key)
        records = self._bursts.setdefault(key, [])
        records.append(record)
        return len(records) > _BURST_SHOWN

    def _end_burst(self, key: tuple[str | None, str]) -> None:
        records = self._bursts.pop(key, [])
        hidden = len(records) - _BURST_SHOWN
        if hidden > 0:
            last = logging.makeLogRecord(records[-1].__dict__)
            last.sentence = f"{hidden} more likewise: {key[1]}"
            super().emit(last)

    def _is_shown(self, record: logging.LogRecord) -> bool:
        if _is_debugging():
            return True
        name = getattr(record, "event", None)
        if name == "BROKER_REGISTERED":  # the first time it is part of the cluster's start
            broker_id = getattr(record, "fields", {}).get("broker_id")
            is_first = broker_id not in self._registered
            self._registered.add(broker_id)
            return not is_first
        if name in _ALWAYS:
            return True
        if self.is_quiet or name in _LEFT_OUT:
            return False
        return self._has_happened or not _is_of_restart(name, getattr(record, "fields", {}))

    def write_lines(self, lines: list[str]) -> None:
        """Write lines for people that are no log records."""
        for key in list(self._bursts):
            self._end_burst(key)
        self.stream.write("\n".join([*lines, ""]))
        self.flush()


class TerminalFormatter(logging.Formatter):
    """Time, node and text of a record, in colour and wrapped as the terminal allows."""

    def __init__(self, stream: TextIO, columns: int = NODE_COLUMNS) -> None:
        super().__init__()
        self._stream = stream
        self._columns = columns
        self.has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def format(self, record: logging.LogRecord) -> str:
        stamp, node, text, level = self._parts(record)
        width, indent = self._terminal_columns(), len(stamp) + self._columns + 3
        if width - indent < _LEAST_TEXT_COLUMNS:
            indent = 4
        first = width - len(stamp) - max(self._columns, len(node)) - 3
        lines = _wrapped(level + text, first, width - indent)
        if level:
            lines[0] = self._coloured(level, _warning_colour(record)) + lines[0][len(level) :]
        head = self._coloured(stamp, _DIM) + " " + self._coloured(node, _node_colour(node))
        head += " " * max(0, self._columns - len(node)) + "  "
        line = head + ("\n" + " " * indent).join(lines)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line

    def _parts(self, record: logging.LogRecord) -> tuple[str, str, str, str]:
        """Time, node, text, and the word for a level from WARNING on."""
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        stamp += f".{int(record.created * 1000) % 1000:03d}"
        text = getattr(record, "sentence", None)
        node = getattr(record, "node", None) or ""
        if text is None:
            text = f"{record.name}: {record.getMessage()}"
        elif text.startswith(_CONTROL):
            node, text = "control", text.removeprefix(_CONTROL)
        elif node and text.startswith(node + " "):
            text = text.removeprefix(node + " ")
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return stamp, node, text, level

    def _coloured(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if text and code and self.has_colours else text

    def _terminal_columns(self) -> int:
        """The width of the terminal; a very large one if it is not known."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 100_000
        except (OSError, ValueError):
            return 100_000


def _is_of_restart(name: str | None, fields: dict[str, object]) -> bool:
    """Whether an event is what the restart of a whole cluster leaves to be done: replicas that start
    later join the ISR, and preferred replicas lead again."""
    return name == "ISR_EXPANDED" or (
        name == "LEADER_ELECTED" and fields.get("reason") == "preferred"
    )


def _is_debugging() -> bool:
    return logging.getLogger("kwire").isEnabledFor(logging.DEBUG)


def _node_colour(node: str) -> str:
    kind, _, number = node.partition(" ")
    if kind == "broker" and number.isdigit():
        return _BROKERS[(int(number) - 1) % len(_BROKERS)]
    return _BOLD


def _warning_colour(record: logging.LogRecord) -> str:
    return _RED if record.levelno >= logging.ERROR else _YELLOW


def _wrapped(text: str, first: int, others: int) -> list[str]:
    """The text in lines of at most `first` and `others` characters, broken at spaces where possible."""
    return list(_lines(text, first, others))


def _lines(text: str, first: int, others: int) -> Iterator[str]:
    width = max(first, 1)
    while len(text) > width:
        at = text.rfind(" ", 1, width + 1)
        if at <= 0:
            at = text.find(" ", width)
            if at < 0:
                break
        yield text[:at]
        text, width = text[at + 1 :], max(others, 1)
    yield text
