"""Dispatch without sockets: same order and errors whether or not the driver checks `busy`."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from kwire.apis import BY_KEY, TABLE, Api, controller_plane, served_ranges
from kwire.apis.context import RequestContext, Services
from kwire.apis.releases import known_releases, release_ranges
from kwire.protocol import api
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kwire.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kwire.replication.core.clock import Clock
from kwire.replication.core.outbox import Close, Outbox, Reply
from kwire.replication.core.work import WorkQueue
from kwire.session import LARGE_FRAME_BYTES, MAX_WAITING_BYTES, Sessions

API_VERSIONS, METADATA = 18, 3


def frame(key: int, version: int, message: Any, correlation_id: int) -> bytes:
    parts = api.encode_request(key, version, correlation_id, "test", message)
    return b"".join(bytes(part) for part in parts)[4:]


def ask(correlation_id: int) -> bytes:
    return frame(API_VERSIONS, 0, ApiVersionsRequest(), correlation_id)


def park(correlation_id: int) -> bytes:
    return frame(METADATA, 1, MetadataRequest(), correlation_id)


class Core:
    """Sessions with a Metadata handler that parks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parked: list[RequestContext] = []
        self.outbox = Outbox()
        services = Services.__new__(Services)
        services.api_ranges = served_ranges()
        services.cluster_id, services.node_id = "c", 1
        services.work = WorkQueue(Clock(1, 1))
        services.authority = None
        self.sessions = Sessions(services, self.outbox, services.api_ranges)
        monkeypatch.setattr(BY_KEY[METADATA], "_handler", self.handle)

    def handle(self, context: RequestContext, request: Any) -> None:
        self.parked.append(context)

    def answers(self) -> list[tuple[int, int]]:
        """(connection, correlation id) of the replies so far; closes are (connection, -1)."""
        found = []
        for effect in self.outbox.drain():
            if isinstance(effect, Reply):
                data = b"".join(bytes(part) for part in effect.parts)
                found.append((effect.connection, int.from_bytes(data[4:8], "big")))
            elif isinstance(effect, Close):
                found.append((effect.connection, -1))
        return found


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Core:
    return Core(monkeypatch)


def test_frames_wait_in_the_session_when_the_driver_does_not(core: Core) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    for number, make in enumerate((park, ask, ask, park, ask)):
        core.sessions.receive_frame(1, memoryview(bytearray(make(number))))
    assert core.answers() == []
    core.parked.pop().reply(MetadataResponse())
    core.sessions.run_waiting()
    assert core.answers() == [(1, 0), (1, 1), (1, 2)]
    core.parked.pop().reply(MetadataResponse())
    core.sessions.run_waiting()
    assert core.answers() == [(1, 3), (1, 4)]


def test_a_reply_does_not_run_another_connections_frame_inside_its_handler(
    core: Core,
) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.open(2, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(10))
    core.sessions.receive_frame(1, park(11))
    (first,) = core.parked
    inside: list[int] = []

    def on_second(context: RequestContext, request: Any) -> None:
        if context.session.connection == 2:
            first.reply(MetadataResponse())  # as a produce completes a fetch
            inside.append(len(core.parked))
            context.reply(MetadataResponse())
        else:
            core.parked.append(context)

    BY_KEY[METADATA]._handler = on_second
    core.sessions._routes.clear()
    core.sessions.receive_frame(2, park(20))
    assert inside == [1]  # 11 had not run yet
    assert len(core.parked) == 2  # and has now
    assert core.answers() == [(1, 10), (2, 20)]


def test_a_connection_with_too_many_waiting_bytes_is_closed(core: Core) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(1))
    big = ask(2) + bytes(MAX_WAITING_BYTES // 2)
    core.sessions.receive_frame(1, big)
    assert core.answers() == []
    core.sessions.receive_frame(1, big)
    assert core.answers() == [(1, -1)]
    core.sessions.receive_frame(1, ask(3))  # on its way when the connection was closed
    core.parked[0].reply(MetadataResponse())
    core.sessions.run_waiting()
    assert core.answers() == []


def test_one_frame_of_any_size_may_wait(core: Core) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(1))
    core.sessions.receive_frame(1, ask(2) + bytes(MAX_WAITING_BYTES))
    assert core.answers() == []
    core.sessions.receive_frame(1, ask(3))
    assert core.answers() == [(1, -1)]


