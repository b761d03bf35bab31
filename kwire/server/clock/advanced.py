"""The driver of a core whose clock is not the real one: advanced or frozen by a test.

A node becomes one when its clock is first changed, so that all others read the clock as before. Its connections, how
long they are idle and what its sockets wait for stay on the real clock.
"""

from __future__ import annotations

import time

from kwire.server.node import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.advance.advance import Advance
    from kwire.server.connection import Connection


class AdvancedNode(Node):
    """A node with a clock ahead of (or behind) the real one by its `offset_ms`."""

    advance: Advance | None
    """The last one."""
    frozen: bool

    def _set_clock(self) -> None:
        clock, real_ms = self.clock, time.monotonic_ns() // 1_000_000
        if not self.frozen:
            clock.now_ms = real_ms + clock.offset_ms
            clock.wall_ms = time.time_ns() // 1_000_000 + clock.offset_ms
            return
        passed_ms = real_ms - clock.real_ms
        if passed_ms > 0:  # for what waits in real time
            from kwire.advance.life import waits

            timers = self.broker.timers
            timers.shift(timers.real(waits(self.broker)), -passed_ms)  # type: ignore[arg-type]  # no other core
            clock.offset_ms -= passed_ms

    def step(self, connection: Connection) -> None:
        self._set_clock()
        connection.last_active_ms = self.clock.real_ms
        self._pump(connection)
        self._settle()
        if connection.reading_paused or connection.session.in_flight or connection.writing_paused:
            connection.throttle_reading()

    def perform(self, action: Callable[[], Any]) -> Any:
        """As of every node; and the core's next timer may be due at any other time afterwards."""
        self._set_clock()
        try:
            return action()
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._settle()


def advanced(node: Node) -> AdvancedNode:
    """This node, from now on with a clock that can be changed."""
    if not isinstance(node, AdvancedNode):
        node.__class__ = AdvancedNode
        assert isinstance(node, AdvancedNode)
        node.advance, node.frozen = None, False
    return node


def start_advanced(node: Node, offset_ms: int) -> None:
    """Let a node begin with its clock ahead: its core is not loaded yet."""
    node.clock.offset_ms = offset_ms
    advanced(node)._set_clock()
