"""Joins a broker to its cluster: fetches the cluster id, then waits until it is registered.

Corresponds to the start of kafka.server.BrokerLifecycleManager, as far as the process waits for it.
The reason for waiting is logged once a second at most, and only when it has changed."""

from __future__ import annotations

import asyncio
import logging
import os

from kwire.server.errors import NodeError
from kwire.server.events import NodeEvent
from kwire.server.listeners import format_address
from kwire.server.log_dirs import split_dirs
from kwire.server.logs import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.launch.spec import NodeSpec
    from kwire.replication.member.cluster_member import ClusterSettings
    from kwire.replication.member.controller_link import ControllerLink
    from kwire.security.client import Access

_log = logging.getLogger(__name__)

_UNAUTHORIZED = "CLUSTER_AUTHORIZATION_FAILED"
_SILENT_SECONDS = 1.0
_CLUSTER_ID_SECONDS = 30.0
_CLUSTER_ID_PAUSE_SECONDS = 0.05
_REFUSED_PAUSE_SECONDS = 1.0
INCARNATION_FILE = "kwire-incarnation"
"""In the directory of a broker in a snapshot: whom it goes on as."""


class Joining:
    """The start of one broker of a cluster. Call `end()` when it is over."""

    def __init__(self, spec: NodeSpec) -> None:
        self._spec = spec
        self._link: ControllerLink | None = None
        self._ready = asyncio.Event()
        self._refusal: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._logged_refusal = ""

    @property
    def link(self) -> ControllerLink | None:
        """The broker's link to the controller; None until the broker is constructed."""
        return self._link

    @link.setter
    def link(self, link: ControllerLink) -> None:
        self._link = link
        path = os.path.join(split_dirs(self._spec.data_dir)[0], INCARNATION_FILE)
        if os.path.exists(path):  # the broker goes on from a snapshot
            with open(path) as file:
                link.incarnation_id = bytes.fromhex(file.read())
            os.unlink(path)

    def cluster_settings(self, inter_broker_listener: str) -> ClusterSettings:
        """The cluster settings of the broker, with callbacks for its registration."""
        from kwire.replication.member.cluster_member import ClusterSettings

        (controller_id, host, port), *more_controllers = self._spec.controllers
        return ClusterSettings(
            controller_id,
            (host, port),
            inter_broker_listener,
            more_controllers=more_controllers,
            broker_epoch=self._spec.broker_epoch,
            on_ready=self._ready.set,
            on_refused=self.refuse,
        )

    def refuse(self, reason: str) -> None:
        """Fail the join: the controller will never register this broker, or it has halted."""
        self._refusal = reason
        self._ready.set()

    async def wait(self, seconds: float | None) -> None:
        """Return when the controller has registered the broker. NodeError: refused, or not within
        `seconds` (None: no limit)."""
        try:
            async with asyncio.timeout(seconds):
                await self._ready.wait()
        except TimeoutError:
            raise NodeError("the controller did not take up the broker in time") from None
        if self._refusal is not None:
            raise NodeError(self._refusal)

    def end(self) -> None:
        """Stop logging: the start is over."""
        if self._timer is not None:
            self._timer.cancel()

    async def fetch_cluster_id(self, access: Access | None) -> str | None:
        """Fetch the cluster id from the controller, with `access` to its listener; None when the broker knows it: from
        meta.properties, or because the controller is not kwire's. NodeError."""
        spec = self._spec
        if spec.broker_epoch is not None or any(
            os.path.exists(os.path.join(path, "meta.properties"))
            for path in split_dirs(spec.data_dir)
        ):
            return None
        from kwire.client.connection import NoResponseError
        from kwire.client.streams import ask
        from kwire.protocol.errors import KafkaError
        from kwire.protocol.schemas.cluster import DescribeClusterRequest

        addresses = list(spec.controllers)
        reason = "no answer"
        deadline = asyncio.get_running_loop().time() + _CLUSTER_ID_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            controller_id, host, port = address = addresses.pop(0)
            addresses.append(address)
            pause = _CLUSTER_ID_PAUSE_SECONDS
            try:
                request = DescribeClusterRequest()
                response = await ask((host, port), request, version=0, access=access)
                return str(response.cluster_id)
            except NoResponseError as error:
                reason = str(error)
                is_refused = reason.startswith("TLS")
            except KafkaError as error:  # the log-in has failed
                reason, is_refused = f"log-in failed: {error}", True
            if is_refused:
                pause = _REFUSED_PAUSE_SECONDS
                self._log_refusal(controller_id, reason)
            await asyncio.sleep(pause)
        raise NodeError(f"the controller at {format_address(host, port)}: {reason}")

    def _log_refusal(self, controller_id: int, reason: str) -> None:
        """Log why the controller does not let this node in, once."""
        if reason != self._logged_refusal:
            self._logged_refusal = reason
            node_id, name = self._spec.node_id, self._spec.name
            fields = {"node": controller_id, "channel": "cluster id", "detail": reason}
            event(_log, NodeEvent.PEER_REFUSED, None, name, node_id=node_id, **fields)

    def log_waiting(self, logged: str = "") -> None:
        """Log the reason for waiting every second until `end`, if it differs from `logged`, the
        previous one."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_SILENT_SECONDS, self._log_waiting_now, logged)

    def _log_waiting_now(self, logged: str) -> None:
        addresses = self._spec.controllers
        where = ", ".join(format_address(host, port) for _, host, port in addresses)
        refusal = self.link.refusal if self.link is not None else None
        awaited = f"{where} {refusal}"
        if awaited != logged:
            node_id, name = self._spec.node_id, self._spec.name
            if refusal:
                detail = f"is another broker {node_id} alive?"
                if refusal.name == _UNAUTHORIZED:
                    detail = "name this node's user in super.users there"
                event(
                    _log,
                    NodeEvent.REGISTRATION_REFUSED,
                    None,
                    name,
                    address=where,
                    error=refusal.name,
                    detail=detail,
                    node_id=node_id,
                )
            else:
                awaited_event = NodeEvent.CONTROLLER_AWAITED
                event(_log, awaited_event, None, name, address=where, node_id=node_id)
        self.log_waiting(awaited)
