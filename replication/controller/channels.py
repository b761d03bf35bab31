"""The controller's orders on their way to brokers: a queue for each of them, one request in flight.

Answers to kafka.controller.ControllerChannelManager and RequestSendThread. An order whose connection is lost is sent
again after 100 ms, without limit, until the broker leaves: what becomes of a broker that cannot be reached is decided
by its lease, never here. Dynamic configurations travel in the same queues (an AlterConfigs request in an Envelope, see
`kwire/apis/control_plane.py`), so that a topic's overrides are at a broker before its LeaderAndIsr.

Invariants: orders reach a broker in the order they were given; none meant for one incarnation of a broker is sent to
the next; who waits for acknowledgement (`when_acknowledged`) is called once, by the last live broker's answer, by
the departure of the last that owed one, or by time-out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from struct import Struct
from struct import error as struct_error
from typing import Final

from kwire.protocol import api

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.peers import Peers

CHANNEL: Final = "control"
RETRY_MS: Final = 100

# The versions of what is sent; those of Kafka 3.9 in ZooKeeper mode.
_VERSIONS: Final = {
    api.ApiKey.LEADER_AND_ISR: 7,
    api.ApiKey.STOP_REPLICA: 4,
    api.ApiKey.UPDATE_METADATA: 8,
    api.ApiKey.ENVELOPE: 0,
}
_ALTER_CONFIGS_VERSION: Final = 2
_PRINCIPAL = Struct(">4sii")
_MARK: Final = b"kwct"
_MARK_OF_ALL: Final = b"kwca"


def controller_principal(
    controller_id: int, controller_epoch: int, *, lists_all: bool = False
) -> bytes:
    """What stands for a principal in the controller's own Envelope requests.

    `lists_all`: what the request does not name has no configuration."""
    mark = _MARK_OF_ALL if lists_all else _MARK
    return _PRINCIPAL.pack(mark, controller_id, controller_epoch)


def read_principal(principal: bytes | None) -> tuple[int, bool] | None:
    """The controller epoch in it, and whether all is listed; None when it is nobody's or a client's."""
    try:
        mark, _, epoch = _PRINCIPAL.unpack(principal or b"")
    except struct_error:
        return None
    return (epoch, mark == _MARK_OF_ALL) if mark in (_MARK, _MARK_OF_ALL) else None


class _Queue:
    """What one broker is to be told. `given` and `acknowledged` count orders."""

    __slots__ = ("acknowledged", "broker_id", "given", "in_flight", "orders")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.orders: deque[Message] = deque()  # the first may be in flight
        self.given = 0
        self.acknowledged = 0
        self.in_flight = False


class _Waiter:
    __slots__ = ("callback", "owing")

    def __init__(self, owing: dict[int, int], callback: Callable[[], None]) -> None:
        self.owing = owing  # broker: how many orders it must have acknowledged
        self.callback = callback


class ControllerChannels:
    """A ControllerListener whose brokers are other nodes."""

    def __init__(
        self,
        controller_id: int,
        controller_epoch: Callable[[], int],
        peers: Peers,
        clock: Clock,
        timers: Timers,
        on_response: Callable[[int, Message, Any], None] | None = None,
    ) -> None:
        """`on_response(broker, order, response)` hears what a broker answered (a disk that failed, say)."""
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._peers = peers
        self._clock = clock
        self._timers = timers
        self.on_response = on_response
        self._queues: dict[int, _Queue] = {}
        self._configs: dict[tuple[int, str], Mapping[str, str]] = {}
        self._waiters: list[_Waiter] = []

    # --- brokers

    def open(self, broker_id: int) -> None:
        """A broker has registered (anew): it gets all configurations first, then what is sent from now on."""
        self.close(broker_id)
        self._queues[broker_id] = _Queue(broker_id)
        self._give(broker_id, self._config_request(self._configs, lists_all=True))

    def close(self, broker_id: int) -> None:
        """A broker is gone: what it was to be told is dropped, nobody waits for it."""
        if self._queues.pop(broker_id, None) is None:
            return
        self._timers.cancel((CHANNEL, broker_id))
        self._peers.hang_up(broker_id, CHANNEL)
        self._settle(broker_id, None)

    # --- ControllerListener

    def send(self, broker_id: int, request: Message) -> None:
        """Queues a LeaderAndIsr, UpdateMetadata or StopReplica request."""
        if broker_id in self._queues:
            self._give(broker_id, request)

    def config_changed(self, resource_type: int, name: str, overrides: Mapping[str, str]) -> None:
        """Tells all brokers the overrides a resource has now."""
        resource = resource_type, name
        if overrides:
            self._configs[resource] = dict(overrides)
        else:
            self._configs.pop(resource, None)
        for broker_id in list(self._queues):
            self._give(broker_id, self._config_request({resource: overrides}))

    def _config_request(
        self, configs: Mapping[tuple[int, str], Mapping[str, str]], *, lists_all: bool = False
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
                self._controller_id, self._controller_epoch(), lists_all=lists_all
            ),
            client_host_address=b"",
        )

    # --- waiting

    def when_acknowledged(self, timeout_ms: int, callback: Callable[[], None]) -> None:
        """Calls back when every live broker has answered all it was told so far: at once if so, else later."""
        owing = {q.broker_id: q.given for q in self._queues.values() if q.acknowledged < q.given}
        if not owing:
            callback()
            return
        waiter = _Waiter(owing, callback)
        self._waiters.append(waiter)
        deadline_ms = self._clock.now_ms + max(timeout_ms, 0)
        self._timers.schedule((CHANNEL, waiter), deadline_ms, lambda: self._finish(waiter))

    def _finish(self, waiter: _Waiter) -> None:
        self._waiters.remove(waiter)
        self._timers.cancel((CHANNEL, waiter))
        waiter.callback()

    def _settle(self, broker_id: int, acknowledged: int | None) -> None:
        """A broker has answered so many orders, or (None) will answer no more."""
        for waiter in list(self._waiters):
            count = waiter.owing.get(broker_id)
            if count is not None and (acknowledged is None or acknowledged >= count):
                del waiter.owing[broker_id]
                if not waiter.owing:
                    self._finish(waiter)

    # --- sending

    def _give(self, broker_id: int, request: Message) -> None:
        queue = self._queues[broker_id]
        queue.orders.append(request)
        queue.given += 1
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
            lambda response: self._answered(queue, order, response),
        )

    def _answered(self, queue: _Queue, order: Message, response: Message | None) -> None:
        if self._queues.get(queue.broker_id) is not queue:
            return  # of an incarnation that is gone
        if response is None:
            self._timers.schedule(
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
        self._settle(queue.broker_id, queue.acknowledged)
        if self.on_response is not None:
            self.on_response(queue.broker_id, order, response)
