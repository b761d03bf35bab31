"""A broker with an authorizer: what clients may do, over every API that needs something; and the rules themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from login_kit import Client, Guarded

from kwire.apis import BY_KEY
from kwire.apis.access.table import TABLE
from kwire.protocol.api import ApiKey, request_class
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
)
from kwire.protocol.schemas.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from kwire.protocol.schemas.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from kwire.protocol.schemas.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from kwire.replication.core.acls import (
    ALL,
    ALLOW,
    ANY,
    CLUSTER,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from kwire.replication.core.types import INTERNAL_LISTENER

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ONE_RECORD = build_batch([Record(-1, 1000, None, b"x")])
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Ruled:
    """A broker with topics "open" and "shut", of which alice may use the first."""

    def __init__(self, broker: Guarded | None = None, **keys: str) -> None:
        given = {"authorizer_class_name": STANDARD, "super_users": "User:admin;User:root"}
        self.broker = broker or Guarded(**{**given, **keys})
        self.admin = self.client("admin")
        self.alice = self.client("alice")

    def client(self, user: str, listener: str = "PLAIN") -> Client:
        client = self.broker.client(listener)
        client.session.principal = f"User:{user}"
        return client

    def allow(
        self,
        operation: int,
        kind: int = TOPIC,
        name: str = "open",
        permission: int = ALLOW,
        pattern: int = LITERAL,
        user: str = "alice",
    ) -> None:
        made = self.admin.ask(
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=kind,
                        resource_name="kafka-cluster" if kind == CLUSTER else name,
                        resource_pattern_type=pattern,
                        principal=f"User:{user}",
                        host="*",
                        operation=operation,
                        permission_type=permission,
                    )
                ]
            ),
            3,
        )
        assert [(each.error_code, each.error_message) for each in made.results] == [(0, None)]

    def with_topics(self) -> Ruled:
        made = self.admin.ask(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                    for name in ("open", "shut")
                ],
                timeout_ms=1000,
            ),
            7,
        )
        assert [topic.error_code for topic in made.topics] == [0, 0]
        self.ids = {topic.name: topic.topic_id for topic in made.topics}
        return self


@pytest.fixture
def ruled() -> Ruled:
    return Ruled().with_topics()


def test_the_table_is_of_served_apis_and_of_each_that_clients_send() -> None:
    nothing = {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.ENVELOPE,
        ApiKey.RENEW_DELEGATION_TOKEN,  # owners and renewers of a token may
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
    assert set(BY_KEY) - {int(row.key) for row in TABLE} == nothing
    assert [row.key for row in TABLE] == sorted(row.key for row in TABLE)


def test_the_page_is_what_the_table_says() -> None:
    from kwire.apis.access.page import page

    found = Path(__file__).parents[2] / "docs" / "authorization.md"
    assert found.read_text() == page(), (
        "run: python -m kwire.apis.access.page > docs/authorization.md"
    )


_WHOLE = [row for row in TABLE if len(row.needs) == 1 and row.needs[0].resource_type == CLUSTER]


@pytest.mark.parametrize("row", _WHOLE, ids=lambda row: row.key.api_name)
def test_what_needs_the_cluster_is_refused_without_it(ruled: Ruled, row: Any) -> None:
    api = BY_KEY.get(row.key)
    if api is None or row.key is ApiKey.DESCRIBE_CLUSTER:
        pytest.skip("not served, or only a part of the answer")
    version = api.max_version
    request = request_class(row.key)()
    refused = ruled.alice.ask(request, version)
    assert getattr(refused, "error_code", NO_CLUSTER) == NO_CLUSTER
    ruled.allow(row.needs[0].operation, CLUSTER)
    allowed = ruled.alice.ask(request_class(row.key)(), version)
    assert getattr(allowed, "error_code", 0) != NO_CLUSTER


def test_metadata_hides_what_may_not_be_seen(ruled: Ruled) -> None:
    ruled.allow(READ)
    everything = ruled.alice.ask(MetadataRequest(topics=None), 9)
    assert [topic.name for topic in everything.topics] == ["open"]
    named = [MetadataRequestTopic(name=name) for name in ("open", "shut", "none")]
    found = ruled.alice.ask(MetadataRequest(topics=named), 9)
    assert {topic.name: topic.error_code for topic in found.topics} == {
        "open": 0,
        "shut": NO_TOPIC,
        "none": NO_TOPIC,
    }
    assert all(not topic.partitions for topic in found.topics if topic.error_code)


def test_metadata_of_version_0_does_not_name_all_topics_if_none_may_be_seen(ruled: Ruled) -> None:
    ruled.allow(READ)
    found = ruled.alice.ask(MetadataRequest(topics=[MetadataRequestTopic(name="shut")]), 0)
    assert [(topic.name, topic.error_code) for topic in found.topics] == [("shut", NO_TOPIC)]
    assert [topic.name for topic in ruled.alice.ask(MetadataRequest(topics=[]), 0).topics] == [
        "open"
    ]


def test_metadata_by_id_tells_no_name(ruled: Ruled) -> None:
    asked = [MetadataRequestTopic(name=None, topic_id=ruled.ids["shut"])]
    (topic,) = ruled.alice.ask(MetadataRequest(topics=asked), 12).topics
    assert (topic.name, topic.topic_id, topic.error_code) == (None, ruled.ids["shut"], NO_TOPIC)


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "new"), (CLUSTER, "")])
def test_a_topic_is_created_with_create_only(ruled: Ruled, kind: int, name: str) -> None:
    ruled.allow(WRITE, name="new")
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    (topic,) = ruled.alice.ask(asked, 9).topics
    assert (topic.name, topic.error_code) == ("new", NO_TOPIC)
    assert not ruled.broker.core.services.metadata.contains("new")
    ruled.allow(CREATE, kind, name)
    (topic,) = ruled.alice.ask(asked, 9).topics
    assert (topic.name, topic.error_code) == ("new", 0)


def test_no_topic_is_created_by_a_request_that_is_refused_for_another(ruled: Ruled) -> None:
    asked = [MetadataRequestTopic(name="new"), MetadataRequestTopic(name=None)]
    found = ruled.alice.ask(MetadataRequest(topics=asked), 11)
    assert {topic.error_code for topic in found.topics} == {ErrorCode.INVALID_REQUEST}
    assert not ruled.broker.core.services.metadata.contains("new")


def test_authorized_operations_are_those_of_the_client(ruled: Ruled) -> None:
    ruled.allow(WRITE)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="open")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    found = ruled.alice.ask(request, 8)
    assert found.topics[0].topic_authorized_operations == 1 << WRITE | 1 << DESCRIBE
    assert found.cluster_authorized_operations == 0
    ruled.allow(DESCRIBE, CLUSTER)
    assert ruled.alice.ask(request, 8).cluster_authorized_operations == 1 << DESCRIBE


def produce(name: str, acks: int = 1, transactional_id: str | None = None) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=each, partition_data=[PartitionProduceData(index=0, records=ONE_RECORD)]
            )
            for each in name.split(",")
        ],
    )


def errors(response: Any) -> dict[str, int]:
    return {topic.name: topic.partition_responses[0].error_code for topic in response.responses}


def test_produce_appends_what_may_be_written(ruled: Ruled) -> None:
    ruled.allow(WRITE)
    answer = ruled.alice.ask(produce("shut,open"), 9)
    assert errors(answer) == {"shut": NO_TOPIC, "open": 0}
    replicas = ruled.broker.core.services.replica_manager
    ends = {name: replicas.partition(name, 0).log.log_end_offset for name in ("open", "shut")}
    assert ends == {"open": 1, "shut": 0}
    assert errors(ruled.alice.ask(produce("none"), 9)) == {"none": NO_TOPIC}


def test_produce_without_an_answer_that_is_refused_ends_the_connection(ruled: Ruled) -> None:
    ruled.allow(WRITE)
    assert ruled.alice.ask(produce("shut,open", acks=0), 9) is None
    assert "TOPIC_AUTHORIZATION_FAILED" in str(ruled.alice.closed)
    replicas = ruled.broker.core.services.replica_manager
    assert replicas.partition("open", 0).log.log_end_offset == 1


def fetch(name: str, session_id: int = 0, epoch: int = -1, replica: int = -1) -> FetchRequest:
    topics = [
        FetchTopic(
            topic=each,
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
        )
        for each in filter(None, name.split(","))
    ]
    return FetchRequest(
        replica_id=replica,
        session_id=session_id,
        session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=10_000,
        topics=topics,
    )


def fetched(response: Any) -> dict[str, int]:
    return {topic.topic: topic.partitions[0].error_code for topic in response.responses}


def test_fetch_reads_what_may_be_read(ruled: Ruled) -> None:
    ruled.allow(READ)
    answer = ruled.alice.ask(fetch("shut,open,none"), 11)
    assert fetched(answer) == {"shut": NO_TOPIC, "open": 0, "none": NO_TOPIC}


def test_a_fetch_session_is_refused_what_may_not_be_read_any_more(ruled: Ruled) -> None:
    ruled.allow(READ)
    first = ruled.alice.ask(fetch("open", 0, 0), 11)
    assert first.session_id and fetched(first) == {"open": 0}
    ruled.allow(READ, permission=DENY)
    again = ruled.alice.ask(fetch("", first.session_id, 1), 11)
    assert fetched(again) == {"open": NO_TOPIC}


def test_a_follower_needs_the_cluster(ruled: Ruled) -> None:
    ruled.allow(READ)
    assert fetched(ruled.alice.ask(fetch("open", replica=2), 11)) == {"open": NO_TOPIC}
    own = ruled.client("ANONYMOUS", INTERNAL_LISTENER)
    assert fetched(own.ask(fetch("open", replica=2), 11))["open"] != NO_TOPIC


def test_deleted_rules_count_at_once(ruled: Ruled) -> None:
    ruled.allow(READ)
    assert fetched(ruled.alice.ask(fetch("open"), 11)) == {"open": 0}
    deleted = ruled.admin.ask(DeleteAclsRequest(filters=[any_filter()]), 3)
    assert [len(each.matching_acls) for each in deleted.filter_results] == [1]
    assert fetched(ruled.alice.ask(fetch("open"), 11)) == {"open": NO_TOPIC}


def test_deletion_needs_delete_and_tells_no_names(ruled: Ruled) -> None:
    ruled.allow(DESCRIBE)

    def codes(version: int, **fields: Any) -> list[tuple[str | None, int]]:
        request = DeleteTopicsRequest(timeout_ms=1000, **fields)
        return [(e.name, e.error_code) for e in ruled.alice.ask(request, version).responses]

    states = [DeleteTopicState(name=None, topic_id=ruled.ids[name]) for name in ("open", "shut")]
    assert codes(6, topics=states) == [("open", NO_TOPIC), (None, NO_TOPIC)]
    assert codes(5, topic_names=["open", "shut", "none"]) == [
        ("open", NO_TOPIC),
        ("shut", NO_TOPIC),
        ("none", NO_TOPIC),
    ]
    assert codes(5, topic_names=["shut", "shut"]) == [("shut", ErrorCode.INVALID_REQUEST)]
    assert ruled.broker.core.services.metadata.contains("shut")
    ruled.allow(DELETE)
    assert codes(6, topics=states) == [("open", 0), (None, NO_TOPIC)]
    assert not ruled.broker.core.services.metadata.contains("open")


def test_creation_needs_create_and_shows_configurations_with_describe_configs(ruled: Ruled) -> None:
    def create(*names: str) -> dict[str, tuple[int, int, int]]:
        topics = [CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
        answer = ruled.alice.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
        return {
            topic.name: (topic.error_code, topic.topic_config_error_code, topic.num_partitions)
            for topic in answer.topics
        }

    ruled.allow(CREATE, name="my", pattern=PREFIXED)
    assert create("my-a", "a") == {"my-a": (0, NO_TOPIC, -1), "a": (NO_TOPIC, 0, -1)}
    ruled.allow(DESCRIBE_CONFIGS, name="my", pattern=PREFIXED)
    assert create("my-b", "b", "b") == {
        "my-b": (0, 0, 1),
        "b": (ErrorCode.INVALID_REQUEST, 0, -1),
    }
    assert not ruled.broker.core.services.metadata.contains("b")


def test_idempotent_producers_need_a_topic_that_they_may_write_to(ruled: Ruled) -> None:
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert ruled.alice.ask(asked, 4).error_code == NO_CLUSTER
    ruled.allow(WRITE, name="some", pattern=PREFIXED)
    assert ruled.alice.ask(asked, 4).error_code == 0
    bob = ruled.client("bob")
    assert bob.ask(asked, 4).error_code == NO_CLUSTER
    ruled.allow(IDEMPOTENT_WRITE, CLUSTER, user="bob")
    assert bob.ask(asked, 4).error_code == 0
    named = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    assert bob.ask(named, 4).error_code == NO_ID


def test_one_refused_topic_keeps_all_out_of_a_transaction(ruled: Ruled) -> None:
    def add(*names: str) -> dict[str, int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=n, partitions=[0]) for n in names],
        )
        answer = ruled.alice.ask(request, 3)
        return {
            topic.name: topic.results_by_partition[0].partition_error_code
            for topic in answer.results_by_topic_v3_and_below
        }

    assert add("open") == {"open": NO_ID}
    ruled.allow(WRITE, TRANSACTIONAL_ID, "t")
    ruled.allow(WRITE)
    assert add("open", "shut") == {"open": ErrorCode.OPERATION_NOT_ATTEMPTED, "shut": NO_TOPIC}


def test_groups_are_refused_listed_and_described_as_allowed(ruled: Ruled) -> None:
    def commit(group: str, *names: str) -> dict[str, int]:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
                    ],
                )
                for name in names
            ],
        )
        answer = ruled.alice.ask(request, 8)
        return {topic.name: topic.partitions[0].error_code for topic in answer.topics}

    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["mine", "theirs"])
    found = ruled.alice.ask(asked, 4).coordinators
    assert [(each.key, each.error_code) for each in found] == [
        ("mine", NO_GROUP),
        ("theirs", NO_GROUP),
    ]
    ruled.allow(READ, GROUP, "mine")
    ruled.allow(READ)
    found = ruled.alice.ask(asked, 4).coordinators
    assert [(each.key, each.error_code) for each in found] == [("mine", 0), ("theirs", NO_GROUP)]
    assert commit("theirs", "open") == {"open": NO_GROUP}
    assert commit("mine", "open", "shut") == {"open": 0, "shut": NO_TOPIC}
    ruled.allow(ALL, GROUP, "theirs", user="bob")
    ruled.allow(ALL, name="*", user="bob")
    ruled.alice, alice = ruled.client("bob"), ruled.alice
    assert commit("theirs", "shut") == {"shut": 0}
    ruled.alice = alice

    listed = alice.ask(ListGroupsRequest(), 4).groups
    assert [group.group_id for group in listed] == ["mine"]
    assert len(ruled.admin.ask(ListGroupsRequest(), 4).groups) == 2
    request = DescribeGroupsRequest(groups=["theirs", "mine"], include_authorized_operations=True)
    theirs, mine = alice.ask(request, 5).groups
    assert (theirs.group_id, theirs.error_code) == ("theirs", NO_GROUP)
    assert mine.authorized_operations == 1 << READ | 1 << DESCRIBE

    groups = [
        OffsetFetchRequestGroup(group_id="theirs", topics=None),
        OffsetFetchRequestGroup(
            group_id="mine",
            topics=[
                OffsetFetchRequestTopics(name=n, partition_indexes=[0]) for n in ("shut", "open")
            ],
        ),
    ]
    theirs, mine = alice.ask(OffsetFetchRequest(groups=groups), 8).groups
    assert (theirs.group_id, theirs.error_code) == ("theirs", NO_GROUP)
    offsets = {
        t.name: (t.partitions[0].error_code, t.partitions[0].committed_offset) for t in mine.topics
    }
    assert offsets == {"open": (0, 5), "shut": (NO_TOPIC, -1)}


def test_pages_of_topics_are_of_those_that_may_be_seen(ruled: Ruled) -> None:
    ruled.allow(READ)
    found = ruled.alice.ask(DescribeTopicPartitionsRequest(response_partition_limit=10), 0)
    assert [topic.name for topic in found.topics] == ["open"]
    assert found.topics[0].topic_authorized_operations == 1 << READ | 1 << DESCRIBE
    named = [TopicRequest(name=name) for name in ("shut", "open")]
    found = ruled.alice.ask(
        DescribeTopicPartitionsRequest(topics=named, response_partition_limit=10), 0
    )
    assert {topic.name: topic.error_code for topic in found.topics} == {"open": 0, "shut": NO_TOPIC}
    nobody = ruled.client("nobody")
    found = nobody.ask(DescribeTopicPartitionsRequest(response_partition_limit=10), 0)
    assert found.topics == []


# --- the rules


def any_filter(**fields: Any) -> DeleteAclsFilter:
    given = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return DeleteAclsFilter(**{**given, **fields})


def described(client: Client, version: int = 3, **fields: Any) -> Any:
    wanted = any_filter(**fields)
    answer = client.ask(
        DescribeAclsRequest(**{name: getattr(wanted, name) for name in type(wanted).fields}),
        version,
    )
    if answer.error_code:
        return answer.error_code, answer.error_message
    return sorted(
        (each.resource_name, each.pattern_type, acl.operation)
        for each in answer.resources
        for acl in each.acls
    )


def test_rules_are_found_by_filters(ruled: Ruled) -> None:
    ruled.allow(READ)
    ruled.allow(WRITE, name="op", pattern=PREFIXED, user="bob")
    ruled.allow(DESCRIBE, name="*")
    ruled.allow(READ, GROUP, "open")
    every = described(ruled.admin)
    assert every == [
        ("*", LITERAL, DESCRIBE),
        ("op", PREFIXED, WRITE),
        ("open", LITERAL, READ),
        ("open", LITERAL, READ),
    ]
    admin = ruled.admin
    assert len(described(admin, resource_type_filter=TOPIC)) == 3
    matching = described(
        admin,
        resource_type_filter=TOPIC,
        resource_name_filter="open",
        pattern_type_filter=MATCH,
    )
    assert matching == [("*", LITERAL, DESCRIBE), ("op", PREFIXED, WRITE), ("open", LITERAL, READ)]
    assert described(admin, resource_name_filter="*", pattern_type_filter=LITERAL) == [every[0]]
    assert described(admin, principal_filter="User:bob") == [every[1]]
    assert described(admin, host_filter="1.2.3.4") == []
    assert described(admin, operation=READ, permission_type=DENY) == []
    assert described(admin, 0, pattern_type_filter=LITERAL) == [
        every[0],
        every[2],
        every[3],
    ]  # as there are only literal ones


def test_rules_survive_a_restart_and_are_made_once(ruled: Ruled) -> None:
    for _ in range(2):
        ruled.allow(READ)
    ruled.allow(WRITE)
    assert len(described(ruled.admin)) == 2
    ruled.broker.core.close()
    given = {"authorizer_class_name": STANDARD, "super_users": "User:admin"}
    again = Ruled(Guarded(ruled.broker.store, **given))
    assert len(described(again.admin)) == 2
    assert fetched(again.alice.ask(fetch("open"), 11)) == {"open": 0}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"resource_type": CLUSTER},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": ANY}, "Invalid resourceType ANY"),
        ({"resource_pattern_type": MATCH}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": ANY}, "Invalid patternType ANY"),
        ({"operation": ANY}, "Invalid operation ANY"),
        ({"permission_type": ANY}, "Invalid permissionType ANY"),
        ({"operation": 77}, "Invalid operation UNKNOWN"),
    ],
)
def test_rules_that_kafka_refuses(ruled: Ruled, fields: dict[str, Any], said: str) -> None:
    given = {
        "resource_type": TOPIC,
        "resource_name": "open",
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    request = CreateAclsRequest(
        creations=[AclCreation(**{**given, **fields}), AclCreation(**given)]
    )
    first, second = ruled.admin.ask(request, 3).results
    assert (first.error_code, first.error_message) == (ErrorCode.INVALID_REQUEST, said)
    assert second.error_code == 0


def test_without_an_authorizer_rules_are_refused() -> None:
    broker = Guarded()
    client = broker.client("PLAIN")
    assert described(client) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
    )
    made = client.ask(CreateAclsRequest(creations=[AclCreation()]), 3).results
    deleted = client.ask(DeleteAclsRequest(filters=[any_filter()]), 3).filter_results
    for each in (*made, *deleted):
        assert each.error_code == ErrorCode.SECURITY_DISABLED
        assert each.error_message == "No Authorizer is configured."
    assert broker.core.services.authority is None


def test_everyone_may_do_what_no_rule_is_about_if_so_configured() -> None:
    ruled = Ruled(allow_everyone_if_no_acl_found="true").with_topics()
    assert fetched(ruled.alice.ask(fetch("open"), 11)) == {"open": 0}
    ruled.allow(READ, user="bob")
    assert fetched(ruled.alice.ask(fetch("open,shut"), 11)) == {"open": NO_TOPIC, "shut": 0}
