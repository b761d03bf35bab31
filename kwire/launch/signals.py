"""SIGINT and SIGTERM to a process that runs nodes."""

from __future__ import annotations

import asyncio
import os
import signal


def stop_on_signals() -> asyncio.Future[str | None]:
    """A future of the running loop that SIGINT and SIGTERM set to None: a clean stop.

    Set to a text by somebody else, it says why the nodes have ended by themselves. The next signal
    ends the process."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[str | None] = loop.create_future()

    def on_signal() -> None:
        if stopping.done():
            os._exit(1)  # a second signal: the user does not want to wait for the first
        stopping.set_result(None)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    return stopping
