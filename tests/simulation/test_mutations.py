"""Each safety rule, switched off, is caught: that shows that the checks can fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mutations import (
    MUTATIONS,
    Focus,
    Patch,
    a_lease_that_nobody_fences,
    isr_without_broker_epochs,
    orders_before_registration,
)
from scripted import (
    Scripted,
    a_move_away_from_a_disk_that_fails,
    an_order_for_the_incarnation_before,
    an_order_of_a_deposed_controller,
    restarted_while_its_proposal_travels,
    the_proposal_of_a_leader_whose_time_is_over,
)

from kwire.sim.invariants import InvariantViolation
from kwire.sim.plan import Plan
from kwire.sim.simulation import Simulation

SEEDS = 100


@pytest.mark.parametrize(
    ("mutation", "rules", "focus"), MUTATIONS, ids=[entry[0].__name__ for entry in MUTATIONS]
)
def test_a_rule_switched_off_is_caught(
    mutation: Patch, rules: set[str], focus: Focus, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    for seed in range(1, SEEDS + 1):
        plan = Plan(seed)
        focus(plan)
        try:
            Simulation(seed, steps=2500, plan=plan).run()
        except InvariantViolation as violation:
            assert violation.rule in rules, f"seed {seed}: {violation}"
            return
    pytest.fail(f"{mutation.__name__} was not caught by {SEEDS} seeds")


SCENARIOS: list[tuple[Callable[[], Scripted], Patch, str]] = [
    (restarted_while_its_proposal_travels, isr_without_broker_epochs, "I10"),
    (an_order_for_the_incarnation_before, orders_before_registration, "I20"),
    (the_proposal_of_a_leader_whose_time_is_over, a_lease_that_nobody_fences, "I14"),
]


WITHOUT_MUTATION = [an_order_of_a_deposed_controller, a_move_away_from_a_disk_that_fails]


@pytest.mark.parametrize(
    "scenario", [s for s, _, _ in SCENARIOS] + WITHOUT_MUTATION, ids=lambda s: s.__name__
)
def test_a_scripted_scenario_ends_well(scenario: Callable[[], Scripted]) -> None:
    scenario().run()


@pytest.mark.parametrize(
    ("scenario", "mutation", "rule"), SCENARIOS, ids=[m.__name__ for _, m, _ in SCENARIOS]
)
def test_a_rule_switched_off_is_caught_by_a_scripted_scenario(
    scenario: Callable[[], Scripted], mutation: Patch, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises(InvariantViolation) as caught:
        scenario().run()
    assert caught.value.rule == rule, caught.value
