"""The life of one node: its stages, and what can be asked of it in each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kwire.control.errors import ControlError
from kwire.control.routes import ask_nodes
from kwire.launch.initial_topics import check_created, create_request
from kwire.launch.node_runner import NodeRunner, Stage
from kwire.launch.spec import CONTROLLER, NodeSpec
from kwire.server.errors import NodeError, SettingsError
from kwire.server.node import State

pytestmark = pytest.mark.asyncio
LISTENERS = {"listeners": "PLAINTEXT://127.0.0.1:0"}


@pytest.fixture
def spec(tmp_path: Path) -> NodeSpec:
    """A standalone broker's."""
    return NodeSpec(node_id=1, values=LISTENERS, data_dir=str(tmp_path))


@pytest_asyncio.fixture
async def running(spec: NodeSpec) -> AsyncIterator[NodeRunner]:
    runner = NodeRunner(spec)
    await runner.start()
    yield runner
    await runner.stop()


@pytest.mark.parametrize("role", ["standalone", CONTROLLER])
async def test_a_node_goes_through_its_stages(spec: NodeSpec, role: str) -> None:
    runner = NodeRunner(spec.replace(role=role))
    stages = [runner.stage]
    runner.on_loaded = lambda core: stages.append(runner.stage)
    await runner.start()
    stages.append(runner.stage)
    await runner.stop()
    stages.append(runner.stage)
    assert stages == [Stage.BINDING, Stage.JOINING, Stage.RUNNING, Stage.ENDED]


async def test_a_node_that_is_not_loaded_refuses_questions(
    spec: NodeSpec, caplog: pytest.LogCaptureFixture
) -> None:
    runner = NodeRunner(spec)
    assert not runner.is_loaded
    with pytest.raises(NodeError, match="node 1 is binding"):
        _ = runner.core
    assert ask_nodes(runner.control, "GET", "/v1/cluster", {})["brokers"] == []
    with pytest.raises(ControlError, match="no broker runs in this process"):
        ask_nodes(runner.control, "POST", "/v1/failures", {"text": "x"})
    with caplog.at_level(logging.INFO):
        runner.log_status()
    assert [record.getMessage() for record in caplog.records] == ["broker 1: is starting"]


async def test_a_running_node_answers(running: NodeRunner) -> None:
    assert running.is_loaded and running.core.services.node_id == 1
    assert ask_nodes(running.control, "GET", "/v1/failures", {}) == {"failures": []}


async def test_a_port_in_use_ends_the_start_and_touches_no_directory(
    running: NodeRunner, tmp_path: Path
) -> None:
    values = {"listeners": running.listeners}
    other = NodeRunner(NodeSpec(node_id=2, values=values, data_dir=str(tmp_path / "other")))
    with pytest.raises(NodeError, match=running.listeners.rpartition(":")[2]):
        await other.start()
    assert other.stage is Stage.ENDED and not other.is_loaded
    assert not (tmp_path / "other").exists()


async def test_a_directory_in_use_ends_the_start_and_frees_the_port(running: NodeRunner) -> None:
    other = NodeRunner(running.spec)
    with pytest.raises(NodeError, match="data directory"):
        await other.start()
    assert other.stage is Stage.ENDED
    with pytest.raises(OSError):
        await asyncio.open_connection(*other.address)


async def test_what_on_loaded_raises_ends_the_start(spec: NodeSpec) -> None:
    runner = NodeRunner(spec)

    def refuse(_core: object) -> None:
        raise SettingsError("refused")

    runner.on_loaded = refuse
    with pytest.raises(SettingsError, match="refused"):
        await runner.start()
    assert runner.stage is Stage.ENDED
    again = NodeRunner(spec)  # the directory is not held any more
    await again.start()
    again.kill()


async def test_stop_and_kill_after_the_end_do_nothing(spec: NodeSpec) -> None:
    runner = NodeRunner(spec)
    await runner.start()
    await runner.stop()
    await runner.stop()
    runner.kill()
    assert runner.stage is Stage.ENDED


async def test_a_node_killed_while_clients_take_their_last_replies_has_ended(
    spec: NodeSpec,
) -> None:
    runner = NodeRunner(spec)
    await runner.start()
    _, writer = await asyncio.open_connection(*runner.address)
    while not runner.node.connections:
        await asyncio.sleep(0)
    stopping = asyncio.create_task(runner.stop())
    while runner.node.state is not State.STOPPING:
        await asyncio.sleep(0)
    runner.kill()
    assert runner.stage is Stage.ENDED
    await asyncio.wait_for(stopping, 5)
    assert runner.stage is Stage.ENDED
    writer.close()


async def test_a_broker_that_halts_while_its_leaderships_are_moved_away_has_ended(
    spec: NodeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = NodeRunner(spec)
    await runner.start()
    core = runner.core

    ready: list[Callable[[], None]] = []
    monkeypatch.setattr(core, "prepare_stop", ready.append)
    stopping = asyncio.create_task(runner.stop())
    while not ready:
        await asyncio.sleep(0)
    manager = core.services.log_manager  # type: ignore[union-attr]  # a broker
    runner.node.perform(lambda: manager.directories[0].report_failure("the disk is gone"))
    while runner.stage is not Stage.ENDED:
        await asyncio.sleep(0)
    ready[0]()
    await asyncio.wait_for(stopping, 5)
    assert runner.stage is Stage.ENDED


async def test_a_broker_that_halts_has_ended_before_it_is_reported(running: NodeRunner) -> None:
    reported: asyncio.Future[tuple[str, Stage]] = asyncio.get_running_loop().create_future()
    running.on_halted = lambda why: reported.set_result((why, running.stage))
    manager = running.core.services.log_manager  # type: ignore[union-attr]  # a broker
    running.node.perform(lambda: manager.directories[0].report_failure("the disk is gone"))
    why, stage = await asyncio.wait_for(reported, 5)
    assert "the disk is gone" in why and stage is Stage.ENDED


async def test_an_unknown_release_is_refused(spec: NodeSpec) -> None:
    with pytest.raises(SettingsError, match=r"^--as-version: "):
        NodeRunner(spec.replace(as_version="1.x"))


def files(folder: Path) -> dict[str, int]:
    """Each file below a folder, and when it was last changed."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("temporary", [True, False])
@pytest.mark.parametrize("last", [True, False])
async def test_only_a_directory_that_is_deleted_next_is_left_unclosed(
    spec: NodeSpec, tmp_path: Path, temporary: bool, last: bool
) -> None:
    runner = NodeRunner(spec.replace(temporary=temporary))
    runner.on_loaded = create_topics
    await runner.start()
    before = files(tmp_path)
    await runner.stop(last=last)
    if temporary and last:
        assert files(tmp_path) == before
    else:
        assert (tmp_path / ".kafka_cleanshutdown").exists()
    again = NodeRunner(spec)
    await again.start()  # the lock is free
    await again.stop()


def create_topics(core: Any) -> None:
    request = create_request([("orders", 20, 1)], {})
    check_created(core.services.controller.handle(request, 7))
