"""Shrinks a failing seed: the smallest plan that still breaks the same rule, as a test to keep.

`kwire sim --shrink SEED`. A plan is data: what it has too much of is taken away, piece by piece
(fault kinds, single faults, weather, clients, topics, nodes, steps), and stays away as long as the
run fails by the same rule. Every attempt is a whole run, so a result is a fact and no guess; that a
smaller plan draws other times and places is no harm, as only those that fail are kept.
"""

from __future__ import annotations

from typing import Any

from kwire.sim.command import failure_of
from kwire.sim.invariants import InvariantViolation
from kwire.sim.plan import Plan, TopicPlan
from kwire.sim.simulation import Simulation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Change = tuple[str, Any]  # an attribute of the plan, maybe of its weather, and its value

_CALM: tuple[Change, ...] = (
    ("weather.slow_chance", 0.0),
    ("weather.reset_chance", 0.0),
    ("weather.jitter_us", 0),
    ("skew_ms", 0),
    ("log_dirs", 1),
    ("controllers", 1),
    ("racks", 0),
)


class Scenario:
    """A plan drawn from a seed, then changed. `failure`: how its run ended, after `run`."""

    def __init__(self, seed: int, steps: int, changes: dict[str, Any]) -> None:
        self.seed = seed
        self.steps = steps
        self.changes = changes
        self.failure: str | None = None
        self.rule: str | None = None
        self.steps_done = 0
        self.faults: list[str] = []
        self.story: list[str] = []

    def plan(self, config: dict[str, str] | None = None) -> Plan:
        """The plan of the seed with the changes of this scenario."""
        plan = Plan(self.seed, config=config)
        for name, value in self.changes.items():
            owner, _, last = name.rpartition(".")
            setattr(plan.weather if owner else plan, last, value)
        return plan

    def run(self, config: dict[str, str] | None = None) -> None:
        """Run it; fills `failure`, `rule` (an invariant's number or an exception's name), `story`."""
        simulation = Simulation(self.seed, steps=self.steps, plan=self.plan(config))
        raised: list[BaseException] = []
        self.failure = failure_of(simulation, raised)
        if raised:
            error = raised[0]
            known = isinstance(error, InvariantViolation)
            self.rule = error.rule if known else type(error).__name__  # type: ignore[attr-defined]
        self.steps_done = simulation.steps
        self.faults = simulation.nemesis.drawn
        self.story = simulation.story

    @property
    def acted(self) -> dict[int, str]:
        """The faults that were injected: the kind of each, by its number."""
        skipped = self.plan().skipped_faults
        return {n: kind for n, kind in enumerate(self.faults) if n not in skipped}

    def with_change(self, name: str, value: Any) -> Scenario:
        return Scenario(self.seed, self.steps, {**self.changes, name: value})

    def with_steps(self, steps: int) -> Scenario:
        return Scenario(self.seed, steps, self.changes)

    def source(self, config: dict[str, str] | None = None) -> str:
        """A test function that runs this scenario and fails as long as the bug is there."""
        given = f", config={config!r}" if config else ""
        lines = [
            "from kwire.sim.plan import ClientPlan, Plan, TopicPlan",
            "from kwire.sim.simulation import Simulation",
            "",
            "",
            f"def test_seed_{self.seed}() -> None:",
            f'    """{self.rule}: say what happened here."""',
            f"    plan = Plan({self.seed}{given})",
            *(
                f"    plan.{name} = {_source(value)}"
                for name, value in sorted(self.changes.items())
            ),
            f"    Simulation({self.seed}, steps={self.steps}, plan=plan).run()",
        ]
        return "\n".join(lines)


def _source(value: Any) -> str:
    """A value as source; many numbers of skipped faults as ranges."""
    if not isinstance(value, set) or len(value) < 8:
        return repr(value)
    runs: list[list[int]] = []
    for number in sorted(value):
        if runs and number == runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([number, number + 1])
    parts = (
        f"*range({a}, {b})" if b - a > 2 else ", ".join(map(str, range(a, b))) for a, b in runs
    )
    return "{" + ", ".join(parts) + "}"


