"""A broker's side of its dealings with a controller that is another node.

Answers to kafka.server.BrokerLifecycleManager (registration, heartbeats), ForwardingManager (clients' requests in
Envelopes), RPCProducerIdManager (blocks of producer ids) and KafkaServer.controlledShutdown. Two channels: "controller"
for what is answered at once, "forward" for what the controller may hold back until all brokers know.

A foreign controller (a real Kafka's) has registered this broker itself: then nothing is registered and no heartbeat is
sent, and clients' requests are answered NOT_CONTROLLER, as by Kafka in ZooKeeper mode.

Invariants: one registration or heartbeat at a time; a heartbeat is refused -> a new registration, with a new epoch; a
forwarded request is answered once, by the controller or, when its time is over, by REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol import api
from kwire.protocol.errors import ErrorCode, KafkaError, MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.control_plane import (
        AllocateProducerIdsResponse,
        ControlledShutdownResponse,
        EnvelopeResponse,
    )
    from kwire.protocol.schemas.nodes import BrokerHeartbeatResponse, BrokerRegistrationResponse
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.metadata import Endpoint
    from kwire.replication.core.peers import Peers

CHANNEL: Final = "controller"
FORWARD_CHANNEL: Final = "forward"
_SILENCE: Final = "controller-silent"
_RETRY_MS: Final = 50
_FORWARD_RETRY_MS: Final = 100
_FORWARD_GRACE_MS: Final = 200
"""How much longer than a request's own time-out an answer of the controller is waited for: it times out first."""


