"""A broker's link to a remote controller: registration, heartbeats, forwarding, producer ids.

Answers to kafka.server.BrokerLifecycleManager (registration, heartbeats), ForwardingManager
(clients' requests in Envelopes), RPCProducerIdManager (blocks of producer ids) and
KafkaServer.controlledShutdown. Two channels: "controller" for requests with an immediate response,
"forward" for those whose response the controller may hold until all brokers have the change.

A foreign controller (a real Kafka's) has registered this broker itself: the link then sends neither
registrations nor heartbeats, and answers clients' requests with NOT_CONTROLLER, as Kafka does in
ZooKeeper mode.

Invariants: at most one registration or heartbeat is in flight; a refused heartbeat leads to a new
registration, with a new epoch; a forwarded request is answered once, by the controller or, after
its timeout, with REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import Final

from kwire.protocol import api
from kwire.protocol.errors import ErrorCode, MalformedMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.control_plane import (
        AllocateProducerIdsResponse,
        ControlledShutdownResponse,
        EnvelopeRequest,
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
"""Added to a forwarded request's own timeout, so that the controller's timeout comes first."""


class ControllerLink:
    """One broker's link to its controller. `broker_epoch` is -1 until the broker is registered."""

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
        """`on_registered(broker_epoch)`: after each registration. `on_refused(reason)`: registration
        can never succeed. `on_unavailable(node)`: that controller did not respond, or is not the active
        one. `several_controllers`: give up one that stays silent (a stopped process, say).

        `foreign_epoch`: the broker epoch from a foreign controller's registration."""
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
        self.incarnation_id = random.randbytes(16)
        self._endpoints: list[Endpoint] = []
        self._cluster_id = ""
        self._in_flight = False  # a registration or a heartbeat is under way
        self._asked_controller = -1
        self.refusal = ErrorCode.NONE
        """The error of the last registration's response."""
        self._disk_failures: list[bytes] = []
        self._has_unreported_failures = False
        self._closed = False
        self.log_dirs: list[bytes] = []
        """Ids of the online log directories; empty for a broker with a single directory."""

    # --- registration and heartbeats

    def start(
        self, endpoints: list[Endpoint], cluster_id: str, previous_broker_epoch: int = -1
    ) -> None:
        """Register, and again whenever the controller has fenced this broker.

        `previous_broker_epoch`: of the last run, if that stopped cleanly; else -1."""
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
            incarnation_id=self.incarnation_id,
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
        # A standby needs no longer than this to take over.
        self._begin_request(self._config.controller_quorum_fetch_timeout_ms)
        self._peers.send(
            self._asked_controller,
            CHANNEL,
            api.ApiKey.BROKER_REGISTRATION,
            4,
            request,
            self._on_registration_response,
        )

    def _begin_request(self, timeout_ms: int) -> None:
        """Mark a registration or heartbeat as in flight. With several controllers the connection is
        given up if no response arrives within `timeout_ms`."""
        self._in_flight = True
        node = self._asked_controller = self.controller_node()
        if self._several_controllers:
            due_ms = self._clock.now_ms + timeout_ms
            self._timers.schedule_real(_SILENCE, due_ms, lambda: self._peers.give_up(node, CHANNEL))

    def _end_request(self) -> None:
        self._in_flight = False
        self._timers.cancel(_SILENCE)

    def _on_registration_response(self, response: BrokerRegistrationResponse | None) -> None:
        self._end_request()
        if self._closed:
            return
        if self._has_no_active_controller(response):
            self._schedule(_RETRY_MS, self._register)
            return
        assert response is not None
        self.refusal = ErrorCode(response.error_code)
        if response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._on_refused(f"the controller belongs to another cluster than {self._cluster_id}")
        elif response.error_code == ErrorCode.INVALID_REQUEST:
            self._on_refused(f"the controller takes no broker of id {self._node_id}: it is its own")
        elif response.error_code:
            # DUPLICATE_BROKER_REGISTRATION, say: retry until the other session expires.
            self._schedule(4 * _RETRY_MS, self._register)
        else:
            self.broker_epoch = response.broker_epoch
            self._schedule(self._config.broker_heartbeat_interval_ms, self._heartbeat)
            self._on_registered(response.broker_epoch)

    def _heartbeat(self) -> None:
        from kwire.protocol.schemas.nodes import BrokerHeartbeatRequest

        # Not sooner: the controller takes the end of this connection for the end of the broker.
        self._begin_request(self._config.broker_session_timeout_ms)
        self._has_unreported_failures = False
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.broker_epoch,
            offline_log_dirs=self._disk_failures,
        )
        self._peers.send(
            self._asked_controller,
            CHANNEL,
            api.ApiKey.BROKER_HEARTBEAT,
            1,
            request,
            self._on_heartbeat_response,
        )

    def _on_heartbeat_response(self, response: BrokerHeartbeatResponse | None) -> None:
        self._end_request()
        if self._closed:
            return
        if self._has_no_active_controller(response):
            self._schedule(_RETRY_MS, self._heartbeat)
            return
        assert response is not None
        if response.error_code:
            self._register()  # STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED
        elif self._has_unreported_failures:
            self._heartbeat()
        else:
            self._schedule(self._config.broker_heartbeat_interval_ms, self._heartbeat)

    def report_disk_failure(self, directory_id: bytes | None = None) -> None:
        """Report a failed log directory, or, without an id, a failed partition, in a heartbeat now.

        The controller then sends LeaderAndIsr for all replicas; errors show offline ones. A failed
        partition gets a made-up directory id. A foreign controller gets no report: it sees the
        errors in the responses to its orders."""
        if directory_id is None:
            directory_id = (len(self._disk_failures) + 1).to_bytes(16, "big")
        elif directory_id in self.log_dirs:
            self.log_dirs.remove(directory_id)
        self._disk_failures.append(directory_id)
        self._has_unreported_failures = True
        if not (self._in_flight or self._closed or self.is_foreign) and self.broker_epoch >= 0:
            self._timers.cancel(CHANNEL)
            self._heartbeat()

    def _has_no_active_controller(
        self, response: BrokerRegistrationResponse | BrokerHeartbeatResponse | None
    ) -> bool:
        """Whether no active controller has responded; if so, report the node as unavailable."""
        if response is not None and response.error_code != ErrorCode.NOT_CONTROLLER:
            return False
        self._on_unavailable(self._asked_controller)
        return True

    def channel_lost(self, channel: str) -> None:
        """Reconnect by a request: without a connection the controller soon fences this broker."""
        if channel == CHANNEL and not (self._in_flight or self._closed or self.is_foreign):
            self._timers.cancel(CHANNEL)
            if self.broker_epoch >= 0:
                self._heartbeat()
            else:
                self._register()

    def controller_changed(self) -> None:
        """Send a heartbeat to a new controller, which then notices this broker's end by its
        connection and not only by its lease."""
        if not (self._in_flight or self._closed or self.is_foreign) and self.broker_epoch >= 0:
            self._timers.cancel(CHANNEL)
            self._heartbeat()

    def _schedule(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._timers.schedule_real(CHANNEL, self._clock.now_ms + delay_ms, call)

    # --- controlled shutdown

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Have the controller move leaderships away; then, or after all retries, call `on_done`."""
        if not self._config.controlled_shutdown_enable or self.broker_epoch < 0:
            on_done()
            return
        self._request_shutdown(self._config.controlled_shutdown_max_retries, on_done)

    def _request_shutdown(self, tries: int, on_done: Callable[[], None]) -> None:
        from kwire.protocol.schemas.control_plane import ControlledShutdownRequest

        node = self.controller_node()

        def on_response(response: ControlledShutdownResponse | None) -> None:
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
            self._timers.schedule_real(
                "controlled-shutdown",
                self._clock.now_ms + self._config.controlled_shutdown_retry_backoff_ms,
                lambda: self._request_shutdown(tries - 1, on_done),
            )

        request = ControlledShutdownRequest(broker_id=self._node_id, broker_epoch=self.broker_epoch)
        key = api.ApiKey.CONTROLLED_SHUTDOWN
        self._peers.send(node, CHANNEL, key, 3, request, on_response)

    def close(self) -> None:
        """Stop registrations and heartbeats."""
        self._closed = True
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
        principal: str = "",
    ) -> None:
        """Forward a request to the controller. `on_answer` gets the response or an error. `principal`:
        the client's; "": this broker asks."""
        if self.is_foreign:
            on_answer(ErrorCode.NOT_CONTROLLER)
            return
        from kwire.protocol.schemas.control_plane import EnvelopeRequest
        from kwire.replication.core.principals import address_bytes, principal_bytes

        parts = api.encode_request(key, version, 0, client_id, request)
        envelope = EnvelopeRequest(
            request_data=b"".join(parts)[4:],
            request_principal=principal_bytes(principal),
            client_host_address=address_bytes(client_host),
        )
        timeout_ms: int = getattr(request, "timeout_ms", self._config.request_timeout_ms)
        forwarded = _Forwarded(self, key, version, envelope, on_answer)
        deadline_ms = self._clock.now_ms + max(timeout_ms, 0) + _FORWARD_GRACE_MS
        self._timers.schedule_real((forwarded, "deadline"), deadline_ms, forwarded.expire)
        forwarded.send()

    def allocate_producer_ids(
        self, on_answer: Callable[[AllocateProducerIdsResponse | None], None]
    ) -> None:
        """Request a block of producer ids. `on_answer(None)`: the connection was lost."""
        from kwire.protocol.schemas.control_plane import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=self.broker_epoch
        )
        key = api.ApiKey.ALLOCATE_PRODUCER_IDS
        self._peers.send(self.controller_node(), CHANNEL, key, 0, request, on_answer)


