"""Applies a controller's requests to the broker in the same process, without a socket.

The requests are the objects that other clusters send over sockets. Order of effects within a step:
see `controller.py`. A configuration takes effect before `config_changed` returns.
"""

from __future__ import annotations

from collections.abc import Mapping

from kwire.replication.core.metadata import BROKER_RESOURCE, TOPIC_RESOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.replica.manager import ReplicaManager


class LocalListener:
    """A ControllerListener for the one broker of this process."""

    def __init__(
        self,
        node_id: int,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        config: BrokerConfig,
    ) -> None:
        self._node_id = node_id
        self._replica_manager = replica_manager
        self._metadata = metadata
        self._config = config

        self.on_response: Callable[[int, Message, Any], None] | None = None

    def open(self, broker_id: int, broker_epoch: int) -> None:
        """Do nothing: the broker has the configurations already."""

    def close(self, broker_id: int) -> None:
        """Do nothing: the broker ends with its process."""

    def when_acknowledged(self, timeout_ms: int, callback: Callable[[], None]) -> None:
        """Call back immediately: `send` applies requests before it returns."""
        callback()

    def send(self, broker_id: int, request: Message) -> None:
        from kwire.protocol.schemas.control_plane import LeaderAndIsrRequest, UpdateMetadataRequest

        assert broker_id == self._node_id
        response: Message
        if isinstance(request, LeaderAndIsrRequest):
            response = self._replica_manager.become_leader_or_follower(request)
        elif isinstance(request, UpdateMetadataRequest):
            response = self._replica_manager.update_metadata(request)
        else:
            from kwire.protocol.schemas.control_plane import StopReplicaRequest

            assert isinstance(request, StopReplicaRequest)
            response = self._replica_manager.stop_replicas(request)
        if self.on_response is not None:
            self.on_response(broker_id, request, response)

    def config_changed(self, resource_type: int, name: str, overrides: Mapping[str, str]) -> None:
        metadata = self._metadata
        metadata.set_config(resource_type, name, overrides)
        if resource_type == TOPIC_RESOURCE:
            self._replica_manager.topic_config_changed(name)
        elif resource_type == BROKER_RESOURCE and name in ("", str(self._node_id)):
            self._config.set_dynamic(
                metadata.config(BROKER_RESOURCE, ""),
                metadata.config(BROKER_RESOURCE, str(self._node_id)),
            )
            self._replica_manager.broker_config_changed()