def shrink(
    seed: int,
    *,
    steps: int,
    config: dict[str, str] | None = None,
    runs: int = 400,
    write: Callable[[str], None],
) -> Scenario | None:
    """Return the smallest scenario found within `runs` runs; None if the seed does not fail."""
    best = Scenario(seed, steps, {})
    best.run(config)
    if best.rule is None:
        return None
    rule, left = best.rule, runs

    def fails(candidate: Scenario) -> bool:
        nonlocal best, left
        left -= 1
        candidate.run(config)
        if candidate.rule != rule:
            return False
        best = candidate
        return True

    write(f"seed {seed} breaks {rule} with {len(best.acted)} faults in {best.steps_done} steps")
    smaller = True
    while smaller and left > 0:
        before = best
        for attempts in (_steps, _kinds, _single_faults, _settings):
            _reduce(attempts, lambda: best, fails, lambda: left > 0)
        smaller = best is not before
        write(f"{runs - left} runs: {len(best.acted)} faults, {best.steps_done} steps")
    return best


def _reduce(
    attempts: Callable[[Scenario], Iterator[Scenario]],
    present: Callable[[], Scenario],
    fails: Callable[[Scenario], bool],
    has_runs: Callable[[], bool],
) -> None:
    """Go through the attempts; after a success begin again with those for the smaller scenario."""
    succeeded = True
    while succeeded:
        succeeded = False
        for candidate in attempts(present()):
            if not has_runs():
                return
            if fails(candidate):
                succeeded = True
                break


def _steps(scenario: Scenario) -> Iterator[Scenario]:
    steps = min(scenario.steps, scenario.steps_done)
    for share in (0.25, 0.5, 0.8):
        if int(steps * share) < scenario.steps and steps > 20:
            yield scenario.with_steps(int(steps * share))


def _kinds(scenario: Scenario) -> Iterator[Scenario]:
    """No fault of some kinds: none at all, one half of the kinds, the other, all but one."""
    acted = scenario.acted
    for keep in _subsets(list(dict.fromkeys(acted.values()))):
        gone = {number for number, kind in acted.items() if kind not in keep}
        yield scenario.with_change("skipped_faults", scenario.plan().skipped_faults | gone)


def _single_faults(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer single faults: the same, by their numbers."""
    acted = scenario.acted
    for keep in _subsets(list(acted)):
        gone = acted.keys() - set(keep)
        yield scenario.with_change("skipped_faults", scenario.plan().skipped_faults | gone)


def _subsets(items: list[Any]) -> Iterator[list[Any]]:
    if not items:
        return
    yield []
    half = len(items) // 2
    if half:
        yield items[:half]
        yield items[half:]
    if len(items) > 2:
        for number in range(len(items)):
            yield items[:number] + items[number + 1 :]


def _settings(scenario: Scenario) -> Iterator[Scenario]:
    """Calmer weather, fewer nodes, topics, partitions and clients."""
    plan = scenario.plan()
    for name, value in _CALM:
        owner, _, last = name.rpartition(".")
        if getattr(plan.weather if owner else plan, last) != value:
            yield scenario.with_change(name, value)
    if len(plan.topics) > 1:
        for number in range(len(plan.topics)):
            rest = plan.topics[:number] + plan.topics[number + 1 :]
            yield scenario.with_change("topics", rest)
    for number, topic in enumerate(plan.topics):
        if topic.partitions > 1:
            one = TopicPlan(topic.name, 1, topic.replication_factor, topic.configs)
            topics = [*plan.topics[:number], one, *plan.topics[number + 1 :]]
            yield scenario.with_change("topics", topics)
    for number in range(len(plan.clients)):
        fewer = plan.clients[:number] + plan.clients[number + 1 :]
        yield scenario.with_change("clients", fewer)
    if plan.brokers > max(topic.replication_factor for topic in plan.topics):
        yield scenario.with_change("brokers", plan.brokers - 1)
