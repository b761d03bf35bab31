"""`kwire sim`: seeds from text, a line for a failure and how to replay it, a summary."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from kwire.cli.main import cli
from kwire.replication.replica.partition import Partition
from kwire.sim.command import parse_seeds, run_seeds


def test_seeds_are_numbers_ranges_and_lists() -> None:
    assert parse_seeds("7") == [7]
    assert parse_seeds("1-4") == [1, 2, 3, 4]
    assert parse_seeds("3, 5,10-12") == [3, 5, 10, 11, 12]
    for text in ("", "x", "1-", "-3", "1-x", "5-1"):
        with pytest.raises(ValueError, match="expected seeds"):
            parse_seeds(text)


def test_good_seeds_give_a_summary_and_status_0() -> None:
    result = CliRunner().invoke(cli, ["sim", "--seeds", "1-2", "--steps", "200"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("2 seeds, 0 failed: ")
    assert result.output.count("\n") == 1


def test_nonsense_is_refused_with_status_2() -> None:
    result = CliRunner().invoke(cli, ["sim", "--seeds", "many"])
    assert result.exit_code == 2
    assert "expected seeds like 7 or 1-1000" in result.output


def test_a_failing_seed_is_told_with_its_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "read_bound", lambda self, params: self.log.log_end_offset)
    lines: list[str] = []
    failed = run_seeds([8], steps=2000, trace=False, write=lines.append, now_seconds=lambda: 0.0)
    assert failed == 1
    assert "seed 8 failed" in lines[0] and "I17" in lines[0]
    assert "replay: kwire sim --seeds 8 --steps 2000 --trace" in lines[0]


def test_a_trace_shows_messages_changes_and_faults() -> None:
    lines: list[str] = []
    run_seeds([8], steps=500, trace=True, write=lines.append, now_seconds=lambda: 0.0)
    text = "\n".join(lines)
    assert "LEADER_AND_ISR" in text
    assert re.search(r"ISR \[\d, \d\] of \[\d, \d\]", text)
    assert re.search(r"broker-\d \S+-0 leader @0/0", text)
    assert "faults cease" in text
