"""Leases of the brokers of a cluster, and what ends them.

Answers to KRaft's BrokerHeartbeatManager. A live broker holds a lease of broker.session.timeout.ms
that its requests renew. kwire notices the end of a process sooner: a broker whose connection has
ended and that does not return within 30 ms is fenced. If it has sent nothing to a new controller
yet, the controller's connection to it counts. If all brokers are silent, another controller may
first take over (`on_isolated`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.replication.controller.context import ControllerContext, LiveBroker
    from kwire.replication.core.clock import Timers
    from kwire.replication.core.work import Steps

GRACE_MS = 30


class Leases:
    """The leases of all live brokers."""

    def __init__(
        self,
        context: ControllerContext,
        timers: Timers,
        fence: Callable[[int, str], Steps],
        step_or_resign: Callable[[Callable[[], Steps]], None],
    ) -> None:
        """`fence`: `BrokerRegistry.fence`."""
        self._context = context
        self._timers = timers
        self._fence = fence
        self._step_or_resign = step_or_resign
        self.on_isolated: Callable[[], None] | None = None
        """Called when all brokers are silent, if another controller may take over."""
        self._expired: set[int] = set()  # their fencing waits for another change

    def start(self, broker: LiveBroker) -> None:
        """Begin a lease, in place of the one before."""
        self._timers.cancel(("controller", "grace", broker.id))
        self._timers.schedule_lively(
            ("controller", "lease", broker.id),
            self._context.now_ms + self._context.config.broker_session_timeout_ms,
            lambda: self._expire(broker, "session_timeout"),
        )

    def end(self, broker_id: int) -> None:
        """End the lease of a broker that is dropped."""
        self._timers.cancel(("controller", "lease", broker_id))
        self._timers.cancel(("controller", "grace", broker_id))

    def is_in_grace_period(self, broker: LiveBroker | None) -> bool:
        """Whether a broker's connection has just ended, or its fencing waits."""
        return broker is not None and (
            ("controller", "grace", broker.id) in self._timers or broker.id in self._expired
        )

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """Start the grace period of a broker, unless it has a newer incarnation."""
        broker = self._context.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            return
        self._timers.schedule_real(
            ("controller", "grace", broker_id),
            self._context.now_ms + GRACE_MS,
            lambda: self._expire(broker, "connection_lost"),
        )

    def unreachable(self, broker_id: int) -> None:
        """Start the grace period of a broker that the controller's own connection cannot reach and
        that is known from the journal only: of others their own connections count.

        One without addresses is of a snapshot that has just been started, and about to register."""
        broker = self._context.brokers.get(broker_id)
        if broker is None or broker.has_reported or self.is_in_grace_period(broker):
            return
        if not broker.endpoints:
            return
        self._timers.schedule_real(
            ("controller", "grace", broker_id),
            self._context.now_ms + GRACE_MS,
            lambda: self._expire_unreachable(broker),
        )

    def mark_reachable(self, broker: LiveBroker) -> None:
        """End the grace period of an `unreachable` broker that has answered a request."""
        if not broker.has_reported and self.is_in_grace_period(broker):
            self._timers.cancel(("controller", "grace", broker.id))

    def _expire_unreachable(self, broker: LiveBroker) -> None:
        if any(other.has_reported for other in self._context.brokers.values()):
            self._expire(broker, "unreachable")
        else:  # this controller may be cut off itself: let the lease decide
            self.unreachable(broker.id)

    def _expire(self, broker: LiveBroker, reason: str) -> None:
        if self._context.brokers.get(broker.id) is not broker:
            return
        is_surprise = broker.has_reported and not broker.shutting_down
        if self.on_isolated is not None and is_surprise and self._are_all_silent(broker):
            self.on_isolated()
        else:
            contact_ms = broker.last_contact_ms
            self._expired.add(broker.id)
            self._step_or_resign(lambda: self._fence_if_silent(broker, contact_ms, reason))

    def _fence_if_silent(self, broker: LiveBroker, contact_ms: int, reason: str) -> Steps:
        """Fence a broker unless it has sent a request, or was fenced, while this has waited."""
        self._expired.discard(broker.id)
        is_same = self._context.brokers.get(broker.id) is broker
        if is_same and broker.last_contact_ms == contact_ms:
            yield from self._fence(broker.id, reason)

    def _are_all_silent(self, missed: LiveBroker) -> bool:
        """Whether all other brokers are silent, too: this controller may be cut off."""
        context = self._context
        silence_ms = 2 * context.config.broker_heartbeat_interval_ms
        return all(
            broker is missed
            or self.is_in_grace_period(broker)
            or context.real_ms - broker.last_contact_ms > silence_ms
            for broker in context.brokers.values()
        )
