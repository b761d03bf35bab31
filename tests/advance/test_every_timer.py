"""Each timer that obeys the clock fires when the clock alone is moved; and the table of all that there are.

What waits in real time (`Timers.schedule_real`) is not moved by an advance: test_advance.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from advance_rig import HOUR_MS, Rig

from kwire.advance.advance import Advance
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.protocol.schemas.groups import JoinGroupRequest, JoinGroupRequestProtocol
from kwire.protocol.schemas.topics import DeleteTopicsRequest
from kwire.replication.log.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = "at once: after this step, whatever the time is"
OF_OTHERS = "starts the timers of others in this table"
MINUTE_MS = 60_000
PHASES = "kwire/coordinator/classic_phases.py:"
CHANGES = "kwire/transactions/changes.py:"
LOG_MANAGER = "replication/log_dirs/manager.py:"
REPLICAS = "replication/replica/manager.py:"
PURGATORY = "replication/replica/purgatory.py:"
LIVE = "tests/cluster/test_clock.py::"
TIMERS = {
    f"{PHASES}_complete_initial_join": "test_a_group_waits_for_its_first_members",
    f"{PHASES}_schedule_join": "test_a_rebalance_does_not_wait_for_ever",
    f"{PHASES}_schedule_sync": "test_a_member_that_does_not_sync_is_dropped",
    f"{PHASES}schedule_heartbeat": "test_a_session_ends",
    "kwire/coordinator/group_shard.py:_schedule_cleanup": "test_a_groups_offsets_expire",
    "kwire/transactions/shard.py:_schedule_expire": "test_a_transactional_id_expires",
    f"{CHANGES}_schedule_abort": "test_a_transaction_times_out",
    f"{CHANGES}appended": "tests/transactions/test_shard.py"
    "::test_the_end_of_a_transaction_is_written_again_until_it_is_there",
    f"{CHANGES}_send_markers": AT_ONCE,
    "kwire/transactions/waiting.py:put": "tests/transactions/test_waiting.py"
    "::test_the_wait_has_an_end",
    "kwire/shards/context.py:schedule": OF_OTHERS,
    "kwire/broker.py:_directory_failed": AT_ONCE,
    "replication/log/local_log.py:_remove": "test_deleted_segments_leave_the_disk",
    "replication/fetcher/fetcher.py:take": AT_ONCE,
    f"{LOG_MANAGER}fail": AT_ONCE,
    f"{LOG_MANAGER}_checkpoint_soon": AT_ONCE,
    f"{LOG_MANAGER}schedule": "test_the_tasks_of_logs",
    "replication/log_dirs/cleaner.py:_schedule": "test_a_log_is_compacted",
    "replication/log_dirs/directory.py:delete_later": "test_a_deleted_topic_leaves_the_disk",
    f"{REPLICAS}start": f"{LIVE}test_a_follower_that_cannot_fetch_leaves_the_isr",
    f"{REPLICAS}_take_offline": AT_ONCE,
    f"{PURGATORY}watch": "test_a_fetch_that_waits_is_answered",
    f"{PURGATORY}expire_within": "tests/replication/replica/test_purgatory.py"
    "::test_an_operation_may_be_told_to_wait_less_but_never_longer",
    "replication/controller/partitions.py:_schedule_balancing": f"{LIVE}test_leaderships_go_back",
    "replication/controller/brokers/leases.py:start": f"{LIVE}test_a_broker_that_shows_no_life_is_fenced",
    "replication/controller/security/tokens.py:_schedule": "tests/replication/controller/"
    "test_delegation_tokens.py::test_expired_tokens_are_deleted_from_time_to_time",
}
"""By file and function: the test that fires the timer by the clock alone."""


def sites() -> Iterator[tuple[str, str]]:
    """File and function of each call that starts a timer of the clock."""
    for folder in ("kwire", "replication"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            skipped = ("kwire/sim/", "kwire/protocol/", "kwire/replication/", "kwire/load/")
            if not name.startswith((*skipped, "replication/core/clock.py")):
                yield from _sites(ast.parse(path.read_text()), name, "")


def _sites(node: ast.AST, file: str, function: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, ast.FunctionDef) else function
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute):
            owner = ast.unparse(child.func.value).rpartition(".")[2].strip("_")
            is_timer = owner in ("timer", "timers") and len(child.args) == 3
            if is_timer and child.func.attr in ("schedule", "schedule_lively"):
                yield file, inner
        yield from _sites(child, file, inner)


def test_the_table_has_every_timer() -> None:
    """A timer that is missing here has no test that fires it by the clock alone."""
    assert {f"{file}:{function}" for file, function in sites()} == TIMERS.keys()


@pytest.mark.parametrize(
    "test", sorted({name for name in TIMERS.values() if name not in (AT_ONCE, OF_OTHERS)})
)
def test_the_tests_of_the_table_are_there(test: str) -> None:
    path, _, name = test.rpartition("::")
    source = (ROOT / path if path else Path(__file__)).read_text()
    assert f"\ndef {name}(" in source


# --- groups and transactions


def after(rig: Rig, name: str) -> int:
    """How many milliseconds after the rig was ready an event came."""
    (found,) = [at_ms for event, at_ms in rig.events if event == name]
    return found - rig.ready_ms


def busy(**settings: str) -> Any:
    rig: Any = Rig(**settings).busy()
    rig.ready_ms = rig.clock.wall_ms
    return rig


def join(rig: Rig) -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id="late",
        session_timeout_ms=10 * MINUTE_MS,
        rebalance_timeout_ms=5 * MINUTE_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    rig.send(3, request)


def answers(rig: Rig) -> int:
    return len(rig.replies)


def failures(rig: Rig) -> int:
    return [name for name, _ in rig.events].count("GROUP_MEMBER_FAILED")


def test_a_group_waits_for_its_first_members() -> None:
    rig = busy(group_initial_rebalance_delay_ms="3000")
    join(rig)
    rig.advance(2999)
    assert answers(rig) == 0
    rig.advance(1)
    assert answers(rig) == 1


def test_a_member_that_does_not_sync_is_dropped() -> None:
    rig = busy()
    join(rig)
    rig.advance(5 * MINUTE_MS - 1)  # it has joined at once, and says nothing more
    assert answers(rig) == 1
    assert "late" in str(rig.state()["groups"])
    rig.advance(1)
    assert failures(rig) == 2  # the other one's session has ended, too


def test_a_rebalance_does_not_wait_for_ever() -> None:
    """The first member does not come again, so the second one waits for the rebalance time-out."""
    rig = busy()
    join(rig)
    (first,) = rig.drain()
    join(rig)
    rig.advance(5 * MINUTE_MS - 1)
    assert answers(rig) == 0 and first is not None
    rig.advance(1)
    assert answers(rig) == 1


def test_a_session_ends() -> None:
    rig = busy()
    rig.advance(45_000 - 1)
    assert "GROUP_MEMBER_FAILED" not in dict(rig.events)
    rig.advance(1)
    assert after(rig, "GROUP_MEMBER_FAILED") == 45_000


def test_a_groups_offsets_expire() -> None:
    rig = busy()
    rig.advance(10 * HOUR_MS)  # offsets.retention.minutes, but only since the group is empty
    assert any("x" in groups for groups in rig.state()["groups"])
    rig.advance(HOUR_MS)
    assert not any("x" in groups for groups in rig.state()["groups"])


def test_a_transaction_times_out() -> None:
    rig = busy()
    rig.advance(MINUTE_MS - 1)
    assert "TRANSACTION_TIMED_OUT" not in dict(rig.events)
    rig.advance(10_001)  # looked at every 10 s
    assert MINUTE_MS <= after(rig, "TRANSACTION_TIMED_OUT") <= MINUTE_MS + 10_000


def test_a_transactional_id_expires() -> None:
    rig = busy()
    rig.advance(14 * HOUR_MS)
    assert any(rig.state()["transactions"])
    rig.advance(2 * HOUR_MS)  # looked at every hour
    assert not any(rig.state()["transactions"])


# --- logs


def test_deleted_segments_leave_the_disk() -> None:
    """file.delete.delay.ms is a minute, log.retention.check.interval.ms five."""
    rig = busy()

    def files() -> list[str]:
        return [name for name in rig.store.list_dir("old-0") if name.endswith(".log.deleted")]

    while "SEGMENTS_DELETED" not in dict(rig.events):
        rig.advance(MINUTE_MS // 2)
    assert files()
    rig.advance(MINUTE_MS)
    assert not files()


def test_a_deleted_topic_leaves_the_disk() -> None:
    rig = busy()
    request = DeleteTopicsRequest(topic_names=["old"], timeout_ms=1000)
    assert rig.ask(5, request).responses[0].error_code == 0

    def directories() -> list[str]:
        return [name for name in rig.store.list_dir() if name.startswith("old-0")]

    (name,) = directories()
    assert name.endswith("-delete")
    rig.advance(MINUTE_MS - 1)
    assert directories()
    rig.advance(1)
    rig.advance(1)
    assert not directories()


def test_the_tasks_of_logs() -> None:
    """Checkpoints, the flush of log.flush.interval.ms, retention, and producers that are forgotten."""
    rig = busy(log_flush_interval_ms="120000", log_flush_scheduler_interval_ms="60000")
    path = "old-0/00000000000000000000.log"
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_START_OFFSETS):
        assert not rig.store.exists(name) or "old 0 2" not in text(rig, name)
    assert rig.store.flushed_size(path) < len(rig.store.content(path))
    rig.advance(5000 + 1)  # replica.high.watermark.checkpoint.interval.ms
    assert "old 0 1" in text(rig, HIGH_WATERMARKS) or "old 0 2" in text(rig, HIGH_WATERMARKS)
    rig.advance(3 * MINUTE_MS)
    assert rig.store.flushed_size(path) == len(rig.store.content(path))
    assert "old 0" in text(rig, RECOVERY_POINTS) and rig.store.exists(LOG_START_OFFSETS)
    rig.advance(17 * HOUR_MS + 6 * MINUTE_MS)
    assert "SEGMENTS_DELETED" in dict(rig.events)
    rig.advance(4 * HOUR_MS)
    assert not any(ids for topic, ids in rig.state()["producers"] if topic == "old")


def text(rig: Rig, name: str) -> str:
    return rig.store.content(name).decode()


def test_a_log_is_compacted() -> None:
    """The cleaner looks every 15 s (log.cleaner.backoff.ms): after the group's topic has closed a segment."""
    rig = busy(offsets_topic_segment_bytes="1048576", log_roll_ms=str(HOUR_MS))
    logs = rig.broker.services.log_manager.logs()
    dirty = [log for log in logs if log.topic == "__transaction_state" and log.log_end_offset]
    assert dirty
    rig.advance(26 * HOUR_MS)
    cleaned = rig.store.list_dir()
    assert "cleaner-offset-checkpoint" in cleaned


# --- what waits


def test_a_fetch_that_waits_is_answered() -> None:
    rig = busy()
    partition = FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="old", partitions=[partition])]
    fetch = FetchRequest(max_wait_ms=30_000, min_bytes=1, max_bytes=1 << 20, topics=topics)
    rig.send(11, fetch)
    rig.advance(29_999)
    assert answers(rig) == 0
    rig.advance(1)
    assert answers(rig) == 1
    data = b"".join(bytes(part) for part in rig.replies[0].parts)
    found = api.parse_response(ApiKey.FETCH, 11, data[4:])[1]
    assert found.responses[0].partitions[0].error_code == 0


def test_an_advance_of_nothing_does_nothing() -> None:
    rig = busy()
    events = len(rig.events)
    Advance(rig.broker).run(0)
    rig.drain()
    assert len(rig.events) == events