class _Forwarded:
    """A client's request that is forwarded to the controller, until its response or deadline."""

    def __init__(
        self,
        link: ControllerLink,
        key: int,
        version: int,
        envelope: EnvelopeRequest,
        on_answer: Callable[[Message | ErrorCode], None],
    ) -> None:
        self._link = link
        self._key = key
        self._version = version
        self._envelope = envelope
        self._on_answer = on_answer
        self._correlation = -1
        self._node = -1

    def send(self) -> None:
        link = self._link
        self._node = link.controller_node()
        self._correlation = link._peers.send(
            self._node,
            FORWARD_CHANNEL,
            api.ApiKey.ENVELOPE,
            0,
            self._envelope,
            self._on_response,
        )

    def _on_response(self, response: EnvelopeResponse | None) -> None:
        if response is None or response.error_code == ErrorCode.NOT_CONTROLLER:
            self._link._on_unavailable(self._node)
            timers, clock = self._link._timers, self._link._clock
            timers.schedule_real((self, "retry"), clock.now_ms + _FORWARD_RETRY_MS, self.send)
            return
        answer: Message | ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
        if response.error_code:
            answer = ErrorCode(response.error_code)
            if answer is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # it is about this broker
                answer = ErrorCode.UNKNOWN_SERVER_ERROR
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
