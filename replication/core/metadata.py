"""The metadata cache of a broker: live brokers, topics, partitions, configurations.

Answers to kafka.server.MetadataCache (ZkMetadataCache's UpdateMetadata form). Fed only by the controller:
`apply` takes its UpdateMetadata requests, `set_config` its configuration changes. Never a source of truth for roles
(LeaderAndIsr is); it serves Metadata requests and the set of live brokers.

Invariants: the broker list is replaced as a whole; partition states merge, leader -2 deletes the partition, a request
of type FULL deletes all that it does not list, too. `version` rises with every change. What getters return belongs to
the cache: read, don't change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kwire.protocol.language.primitives import ZERO_UUID
from kwire.replication.core.types import THROTTLED_KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.protocol.schemas.control_plane import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
    )

LEADER_DURING_DELETE = -2

# org.apache.kafka.common.config.ConfigResource.Type
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32
QUOTA_RESOURCE = 126
"""No resource of Kafka's: the client quotas of an entity (quotas.py), kept and on their way to the brokers."""
SCRAM_RESOURCE = 127
"""No resource of Kafka's: the SCRAM credentials of a user, by mechanism, on their way to the brokers."""
ACL_RESOURCE = 125
"""No resource of Kafka's: the access rules of one resource pattern (core/acls.py)."""
TOKEN_RESOURCE = 124
"""No resource of Kafka's: a delegation token (delegation_tokens.py), which is no secret without the brokers' key."""

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})

_NO_CONFIG: Mapping[str, str] = {}
FULL = 2


class Endpoint:
    """Where a broker can be reached on one listener. `security_protocol`: Kafka's id (0 PLAINTEXT, 1 SSL, …)."""

    __slots__ = ("host", "listener", "port", "security_protocol")

    def __init__(self, listener: str, host: str, port: int, security_protocol: int = 0) -> None:
        self.listener = listener
        self.host = host
        self.port = port
        self.security_protocol = security_protocol

    def __repr__(self) -> str:
        return f"{self.listener}://{self.host}:{self.port}"


class BrokerMetadata:
    """A live broker: its endpoints by listener name."""

    __slots__ = ("endpoints", "id", "rack")

    def __init__(self, broker_id: int, rack: str | None, endpoints: Iterable[Endpoint]) -> None:
        self.id = broker_id
        self.rack = rack
        self.endpoints = {endpoint.listener: endpoint for endpoint in endpoints}


