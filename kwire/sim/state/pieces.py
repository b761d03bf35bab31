"""Changes of the controller in pieces: cut as small as they can be, and what comes between two of them.

A broker has thousands of partitions before a change about it is cut; in a run it has some. So half of
the seeds have controllers that journal and send one partition at a time, with milliseconds between.
"""

from __future__ import annotations

from random import Random

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.controller_node import ControllerNode
    from kwire.replication.controller.controller import Controller
    from kwire.sim.invariants import Invariants

_WAITING = {"_request": "requests", "_resigning": "failures and answers of brokers"}


def are_small(seed: int) -> bool:
    """Whether the seed's controllers make their changes in the smallest pieces."""
    return Random(f"{seed}/pieces").random() < 0.5


def cut_changes(controller: Controller) -> None:
    """Let a controller journal and send one partition at a time."""
    controller.context.piece = 1


def cut_work(node: ControllerNode) -> None:
    """Let a node do the least that it can before others have their turn."""
    node.work.first_units = node.work.turn_units = 1


def count_waiting(checker: Invariants, controller: Controller) -> None:
    """After a step of the active controller: count the changes that are under way, and what waits."""
    if controller.line.is_changing:
        checker.counts["changes in pieces"] += 1
        for change in controller.line.waiting:
            kind = _WAITING[change.__name__]  # type: ignore[attr-defined]  # of a generator
            checker.counts[f"{kind} between pieces"] += 1


def count_take_over(checker: Invariants, before: Controller | None) -> None:
    """At the first commit of a controller: had the one before finished its change?"""
    if before is not None and before.line.is_changing:
        checker.counts["controllers taken over between pieces"] += 1
