"""Connections that wait until there may be one more, or until there may be one more a second (KIP-402, KIP-612).

Answers to kafka.network.ConnectionQuotas and Acceptor; imported once such a limit is set. In Kafka a listener's thread
waits before it accepts the next connection. An event loop accepts by itself: here a connection that would wait in
the backlog is open, and its requests wait. Those of a listener go on in their order.

A connection is charged to the rates of the broker, of its listener and of its ip. Above one of the first two all of
the listener wait, for a window at most. Above the ip's it alone is not served, and is closed after the throttle time.
The listener for brokers, if it is not the only one, is protected: the broker's limits are not for it, and when
it takes the broker above max.connections, the connection of another listener that was silent for the longest time
is closed.
"""

from __future__ import annotations

import socket
import time
from collections import deque

from kwire.replication.core.rates import WindowedRate
from kwire.server.listeners import inter_broker_listener

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from kwire.server.connection import Connection
    from kwire.server.listeners import Listener
    from kwire.server.node import Node

_COUNT, _RATE = "max.connections", "max.connection.creation.rate"
_OF_BROKER, _OF_IP = "", "ip "
_IPS_KEPT = 2000


class Admission:
    """The connections of a node that wait, and the rates of all."""

    def __init__(self, node: Node, most_of: Mapping[str, int]) -> None:
        """`most_of`: max.connections.per.ip.overrides."""
        self._node = node
        self._config = config = node.config
        self.most_of = most_of
        self._window_ms = config.quota_window_size_seconds * 1000
        self._rates: dict[str, WindowedRate] = {}
        self._waiting: dict[str, deque[Connection]] = {
            each.name: deque() for each in node.listeners
        }
        self._due_ms: dict[
            str, int
        ] = {}  # of listeners whose next connection was charged: when it may go on
        self._outside: set[int] = set()  # connections that are not accepted yet, or never will be
        self._timers: dict[str, asyncio.TimerHandle] = {}
        protected = (
            inter_broker_listener(config, node.listeners) if len(node.listeners) > 1 else None
        )
        self._protected = protected and protected.name

    def arrived(self, connection: Connection) -> None:
        """Let a new connection wait for its turn, which may be now."""
        self._outside.add(connection.id)
        connection.hold()
        self._waiting[connection.listener.name].append(connection)
        self._go_on_at(connection.listener)

    def left(self, connection: Connection) -> None:
        """Note that a connection has ended: another one may have its place."""
        self._outside.discard(connection.id)
        queue = self._waiting[connection.listener.name]
        if connection in queue:
            queue.remove(connection)
        self.go_on()

    def is_outside(self, connection: Connection) -> bool:
        """Whether its requests have to wait."""
        return connection.id in self._outside

    def go_on(self) -> None:
        """Accept what may be accepted: a place is free, or a limit has changed."""
        for listener in self._node.listeners:
            self._go_on_at(listener)
        self._close_excess()

    def _go_on_at(self, listener: Listener) -> None:
        name = listener.name
        queue = self._waiting[name]
        while queue and self._node.is_serving:
            now_ms = time.monotonic_ns() // 1_000_000
            if name not in self._due_ms:
                self._due_ms[name] = now_ms + self._charged_ms(name, now_ms)
            wait_ms = self._due_ms[name] - now_ms
            if wait_ms > 0:
                self._call_later(name, wait_ms, listener)
                return
            if not self._has_place(name):
                return
            del self._due_ms[name]
            self._accept(queue.popleft(), now_ms)

    def _call_later(self, name: str, wait_ms: int, listener: Listener) -> None:
        timer = self._timers.get(name)
        if timer is not None:
            timer.cancel()
        loop = self._node.loop
        self._timers[name] = loop.call_later(wait_ms / 1000, self._go_on_at, listener)

    def _accept(self, connection: Connection, now_ms: int) -> None:
        host = connection.peer_host
        throttle_ms = self._ip_throttle_ms(connection, now_ms)
        if throttle_ms > 0:
            reason = f"connection_creation_rate of {host} reached"
            delay = throttle_ms / 1000
            self._node.loop.call_later(delay, lambda: connection.close(reason, abort=True))
            return
        most = self.most_of.get(host, self._config.max_connections_per_ip)
        if sum(each.peer_host == host for each in self._accepted()) >= most:
            connection.close(f"max.connections.per.ip={most} reached", abort=True)
            return
        self._outside.discard(connection.id)
        # Not within connection_made: uvloop has not begun to read.
        self._node.loop.call_soon(self._release, connection)
        if connection.listener.name == self._protected:
            self._close_excess()

    def _release(self, connection: Connection) -> None:
        if self._node.is_serving and connection.id in self._node.connections:
            connection.release()

    # --- numbers

    def _accepted(self) -> list[Connection]:
        return [
            each
            for each in self._node.connections.values()
            if each.id not in self._outside and each.close_reason is None
        ]

    def _has_place(self, name: str) -> bool:
        accepted = self._accepted()
        if sum(each.listener.name == name for each in accepted) >= self._limit(_COUNT, name):
            return False
        return name == self._protected or len(accepted) < self._config.max_connections

    def _close_excess(self) -> None:
        """Close connections of listeners that are not protected, those that were silent for the longest time."""
        accepted = self._accepted()
        excess = len(accepted) - self._config.max_connections
        if excess <= 0:
            return
        others = [each for each in accepted if each.listener.name != self._protected]
        others.sort(key=lambda each: each.last_active_ms)
        reason = f"max.connections={self._config.max_connections} exceeded"
        for each in others[:excess]:
            each.close(reason, abort=True)

    def _limit(self, key: str, name: str) -> int:
        """The limit of a listener: the broker's, if it has none of its own."""
        own = f"listener.name.{name.lower()}.{key}"
        return int(self._config.text(own if self._config.is_set(own) else key) or 0)

    # --- rates

    def _charged_ms(self, name: str, now_ms: int) -> int:
        """Charge a connection to the rates of broker and listener; return for how long it has to wait."""
        wait_ms = self._charge(name, self._limit(_RATE, name), now_ms)
        if name != self._protected:
            limit = self._config.max_connection_creation_rate
            wait_ms = max(wait_ms, self._charge(_OF_BROKER, limit, now_ms))
        return wait_ms

    def _charge(self, of: str, limit: int, now_ms: int) -> int:
        rate = self._rates.get(of)
        if rate is None:
            if len(self._rates) >= _IPS_KEPT:
                self._rates = {k: v for k, v in self._rates.items() if not k.startswith(_OF_IP)}
            rate = self._rates[of] = WindowedRate(self._config.quota_window_num, self._window_ms)
        rate.record(1, now_ms)
        return min(rate.throttle_ms(limit, now_ms), self._window_ms) if limit else self._window_ms

    def _ip_throttle_ms(self, connection: Connection, now_ms: int) -> int:
        """Charge a connection to its ip; above the quota it is charged to nobody."""
        quotas = self._node.broker.sessions.quotas
        limit = None if quotas is None else _of_ip(quotas.quotas.ips, connection.peer_host)
        if limit is None:
            return 0
        of = _OF_IP + connection.peer_host
        throttle_ms = self._charge(of, limit, now_ms)
        if throttle_ms > 0:
            name = connection.listener.name
            for each in (of, name) if name == self._protected else (of, name, _OF_BROKER):
                self._rates[each].record(-1, now_ms)
        return throttle_ms


def _of_ip(quotas: Mapping[str | None, int], host: str) -> int | None:
    """The quota of an address, or of all that have none of their own (None); None: no quota."""
    for name, limit in quotas.items():
        if name is not None and _canonical(name) == host:
            return limit
    return quotas.get(None)


def _canonical(name: str) -> str:
    """An address as the system writes it."""
    if name == "localhost":
        return "127.0.0.1"
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    return socket.inet_ntop(family, socket.inet_pton(family, name)).removeprefix("::ffff:")
