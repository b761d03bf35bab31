"""Requests that wait for their transactional id (kwire/transactions/waiting.py): only while it changes (I23).

A forgotten wake-up would show nowhere else: the request is looked at again when a client would have slept enough.
"""

from __future__ import annotations

from kwire.transactions.metadata import PREPARED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.sim.invariants import Invariants
    from kwire.transactions.coordinator import TransactionCoordinator


def check_waiting_transactions(
    checker: Invariants, node_id: int, coordinator: TransactionCoordinator
) -> None:
    """After a step of a broker: whoever waits for an id waits for a change that is written, or for markers."""
    for context in coordinator.runtime.contexts.values():
        shard = context.shard
        for transactional_id in shard.waiting.requests:
            checker.counts["waits for a transactional id"] += 1
            metadata = shard.transactions.get(transactional_id)
            if metadata is None or not (metadata.is_pending or metadata.state in PREPARED):
                checker.violated(
                    "I23", f"a request still waits at {node_id} for {transactional_id}: {metadata}"
                )
