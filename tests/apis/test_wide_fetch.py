"""A Fetch of hundreds of partitions is answered in parts, as a small one is."""

from __future__ import annotations

from typing import Any

import pytest
from test_chunks import VALUE, Client, comparable, prepared, produce_request, topics

from kwire.protocol.api import encode_request, key_of, parse_response
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.replication.core.outbox import Reply
from kwire.session import LARGE_FRAME_BYTES

EVERYTHING = 1 << 20


def fetch_request(count: int, partitions: int, **fields: Any) -> FetchRequest:
    return FetchRequest(
        **{
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": EVERYTHING,
            "session_epoch": -1,
            **fields,
        },
        topics=[
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(partition=index, partition_max_bytes=EVERYTHING)
                    for index in indexes
                ],
            )
            for name, indexes in topics(count, partitions)
        ],
    )


def filled() -> Client:
    """A record in each of 300 partitions."""
    client = prepared(1000)
    client.ask(produce_request([*topics(10, 30)], build_batch([VALUE])), 9)
    return client


def frame_of(request: FetchRequest, version: int = 11) -> bytes:
    parts = encode_request(key_of(request), version, 7, "x", request)
    return b"".join(bytes(part) for part in parts)[4:]


def send(client: Client, request: FetchRequest) -> None:
    client.outbox.drain()
    client.broker.receive_frame(1, frame_of(request))


def answers(client: Client, ms: int = 0) -> list[Any]:
    """What is answered until the work is done, or in some milliseconds."""
    found = []
    client.clock.now_ms += ms
    client.broker.tick()
    while client.broker.work.jobs:
        client.broker.tick()
    for effect in client.outbox.drain():
        if isinstance(effect, Reply):
            found.append(parse_response(1, 11, b"".join(effect.parts)[4:])[1])
    assert not client.broker.failed
    return found


@pytest.mark.parametrize("version", [1, 4, 11, 12])
@pytest.mark.parametrize("max_bytes", [EVERYTHING, 1000, 1])
def test_the_answer_is_that_of_a_small_fetch(version: int, max_bytes: int) -> None:
    client = filled()
    request = fetch_request(20, 80, max_bytes=max_bytes)
    assert len(frame_of(request, version)) > LARGE_FRAME_BYTES
    in_parts = client.ask(request, version)
    assert client.steps > 3
    client.broker.sessions._routes[1 << 16 | version].large_bytes = 1 << 30
    whole = client.ask(request, version)
    assert [topic.topic for topic in in_parts.responses] == [t.topic for t in whole.responses]
    assert comparable(in_parts) == comparable(whole)
    sizes = [len(p.records or b"") for topic in whole.responses for p in topic.partitions]
    assert len(sizes) == 1600
    assert sum(sizes) <= (max_bytes if version >= 3 and max_bytes > 100 else EVERYTHING)
    assert sum(sizes) > 0


def test_records_that_come_while_it_is_read_complete_it() -> None:
    """In whichever of its steps they come."""
    for ticks in range(100):
        client = prepared(1000)
        send(client, fetch_request(15, 60, max_wait_ms=30_000))
        for _ in range(ticks):
            client.broker.tick()
        if not client.broker.work.jobs:
            break
        client.broker.connection_opened(2, "PLAINTEXT", "127.0.0.1")
        data = produce_request([("small-0", range(1))], build_batch([VALUE]))
        parts = encode_request(0, 9, 7, "x", data)
        client.broker.receive_frame(2, b"".join(bytes(part) for part in parts)[4:])
        client.outbox.drain()
        (response,) = answers(client)
        assert len(response.responses[0].partitions[0].records) > 0
    assert ticks > 3


def test_it_waits_for_records_and_is_answered_after_its_time() -> None:
    client = prepared(1000)
    send(client, fetch_request(15, 60, max_wait_ms=500))
    assert answers(client) == []
    assert answers(client, 499) == []
    (response,) = answers(client, 1)
    codes = {p.error_code for topic in response.responses for p in topic.partitions}
    assert codes == {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_wrong_session_is_refused() -> None:
    client = prepared(1000)
    send(client, fetch_request(15, 60, session_id=5, session_epoch=7))
    (response,) = answers(client)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_connection_that_ends_ends_it() -> None:
    client = prepared(1000)
    for ticks in (1, 100):  # while it is read, and while it waits
        client.broker.connection_opened(ticks + 2, "PLAINTEXT", "127.0.0.1")
        client.broker.receive_frame(ticks + 2, frame_of(fetch_request(15, 60, max_wait_ms=500)))
        for _ in range(ticks):
            client.broker.tick()
        client.broker.connection_closed(ticks + 2)
        client.broker.tick()
        assert not client.broker.work.jobs
        assert not client.broker.services.replica_manager.fetch_purgatory.watchers
