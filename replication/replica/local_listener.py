"""Applies a controller's requests to the broker in the same process, without a socket.

The requests are the objects that other clusters send over sockets. Order of effects within a step:
see `controller.py`. A configuration takes effect before `config_changed` returns, and so does a
request about few partitions before `send` does. One about many is applied in parts, and what
follows waits behind it (`when_acknowledged`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from kwire.replication.core.metadata import BROKER_RESOURCE, FULL, TOPIC_RESOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from kwire.protocol.language.schema import Message
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.core.work import Steps, WorkQueue
    from kwire.replication.replica.manager import ReplicaManager

_MOST: Final = 50
"""Partitions whose roles change, or whose replicas are deleted, at a time."""
_UNITS_A_PARTITION: Final = 100


class LocalListener:
    """A ControllerListener for the one broker of this process."""

    def __init__(
        self,
        node_id: int,
        replica_manager: ReplicaManager,
        metadata: MetadataCache,
        config: BrokerConfig,
        work: WorkQueue | None = None,
    ) -> None:
        """`work`: for requests about many partitions; None: they are applied at once."""
        self._work = work
        self._backlog: deque[Message] = deque()
        self._is_working = False
        self._waiting: list[Callable[[], None]] = []
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
        """Call back when all requests are applied: mostly immediately."""
        if self._is_working:
            self._waiting.append(callback)
        else:
            callback()

    def send(self, broker_id: int, request: Message) -> None:
        if self._work is None or not (self._backlog or self._is_working or _is_large(request)):
            self._apply(broker_id, request)
            return
        self._backlog.append(request)
        if not self._is_working:
            self._is_working = True
            self._work.start(self._apply_backlog(broker_id))

    def _apply_backlog(self, broker_id: int) -> Steps:
        try:
            while self._backlog:
                for part in _parts(self._backlog.popleft()):
                    self._apply(broker_id, part)
                    yield 10 + _partition_count(part) * _UNITS_A_PARTITION
        finally:
            self._is_working = False
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def _apply(self, broker_id: int, request: Message) -> None:
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
            if metadata.throttled_topics and self._replica_manager.throttles is None:
                from kwire.replication.replica.throttles import ReplicationThrottles

                self._replica_manager.throttles = ReplicationThrottles(self._replica_manager)
        elif resource_type == BROKER_RESOURCE and name in ("", str(self._node_id)):
            self._config.set_dynamic(
                metadata.config(BROKER_RESOURCE, ""),
                metadata.config(BROKER_RESOURCE, str(self._node_id)),
            )
            self._replica_manager.broker_config_changed()


def _topic_states(request: Any) -> list[Any]:
    """The topics of a request that can be cut: the meaning of the full state is in what it lacks."""
    from kwire.protocol.schemas.control_plane import LeaderAndIsrRequest, StopReplicaRequest

    if isinstance(request, LeaderAndIsrRequest):
        return [] if request.type == FULL else request.topic_states
    return request.topic_states if isinstance(request, StopReplicaRequest) else []


def _partition_count(request: Message) -> int:
    return sum(len(topic.partition_states) for topic in _topic_states(request))


def _is_large(request: Message) -> bool:
    return _partition_count(request) > _MOST


def _parts(request: Any) -> Iterator[Message]:
    if not _is_large(request):
        yield request
        return
    fields = {name: getattr(request, name) for name in type(request).fields}
    for topic in _topic_states(request):
        inner = {name: getattr(topic, name) for name in type(topic).fields}
        for start in range(0, len(topic.partition_states), _MOST):
            inner["partition_states"] = topic.partition_states[start : start + _MOST]
            fields["topic_states"] = [type(topic)(**inner)]
            yield type(request)(**fields)
