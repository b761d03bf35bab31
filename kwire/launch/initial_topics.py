"""The topics that a broker, a cluster or a container is told to have from the start.

Loaded by those who have some: it needs the schemas of CreateTopics.
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
    """CreateTopics for topics (name, partitions, replication; -1: the default) and their `configs`, by topic."""
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
    """SettingsError for the first that was refused; a topic that exists is not."""
    for result in response.topics:
        code = ErrorCode(result.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise SettingsError(f"--topic {result.name}: {result.error_message or code.name}")