class ControllerLink:
    """The link of one broker to its controller. `broker_epoch` is -1 until it is registered."""

    def __init__(
        self,
        node_id: int,
        controller_node: Callable[[], int],
        peers: Peers,
        clock: Clock,
        timers: Timers,
        config: BrokerConfig,
        random: Random,
        *,
        on_registered: Callable[[int], None],
        on_refused: Callable[[str], None],
        on_unavailable: Callable[[int], None] = lambda node: None,
        several_controllers: bool = False,
        foreign_epoch: int | None = None,
    ) -> None:
        """`on_registered(broker_epoch)`: after each registration. `on_refused`: it can never succeed, and why.
        `on_unavailable(node)`: that controller did not answer, or is not the active one. `several_controllers`: one
        that says nothing for long (it stands still, say) is not waited for.

        `foreign_epoch`: the epoch under which somebody else has registered this broker."""
        self._node_id = node_id
        self.controller_node = controller_node
        self._peers = peers
        self._clock = clock
        self._timers = timers
        self._config = config
        self._on_registered = on_registered
        self._on_refused = on_refused
        self._on_unavailable = on_unavailable
        self._several_controllers = several_controllers
        self.is_foreign = foreign_epoch is not None
        self.broker_epoch = -1 if foreign_epoch is None else foreign_epoch
        self._previous_epoch = -1
        self._incarnation_id = random.randbytes(16)
        self._endpoints: list[Endpoint] = []
        self._cluster_id = ""
        self._asked = False  # a registration or a heartbeat is under way
        self._asked_node = -1  # of whom
        self.refusal = ErrorCode.NONE
        """What the controller has said to the last registration."""
        self._disk_failures: list[bytes] = []
        self._untold_failures = False
        self._ending = False
        self.log_dirs: list[bytes] = []
        """The ids of those log directories of several that work; for a broker with one nothing is said of it."""

    # --- registration and heartbeats

    def start(
        self, endpoints: list[Endpoint], cluster_id: str, previous_broker_epoch: int = -1
    ) -> None:
        """Registers, and again whenever the controller has lost sight of this broker.

        `previous_broker_epoch`: of the last run, if that stopped cleanly."""
        self._previous_epoch = previous_broker_epoch
        self._endpoints = endpoints
        self._cluster_id = cluster_id
        if not self.is_foreign:
            self._register()

    def _register(self) -> None:
        from kwire.protocol.schemas.nodes import BrokerRegistrationRequest, Listener

        request = BrokerRegistrationRequest(
            broker_id=self._node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(
                    name=e.listener, host=e.host, port=e.port, security_protocol=e.security_protocol
                )
                for e in self._endpoints
            ],
            rack=self._config.broker_rack,
            log_dirs=sorted(self.log_dirs),
            previous_broker_epoch=(
                self.broker_epoch if self.broker_epoch >= 0 else self._previous_epoch
            ),
        )
        # Another may have taken over by then.
        self._ask_one(self._config.controller_quorum_fetch_timeout_ms)
        self._peers.send(
            self._asked_node,
            CHANNEL,
            api.ApiKey.BROKER_REGISTRATION,
            4,
            request,
            self._registered,
        )

    def _ask_one(self, patience_ms: int) -> None:
        """The next registration or heartbeat has begun; `patience_ms`: how long an answer may take, if there are
        others to be asked."""
        self._asked = True
        node = self._asked_node = self.controller_node()
        if self._several_controllers:
            due_ms = self._clock.now_ms + patience_ms
            self._timers.schedule(_SILENCE, due_ms, lambda: self._peers.give_up(node, CHANNEL))

    def _answered(self) -> None:
        self._asked = False
        self._timers.cancel(_SILENCE)

    def _registered(self, response: BrokerRegistrationResponse | None) -> None:
        self._answered()
        if self._ending:
            return
        if self._is_elsewhere(response):
            self._later(_RETRY_MS, self._register)
            return
        assert response is not None
        self.refusal = ErrorCode(response.error_code)
        if response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._on_refused(f"the controller belongs to another cluster than {self._cluster_id}")
        elif response.error_code == ErrorCode.INVALID_REQUEST:
            self._on_refused(f"the controller takes no broker of id {self._node_id}: it is its own")
        elif response.error_code:
            # DUPLICATE_BROKER_REGISTRATION, say: until the other one's time is over.
            self._later(4 * _RETRY_MS, self._register)
        else:
            self.broker_epoch = response.broker_epoch
            self._later(self._config.broker_heartbeat_interval_ms, self._heartbeat)
            self._on_registered(response.broker_epoch)

    def _heartbeat(self) -> None:
        from kwire.protocol.schemas.nodes import BrokerHeartbeatRequest

        # Until then the connection is worth more than an answer: to the controller its end is the broker's.
        self._ask_one(self._config.broker_session_timeout_ms)
        self._untold_failures = False
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.broker_epoch,
            offline_log_dirs=self._disk_failures,
        )
        self._peers.send(
            self._asked_node,
            CHANNEL,
            api.ApiKey.BROKER_HEARTBEAT,
            1,
            request,
            self._heartbeat_answered,
        )

    def _heartbeat_answered(self, response: BrokerHeartbeatResponse | None) -> None:
        self._answered()
        if self._ending:
            return
        if self._is_elsewhere(response):
            self._later(_RETRY_MS, self._heartbeat)
            return
        assert response is not None
        if response.error_code:
            self._register()  # STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED
        elif self._untold_failures:
            self._heartbeat()
        else:
            self._later(self._config.broker_heartbeat_interval_ms, self._heartbeat)

    def disk_failed(self, directory_id: bytes | None = None) -> None:
        """A log directory has failed, or, without an id, a single partition: the controller is told at once, asks for
        all roles, and hears of which partitions are lost. Failures of partitions are numbered, to the controller each
        is a directory. A foreign one sees the errors in the answers to its orders."""
        if directory_id is None:
            directory_id = (len(self._disk_failures) + 1).to_bytes(16, "big")
        elif directory_id in self.log_dirs:
            self.log_dirs.remove(directory_id)
        self._disk_failures.append(directory_id)
        self._untold_failures = True
        if not (self._asked or self._ending or self.is_foreign) and self.broker_epoch >= 0:
            self._timers.cancel(CHANNEL)
            self._heartbeat()

    def _is_elsewhere(
        self, response: BrokerRegistrationResponse | BrokerHeartbeatResponse | None
    ) -> bool:
        """No answer, or one of a controller that is not the active one."""
        if response is not None and response.error_code != ErrorCode.NOT_CONTROLLER:
            return False
        self._on_unavailable(self._asked_node)
        return True

    def channel_lost(self, channel: str) -> None:
        """The connection to the controller has ended while nothing was asked: it will soon be missed there."""
        if channel == CHANNEL and not (self._asked or self._ending or self.is_foreign):
            self._timers.cancel(CHANNEL)
            if self.broker_epoch >= 0:
                self._heartbeat()
            else:
                self._register()

    def controller_changed(self) -> None:
        """There is a new controller: it notices the end of a broker whose connection it knows, else that of a lease."""
        if not (self._asked or self._ending or self.is_foreign) and self.broker_epoch >= 0:
            self._timers.cancel(CHANNEL)
            self._heartbeat()

    def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._timers.schedule(CHANNEL, self._clock.now_ms + delay_ms, call)

    # --- controlled shutdown

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Asks the controller to move leaderships away, a few times, and calls back when done or given up."""
        if not self._config.controlled_shutdown_enable or self.broker_epoch < 0:
            on_done()
            return
        self._ask_shutdown(self._config.controlled_shutdown_max_retries, on_done)

    def _ask_shutdown(self, tries: int, on_done: Callable[[], None]) -> None:
        from kwire.protocol.schemas.control_plane import ControlledShutdownRequest

        node = self.controller_node()

        def answered(response: ControlledShutdownResponse | None) -> None:
            if response is None or response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
                self._on_unavailable(node)
            done = (
                response is not None
                and not response.error_code
                and not response.remaining_partitions
            )
            if done or tries <= 1:
                on_done()
                return
            self._timers.schedule(
                "controlled-shutdown",
                self._clock.now_ms + self._config.controlled_shutdown_retry_backoff_ms,
                lambda: self._ask_shutdown(tries - 1, on_done),
            )

        request = ControlledShutdownRequest(broker_id=self._node_id, broker_epoch=self.broker_epoch)
        key = api.ApiKey.CONTROLLED_SHUTDOWN
        self._peers.send(node, CHANNEL, key, 3, request, answered)

    def close(self) -> None:
        """No further registration or heartbeat."""
        self._ending = True
        self._timers.cancel(CHANNEL)
        self._timers.cancel(_SILENCE)

    # --- forwarding

    def forward(
        self,
        key: int,
        version: int,
        request: Message,
        on_answer: Callable[[Message | ErrorCode], None],
        *,
        client_id: str | None = None,
        client_host: str = "",
    ) -> None:
        """Has the controller answer a client's request. `on_answer` gets its response, or why there is none."""
        if self.is_foreign:
            on_answer(ErrorCode.NOT_CONTROLLER)
            return
        parts = api.encode_request(key, version, 0, client_id, request)
        timeout_ms: int = getattr(request, "timeout_ms", self._config.request_timeout_ms)
        forwarded = _Forwarded(
            self, key, version, b"".join(parts)[4:], _address_bytes(client_host), on_answer
        )
        deadline_ms = self._clock.now_ms + max(timeout_ms, 0) + _FORWARD_GRACE_MS
        self._timers.schedule((forwarded, "deadline"), deadline_ms, forwarded.expire)
        forwarded.send()

    def allocate_producer_ids(
        self, on_answer: Callable[[AllocateProducerIdsResponse | None], None]
    ) -> None:
        """A block of producer ids; None when the controller could not be asked."""
        from kwire.protocol.schemas.control_plane import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=self.broker_epoch
        )
        key = api.ApiKey.ALLOCATE_PRODUCER_IDS
        self._peers.send(self.controller_node(), CHANNEL, key, 0, request, on_answer)


