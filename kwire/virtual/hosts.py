"""Hosts: the machines of a world. A task belongs to the host in whose block it was started.

The name is a context variable, so what a task starts in turn (tasks, timers, connections) is on the same host without
a word from the application.
"""

from __future__ import annotations

import asyncio
import contextvars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, TypeVar

    from kwire.virtual.loop import VirtualLoop

    T = TypeVar("T")

APPLICATION = "app"
"""The host of what is started in no block: the test itself."""
HOST: contextvars.ContextVar[str] = contextvars.ContextVar(
    "kwire_virtual_host", default=APPLICATION
)


def context_of(host: str) -> contextvars.Context:
    """A new context on a host."""
    context = contextvars.copy_context()
    context.run(HOST.set, host)
    return context


class HostLoop:
    """The loop as a broker or controller has it: whoever calls, what is started belongs to the node's host.

    A verb of a cluster runs in the test's context and lets a node set a timer; that timer must stop when the node is
    frozen, and not when the test is."""

    def __init__(self, loop: VirtualLoop, host: str) -> None:
        self._loop, self._context = loop, context_of(host)
        self.time = loop.time
        self.call_soon_threadsafe = loop.call_soon_threadsafe

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        return self._loop.call_soon(callback, *arguments, context=self._context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        return self._loop.call_later(delay, callback, *arguments, context=self._context)

    def create_task(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self._loop.create_task(coroutine, context=self._context.copy())

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.AbstractServer:
        return await self.create_task(self._loop.create_server(*arguments, **options))

    async def create_connection(self, *arguments: Any, **options: Any) -> Any:
        return await self.create_task(self._loop.create_connection(*arguments, **options))
