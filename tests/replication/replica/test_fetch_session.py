from __future__ import annotations

from random import Random

import pytest

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.clock import Clock
from kwire.replication.replica.fetch_data import FetchPartitionData
from kwire.replication.replica.fetch_session import CachedPartition, FetchSessionCache


@pytest.fixture
def cache():
    return FetchSessionCache(Clock(1_000_000), Random(1), 2)


def asked(*indexes, offset=0):
    partitions = [CachedPartition("t", bytes(16), i, offset, 100, -1, -1, -1) for i in indexes]
    return {p.session_key: p for p in partitions}


def create(cache, *indexes, follower=False):
    context = cache.begin(0, 0, asked(*indexes), [], uses_topic_ids=False, is_follower=follower)
    results = [(p, FetchPartitionData(high_watermark=0)) for p in context.asked.values()]
    return context.finish(results)[0]


def request(cache, session_id, epoch, partitions=None, forgotten=()):
    return cache.begin(
        session_id,
        epoch,
        partitions or {},
        list(forgotten),
        uses_topic_ids=False,
        is_follower=False,
    )


def test_the_epoch_wraps_to_1(cache):
    session_id = create(cache, 0)
    session = next(iter(cache._sessions.values()))
    session.epoch = 2**31 - 1
    request(cache, session_id, 2**31 - 1)
    assert session.epoch == 1
    request(cache, session_id, 1)


def test_a_full_cache_makes_no_session_for_a_consumer(cache):
    assert create(cache, 0) and create(cache, 0)
    assert create(cache, 0, 1, 2) == 0
    assert len(cache) == 2


def test_a_session_unused_for_two_minutes_makes_room(cache):
    first, second = create(cache, 0), create(cache, 0)
    cache._clock.now_ms += 120_000
    request(cache, first, 1)
    assert create(cache, 0) == 0 or len(cache) == 2
    cache._clock.now_ms += 1
    third = create(cache, 0)
    assert third
    with pytest.raises(KafkaError) as raised:
        request(cache, second, 1)
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    request(cache, first, 2)


def test_a_follower_pushes_out_a_consumer_and_never_the_other_way(cache):
    assert create(cache, 0, 1, 2) and create(cache, 0)
    assert create(cache, 0, follower=True) and create(cache, 0, follower=True)
    assert all(s.privileged for s in cache._sessions.values())
    cache._clock.now_ms += 10
    assert create(cache, 0, 1, 2, 3) == 0


def test_an_old_session_yields_to_a_larger_one(cache):
    create(cache, 0, 1)
    small = create(cache, 0)
    cache._clock.now_ms += 100_000
    for session in list(cache._sessions.values()):
        request(cache, session.id, 1)
    cache._clock.now_ms += 20_001
    assert create(cache, 0, 1)
    assert small not in cache._sessions


def test_an_answer_to_an_overtaken_request_is_an_epoch_error(cache):
    session_id = create(cache, 0)
    first = request(cache, session_id, 1)
    request(cache, session_id, 2)
    with pytest.raises(KafkaError) as raised:
        first.finish([])
    assert raised.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_changed_offsets_and_new_partitions_are_taken_over(cache):
    session_id = create(cache, 0, 1)
    context = request(cache, session_id, 1, asked(1, 2, offset=9), [("t", 0)])
    assert [(p.partition, p.fetch_offset) for p in context.asked.values()] == [(1, 9), (2, 9)]


def test_all_that_a_request_says_of_a_partition_is_taken_over(cache):
    session_id = create(cache, 0)
    new = CachedPartition("t", bytes(16), 0, 9, 50, 3, 7, 6)
    context = request(cache, session_id, 1, {new.session_key: new})
    (partition,) = context.asked.values()
    assert partition is not new
    assert (partition.fetch_offset, partition.max_bytes, partition.log_start_offset) == (9, 50, 3)
    assert (partition.current_leader_epoch, partition.last_fetched_epoch) == (7, 6)


def test_an_old_session_does_not_yield_to_a_smaller_one(cache):
    create(cache, 0, 1)
    create(cache, 0, 1)
    cache._clock.now_ms += 100_000
    for session in list(cache._sessions.values()):
        request(cache, session.id, 1)
    cache._clock.now_ms += 20_001
    assert create(cache, 0) == 0 and len(cache) == 2


def test_what_makes_a_partition_worth_answering(cache):
    session_id = create(cache, 0)
    (partition,) = request(cache, session_id, 1).asked.values()

    def answered(**fields):
        data = FetchPartitionData(high_watermark=0)
        for name, value in fields.items():
            setattr(data, name, value)
        return partition.update_answered(data)

    assert not answered()
    assert answered(records=b"x")
    assert answered(high_watermark=5) and not answered(high_watermark=5)
    assert answered(log_start_offset=3, high_watermark=5)
    assert answered(diverging_epoch=(1, 2), log_start_offset=3, high_watermark=5)
    assert answered(error=3, high_watermark=-1, log_start_offset=3)
    assert answered(error=3, high_watermark=-1, log_start_offset=3)
    assert answered(high_watermark=5, log_start_offset=3)
    assert not answered(high_watermark=5, log_start_offset=3)
    same = {"high_watermark": 5, "log_start_offset": 3}
    assert answered(error=3, **same)
    assert answered(**same)  # the end of the error, with nothing else new
    assert answered(preferred_read_replica=2, **same)
    assert not answered(**same)
