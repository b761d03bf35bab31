"""Ports of 127.0.0.1, reserved for the brokers of a cluster while it runs and kept from reuse afterwards.

Kafka has no counterpart. Clients that a test leaves open go on to connect to the ports of brokers
that have ended. If the kernel gave such a port to a later cluster, they would take part in it: join
its groups, create its topics. Two things prevent that. A process does not use a port twice, until
`_USED_AT_MOST` others were used. And a port stays reserved after its cluster as long as the caller
wants (`keep_reserved`, for the session of the pytest plugin), which keeps it from other processes,
too, and from being the source port of a connection (a client that reconnects to a free port on its
own machine may otherwise connect to itself).

A reservation is a socket that is bound and does not listen: connections are refused. On Linux,
with SO_REUSEADDR on both, another socket can be bound to the same port and listen, in this process
or in a child. Elsewhere nothing is reserved: the kernel chooses when the broker binds. A socket is
kept as a bare file descriptor, so that the interpreter's exit closes it without a ResourceWarning.
"""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

HOST = "127.0.0.1"
KEPT_AT_MOST = 200
"""File descriptors for the ports of clusters that have ended; a process often has 1024 in all."""
_USED_AT_MOST = 4096  # of the 28,000 that a kernel usually chooses from
_CAN_SHARE_PORTS = sys.platform == "linux"

_used: dict[int, None] = {}  # oldest first
_kept: deque[int] | None = None


class ReservedPorts:
    """Reserved ports, one for each of `count` brokers; `numbers` are 0 where that is impossible."""

    def __init__(self, count: int) -> None:
        self._descriptors: list[int] = []
        self.numbers = [0] * count
        if _CAN_SHARE_PORTS:
            with suppress(OSError):  # no descriptors or ports left: the start will say so
                self.numbers = [self._reserve() for _ in range(count)]

    def _reserve(self) -> int:
        rejected = []
        try:
            while True:
                descriptor, port = _bind()
                if port not in _used:
                    break
                rejected.append(descriptor)  # closed later, or it would be chosen again
        finally:
            _close(rejected)
        self._descriptors.append(descriptor)
        _used[port] = None
        if len(_used) > _USED_AT_MOST:
            del _used[next(iter(_used))]
        return port

    def release(self) -> None:
        """Give the ports up, or hand them over to `keep_reserved`."""
        descriptors, self._descriptors = self._descriptors, []
        if _kept is None:
            _close(descriptors)
            return
        _kept.extend(descriptors)
        while len(_kept) > KEPT_AT_MOST:
            os.close(_kept.popleft())


def keep_reserved() -> None:
    """From now on keep the last `KEPT_AT_MOST` released ports reserved, until `release_all`."""
    global _kept
    if _kept is None:
        _kept = deque()


def release_all() -> None:
    """End `keep_reserved`."""
    global _kept
    kept, _kept = _kept, None
    _close(kept or ())


def _bind() -> tuple[int, int]:
    """A descriptor of a socket that is bound and does not listen, and its port. OSError."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((HOST, 0))
        port: int = bound.getsockname()[1]
        return bound.detach(), port


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
