"""`kwire sim`: seeds from text, a line for a failure and how to replay it, a summary."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from kwire.cli.main import cli
from kwire.replication.replica.partition import Partition
from kwire.sim.command import failure_of, parse_seeds, run_seeds, shrink_and_print
from kwire.sim.invariants import InvariantViolation
from kwire.sim.shrink import shrink
from kwire.sim.simulation import Simulation


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
    assert result.output.count("\n") == 2
    assert "\nreached: " in result.output


def test_states_that_were_reached_are_listed() -> None:
    result = CliRunner().invoke(cli, ["sim", "--seeds", "1-2", "--steps", "200", "--reached"])
    assert result.exit_code == 0, result.output
    assert "     2 event TOPIC_CREATED\n" in result.output


def test_nonsense_is_refused_with_status_2() -> None:
    result = CliRunner().invoke(cli, ["sim", "--seeds", "many"])
    assert result.exit_code == 2
    assert "expected seeds like 7 or 1-1000" in result.output


def seed_that_breaks(rule: str) -> int:
    """The first seed whose failure is of this rule: which one it is changes with every plan that is added."""
    return next(
        seed
        for seed in range(1, 100)
        if (failure_of(Simulation(seed, steps=2500)) or "").startswith(f"{rule}:")
    )


def test_a_failing_seed_is_told_with_its_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "read_bound", lambda self, params: self.log.log_end_offset)
    seed = seed_that_breaks("I17")
    lines: list[str] = []
    failed = run_seeds([seed], steps=2500, trace=False, write=lines.append, now_seconds=lambda: 0.0)
    assert failed == 1
    assert f"seed {seed} failed" in lines[0] and "I17" in lines[0]
    assert f"replay: kwire sim --seeds {seed} --steps 2500 --trace" in lines[0]


def test_a_failing_seed_is_shrunk_to_a_test_that_fails_as_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kwire.replication.log.producer_state import ProducerStateManager

    monkeypatch.setattr(ProducerStateManager, "check", lambda self, *batch: None)
    lines: list[str] = []
    seed = seed_that_breaks("I22")
    assert shrink_and_print(seed, steps=2500, write=lines.append)
    assert lines[0].startswith(f"seed {seed} breaks I22 with ")
    _, _, source = "\n".join(lines).partition("as a test:\n\n")
    space: dict[str, Callable[[], None]] = {}
    exec(source, space)
    with pytest.raises(InvariantViolation, match="I22"):
        space[f"test_seed_{seed}"]()


def test_a_shrunk_seed_keeps_no_fault_without_which_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Partition, "read_bound", lambda self, params: self.log.log_end_offset)
    scenario = shrink(seed_that_breaks("I17"), steps=2500, write=lambda line: None)
    assert scenario is not None
    assert (scenario.rule, scenario.acted) == ("I17", {})
    assert scenario.steps < 300


def test_a_good_seed_is_not_shrunk() -> None:
    result = CliRunner().invoke(cli, ["sim", "--shrink", "2", "--steps", "200"])
    assert result.exit_code == 0, result.output
    assert result.output == "seed 2 does not fail in 200 steps: nothing to shrink\n"


def test_a_trace_shows_messages_changes_and_faults() -> None:
    lines: list[str] = []
    run_seeds([8], steps=500, trace=True, write=lines.append, now_seconds=lambda: 0.0)
    text = "\n".join(lines)
    assert "LEADER_AND_ISR" in text
    assert re.search(r"ISR \[\d, \d\] of \[\d, \d\]", text)
    assert re.search(r"broker-\d \S+-0 leader @0/0", text)
    assert "faults cease" in text
