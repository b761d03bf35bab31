"""The cluster under simulated faults: invariants after every step, convergence at the end, the same run for a seed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from kwire.sim.faults.kinds import KINDS
from kwire.sim.plan import FAULTS, LATER_FAULTS, Plan
from kwire.sim.simulation import Simulation

STEPS = 2500
BATCH = 20


def run_seeds(first: int, count: int, steps: int = STEPS) -> None:
    for seed in range(first, first + count):
        try:
            Simulation(seed, steps=steps).run()
        except Exception as error:
            raise AssertionError(
                f"seed {seed}: {error}\nreplay: kwire sim --seeds {seed} --steps {steps} --trace"
            ) from error


@pytest.mark.parametrize("first", range(1, 301, BATCH))
def test_invariants_hold_after_every_step_and_the_cluster_converges(first: int) -> None:
    run_seeds(first, BATCH)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1001, 21001, 500))
def test_invariants_hold_for_twenty_thousand_seeds(first: int) -> None:
    """Two processes at a time: half an hour on two cores that do nothing else."""
    halves = [f"{first}-{first + 249}", f"{first + 250}-{first + 499}"]
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "kwire", "sim", "--seeds", seeds, "--steps", str(STEPS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for seeds in halves
    ]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], "".join(outputs)


def test_a_seed_runs_the_same_whatever_the_hash_seed() -> None:
    program = (
        "from kwire.sim.simulation import Simulation\n"
        "for seed in (3, 13, 24, 31):\n"
        "    s = Simulation(seed, steps=1500)\n"
        "    s.run()\n"
        "    print(seed, s.steps, s.schedule.events, s.schedule.now_us, hex(s.digest))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for hash_seed in ("1", "2", "77")
    }
    assert len(outputs) == 1, outputs
    assert outputs.pop().count("\n") == 4


def test_runs_do_work_worth_checking() -> None:
    acked = delivered = committed = 0
    for seed in range(1, 13):
        simulation = Simulation(seed, steps=STEPS)
        simulation.run()
        acked += simulation.answers.acked
        delivered += simulation.answers.delivered
        committed += any(g.committed.end > 20 for g in simulation.invariants.partitions.values())
    assert acked > 200
    assert delivered > 500
    assert committed > 4


def test_seeds_reach_what_they_are_for() -> None:
    counts: Counter[str] = Counter()
    for seed in range(1, 61):
        simulation = Simulation(seed, steps=STEPS)
        simulation.run()
        counts += simulation.invariants.counts
    wanted = ["elections", "ISR shrinks", "ISR expands", "truncations", "tails lost", "unclean"]
    wanted += ["reassignments", "replays", "offline", "controllers", "deposed controllers"]
    wanted += ["halts", "compacted commits", "records compacted away"]
    assert {name for name in wanted if counts[name] >= 2} == set(wanted), counts


def test_every_kind_of_fault_has_a_function() -> None:
    assert (*FAULTS, *LATER_FAULTS) == tuple(KINDS)


def test_a_later_kind_of_fault_leaves_the_others_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = [vars(Plan(seed)) for seed in range(20)]
    monkeypatch.setattr("kwire.sim.plan.LATER_FAULTS", (*LATER_FAULTS, "bit_rot"))
    after = [vars(Plan(seed)) for seed in range(20)]
    assert {plan["weights"].pop("bit_rot") > 0 for plan in after} == {True, False}
    for one, other in zip(before, after, strict=True):
        for name in ("weights", "config", "brokers", "producers", "fault_pause_ms"):
            assert one[name] == other[name]
