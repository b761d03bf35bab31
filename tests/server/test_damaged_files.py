"""Damaged files at the start: the line that refuses it names the file, and nothing goes without a word."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.launch.initial_topics import check_created, create_request
from kwire.launch.node_runner import NodeRunner
from kwire.launch.spec import NodeSpec
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.replication.controller.journal import JOURNAL_FILE
from kwire.server.errors import NodeError

pytestmark = pytest.mark.asyncio


async def started(data: Path) -> NodeRunner:
    values = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    runner = NodeRunner(NodeSpec(node_id=1, values=values, data_dir=str(data)))
    await runner.start()
    return runner


async def some_data(data: Path, *, kill: bool = False) -> None:
    """Twenty partitions with a record each, after a clean stop."""
    runner = await started(data)
    core: Any = runner.core
    check_created(core.services.controller.handle(create_request([("orders", 20, 1)], {}), 7))
    for index in range(20):
        batch = build_batch([Record(-1, 1, None, b"x")])
        log = core.services.log_manager.get("orders", index)
        log.append_as_leader(bytearray(batch), leader_epoch=0)
    if kill:
        runner.kill()
    else:
        await runner.stop()


def garbage(path: Path) -> None:
    path.write_bytes(b"0\nx\ny z\n")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("name", "damage", "kill"),
    [
        ("orders-7/leader-epoch-checkpoint", garbage, False),
        ("orders-7/leader-epoch-checkpoint", directory, False),
        ("orders-7/00000000000000000000.log", directory, True),
        ("orders-7/00000000000000000000.log", dangling_link, False),
        ("orders-7/partition.metadata", directory, False),
        ("recovery-point-offset-checkpoint", garbage, False),
        ("replication-offset-checkpoint", directory, False),
    ],
)
async def test_a_refusal_names_the_file(
    tmp_path: Path, name: str, damage: Callable[[Path], None], kill: bool
) -> None:
    await some_data(tmp_path, kill=kill)
    damage(tmp_path / name)
    with pytest.raises(NodeError) as raised:
        await started(tmp_path)
    line = str(raised.value)
    assert name in line and "\n" not in line
    assert line.startswith(f"data directory {tmp_path}") and line.count(name) == 1


async def test_an_unknown_version_of_meta_properties_names_the_directory(tmp_path: Path) -> None:
    await some_data(tmp_path)
    meta = tmp_path / "meta.properties"
    meta.write_text(meta.read_text().replace("version=1", "version=7"))
    with pytest.raises(NodeError, match=f"{tmp_path}.*meta.properties has version 7"):
        await started(tmp_path)


async def test_what_is_cut_off_a_damaged_journal_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await some_data(tmp_path)
    journal = tmp_path / JOURNAL_FILE
    before = journal.read_bytes()
    journal.write_bytes(before[:100] + bytes([before[100] ^ 1]) + before[101:])
    with caplog.at_level(logging.WARNING, "kwire.events"):
        runner = await started(tmp_path)
    (record,) = [r for r in caplog.records if getattr(r, "event", "") == "JOURNAL_TRUNCATED"]
    fields = record.__dict__["fields"]
    kept = (tmp_path / fields["file"]).read_bytes()
    assert len(kept) == fields["size_bytes"] > 0
    damaged = before[:100] + bytes([before[100] ^ 1]) + before[101:]
    assert damaged.endswith(kept)
    await runner.stop()


async def test_an_empty_journal_beside_partitions_is_refused(tmp_path: Path) -> None:
    await some_data(tmp_path)
    (tmp_path / JOURNAL_FILE).write_bytes(b"")
    with pytest.raises(
        NodeError, match=r"has partitions, but the controller's journal .* is empty"
    ):
        await started(tmp_path)
    assert (tmp_path / "orders-0").is_dir(), "nothing is set aside"
    for each in tmp_path.glob("orders-*"):
        shutil.rmtree(each)
    await (await started(tmp_path)).stop()
