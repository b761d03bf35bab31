"""What runs have reached: kinds of faults, events, transitions of partitions, answers, and what was counted.

A change that makes a state unreachable makes all checks of it pass for ever. So `kwire sim` prints how
many different ones its seeds have reached, and a test names those that some seeds must reach.
"""

from __future__ import annotations

from collections import Counter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from kwire.sim.seen import Seen
    from kwire.sim.simulation import Simulation

KINDS = ("fault", "event", "partition", "answer", "count")
"""The first word of each state."""


def role_of(seen: Seen | None) -> str:
    """A replica's state, as far as transitions are told apart."""
    if seen is None:
        return "nothing"
    if seen.is_leader:
        return f"leader with {type(seen.isr_state).__name__}"
    return "follower" if seen.leader_epoch >= 0 else "without a role"


def reached_by(simulation: Simulation) -> set[str]:
    """The states that a run has reached."""
    plan = simulation.plan
    faults = (k for n, k in enumerate(simulation.nemesis.drawn) if n not in plan.skipped_faults)
    return {
        *(f"fault {kind}" for kind in faults),
        *(f"event {name}" for name in simulation.events),
        *simulation.invariants.transitions,
        *simulation.answers.reached,
        *(f"count {name}" for name, count in simulation.invariants.counts.items() if count),
    }


class Reached:
    """The states that a number of runs have reached, with the number of runs for each."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()

    def add(self, states: Iterable[str]) -> None:
        """Count the states of one run."""
        self.runs.update(set(states))

    def summary(self) -> str:
        """How many different states of each kind, in one line."""
        counts = Counter(state.partition(" ")[0] for state in self.runs)
        names = (
            "kinds of faults",
            "events",
            "transitions of partitions",
            "answers",
            "things counted",
        )
        parts = (f"{counts[kind]} {name}" for kind, name in zip(KINDS, names, strict=True))
        once = sum(1 for runs in self.runs.values() if runs == 1)
        return f"reached: {', '.join(parts)}; {once} of them in one seed only"

    def lines(self) -> list[str]:
        """Each state with the number of runs, rare ones last."""
        return [f"{runs:6} {state}" for state, runs in sorted(self.runs.items(), key=_order)]


def _order(item: tuple[str, int]) -> tuple[int, int, str]:
    state, runs = item
    return KINDS.index(state.partition(" ")[0]), -runs, state
