"""File descriptors: the limit of the process, and what connections and log files may take of it.

The system gives out the lowest free number, so the number of a new descriptor tells how many are in
use. Connections get none of the last SPARE_FOR_FILES numbers, log files none of the last
SPARE_FOR_OTHERS: those are for the log directories' small files, flushes on threads, and modules that
are imported on first use. Without them a broker out of descriptors would fail, not wait.
"""

from __future__ import annotations

import resource
from errno import EMFILE, ENFILE

SPARE_FOR_FILES, SPARE_FOR_OTHERS = 32, 16
_FEW = 128
"""With a lower limit a half of the spare descriptors must do."""
_MOST_OPEN_FILES = 4096
_NO_LIMIT = 1 << 30
_DARWIN_LIMIT = 10_240
"""OPEN_MAX, the most that macOS grants, whatever the hard limit."""


def raise_limit() -> None:
    """Raise this process's soft limit to the hard one, as the JVM does for Kafka (MaxFDLimit)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, _DARWIN_LIMIT):
        if _number(limit) <= _number(soft):
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (ValueError, OSError):  # macOS refuses "unlimited"
            continue
        return


def limit() -> int:
    """How many descriptors this process may have open."""
    return _number(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def limit_of_connections() -> int:
    """No connection may have this descriptor or a higher one."""
    number = limit()
    return number - (SPARE_FOR_FILES if number >= _FEW else SPARE_FOR_FILES // 2)


def limit_of_files() -> int:
    """No file that stays open may have this descriptor or a higher one."""
    number = limit()
    return number - (SPARE_FOR_OTHERS if number >= _FEW else SPARE_FOR_OTHERS // 2)


def default_max_open_files() -> int:
    """Half of the process's limit; the other half is for connections."""
    return max(32, min(limit() // 2, _MOST_OPEN_FILES))


def is_shortage(error: OSError) -> bool:
    """Whether an error says that no descriptor is left, which is not the disk's fault."""
    return error.errno in (EMFILE, ENFILE)


def _number(limit: int) -> int:
    return _NO_LIMIT if limit == resource.RLIM_INFINITY else limit
