"""Fetch sessions on the follower's side (KIP-227)."""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kwire.replication.fetcher.session import FetchSessionHandler

A, B = b"a" * 16, b"b" * 16
NAMES = {A: "a", B: "b", bytes(16): "old"}


def want(session, topic_id=A, index=0, offset=0, start=0, epoch=1, last=-1):
    session.include((NAMES[topic_id], index), topic_id, offset, start, 1000, epoch, last)


def asked(request):
    return [(t.topic, p.partition, p.fetch_offset) for t in request.topics for p in t.partitions]


def forgotten(request):
    return [(t.topic, t.topic_id, p) for t in request.forgotten_topics_data for p in t.partitions]


def answer(session, *partitions, version=17, session_id=7, error=0):
    response = FetchResponse(session_id=session_id, error_code=error)
    for topic_id, index in partitions:
        named = FetchableTopicResponse(topic=NAMES[topic_id], topic_id=topic_id)
        named.partitions.append(PartitionData(partition_index=index))
        response.responses.append(named)
    return session.handle_response(response, version)


def established(*topic_ids, version=17):
    session = FetchSessionHandler()
    for topic_id in topic_ids:
        want(session, topic_id)
    session.next_request(version)
    assert answer(session, *((t, 0) for t in topic_ids)) is not None
    return session


def test_the_first_request_is_full_and_the_next_incremental():
    session = FetchSessionHandler()
    want(session, A, 0)
    want(session, A, 1)
    want(session, B, 0)
    request, version = session.next_request(17)
    assert version == 17 and (request.session_id, request.session_epoch) == (0, 0)
    assert len(request.topics) == 2
    assert asked(request) == [("a", 0, 0), ("a", 1, 0), ("b", 0, 0)]
    answered = answer(session, (A, 0), (A, 1), (B, 0))
    assert [a.key for a, _ in answered] == [("a", 0), ("a", 1), ("b", 0)]
    want(session, A, 1, offset=5, last=1)
    want(session, A, 0)  # no news
    request, _ = session.next_request(17)
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert asked(request) == [("a", 1, 5)]
    assert answer(session) == []
    request, _ = session.next_request(17)
    assert request.session_epoch == 2 and asked(request) == []


def test_a_change_of_anything_but_the_offset_is_sent_too():
    session = established(A)
    for change in ({"start": 3}, {"epoch": 2}, {"last": 1}):
        want(session, A)
        session.next_request(17)
        answer(session)
        want(session, A, **change)
        request, _ = session.next_request(17)
        assert len(asked(request)) == 1, change
        answer(session)


def test_forgotten_and_included_again():
    session = established(A, B)
    session.forget(("b", 0))
    session.forget(("b", 0))
    request, _ = session.next_request(17)
    assert forgotten(request) == [("b", B, 0)] and asked(request) == []
    answer(session)
    # Forgotten and wanted again before a request went out: only told as changed.
    session.forget(("a", 0))
    want(session, A, offset=9)
    request, _ = session.next_request(17)
    assert forgotten(request) == [] and asked(request) == [("a", 0, 9)]


def test_a_recreated_topic_is_forgotten_under_its_old_id():
    session = established(A)
    session.include(("a", 0), B, 0, 0, 1000, 0, -1)
    request, _ = session.next_request(17)
    assert forgotten(request) == [("a", A, 0)]
    assert request.topics[0].topic_id == B


def test_all_topics_go_by_name_if_one_has_no_id():
    session = established(A)
    want(session, bytes(16))
    request, version = session.next_request(17)
    assert version == 12
    # Without asking the leader, who would refuse: a full request that ends the session of ids.
    assert (request.session_id, request.session_epoch) == (7, 0)
    assert asked(request) == [("a", 0, 0), ("old", 0, 0)]
    assert answer(session, (A, 0), (bytes(16), 0), version=12, session_id=8) is not None
    request, version = session.next_request(17)
    assert version == 12 and (request.session_id, request.session_epoch) == (8, 1)
    answer(session, version=12, session_id=8)
    session.forget(("old", 0))
    request, version = session.next_request(17)
    assert version == 17 and (request.session_id, request.session_epoch) == (8, 0)


def test_a_leader_without_room_gives_no_session():
    session = FetchSessionHandler()
    want(session)
    session.next_request(17)
    assert answer(session, (A, 0), session_id=0) is not None
    request, _ = session.next_request(17)
    assert (request.session_id, request.session_epoch) == (0, 0) and len(asked(request)) == 1


def test_errors_of_the_whole_answer():
    for error, next_id in (
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ):
        session = established(A)
        session.next_request(17)
        assert answer(session, error=error, session_id=0) is None
        request, _ = session.next_request(17)
        assert (request.session_id, request.session_epoch) == (next_id, 0)
        assert len(asked(request)) == 1


def test_answers_that_do_not_fit():
    session = established(A)
    session.next_request(17)
    assert answer(session, (B, 0)) is None
    assert session.next_request(17)[0].session_epoch == 0
    # A full request must be answered in full.
    assert answer(session) is None
    # By id: another topic's id under a known name is none of ours.
    session.next_request(17)
    response = FetchResponse(session_id=7)
    named = FetchableTopicResponse(topic="a", topic_id=B)
    named.partitions.append(PartitionData(partition_index=0))
    response.responses.append(named)
    assert session.handle_response(response, 17) is None


def test_the_epoch_after_the_last_is_one():
    session = established(A)
    session.epoch = 0x7FFFFFFF
    assert session.next_request(17)[0].session_epoch == 0x7FFFFFFF
    answer(session)
    assert session.next_request(17)[0].session_epoch == 1


def test_the_first_request_ends_an_abandoned_session():
    session = FetchSessionHandler(session_id=5)
    want(session)
    request, _ = session.next_request(17)
    assert (request.session_id, request.session_epoch) == (5, 0)
