"""Creates the topics given at start-up (--topic, `topics=`, KAFKA_CREATE_TOPICS).

Imported only when there are such topics, because it loads the schemas of CreateTopics.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kwire.server.errors import SettingsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TIMEOUT_MS = 20_000


def create_request(
    topics: Iterable[tuple[str, int, int]], configs: Mapping[str, Mapping[str, str]]
) -> CreateTopicsRequest:
    """Build CreateTopics for topics (name, partitions, replication; -1: the default).

    `configs`: their configurations, by topic."""
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication,
                configs=[
                    CreatableTopicConfig(name=key, value=value)
                    for key, value in configs.get(name, {}).items()
                ],
            )
            for name, partitions, replication in topics
        ],
        timeout_ms=_TIMEOUT_MS,
    )


def check_created(response: CreateTopicsResponse) -> None:
    """SettingsError for the first refused topic; one that already exists is accepted."""
    for result in response.topics:
        code = ErrorCode(result.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise SettingsError(f"--topic {result.name}: {result.error_message or code.name}")
