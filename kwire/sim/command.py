"""Run seeds for `kwire sim`: a line for each failure with its replay command, and a summary.

Seeds run one after the other. The exit status is 1 if one failed.
"""

from __future__ import annotations

from kwire.sim.invariants import InvariantViolation
from kwire.sim.plan import Plan
from kwire.sim.reached import Reached, reached_by
from kwire.sim.simulation import Simulation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def parse_seeds(text: str) -> list[int]:
    """ "7", "1-1000", "3,5,10-12". ValueError with a plain message for anything else."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and (not last.isdigit() or int(last) < int(first))):
            raise ValueError(f"expected seeds like 7 or 1-1000, not {part.strip()!r}")
        seeds += range(int(first), int(last if dash else first) + 1)
    return seeds


def failure_of(simulation: Simulation, raised: list[BaseException] | None = None) -> str | None:
    """Run a simulation; return its failure in one line, or None. `raised` gets the exception."""
    try:
        simulation.run()
    except Exception as error:  # whatever a core raises is a finding
        if raised is not None:
            raised.append(error)
        if isinstance(error, InvariantViolation):
            return str(error)
        return f"{type(error).__name__}: {error} (in {simulation.where})"
    return None


def shrink_and_print(
    seed: int, *, steps: int, config: dict[str, str] | None = None, write: Callable[[str], None]
) -> bool:
    """Shrink a seed; print its failure, the faults that are left, and a test. False: it is well."""
    from kwire.sim.shrink import shrink

    scenario = shrink(seed, steps=steps, config=config, write=write)
    if scenario is None:
        write(f"seed {seed} does not fail in {steps} steps: nothing to shrink")
        return False
    write(f"\n{scenario.failure}\n\nwhat happens:")
    for line in scenario.story:
        write(line)
    write(f"\nas a test:\n\n{scenario.source(config)}")
    return True


class _Totals:
    """What a number of runs have done together."""

    __slots__ = ("acked", "failed", "reached", "runs", "steps", "virtual_us")

    def __init__(self) -> None:
        self.runs = self.failed = self.steps = self.acked = self.virtual_us = 0
        self.reached = Reached()

    def add(self, simulation: Simulation) -> None:
        self.runs += 1
        self.steps += simulation.steps
        self.virtual_us += simulation.schedule.now_us
        self.acked += simulation.answers.acked
        self.reached.add(reached_by(simulation))

    def summary(self, seconds: float) -> str:
        return (
            f"{self.runs} seeds, {self.failed} failed: {self.steps} steps in {seconds:.1f} s "
            f"({self.steps / seconds:,.0f}/s), {self.virtual_us / 1e6:,.0f} virtual seconds, "
            f"{self.acked} batches acknowledged by all replicas and found again"
        )


def run_seeds(
    seeds: Iterable[int],
    *,
    steps: int,
    trace: bool,
    config: dict[str, str] | None = None,
    list_reached: bool = False,
    write: Callable[[str], None],
    now_seconds: Callable[[], float],
) -> int:
    """Run seeds and return how many failed. `config`: of every node. `now_seconds`: a clock.
    `list_reached`: write each state that was reached, with the number of seeds."""
    options = "".join(f" -c {key}={value}" for key, value in (config or {}).items())
    began = now_seconds()
    totals = _Totals()
    for seed in seeds:
        plan = Plan(seed, config=config)
        simulation = Simulation(seed, steps=steps, trace=write if trace else None, plan=plan)
        failure = failure_of(simulation)
        totals.add(simulation)
        if failure is not None:
            totals.failed += 1
            write(
                f"seed {seed} failed at {simulation.schedule.now_us / 1e6:.3f} s: {failure}\n"
                f"  replay: kwire sim --seeds {seed} --steps {steps}{options} --trace\n"
                f"  shrink: kwire sim --shrink {seed} --steps {steps}{options}"
            )
        elif trace:
            write(
                f"seed {seed}: well after {simulation.steps} steps, trace {simulation.digest:016x}"
            )
    for line in totals.reached.lines() if list_reached else ():
        write(line)
    write(totals.summary(max(now_seconds() - began, 1e-6)))
    write(totals.reached.summary())
    return totals.failed
