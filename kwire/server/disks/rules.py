"""DiskRule: a fault of a node's disk, for tests: an operation fails, the disk is full, or it is slow.

Used everywhere from `Broker.disk` down to a node's files (`faulty.py`); all is checked here. As JSON a rule has the
keys of `FIELDS`. It is about files of a log directory, or of a topic or partition in it; what the failure leads to is
Kafka's business: an OSError takes the whole directory offline.
"""

from __future__ import annotations

import errno
import os

from kwire.names import did_you_mean
from kwire.replication.log_dirs.directory import parse_directory, parse_future_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

APPEND, READ, FSYNC, WRITE, CREATE = "append", "read", "fsync", "write", "create"
TRUNCATE, DELETE = "truncate", "delete"
OPERATIONS = (APPEND, READ, FSYNC, WRITE, CREATE, TRUNCATE, DELETE)
"""append: to a segment or an index; read: of it, or of a whole file; write: of a whole file (a checkpoint, a producer
snapshot), and renaming; create: of files and directories; fsync: each flush; truncate; delete."""
NEED_SPACE = (APPEND, WRITE, CREATE)
MAY_BE_SLOW = (APPEND, READ, FSYNC)
ERRORS = ("EIO", "ENOSPC", "EROFS", "EACCES", "EDQUOT")
"""What the system may answer; EIO unless another is given."""
FAIL, FULL, SLOW = ACTS = ("fail", "full", "slow")
FIELDS = ("act", "operation", "topic", "partition", "directory", "times", "error", "milliseconds")
_OF_ACT = {
    FAIL: ("operation", "topic", "partition", "directory", "times", "error"),
    FULL: ("directory",),
    SLOW: ("operation", "topic", "partition", "directory", "milliseconds"),
}
_MAX_MS = 60 * 60 * 1000


class DiskRule:
    """A fault that was set at one node, with what it has hit there."""

    __slots__ = (
        "act",
        "directory",
        "given",
        "hits",
        "id",
        "operations",
        "partition",
        "times",
        "topic",
    )

    def __init__(self, rule_id: str, given: Mapping[str, Any]) -> None:
        """ValueError, in one line, if it is none."""
        self.id = rule_id
        self.given = checked(given)
        self.act: str = self.given["act"]
        operation = self.given.get("operation")
        every = {FAIL: OPERATIONS, FULL: NEED_SPACE, SLOW: MAY_BE_SLOW}[self.act]
        self.operations: tuple[str, ...] = every if operation is None else (operation,)
        self.topic: str | None = self.given.get("topic")
        self.partition: int | None = self.given.get("partition")
        self.directory: str | None = self.given.get("directory")
        self.times: int | None = self.given.get("times")
        self.hits = 0

    @property
    def milliseconds(self) -> int:
        """By how much operations are late; 0: they fail."""
        return int(self.given.get("milliseconds", 0))

    def is_about(self, root: str, operation: str, path: str) -> bool:
        """Whether it is about an operation on a file or directory `path` of the log directory `root`."""
        return (
            operation in self.operations
            and self.is_in(root)
            and (self.topic is None or self._is_of_topic(path))
        )

    def is_in(self, root: str) -> bool:
        """Whether it is about this log directory."""
        return self.directory is None or names_directory(self.directory, root)

    def _is_of_topic(self, path: str) -> bool:
        name = path.partition("/")[0]
        key = parse_directory(name) or parse_future_directory(name)
        return key is not None and key[0] == self.topic and self.partition in (None, key[1])

    def happens(self) -> bool:
        """Whether it hits one more of the operations that it is about."""
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        return True

    def error(self, full_path: str) -> OSError:
        """What an operation that is hit raises."""
        name = "ENOSPC" if self.act == FULL else self.given.get("error", "EIO")
        number: int = getattr(errno, name)
        return OSError(number, f"{os.strerror(number)} (a test has set this fault)", full_path)


def names_directory(given: str, root: str) -> bool:
    """Whether a text names a log directory: its path or one above it (an entry of `log.dirs` has a directory for each
    broker), or one of the last two names in it."""
    if "/" not in given:
        return given in root.split("/")[-2:]
    path = os.path.abspath(given)
    return root == path or root.startswith(f"{path}/")


def text_of(given: Mapping[str, Any]) -> str:
    """A rule in one line, for people: "append fails with EIO, topic=orders partition=0, 1 time"."""
    operation = given.get("operation")
    if given["act"] == FULL:
        texts = ["full (ENOSPC)"]
    elif given["act"] == SLOW:
        texts = [f"{operation or ', '.join(MAY_BE_SLOW)} late by {given['milliseconds']} ms"]
    else:
        texts = [f"{operation or 'everything'} fails with {given.get('error', 'EIO')}"]
    about = [f"{n}={given[n]}" for n in ("topic", "partition", "directory") if n in given]
    if about:
        texts.append(" ".join(about))
    if "times" in given:
        texts.append(f"{given['times']} time{'s' * (given['times'] != 1)}")
    return ", ".join(texts)


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys and values of a rule. ValueError."""
    for name in given:
        if name not in FIELDS:
            raise ValueError(
                f"there is no {name!r} in a fault of a disk{did_you_mean(name, FIELDS)}"
            )
    found = {name: given[name] for name in FIELDS if given.get(name) is not None}
    act = found.get("act")
    if act not in ACTS:
        raise ValueError(f"act: expected one of {', '.join(ACTS)}, not {act!r}")
    for name in found:
        if name != "act" and name not in _OF_ACT[act]:
            raise ValueError(f"{name}: a disk that is to {_WORDS[act]} has none")
    _check_operation(found)
    _check_files(found)
    _check_numbers(found)
    return found


_WORDS = {FAIL: "fail", FULL: "be full", SLOW: "be slow"}


def _check_operation(found: dict[str, Any]) -> None:
    allowed = MAY_BE_SLOW if found["act"] == SLOW else OPERATIONS
    if found["act"] == FAIL and "operation" not in found:
        raise ValueError(f"operation: which one fails? {', '.join(OPERATIONS)}")
    operation = found.get("operation")
    if operation is not None and operation not in allowed:
        meant = did_you_mean(str(operation), allowed)
        raise ValueError(
            f"operation: expected one of {', '.join(allowed)}, not {operation!r}{meant}"
        )
    error = found.get("error")
    if error is not None:
        found["error"] = str(error).upper()
        if found["error"] not in ERRORS:
            raise ValueError(f"error: expected one of {', '.join(ERRORS)}, not {error!r}")


def _check_files(found: dict[str, Any]) -> None:
    for name in ("topic", "directory"):
        if name in found and (not isinstance(found[name], str) or not found[name]):
            raise ValueError(f"{name}: expected a text, not {found[name]!r}")
    partition = found.get("partition")
    if partition is not None and (not _is_int(partition) or partition < 0):
        raise ValueError(f"partition: expected a number of 0 or more, not {partition!r}")
    if partition is not None and "topic" not in found:
        raise ValueError("partition: of which topic? give topic, too")


def _check_numbers(found: dict[str, Any]) -> None:
    if "times" in found and (not _is_int(found["times"]) or found["times"] < 1):
        raise ValueError(f"times: expected 1 or more, not {found['times']!r}: it would never hit")
    if found["act"] == SLOW:
        value = found.get("milliseconds")
        is_number = _is_int(value) or isinstance(value, float)
        if not is_number or not 0 < value <= _MAX_MS:  # type: ignore[operator]  # a number
            raise ValueError(f"milliseconds: expected a number up to {_MAX_MS}, not {value!r}")
        found["milliseconds"] = max(1, round(value))  # type: ignore[arg-type]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
