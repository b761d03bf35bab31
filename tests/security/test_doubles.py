"""Requests that name a topic or a group twice: an attempt to have it checked once and used twice."""

from __future__ import annotations

import pytest
from test_access import NO_TOPIC, Ruled, ruled

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.groups import FindCoordinatorRequest
from kwire.protocol.schemas.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kwire.protocol.schemas.topics import DeleteTopicsRequest, DeleteTopicState
from kwire.replication.core.acls import DESCRIBE, GROUP, READ

__all__ = ["ruled"]
OTHER_ID = bytes(range(16))


def test_a_topic_cannot_be_deleted_by_naming_it_twice(ruled: Ruled) -> None:
    ruled.allow(DESCRIBE, name="shut")
    shut_id = ruled.ids["shut"]
    pairs = [
        (DeleteTopicState(name="shut"), DeleteTopicState(name="shut", topic_id=OTHER_ID)),
        (
            DeleteTopicState(name=None, topic_id=shut_id),
            DeleteTopicState(name="any", topic_id=shut_id),
        ),
    ]
    for pair in pairs:
        for topics in (pair, pair[::-1]):
            request = DeleteTopicsRequest(timeout_ms=1000, topics=list(topics))
            answer = ruled.alice.ask(request, 6)
            assert sorted(each.error_code for each in answer.responses) == sorted(
                [NO_TOPIC, ErrorCode.INVALID_REQUEST]
            )
            assert ruled.broker.core.services.metadata.contains("shut")


@pytest.mark.parametrize("is_all_last", [False, True])
def test_a_group_that_is_named_twice_shows_no_topics_that_are_hidden(
    ruled: Ruled, is_all_last: bool
) -> None:
    commit = OffsetCommitRequest(
        group_id="mine",
        generation_id_or_member_epoch=-1,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=5)],
            )
            for name in ("open", "shut")
        ],
    )
    ruled.admin.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["mine"]), 4)
    answer = ruled.admin.ask(commit, 8)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [0, 0]
    ruled.allow(READ, GROUP, "mine")
    ruled.allow(READ)

    named = OffsetFetchRequestTopics(name="shut", partition_indexes=[0])
    everything = OffsetFetchRequestGroup(group_id="mine", topics=None)
    groups = [OffsetFetchRequestGroup(group_id="mine", topics=[named]), everything]
    asked = groups if is_all_last else groups[::-1]
    found = [
        {topic.name: topic.partitions[0].committed_offset for topic in group.topics}
        for group in ruled.alice.ask(OffsetFetchRequest(groups=asked), 8).groups
    ]
    expected = [{"shut": -1}, {"open": 5}]
    assert found == (expected if is_all_last else expected[::-1])
