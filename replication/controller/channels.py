"""The controller's requests to other nodes: one queue per broker, one request in flight.

Answers to kafka.controller.ControllerChannelManager and RequestSendThread. A request whose
connection is lost is sent again after 100 ms, without limit, until the broker is fenced: its lease
decides about an unreachable broker, never this module. Dynamic configurations use the same queues
(an AlterConfigs request in an Envelope, see `kwire/apis/control_plane.py`), so that a broker has a
topic's overrides before its LeaderAndIsr.

Invariants: a broker gets requests in the order they were queued; no request for one incarnation
of a broker is sent to the next; a `when_acknowledged` callback is called once: by the last
response it waits for, by the closing of the last channel that owes one, or by time-out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from struct import Struct
from struct import error as struct_error
from typing import Final

from kwire.protocol import api
from kwire.replication.core.metadata import ACL_RESOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.peers import Peers

CHANNEL: Final = "control"
RETRY_MS: Final = 100

# Request versions: those of Kafka 3.9 in ZooKeeper mode.
_VERSIONS: Final = {
    api.ApiKey.LEADER_AND_ISR: 7,
    api.ApiKey.STOP_REPLICA: 4,
    api.ApiKey.UPDATE_METADATA: 8,
    api.ApiKey.ENVELOPE: 0,
}
_ALTER_CONFIGS_VERSION: Final = 2
_PRINCIPAL = Struct(">4siiq")
_MARK: Final = b"kwct"
_FULL_MARK: Final = b"kwca"


def controller_principal(
    controller_id: int, controller_epoch: int, broker_epoch: int, *, is_full: bool = False
) -> bytes:
    """Return the principal of the controller's own Envelope requests to a broker of this epoch.

    `is_full`: resources that the request does not name have no overrides."""
    mark = _FULL_MARK if is_full else _MARK
    return _PRINCIPAL.pack(mark, controller_id, controller_epoch, broker_epoch)


def read_principal(principal: bytes | None) -> tuple[int, int, bool] | None:
    """Return (controller epoch, broker epoch, is_full) of a controller's principal, None for any
    other."""
    try:
        mark, _, epoch, broker_epoch = _PRINCIPAL.unpack(principal or b"")
    except struct_error:
        return None
    return (epoch, broker_epoch, mark == _FULL_MARK) if mark in (_MARK, _FULL_MARK) else None


class _Queue:
    """The requests to one broker. `queued` and `acknowledged` count them."""

    __slots__ = ("acknowledged", "broker_epoch", "broker_id", "in_flight", "orders", "queued")

    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.orders: deque[Message] = deque()  # the first may be in flight
        self.queued = 0
        self.acknowledged = 0
        self.in_flight = False


class _Waiter:
    __slots__ = ("callback", "owing")

    def __init__(self, owing: dict[int, int], callback: Callable[[], None]) -> None:
        self.owing = owing  # broker id: the `acknowledged` count to wait for
        self.callback = callback


class ControllerChannels:
    """A ControllerListener for brokers in other processes."""

    def __init__(
        self,
        controller_id: int,
        controller_epoch: Callable[[], int],
        peers: Peers,
        clock: Clock,
        timers: Timers,
        on_response: Callable[[int, Message, Any], None] | None = None,
    ) -> None:
        """`on_response`: called with (broker id, request, response)."""
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._peers = peers
        self._clock = clock
        self._timers = timers
        self.on_response = on_response
        self.on_acl_changed: Callable[[str], object] | None = None
        """Called with the name of each ACL_RESOURCE that changes."""
        self._queues: dict[int, _Queue] = {}
        self._configs: dict[tuple[int, str], Mapping[str, str]] = {}
        self._waiters: list[_Waiter] = []

    # --- brokers

    def open(self, broker_id: int, broker_epoch: int) -> None:
        """Open a registered broker's queue, empty but for all dynamic configurations."""
        self.close(broker_id)
        queue = self._queues[broker_id] = _Queue(broker_id, broker_epoch)
        self._enqueue(broker_id, self._config_request(queue, self._configs, is_full=True))

    def close(self, broker_id: int) -> None:
        """Drop a broker's queue; callbacks stop waiting for it."""
        if self._queues.pop(broker_id, None) is None:
            return
        self._timers.cancel((CHANNEL, broker_id))
        self._peers.hang_up(broker_id, CHANNEL)
        self._complete_waiters(broker_id, None)

    # --- ControllerListener

    def send(self, broker_id: int, request: Message) -> None:
        """Queue a LeaderAndIsr, UpdateMetadata or StopReplica request."""
        if broker_id in self._queues:
            self._enqueue(broker_id, request)

    def config_changed(self, resource_type: int, name: str, overrides: Mapping[str, str]) -> None:
        """Queue all current overrides of a resource for all brokers."""
        resource = resource_type, name
        if overrides:
            self._configs[resource] = dict(overrides)
        else:
            self._configs.pop(resource, None)
        if resource_type == ACL_RESOURCE and self.on_acl_changed is not None:
            self.on_acl_changed(name)
        for broker_id, queue in list(self._queues.items()):
            self._enqueue(broker_id, self._config_request(queue, {resource: overrides}))

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The current overrides of a resource."""
        return self._configs.get((resource_type, name), {})

    def _config_request(
        self,
        queue: _Queue,
        configs: Mapping[tuple[int, str], Mapping[str, str]],
        *,
        is_full: bool = False,
    ) -> Message:
        from kwire.protocol.schemas.configs import (
            AlterableConfig,
            AlterConfigsRequest,
            AlterConfigsResource,
        )
        from kwire.protocol.schemas.control_plane import EnvelopeRequest

        inner = AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    configs=[AlterableConfig(name=k, value=v) for k, v in overrides.items()],
                )
                for (resource_type, name), overrides in configs.items()
            ]
        )
        parts = api.encode_request(
            api.ApiKey.ALTER_CONFIGS, _ALTER_CONFIGS_VERSION, 0, self._peers.client_id, inner
        )
        return EnvelopeRequest(
            request_data=b"".join(parts)[4:],
            request_principal=controller_principal(
                self._controller_id,
                self._controller_epoch(),
                queue.broker_epoch,
                is_full=is_full,
            ),
            client_host_address=b"",
        )

    # --- waiting

    def when_acknowledged(self, timeout_ms: int, callback: Callable[[], None]) -> None:
        """Call back when all requests queued so far are answered; immediately if they are
        already."""
        owing = {q.broker_id: q.queued for q in self._queues.values() if q.acknowledged < q.queued}
        if not owing:
            callback()
            return
        waiter = _Waiter(owing, callback)
        self._waiters.append(waiter)
        deadline_ms = self._clock.now_ms + max(timeout_ms, 0)
        self._timers.schedule_real((CHANNEL, waiter), deadline_ms, lambda: self._finish(waiter))

    def owing(self) -> list[int]:
        """The brokers that have not answered all orders."""
        return [each.broker_id for each in self._queues.values() if each.orders]

    def _finish(self, waiter: _Waiter) -> None:
        self._waiters.remove(waiter)
        self._timers.cancel((CHANNEL, waiter))
        waiter.callback()

    def _complete_waiters(self, broker_id: int, acknowledged: int | None) -> None:
        """Finish waiters: a broker has `acknowledged` so many requests, or (None) its queue is
        closed."""
        for waiter in list(self._waiters):
            count = waiter.owing.get(broker_id)
            if count is not None and (acknowledged is None or acknowledged >= count):
                del waiter.owing[broker_id]
                if not waiter.owing:
                    self._finish(waiter)

    # --- sending

    def _enqueue(self, broker_id: int, request: Message) -> None:
        queue = self._queues[broker_id]
        queue.orders.append(request)
        queue.queued += 1
        if not queue.in_flight:
            self._send_next(queue)

    def _send_next(self, queue: _Queue) -> None:
        order = queue.orders[0]
        key = api.key_of(order)
        queue.in_flight = True
        self._peers.send(
            queue.broker_id,
            CHANNEL,
            key,
            _VERSIONS[key],
            order,
            lambda response: self._handle_response(queue, order, response),
        )

    def _handle_response(self, queue: _Queue, order: Message, response: Message | None) -> None:
        if self._queues.get(queue.broker_id) is not queue:
            return  # of an earlier incarnation of the broker
        if response is None:
            self._timers.schedule_real(
                (CHANNEL, queue.broker_id),
                self._clock.now_ms + RETRY_MS,
                lambda: self._send_next(queue),
            )
            return
        queue.orders.popleft()
        queue.acknowledged += 1
        queue.in_flight = False
        if queue.orders:
            self._send_next(queue)
        self._complete_waiters(queue.broker_id, queue.acknowledged)
        if self.on_response is not None:
            self.on_response(queue.broker_id, order, response)
