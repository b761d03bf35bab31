"""Automatic topic creation by a remote controller, for Metadata requests and coordinators.

Answers to kafka.server.DefaultAutoTopicCreationManager. A request that needs a topic waits for the
controller's response: by then every live broker, this one included, knows the topic and its leader.

Invariant: at most one creation of a topic is in flight, however many requests wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kwire.protocol import api
from kwire.protocol.errors import ErrorCode
from kwire.replication.config.auto_topics import auto_topic_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.protocol.language.schema import Message
    from kwire.protocol.schemas.topics import CreatableTopic
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.member.controller_link import ControllerLink


class TopicCreation:
    """Forwards topic creations to the controller and runs the callbacks that wait for them."""

    def __init__(self, link: ControllerLink, config: BrokerConfig) -> None:
        self._link = link
        self._config = config
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def create(
        self,
        names: Iterable[str],
        on_done: Callable[[], None],
        client_id: str | None = None,
        client_host: str = "",
        principal: str = "",
    ) -> None:
        """Create topics; `on_done` follows when every creation has succeeded or failed.

        The caller looks up the outcome in the metadata cache. They count for the quota of the client;
        a `principal` of "": the broker needs them for itself."""
        left = set(names)
        assert left

        def one_done(name: str) -> None:
            left.discard(name)
            if not left:
                on_done()

        missing = []
        for name in sorted(left):
            waiting = self._waiting.get(name)
            if waiting is None:
                waiting = self._waiting[name] = []
                missing.append(name)
            waiting.append(lambda name=name: one_done(name))  # type: ignore[misc]  # a default binds it
        if missing:
            self._forward(missing, client_id, client_host, principal)

    def _forward(
        self, names: list[str], client_id: str | None, client_host: str, principal: str
    ) -> None:
        from kwire.protocol.schemas.topics import CreateTopicsRequest

        request = CreateTopicsRequest(
            topics=[self._topic(name) for name in names],
            timeout_ms=min(self._config.request_timeout_ms, 10_000),
        )

        def on_response(_: Message | ErrorCode) -> None:
            for name in names:
                for callback in self._waiting.pop(name, ()):
                    callback()

        self._link.forward(
            api.ApiKey.CREATE_TOPICS,
            7,
            request,
            on_response,
            client_id=client_id,
            client_host=client_host,
            principal=principal,
        )

    def _topic(self, name: str) -> CreatableTopic:
        from kwire.protocol.schemas.topics import CreatableTopic, CreatableTopicConfig

        partitions, replication_factor, overrides = auto_topic_settings(self._config, name)
        return CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in overrides.items()],
        )
