"""Who may lead a partition: the five elections, as functions of what is known.

Answers to kafka.controller.PartitionLeaderElectionAlgorithms and Election. Each takes the replicas in the order of
their assignment, the committed ISR and who is alive, and returns leader, new ISR and whether the leader has to recover
(KIP-704), or None when nobody can lead: then nothing changes. `alive` never holds a broker that is shutting down.

Invariants: the order of the assignment decides, never that of the ISR; a leader is in the ISR that goes with it; only
`unclean` takes a leader from outside the committed ISR.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

Elected = tuple[int, list[int], bool]
"""Leader, ISR, recovering."""

OFFLINE, UNCLEAN, PREFERRED, REASSIGNMENT, CONTROLLED_SHUTDOWN = (
    "offline",
    "unclean",
    "preferred",
    "reassignment",
    "controlled shutdown",
)


def offline(
    replicas: Sequence[int], isr: Sequence[int], alive: Container[int], recovering: bool = False
) -> Elected | None:
    """The leader is dead: the first living member of the ISR; the dead leave the ISR."""
    for broker in replicas:
        if broker in alive and broker in isr:
            return broker, [member for member in isr if member in alive], recovering
    return None


def unclean(replicas: Sequence[int], alive: Container[int]) -> Elected | None:
    """Nobody of the ISR is alive: the first living replica, which may lack records that were acknowledged."""
    for broker in replicas:
        if broker in alive:
            return broker, [broker], True
    return None


def preferred(
    replicas: Sequence[int], isr: Sequence[int], alive: Container[int], recovering: bool = False
) -> Elected | None:
    """The first replica, if it could take over at once."""
    first = replicas[0]
    if first in alive and first in isr:
        return first, list(isr), recovering
    return None


def reassignment(
    target: Sequence[int], isr: Sequence[int], alive: Container[int], recovering: bool = False
) -> Elected | None:
    """The first of the replicas to be that is alive and in the ISR."""
    for broker in target:
        if broker in alive and broker in isr:
            return broker, list(isr), recovering
    return None


def controlled_shutdown(
    replicas: Sequence[int],
    isr: Sequence[int],
    alive: Container[int],
    shutting_down: Container[int],
    recovering: bool = False,
) -> Elected | None:
    """The leader is about to stop: the first that stays, is alive and in the ISR; who is stopping leaves the ISR."""
    for broker in replicas:
        if broker in alive and broker in isr and broker not in shutting_down:
            return broker, [member for member in isr if member not in shutting_down], recovering
    return None
