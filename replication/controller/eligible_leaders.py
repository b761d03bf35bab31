"""Eligible leader replicas (KIP-966): who may lead without loss when nobody of the ISR is left.

Answers to PartitionChangeBuilder.populateTargetElr, canElectFromElr, canElectLastKnownLeader and
maybeUpdateLastKnownLeader of KRaft (3.9 to 4.0). On with `eligible.leader.replicas.enable`, which is off by default.

As long as fewer than min.insync.replicas are in sync, the high watermark stands still: who leaves the ISR then has all
that is committed, and is remembered. The ISR may become empty; then one of those remembered is elected, as cleanly as
from the ISR. Whoever stopped uncleanly may have lost something, and is forgotten. When nobody is left but the last
leader comes back, it leads again, but has to recover, as after an unclean election.

Deliberate differences: a change of these lists alone raises no partition epoch, since leaders are not told of it; a
last known leader is elected only when it lives (as in 4.x, not in 3.9).
Invariants: eligible replicas are part of the assignment and none of them is in the ISR; there are none when enough
replicas are in sync; the last known leader is remembered only while nobody leads.
"""

from __future__ import annotations

from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from kwire.replication.controller.election import Elected
    from kwire.replication.controller.state import PartitionState

ELIGIBLE, LAST_KNOWN = "eligible leader replica", "last known leader"


def followed(
    before: PartitionState,
    after: PartitionState,
    min_isr: int,
    unclean: Container[int] = (),
) -> PartitionState:
    """`after` with the lists that follow from the change. `unclean`: brokers that have lost what they may have had."""
    eligible: list[int] = []
    if len(after.isr) < min(min_isr, len(after.target)):
        eligible = [
            broker
            for broker in dict.fromkeys([*before.isr, *before.elr])
            if broker in after.replicas and broker not in after.isr and broker not in unclean
        ]
    last_known = before.last_known_elr
    if after.leader != NO_LEADER:
        last_known = []
    elif not after.isr and before.leader != NO_LEADER:
        last_known = [before.leader]
    if eligible == after.elr and last_known == after.last_known_elr:
        return after
    return after.with_eligible(eligible, last_known)


def elected(state: PartitionState, alive: Container[int]) -> tuple[Elected, str] | None:
    """The election among those remembered, when nobody of the ISR is alive; and what kind it is."""
    for broker in state.replicas:
        if broker in state.elr and broker in alive:
            return (broker, [broker], state.recovering), ELIGIBLE
    if not state.elr and not state.isr and len(state.last_known_elr) == 1:
        (broker,) = state.last_known_elr
        if broker in alive and broker in state.replicas:
            return (broker, [broker], True), LAST_KNOWN
    return None
