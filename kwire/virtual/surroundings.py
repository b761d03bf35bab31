"""What the whole process sees while a world runs: its clock, its chance, and no real sockets.

`time.time`, `datetime.now` and their like are time-machine's business, which replaces them in C, wherever they were
imported; `monotonic`, `perf_counter` and `sleep` it leaves alone. Other threads see real time where that can be told:
a pytest plugin with a thread of its own must not fall asleep.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time

import time_machine

from kwire.virtual import foreign
from kwire.virtual.errors import RefusedError, SpinError
from kwire.virtual.loop import START
from kwire.virtual.names import Names, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.virtual.loop import VirtualLoop

EPOCH_SECONDS = 1_767_225_600
"""2026-01-01T00:00:00Z: the date at which a world begins."""
_READS_IN_A_TURN = 2_000_000
_SOCKET = (
    "a blocking socket in virtual time: nothing else would run while it waits, and no time would pass"
    " (asyncio's open_connection works, in memory)"
)
_real_monotonic, _real_sleep = time.monotonic, time.sleep
_real_urandom = os.urandom


class _Traveller(time_machine.Traveller):
    """The date for time-machine: read from the loop at each question."""

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(0, None, False)
        self._surroundings = surroundings

    def time_ns(self) -> int:
        found = self._surroundings
        if threading.get_ident() != found.thread:
            return found.date_ns + time.monotonic_ns() - found.began_ns
        return round((EPOCH_SECONDS - START + found.now()) * 1e9)


class Surroundings:
    """Of one world. `enter` and `leave` surround each run of its loop."""

    def __init__(self, loop: VirtualLoop, seed: str) -> None:
        self._loop = loop
        self._random = random.Random(f"{seed} random").getstate()
        self._bytes = random.Random(f"{seed} urandom")
        self._theirs: Any = None
        self.thread = 0
        self.date_ns = self.began_ns = 0
        self._reads, self._handle = 0, 0
        self._travel: time_machine.travel | None = None

    def now(self) -> float:
        """The virtual `monotonic`. SpinError when it is asked again and again, and time cannot pass meanwhile."""
        loop = self._loop
        if self._handle != loop.handles_run:
            self._handle, self._reads = loop.handles_run, 0
        self._reads += 1
        if self._reads > _READS_IN_A_TURN:
            raise SpinError(
                "the application asks what time it is, again and again, without an await: in virtual time none passes"
            )
        return loop.now + loop.ahead

    def draw_bytes(self, size: int) -> bytes:
        """What `os.urandom` gives: bytes of the seed."""
        return self._bytes.randbytes(size)

    def block(self, seconds: float) -> None:
        """What `time.sleep` does: the host stands still."""
        self._loop.block(seconds)

    def enter(self) -> None:
        """Begin: time, chance and sockets of this process are the world's."""
        global _inside
        if _inside is not None:
            raise RefusedError("a world runs already in this process: they run one after the other")
        self.date_ns, self.began_ns = time.time_ns(), time.monotonic_ns()
        self.thread = threading.get_ident()
        self._theirs = random.getstate()
        random.setstate(self._random)
        _inside = self
        foreign.refuse(_names(), inside)
        _names().put()
        self._travel = time_machine.travel(EPOCH_SECONDS, tick=False)
        self._travel.start()
        time_machine.traveller_stack[-1] = _Traveller(self)

    def leave(self) -> None:
        """Undo `enter`."""
        global _inside
        if self._travel is not None:
            self._travel.stop()
            self._travel = None
            _names().take_back()
            foreign.let_in()
        self._random = random.getstate()
        random.setstate(self._theirs)
        _inside = None


_inside: Surroundings | None = None
_all: Names | None = None


def inside() -> Surroundings | None:
    """Those of the world that runs, on its thread; None elsewhere."""
    return _inside if _inside is not None and _inside.thread == threading.get_ident() else None


def _monotonic() -> float:
    found = inside()
    return _real_monotonic() if found is None else found.now()


def _nanoseconds() -> int:
    return round(_monotonic() * 1e9)


def _sleep(seconds: float) -> None:
    found = inside()
    if found is None:
        _real_sleep(seconds)
    elif seconds > 0:
        found.block(seconds)


def _urandom(size: int) -> bytes:
    found = inside()
    return _real_urandom(size) if found is None else found.draw_bytes(size)


def _names() -> Names:
    global _all
    if _all is None:
        _all = Names()
        for name in ("monotonic", "perf_counter"):
            _all.replace(time, name, _monotonic)
            _all.replace(time, f"{name}_ns", _nanoseconds)
        _all.replace(time, "sleep", _sleep)
        _all.replace(os, "urandom", _urandom)
        _all.replace(random, "_urandom", _urandom, everywhere=False)
        for name in ("connect", "connect_ex"):
            refuse = refusing(_SOCKET, getattr(socket.socket, name), inside)
            _all.replace(socket.socket, name, refuse, everywhere=False)
    return _all
