"""Leader election: the rules of the five kinds of election, as pure functions.

Answers to kafka.controller.PartitionLeaderElectionAlgorithms and Election. Each takes the replicas
in assignment order, the committed ISR and the live brokers, and returns the leader, the new ISR and
whether the leader has to recover (KIP-704), or None when no replica can lead: then nothing changes.
`alive` never holds a broker that is shutting down.

Invariants: the assignment order decides, never the order of the ISR; the leader is in the new ISR;
only `unclean` elects a leader outside the committed ISR.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

Elected = tuple[int, list[int], bool]
"""Leader, ISR, recovering."""

OFFLINE, ONLINE_AGAIN, UNCLEAN, PREFERRED, APPOINTED, REASSIGNMENT, CONTROLLED_SHUTDOWN = (
    "offline",
    "online again",
    "unclean",
    "preferred",
    "appointed",
    "reassignment",
    "controlled shutdown",
)
"""The reasons for which a leader is elected. OFFLINE: the leader has failed. ONLINE_AGAIN: nobody led, and a
member of the ISR is back. APPOINTED: a test has named the leader (`PartitionControl.appoint`)."""


def offline(
    replicas: Sequence[int], isr: Sequence[int], alive: Container[int], recovering: bool = False
) -> Elected | None:
    """Elect the first live member of the ISR after the leader has failed; dead members leave the
    ISR."""
    for broker in replicas:
        if broker in alive and broker in isr:
            return broker, [member for member in isr if member in alive], recovering
    return None


def unclean(replicas: Sequence[int], alive: Container[int]) -> Elected | None:
    """Elect the first live replica when no member of the ISR is alive: acknowledged records may be
    lost."""
    for broker in replicas:
        if broker in alive:
            return broker, [broker], True
    return None


def preferred(
    replicas: Sequence[int], isr: Sequence[int], alive: Container[int], recovering: bool = False
) -> Elected | None:
    """Elect the preferred (first) replica, if it is live and in the ISR."""
    first = replicas[0]
    if first in alive and first in isr:
        return first, list(isr), recovering
    return None


def reassignment(
    target: Sequence[int], isr: Sequence[int], alive: Container[int], recovering: bool = False
) -> Elected | None:
    """Elect the first replica of a reassignment's target that is live and in the ISR."""
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
    """Elect the first live member of the ISR that is not shutting down; those that are leave the
    ISR."""
    for broker in replicas:
        if broker in alive and broker in isr and broker not in shutting_down:
            return broker, [member for member in isr if member not in shutting_down], recovering
    return None
