"""The steps that all cores share, on sessions without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from kwire.apis import BY_KEY, served_ranges
from kwire.apis.context import RequestContext, Services
from kwire.broker import Broker
from kwire.controller_node import ControllerNode
from kwire.core import Core
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from kwire.replication.core.clock import Clock
from kwire.replication.core.outbox import Close, Outbox, Reply
from kwire.replication.core.work import FIRST_UNITS, Steps
from kwire.session import Sessions
from kwire.sim.clients.base import Client


def frame(key: ApiKey, message: Any) -> bytes:
    return b"".join(api.encode_request(key, 1, 7, "test", message))[4:]


@pytest.fixture
def parked() -> list[RequestContext]:
    return []


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch, parked: list[RequestContext]) -> Core:
    """Metadata requests are parked, ApiVersions are answered."""
    core = Core(Clock(now_ms=1000), Outbox())
    services = Services.__new__(Services)
    services.api_ranges = served_ranges()
    services.cluster_id, services.node_id = "c", 1
    services.work = core.work
    services.authority = None
    core.use_sessions(Sessions(services, core.outbox, services.api_ranges))
    handler = BY_KEY[ApiKey.METADATA]
    monkeypatch.setattr(handler, "_handler", lambda ctx, request: parked.append(ctx))
    return core


def effects(core: Core) -> list[tuple[type, int]]:
    drained = core.outbox.drain()
    return [(type(e), e.connection) for e in drained if isinstance(e, Reply | Close)]


@pytest.mark.parametrize("kind", [Broker, ControllerNode, Client])
def test_nodes_and_simulated_clients_are_cores(kind: type) -> None:
    """They share one `step_failed`, and one `next_deadline_ms` but for effects that a controller holds."""
    assert issubclass(kind, Core)
    for step in ("step_failed", "close_connection"):
        assert getattr(kind, step) is getattr(Core, step)
    assert (kind.next_deadline_ms is Core.next_deadline_ms) == (kind is not ControllerNode)


def test_a_timer_that_replies_runs_the_next_frame_in_the_same_step(
    core: Core, parked: list[RequestContext]
) -> None:
    core.connection_opened(1, "PLAINTEXT", "h")
    core.receive_frame(1, frame(ApiKey.METADATA, MetadataRequest()))
    core.receive_frame(1, frame(ApiKey.API_VERSIONS, ApiVersionsRequest()))
    assert effects(core) == []
    core.timers.schedule("answer", 1500, lambda: parked[0].reply(MetadataResponse()))
    assert core.next_deadline_ms() == 1500
    core.tick()
    assert effects(core) == []
    core.clock.now_ms = 1500
    core.tick()
    assert effects(core) == [(Reply, 1), (Reply, 1)]
    assert core.next_deadline_ms() is None


def test_closing_a_connection_that_unblocks_another_runs_its_frame(
    core: Core, parked: list[RequestContext]
) -> None:
    for connection in (1, 2):
        core.connection_opened(connection, "PLAINTEXT", "h")
        core.receive_frame(connection, frame(ApiKey.METADATA, MetadataRequest()))
    core.receive_frame(2, frame(ApiKey.API_VERSIONS, ApiVersionsRequest()))
    parked[0].on_disconnect = lambda: parked[1].reply(MetadataResponse())
    core.connection_closed(1)
    core.connection_closed(1)  # a second time is no error
    assert effects(core) == [(Reply, 2), (Reply, 2)]


def test_the_exception_of_a_step_is_kept_and_closes_the_connection(core: Core) -> None:
    core.connection_opened(1, "PLAINTEXT", "h")
    errors = [ValueError(str(number)) for number in range(150)]
    for error in errors:
        core.step_failed(None, error)
    assert effects(core) == []
    assert core.failed == errors[:100]
    core.step_failed(1, errors[0])
    core.step_failed(1, errors[0])  # the connection is gone already
    assert effects(core) == [(Close, 1)]


def test_a_node_without_leadership_may_stop_immediately(core: Core) -> None:
    ready: list[bool] = []
    core.prepare_stop(lambda: ready.append(True))
    assert ready == [True]


# --- long work


def in_three_parts(ctx: RequestContext, ended: list[str]) -> Steps:
    try:
        yield FIRST_UNITS
        yield core_units(ctx)
        ctx.reply(MetadataResponse())
    finally:
        ended.append("ended")


def core_units(ctx: RequestContext) -> int:
    return ctx.services.work.turn_units


def test_a_request_in_parts_blocks_its_own_connection_only(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(
        BY_KEY[ApiKey.METADATA],
        "_handler",
        lambda ctx, request: ctx.run_in_parts(in_three_parts(ctx, ended)),
    )
    first, _ = (core.connection_opened(connection, "PLAINTEXT", "h") for connection in (1, 2))
    core.receive_frame(1, frame(ApiKey.METADATA, MetadataRequest()))
    assert first.keeps_frame
    core.receive_frame(1, frame(ApiKey.API_VERSIONS, ApiVersionsRequest()))
    core.receive_frame(2, frame(ApiKey.API_VERSIONS, ApiVersionsRequest()))
    assert effects(core) == [(Reply, 2)]
    assert core.next_deadline_ms() == core.clock.now_ms
    core.tick()
    assert effects(core) == []
    core.tick()
    assert effects(core) == [(Reply, 1), (Reply, 1)]
    assert ended == ["ended"]
    assert core.next_deadline_ms() is None


def test_the_work_of_a_closed_connection_is_cancelled(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(
        BY_KEY[ApiKey.METADATA],
        "_handler",
        lambda ctx, request: ctx.run_in_parts(in_three_parts(ctx, ended)),
    )
    core.connection_opened(1, "PLAINTEXT", "h")
    core.receive_frame(1, frame(ApiKey.METADATA, MetadataRequest()))
    core.connection_closed(1)
    assert ended == ["ended"]
    core.tick()
    assert effects(core) == []
    assert core.next_deadline_ms() is None


def test_a_later_part_that_fails_closes_the_connection(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> Steps:
        yield FIRST_UNITS
        raise ValueError("broken")

    monkeypatch.setattr(
        BY_KEY[ApiKey.METADATA], "_handler", lambda ctx, request: ctx.run_in_parts(failing())
    )
    core.connection_opened(1, "PLAINTEXT", "h")
    core.receive_frame(1, frame(ApiKey.METADATA, MetadataRequest()))
    with pytest.raises(ValueError, match="broken"):
        core.tick()
    assert effects(core) == [(Close, 1)]
    core.tick()


def test_timers_are_not_held_up_by_long_work(core: Core) -> None:
    done: list[str] = []

    def steps() -> Steps:
        while "timer" not in done:
            done.append("work")
            yield 100 * FIRST_UNITS

    core.work.start(steps())
    core.timers.schedule("due", core.clock.now_ms, lambda: done.append("timer"))
    assert core.work.jobs and core.next_deadline_ms() == core.clock.now_ms
    core.tick()
    assert done == ["work", "timer"]
