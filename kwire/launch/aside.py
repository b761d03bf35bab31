"""Loads and closes a broker's logs on a thread, while other nodes are served on the same loop.

Thousands of partitions take seconds to load and to close. Nothing else uses the node meanwhile: it has
no core yet, or runs no further step.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from typing import Any

_Value = TypeVar("_Value")


class Aside:
    """The thread of one node whose loop may have others to serve."""

    def __init__(self) -> None:
        self._running: Future[Any] | None = None

    async def run(self, work: Callable[[], _Value]) -> _Value:
        """Run a function and return its result. Cancelled, it ends when the function has ended."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1, "kwire-aside") as pool:
            future = self._running = pool.submit(work)
            try:
                return await asyncio.shield(asyncio.wrap_future(future))
            finally:
                self.wait()
                self._running = None

    def wait(self) -> None:
        """Block until the function that runs, if any, has ended: a node is killed meanwhile."""
        if self._running is not None:
            with suppress(Exception):
                self._running.result()
