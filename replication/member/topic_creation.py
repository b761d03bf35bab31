"""Topics made on demand where the controller is another node: for clients' Metadata, and the coordinators' own.

Answers to kafka.server.DefaultAutoTopicCreationManager. Who needs a topic waits until the controller has answered: by
then every live broker, this one included, knows the topic and its leader.

Invariant: a topic is asked for once at a time, however many wait for it.
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
    """Has topics created by the controller."""

    def __init__(self, link: ControllerLink, config: BrokerConfig) -> None:
        self._link = link
        self._config = config
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def create(self, names: Iterable[str], on_done: Callable[[], None]) -> None:
        """Calls back when each topic was created, or was not: the metadata cache then tells."""
        left = set(names)
        assert left

        def one_done(name: str) -> None:
            left.discard(name)
            if not left:
                on_done()

        ask = []
        for name in sorted(left):
            waiting = self._waiting.get(name)
            if waiting is None:
                waiting = self._waiting[name] = []
                ask.append(name)
            waiting.append(lambda name=name: one_done(name))  # type: ignore[misc]  # a default binds it
        if ask:
            self._ask(ask)

    def _ask(self, names: list[str]) -> None:
        from kwire.protocol.schemas.topics import CreateTopicsRequest

        request = CreateTopicsRequest(
            topics=[self._topic(name) for name in names],
            timeout_ms=min(self._config.request_timeout_ms, 10_000),
        )

        def answered(_: Message | ErrorCode) -> None:
            for name in names:
                for callback in self._waiting.pop(name, ()):
                    callback()

        self._link.forward(api.ApiKey.CREATE_TOPICS, 7, request, answered)

    def _topic(self, name: str) -> CreatableTopic:
        from kwire.protocol.schemas.topics import CreatableTopic, CreatableTopicConfig

        partitions, replication_factor, overrides = auto_topic_settings(self._config, name)
        return CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in overrides.items()],
        )
