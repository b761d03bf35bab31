"""What a client may not see makes no difference to it: two brokers that differ in nothing else answer it alike.

Both have the topics "open", which alice may use, and "shut", which she may not, and the groups "mine" and "theirs"; of
shut and theirs the one broker has other partitions, records, configurations and offsets than the other one. Requests
of all APIs with access rules are made up: names and ids of both topics in any order, and more than once."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from login_kit import Client, Guarded
from test_access import ONE_RECORD, STANDARD, Ruled

from kwire.apis import BY_KEY
from kwire.apis.access.table import ROWS
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.language.primitives import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    RECORDS,
    STRING,
    UUID,
    ZERO_UUID,
    ArrayKind,
    covers,
    parse_versions,
)
from kwire.protocol.schemas.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.protocol.schemas.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.replication.core.acls import ALL, GROUP, READ

COUNT = 2000
_TICKS = 3
_WAITING = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
_TIMES = ("timeout_ms", "max_wait_ms", "transaction_timeout_ms")


class Two(Ruled):
    """One of the two brokers. `other`: whether it is the second one."""

    def __init__(self, *, other: bool) -> None:
        super().__init__(Guarded(authorizer_class_name=STANDARD, super_users="User:admin"))
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in (("open", 2), ("shut", 4 if other else 1))
        ]
        made = self.admin.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
        self.ids = {topic.name: topic.topic_id for topic in made.topics}
        self.admin.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["mine"]), 4)
        for _ in range(5 if other else 2):
            data = [PartitionProduceData(index=0, records=ONE_RECORD)]
            topic = TopicProduceData(name="shut", partition_data=data)
            self.admin.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
        for group in ("mine", "theirs") if other else ("mine",):
            offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=2 + other)
            request = OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                topics=[OffsetCommitRequestTopic(name="shut", partitions=[offset])],
            )
            self.admin.ask(request, 8)
        if other:
            config = AlterableConfig(name="retention.ms", value="777")
            resource = AlterConfigsResource(resource_type=2, resource_name="shut", configs=[config])
            self.admin.ask(AlterConfigsRequest(resources=[resource]), 2)
        self.allow(ALL)
        self.allow(READ, GROUP, "mine")

    def shut(self) -> Any:
        """What it knows of the topic that alice may not use."""
        services = self.broker.core.services
        partition = services.replica_manager.partition("shut", 0)
        config = dict(services.metadata.config(2, "shut"))
        return services.metadata.topic_id("shut"), partition.log.log_end_offset, config


def made_up(kind: Any, name: str, random: Random, version: int, ids: list[bytes]) -> Any:
    """A value for a field of a request."""
    if isinstance(kind, ArrayKind):
        count = random.choice((0, 1, 1, 2, 2, 3))
        return [made_up(kind.element, name, random, version, ids) for _ in range(count)]
    if isinstance(kind, type):
        struct: Any = kind()
        for each, field in kind.fields.items():
            first, last = parse_versions(field.versions or "0+")
            if first <= version <= last and each not in ("cursor",):
                nullable = field.nullable
                can_be_none = nullable is not None and covers(parse_versions(nullable), version)
                is_none = can_be_none and random.random() < 0.3
                value = None if is_none else made_up(field.kind, each, random, version, ids)
                setattr(struct, each, value)
        return struct
    if name in _TIMES:
        return 0 if name == "max_wait_ms" else 1000
    if kind is STRING:
        names = ("open", "shut", "shut", "none", "mine", "theirs", "1", "")
        return random.choice(names)
    if kind is UUID:
        return random.choice(ids)
    if kind is BOOLEAN:
        return random.random() < 0.5
    if kind is RECORDS:
        return ONE_RECORD
    if kind is BYTES:
        return b""
    if kind is FLOAT64:
        return 1.0
    return random.choice((-1, 0, 0, 1, 2, 4, 32))


def answers(client: Client, frame: bytes) -> tuple[list[bytes], str | None]:
    """What comes back, and why the connection was closed; some answers are given in parts, with the ticks."""
    found = client.send(frame)
    for _ in range(_TICKS):
        client.broker.later(1)
        found += client.received()
    return found, client.closed


@pytest.mark.parametrize("seed", range(3))
def test_what_may_not_be_seen_makes_no_difference(seed: int) -> None:
    pair = [Two(other=False), Two(other=True)]
    assert pair[0].ids == pair[1].ids
    before = [each.shut() for each in pair]
    assert before[0] != before[1]
    random = Random(seed)
    ids = [ZERO_UUID, bytes(range(16)), *pair[0].ids.values(), pair[0].ids["shut"]]
    keys = sorted(ROWS.keys() & BY_KEY.keys() - set(_WAITING))
    clients = [each.alice for each in pair]
    asked = set()
    for number in range(COUNT):
        key = ApiKey(random.choice(keys))
        lowest, highest = pair[0].broker.core.sessions.ranges[key]
        version = random.randint(lowest, highest)
        request = made_up(api.request_class(key), "", random, version, ids)
        frame = b"".join(map(bytes, api.encode_request(key, version, number, "me", request)))[4:]
        one, other = (answers(client, frame) for client in clients)
        assert one == other, f"{key.api_name} {version}: {request}"
        asked.add((key, bool(one[0])))
        if one[1] is not None:
            clients = [each.client("alice") for each in pair]
    assert len({key for key, has_answer in asked if has_answer}) > len(keys) * 0.9
    assert [each.shut() for each in pair] == before
