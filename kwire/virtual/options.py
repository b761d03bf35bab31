"""What the command line says of virtual time: set by the pytest plugin, read by each run."""

from __future__ import annotations

from dataclasses import dataclass

REPLAY = "--kwire-seed"
WITHOUT = "--kwire-without"


@dataclass(slots=True)
class Options:
    """Of one process."""

    seed: int | None = None
    """The only seed to run."""
    seeds: int | None = None
    """How many seeds each test runs, in place of its own number."""
    without: tuple[str, ...] = ()
    """Weather and hosts to leave out."""
    check_determinism: bool = False
    shrink: bool = False
    is_real: bool = False
    """Run the tests once, in real time on real sockets."""
    isolation: str = "thread"
    bootstrap: str | None = None
    """In real time: a cluster that runs elsewhere."""

    def seeds_of(self, count: int) -> list[int]:
        """The seeds that a test with so many of its own runs."""
        if self.seed is not None:
            return [self.seed]
        return list(range(count if self.seeds is None else self.seeds))


given = Options()
