"""The simulation with replication's switches: eligible leaders (KIP-966), no leader epoch for a smaller ISR."""

from __future__ import annotations

from collections import Counter

import pytest

from kwire.sim.plan import Plan
from kwire.sim.simulation import Simulation

ELIGIBLE = {"eligible.leader.replicas.enable": "true"}
NO_BUMP = {"kwire.leader.epoch.bump.on.isr.shrink": "false"}
# Seeds in which a proposal and an order of the controller's overtook each other, before orders with the leader epoch
# and the partition epoch that a broker has were left aside.
OVERTAKEN = (155, 183)


def run_seeds(config: dict[str, str], *seeds: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        simulation = Simulation(seed, steps=2500, plan=Plan(seed, config=config))
        try:
            simulation.run()
        except Exception as error:
            options = "".join(f" -c {key}={value}" for key, value in config.items())
            raise AssertionError(
                f"seed {seed}: {error}\nreplay: kwire sim --seeds {seed} --steps 2500{options} --trace"
            ) from error
        counts.update(simulation.invariants.counts)
    return counts


@pytest.mark.parametrize("config", [ELIGIBLE, NO_BUMP, ELIGIBLE | NO_BUMP])
def test_invariants_hold_with_switches(config: dict[str, str]) -> None:
    counts = run_seeds(config, *range(1, 16))
    assert counts["elections"] > 10 and counts["ISR shrinks"] > 10
    if config != NO_BUMP:
        assert counts["eligible"] > 0 and counts["last known leader"] > 0


def test_orders_in_an_epoch_that_a_broker_has_do_not_undo_what_it_has_proposed() -> None:
    run_seeds(NO_BUMP, *OVERTAKEN)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("config", [ELIGIBLE, NO_BUMP, ELIGIBLE | NO_BUMP])
@pytest.mark.parametrize("first", range(1001, 3001, 200))
def test_invariants_hold_with_switches_for_many_seeds(config: dict[str, str], first: int) -> None:
    run_seeds(config, *range(first, first + 200))