def test_frames_that_were_handled_do_not_count_as_waiting(core: Core) -> None:
    def produce(correlation_id: int) -> bytes:
        data = [PartitionProduceData(index=0, records=bytes(MAX_WAITING_BYTES * 2 // 3))]
        topics = [TopicProduceData(name="t", partition_data=data)]
        return frame(
            api.ApiKey.PRODUCE, 8, ProduceRequest(acks=1, topic_data=topics), correlation_id
        )

    def handler(context: RequestContext, request: Any) -> None:
        context.reply(ProduceResponse())

    before = BY_KEY[api.ApiKey.PRODUCE]._handler
    BY_KEY[api.ApiKey.PRODUCE]._handler = handler
    try:
        core.sessions.open(1, "PLAINTEXT", "h")
        for number in (1, 4):
            core.sessions.receive_frame(1, park(number))
            core.sessions.receive_frame(1, produce(number + 1))
            core.sessions.receive_frame(1, ask(number + 2))
            core.parked.pop().reply(MetadataResponse())
            core.sessions.run_waiting()
    finally:
        BY_KEY[api.ApiKey.PRODUCE]._handler = before
    assert core.answers() == [(1, number) for number in range(1, 7)]


def test_a_frame_that_waits_is_a_copy_as_the_driver_uses_its_buffer_again(core: Core) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(1))
    buffer = bytearray(ask(2))
    core.sessions.receive_frame(1, memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    core.parked.pop().reply(MetadataResponse())
    core.sessions.run_waiting()
    assert core.answers() == [(1, 1), (1, 2)]


def test_a_connection_is_closed_once(core: Core) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(1))
    (context,) = core.parked
    context.close("first")
    context.close("second")
    assert core.answers() == [(1, -1)]


@pytest.mark.parametrize("version", [-1, 99])
def test_versions_of_api_versions_that_are_not_served_are_named_in_version_0(
    core: Core, version: int
) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    data = bytearray(ask(7))
    data[2:4] = version.to_bytes(2, "big", signed=True)
    core.sessions.receive_frame(1, bytes(data) + b"\0")  # later headers have tags
    (reply,) = core.outbox.drain()
    assert isinstance(reply, Reply)
    answer = b"".join(bytes(part) for part in reply.parts)[4:]
    _, response = api.parse_response(API_VERSIONS, 0, answer)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    lowest, highest = served_ranges()[API_VERSIONS]
    assert [(k.api_key, k.min_version, k.max_version) for k in response.api_keys] == [
        (API_VERSIONS, lowest, highest)
    ]


@pytest.mark.parametrize(("key", "version"), [(METADATA, 99), (METADATA, -1), (77, 0)])
def test_what_is_not_served_closes_the_connection(core: Core, key: int, version: int) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.open(2, "PLAINTEXT", "h")
    data = bytearray(park(7))
    data[:4] = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    core.sessions.receive_frame(1, bytes(data))
    (close,) = core.outbox.drain()
    assert isinstance(close, Close) and f"(key {key}) version {version}" in close.reason
    core.sessions.receive_frame(2, ask(1))
    assert core.answers() == [(2, 1)]


def test_malformed_bytes_close_their_connection_only(core: Core) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.open(2, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(7)[:-2])
    core.sessions.receive_frame(2, ask(1))
    assert core.answers() == [(1, -1), (2, 1)]


def test_a_handler_may_answer_before_it_returns(core: Core) -> None:
    def handler(context: RequestContext, request: Any) -> None:
        context.reply(MetadataResponse())

    BY_KEY[METADATA]._handler = handler
    session = core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(1))
    assert core.answers() == [(1, 1)]
    assert not session.busy


def test_a_handler_may_close_the_connection(core: Core) -> None:
    def handler(context: RequestContext, request: Any) -> None:
        context.close("acks=0 failed")

    BY_KEY[METADATA]._handler = handler
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(1))
    assert core.answers() == [(1, -1)]
    core.sessions.connection_closed(1)  # the driver's word comes later
    assert core.answers() == []


def test_a_second_reply_is_a_bug(core: Core) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(1))
    (context,) = core.parked
    context.reply(MetadataResponse())
    with pytest.raises(AssertionError, match="answered once"):
        context.reply(MetadataResponse())
    with pytest.raises(AssertionError, match="answered once"):
        context.end_without_response()
    assert core.answers() == [(1, 1)]


def test_a_request_without_a_response_lets_the_next_one_run_now_or_later(core: Core) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(1))
    core.sessions.receive_frame(1, ask(2))
    core.parked[0].end_without_response()
    assert (
        core.answers() == []
    )  # the next frame runs at the end of the step, not inside another handler
    core.sessions.run_waiting()
    assert core.answers() == [(1, 2)]


def test_closing_a_connection_disconnects_only_a_parked_request(core: Core) -> None:
    dropped: list[int] = []
    for connection in (1, 2):
        core.sessions.open(connection, "PLAINTEXT", "h")
        core.sessions.receive_frame(connection, park(connection))
        core.parked[-1].on_disconnect = lambda number=connection: dropped.append(number)
    core.parked[0].reply(MetadataResponse())
    for connection in (1, 2):
        core.sessions.connection_closed(connection)
    core.parked[1].reply(MetadataResponse())  # too late
    assert dropped == [2]
    assert core.answers() == [(1, 1)]


