"""Says who waits, and where: for a deadlock, a loop that spins, and a run over its limit."""

from __future__ import annotations

import asyncio
from collections import Counter

from kwire.virtual.hosts import APPLICATION, HOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kwire.virtual.loop import VirtualLoop

_MOST = 30
_NODES = ("broker-", "controller-")


def deadlock_text(loop: VirtualLoop) -> str:
    text = "deadlock: nothing is ready and no timer is set"
    if loop.frozen_hosts:
        text += f"; frozen: {', '.join(loop.frozen_hosts)}"
    return text + _tasks(loop)


def limit_text(loop: VirtualLoop, seconds: float) -> str:
    return (
        f"{seconds:g} virtual seconds are over, and the run has not ended (limit= of the run, in seconds)"
        + _tasks(loop)
    )


def spin_text(loop: VirtualLoop, ready: Iterable[asyncio.Handle]) -> str:
    found = Counter(_callback(handle) for handle in ready)
    names = "; ".join(f"{name}" for name, _ in found.most_common(5))
    return (
        f"the loop spins: it has run 200,000 turns, and no timer was waited for. What runs: {names}"
    )


def _tasks(loop: VirtualLoop) -> str:
    lines = sorted(line for each in asyncio.all_tasks(loop) if (line := _task(each)) is not None)
    if not lines:
        return "; there are no tasks of the application"
    more = f"\n  … and {len(lines) - _MOST} more" if len(lines) > _MOST else ""
    return "\n  " + "\n  ".join(lines[:_MOST]) + more


def _task(task: asyncio.Task[Any]) -> str | None:
    """Host, name and place of a task; None for those of kwire's nodes."""
    get_context = getattr(task, "get_context", None)  # 3.12
    host = APPLICATION if get_context is None else get_context().get(HOST, APPLICATION)
    if host.startswith(_NODES):
        return None
    return f"{host}: {task.get_name()} ({_name(task.get_coro())}) waits {place_of(task)}"


def place_of(task: asyncio.Task[Any]) -> str:
    """Where a task waits: the innermost frame of its coroutines."""
    inner: Any = task.get_coro()
    frame = None
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None) or frame
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    if frame is None:
        return "nowhere"
    return f"at {frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_qualname}"


def _name(coroutine: Any) -> str:
    return str(getattr(coroutine, "__qualname__", coroutine))


def _callback(handle: asyncio.Handle) -> str:
    callback: Any = handle._callback  # type: ignore[attr-defined]
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return f"task {task.get_name()} ({_name(task.get_coro())}) {place_of(task)}"
    return str(getattr(callback, "__qualname__", callback))