class _Forwarded:
    """A client's request on its way to the controller, until it is answered or its time is over."""

    def __init__(
        self,
        link: ControllerLink,
        key: int,
        version: int,
        frame: bytes,
        client_host: bytes,
        on_answer: Callable[[Message | ErrorCode], None],
    ) -> None:
        self._link = link
        self._key = key
        self._version = version
        self._frame = frame
        self._client_host = client_host
        self._on_answer = on_answer
        self._correlation = -1
        self._node = -1

    def send(self) -> None:
        from kwire.protocol.schemas.control_plane import EnvelopeRequest

        envelope = EnvelopeRequest(
            request_data=self._frame, request_principal=None, client_host_address=self._client_host
        )
        link = self._link
        self._node = link.controller_node()
        self._correlation = link._peers.send(
            self._node,
            FORWARD_CHANNEL,
            api.ApiKey.ENVELOPE,
            0,
            envelope,
            self._answered,
        )

    def _answered(self, response: EnvelopeResponse | None) -> None:
        if response is None or response.error_code == ErrorCode.NOT_CONTROLLER:
            self._link._on_unavailable(self._node)
            timers, clock = self._link._timers, self._link._clock
            timers.schedule((self, "retry"), clock.now_ms + _FORWARD_RETRY_MS, self.send)
            return
        answer: Message | ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
        if response.error_code:
            answer = ErrorCode(response.error_code)
        elif response.response_data is not None:
            try:
                _, answer = api.parse_response(self._key, self._version, response.response_data)
            except MalformedMessage:
                answer = ErrorCode.UNKNOWN_SERVER_ERROR
        self._finish(answer)

    def expire(self) -> None:
        self._link._peers.forget(self._correlation)
        self._finish(ErrorCode.REQUEST_TIMED_OUT)

    def _finish(self, answer: Message | ErrorCode) -> None:
        timers = self._link._timers
        timers.cancel((self, "deadline"))
        timers.cancel((self, "retry"))
        self._on_answer(answer)


def _address_bytes(host: str) -> bytes:
    """An address as Envelope has it: 4 bytes for IPv4; nothing for what is not one."""
    numbers = host.split(".")
    if len(numbers) == 4 and all(n.isascii() and n.isdigit() and int(n) < 256 for n in numbers):
        return bytes(map(int, numbers))
    return b""


class AllocatedProducerIds:
    """Producer ids out of the controller's blocks; the next block is asked for before the last one is used up."""

    def __init__(self, link: ControllerLink) -> None:
        self._link = link
        self._ids = range(0)
        self._next_ids = range(0)
        self._asked = False

    def generate(self) -> int:
        """An id that was never given before. COORDINATOR_LOAD_IN_PROGRESS, as in Kafka, while there is none."""
        if not self._ids:
            self._ids, self._next_ids = self._next_ids, range(0)
        if not self._ids:
            self.ask()
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        producer_id, self._ids = self._ids[0], self._ids[1:]
        if len(self._ids) <= 100 and not self._next_ids:
            self.ask()
        return producer_id

    def ask(self) -> None:
        """Asks for a block, unless that is being done."""
        if not self._asked:
            self._asked = True
            self._link.allocate_producer_ids(self._allocated)

    def _allocated(self, response: AllocateProducerIdsResponse | None) -> None:
        self._asked = False
        if response is not None and not response.error_code and response.producer_id_len > 0:
            first = response.producer_id_start
            self._next_ids = range(first, first + response.producer_id_len)