@pytest.mark.parametrize("before_reply", [True, False])
def test_exceptions_of_handlers_reach_the_driver(core: Core, before_reply: bool) -> None:
    """The driver keeps it and closes the connection (`step_failed`); errors of Kafka belong in
    responses."""

    def handler(context: RequestContext, request: Any) -> None:
        if not before_reply:
            context.reply(MetadataResponse())
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    BY_KEY[METADATA]._handler = handler
    core.sessions.open(1, "PLAINTEXT", "h")
    with pytest.raises(KafkaError):
        core.sessions.receive_frame(1, park(1))
    assert core.answers() == ([] if before_reply else [(1, 1)])


# ---- the table


def test_the_table_is_sorted_and_its_handlers_exist() -> None:
    keys = [entry.key for entry in TABLE]
    assert keys == sorted(set(keys))
    for entry in TABLE:
        assert callable(entry.handler), entry
        first, last = api.request_class(entry.key).versions
        assert first <= entry.min_version <= entry.max_version <= last, entry
        assert api.ApiKey(entry.key).api_name == entry.name


@pytest.mark.parametrize("entry", [*BY_KEY.values(), *controller_plane.TABLE], ids=lambda e: e.name)
def test_a_handler_takes_context_and_request_and_returns_nothing(entry: Api) -> None:
    """It answers by `ctx.reply`; mypy does not see handlers, which are found by name."""
    signature = inspect.signature(entry.handler)
    required = [each for each in signature.parameters.values() if each.default is each.empty]
    assert len(required) == 2
    assert signature.return_annotation == "None"


@pytest.mark.parametrize("release", [None, *known_releases()])
def test_no_release_advertises_more_than_it_served(release: str | None) -> None:
    ranges = served_ranges(None if release is None else release_ranges(release))
    assert API_VERSIONS in ranges
    for key, (lowest, highest) in ranges.items():
        assert BY_KEY[key].min_version <= lowest <= highest <= BY_KEY[key].max_version
        if release is not None:
            assert highest <= release_ranges(release)[key][1]


def test_an_unknown_release_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'1\.1'; the nearest is 2\.0; known are 2\.0, .*4\.4"):
        release_ranges("1.1")
    assert release_ranges("3.9") == release_ranges("3.9.1")


def test_a_release_may_be_given_without_its_patch_and_an_unknown_one_names_its_neighbours() -> None:
    assert release_ranges("3.9") == release_ranges("3.9.1") != release_ranges("4.0")
    for release, near in (
        ("3.5", "; the nearest are 3.4 and 3.7;"),
        ("0.1", "; the nearest is "),
        ("9.9", "; the nearest is 4.4;"),
        ("trunk", "unknown Kafka release 'trunk'; known are "),
    ):
        with pytest.raises(ValueError, match="unknown Kafka release") as caught:
            release_ranges(release)
        assert near in str(caught.value)


def test_a_wait_is_cancelled_once(core: Core) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(1))
    (context,) = core.parked
    cancelled: list[int] = []
    context.on_disconnect = lambda: cancelled.append(1)
    context.disconnected()
    context.disconnected()
    assert cancelled == [1]


def test_a_response_in_parts_is_given_up_with_its_connection(core: Core) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.receive_frame(1, park(1))
    (context,) = core.parked
    topics = [MetadataResponseTopic(name=f"t{number}") for number in range(20_000)]
    context.reply_in_parts(MetadataResponse(topics=topics))
    (job,) = core.sessions.services.work.jobs
    assert job.steps is not None and core.answers() == []
    core.sessions.connection_closed(1)
    assert job.steps is None


def test_malformed_bytes_in_a_large_frame_close_their_connection_only(core: Core) -> None:
    core.sessions.open(1, "PLAINTEXT", "h")
    core.sessions.open(2, "PLAINTEXT", "h")
    topics = [MetadataRequestTopic(name="x")] * 30_000
    data = frame(METADATA, 1, MetadataRequest(topics=topics), 7)
    assert len(data) > LARGE_FRAME_BYTES
    core.sessions.receive_frame(1, data[:-2])
    work = core.sessions.services.work
    assert work.jobs  # what is malformed is found in a later part
    while work.jobs:
        work.turn()
    (close,) = core.outbox.drain()
    assert isinstance(close, Close) and close.reason.startswith("malformed request")
    core.sessions.receive_frame(2, ask(1))
    assert core.answers() == [(2, 1)]