class TopicMetadata:
    """A topic: its partitions' states by index, in index order."""

    __slots__ = ("answers", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, UpdateMetadataPartitionState] = {}
        # Scratch room of kwire.apis.metadata: finished answers, each valid for one `brokers_version`.
        self.answers: dict[tuple[str, int], tuple[int, Any]] = {}

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class MetadataCache:
    """The cluster as the controller last described it."""

    __slots__ = (
        "_configs",
        "_names_by_id",
        "brokers",
        "brokers_version",
        "changed_acls",
        "controller_epoch",
        "controller_id",
        "on_quotas",
        "throttled_topics",
        "topics",
        "version",
    )

    def __init__(self) -> None:
        self.controller_id = -1
        self.controller_epoch = 0
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.version = 0
        self.brokers_version = 0  # the part of `version` that finished topic answers depend on
        self._names_by_id: dict[bytes, str] = {}
        self._configs: dict[tuple[int, str], Mapping[str, str]] = {}
        self.on_quotas: Callable[[str, Mapping[str, str]], None] | None = None
        """Called with the text of an entity and all its quotas, when these have changed."""
        self.throttled_topics: set[str] = set()
        """Topics with lists of replicas whose replication is throttled."""
        self.changed_acls: set[str] = set()
        """Names of ACL_RESOURCE that have changed since the authorizer, if there is one, took them."""

    # --- what the controller says

    def apply(self, request: UpdateMetadataRequest) -> list[tuple[str, int]]:
        """Takes over an UpdateMetadata request (v5+ shape) and returns the partitions it deleted.

        Epochs are the caller's to check (ReplicaManager.update_metadata)."""
        self.version += 1
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        self._set_brokers(request.live_brokers)
        deleted = self._forget_unlisted(request) if request.type == FULL else []
        for topic_state in request.topic_states:
            name = topic_state.topic_name
            topic_id = topic_state.topic_id
            topic = self.topics.get(name)
            for state in topic_state.partition_states:
                if state.leader == LEADER_DURING_DELETE:
                    if topic and topic.partitions.pop(state.partition_index, None) is not None:
                        deleted.append((name, state.partition_index))
                    continue
                if topic is None:
                    topic = self.topics[name] = TopicMetadata(name, ZERO_UUID)
                topic.partitions[state.partition_index] = state
            if topic is None:
                continue
            topic.answers.clear()
            if not topic.partitions:
                self._forget(topic)
            elif topic.topic_id != topic_id:
                self._names_by_id.pop(topic.topic_id, None)
                topic.topic_id = topic_id
                if topic_id != ZERO_UUID:
                    self._names_by_id[topic_id] = name
        return deleted

    def _forget_unlisted(self, request: UpdateMetadataRequest) -> list[tuple[str, int]]:
        """What was deleted while this broker heard of nothing (ZkMetadataCache, for KRaft's full requests)."""
        listed: dict[str, set[int]] = {
            topic.topic_name: {state.partition_index for state in topic.partition_states}
            for topic in request.topic_states
        }
        deleted: list[tuple[str, int]] = []
        for topic in list(self.topics.values()):
            indexes = listed.get(topic.name, set())
            gone = [index for index in topic.partitions if index not in indexes]
            for index in gone:
                del topic.partitions[index]
            deleted += [(topic.name, index) for index in gone]
            if not topic.partitions:
                self._forget(topic)
        return deleted

    def _set_brokers(self, live: list[UpdateMetadataBroker]) -> None:
        brokers = {
            broker.id: BrokerMetadata(
                broker.id,
                broker.rack,
                [
                    Endpoint(e.listener, e.host, e.port, e.security_protocol)
                    for e in broker.endpoints
                ],
            )
            for broker in live
        }
        if _shape(brokers) != _shape(self.brokers):
            self.brokers = brokers
            self.brokers_version += 1

    def _forget(self, topic: TopicMetadata) -> None:
        self.topics.pop(topic.name, None)
        self._names_by_id.pop(topic.topic_id, None)
        self._configs.pop((TOPIC_RESOURCE, topic.name), None)
        self.throttled_topics.discard(topic.name)

    def set_config(self, resource_type: int, name: str, overrides: Mapping[str, str]) -> None:
        """Replaces a resource's overrides; an empty mapping removes them. A broker's name is its id, or ""."""
        self.version += 1
        if overrides:
            self._configs[resource_type, name] = dict(overrides)
        else:
            self._configs.pop((resource_type, name), None)
        if resource_type == TOPIC_RESOURCE:
            if THROTTLED_KEYS.isdisjoint(overrides):
                self.throttled_topics.discard(name)
            else:
                self.throttled_topics.add(name)
        if resource_type == QUOTA_RESOURCE and self.on_quotas is not None:
            self.on_quotas(name, overrides)
        if resource_type == ACL_RESOURCE:
            self.changed_acls.add(name)

    # --- what others ask

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The overrides of a resource: empty when it has none or does not exist."""
        return self._configs.get((resource_type, name), _NO_CONFIG)

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """The overrides of a topic's configuration."""
        return self._configs.get((TOPIC_RESOURCE, topic), _NO_CONFIG)

    def config_names(self, resource_type: int) -> list[str]:
        """Names of the resources of a type that have overrides, sorted."""
        return sorted(name for kind, name in self._configs if kind == resource_type)

    def configured(self) -> list[tuple[int, str]]:
        """(type, name) of all resources that have overrides."""
        return list(self._configs)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.brokers

    def contains(self, topic: str) -> bool:
        return topic in self.topics

    def topic(self, name: str) -> TopicMetadata | None:
        return self.topics.get(name)

    def topic_id(self, name: str) -> bytes:
        """The topic's id, ZERO_UUID when the topic is unknown."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name behind an id, None when unknown."""
        return self._names_by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> UpdateMetadataPartitionState | None:
        """The partition's last known state (leader, leader_epoch, isr, replicas, …)."""
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(index)

    def partition_count(self, topic: str) -> int | None:
        """How many partitions the topic has, None when it is unknown."""
        known = self.topics.get(topic)
        return None if known is None else len(known.partitions)

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where clients of a listener reach a broker; None when it is dead or has no such listener."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)


def _shape(brokers: dict[int, BrokerMetadata]) -> list[tuple[object, ...]]:
    return [
        (b.id, b.rack, *((e.listener, e.host, e.port) for e in b.endpoints.values()))
        for b in brokers.values()
    ]
