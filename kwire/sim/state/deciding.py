"""Rules on the controller's decisions and on what it keeps (I51).

The leader that is elected is the first live replica of the assignment that is in sync; brokers that stop leave
the ISRs; a reassignment begins with live brokers, ends with the target in its order and raises the leader epoch.
The journal has as live the brokers that are; what belonged to a deleted topic is gone.
"""

from __future__ import annotations

from kwire.replication.core.metadata import TOPIC_RESOURCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.controller.controller import Controller
    from kwire.replication.controller.state import PartitionState
    from kwire.sim.disks import Disks
    from kwire.sim.invariants import Invariants


def check_election(
    checker: Invariants,
    controller: Controller,
    disks: Disks,
    key: tuple[str, int],
    old: PartitionState,
    new: PartitionState,
) -> None:
    """Check a changed leader, or assignment, in the step of the decision. `disks`: the controller's. I51."""
    _check_target(checker, key, old, new)
    what = f"{key[0]}-{key[1]}: leader {old.leader} -> {new.leader}, ISR {old.isr} -> {new.isr} of {new.replicas}"
    brokers = controller.brokers
    alive = [b for b in old.replicas if b in brokers and key not in brokers[b].offline]
    stopping = {b for b in alive if brokers[b].shutting_down}
    if 0 <= new.leader != old.leader and new.leader in old.isr:
        candidates = [b for b in alive if b in old.isr and b not in stopping]
        is_right = new.leader == next(iter(candidates), None)
        if old.leader in candidates and old.leader in old.adding:
            # The reassignment is called off, or has a new target, whose order counts and is not set yet.
            candidates = [b for b in candidates if b not in old.adding]
            is_right = new.leader in candidates
        if not is_right:
            checker.violated(
                "I51", f"elected not as {candidates[:1]}, the first of {candidates}, {what}"
            )
        # A shutdown that the journal could not take may have left a leader that stops in the ISR, with others.
        _note_not_kept(controller, disks)
        kept = {b for b in stopping if (b, brokers[b].number) not in disks.not_kept}
        if old.leader in kept and kept & set(new.isr):
            checker.violated("I51", f"{kept} are stopping and in sync, {what}")
    added = [b for b in new.adding if b not in old.replicas]
    if dead := [b for b in added if b not in brokers or brokers[b].shutting_down]:
        checker.violated("I51", f"added are {dead}, which are not alive, {what}")


def check_finished(
    checker: Invariants, key: tuple[str, int], old: PartitionState, new: PartitionState
) -> None:
    """Check what a step's commit has made of a partition: the end of a reassignment. I51."""
    is_done = old.reassigning and not new.reassigning and new.replicas == old.target
    if is_done and new.leader >= 0 and new.leader_epoch == old.leader_epoch:
        what = f"{key[0]}-{key[1]} {old.replicas} -> {new.replicas}"
        checker.violated("I51", f"a reassignment ends in leader epoch {new.leader_epoch}, {what}")


def check_kept(checker: Invariants, controller: Controller, disks: Disks) -> None:
    """After a step of the active controller, on its disks. I51."""
    _note_not_kept(controller, disks)
    state = controller.state
    if len(state.names_by_id) > len(state.topics):
        gone = [name for name in state.names_by_id.values() if name not in state.topics]
        checker.violated("I51", f"deleted, and their ids are known: {gone}")
    for kind, name in state.configs:
        if kind == TOPIC_RESOURCE and name not in state.topics:
            checker.violated(
                "I51", f"{name} is deleted, and configured: {state.configs[kind, name]}"
            )
    live = {b for b, value in state.registrations.items() if value.get("live")}
    if controller.line.is_changing:
        return  # a broker is fenced, or stops, in pieces: the journal has it as live until the last one
    if live != set(controller.brokers):
        checker.violated(
            "I51", f"live in the journal are {live}, in fact {sorted(controller.brokers)}"
        )
    stopping = [
        b.id
        for b in controller.brokers.values()
        if b.shutting_down and (b.id, b.number) not in disks.not_kept
    ]
    for topic in state.topics.values() if stopping else ():
        for index, partition in enumerate(topic.partitions):
            for broker_id in stopping:
                others = len(partition.isr) > 1 and partition.leader not in (broker_id, -1)
                if others and broker_id in partition.isr and len(partition.replicas) > 1:
                    checker.violated(
                        "I51", f"{broker_id} is stopping and in the ISR of {topic.name}-{index}"
                    )


def _note_not_kept(controller: Controller, disks: Disks) -> None:
    """A shutdown that the journal could not take is asked for again, perhaps after the disk was mended."""
    if disks.has_failed:
        brokers = controller.brokers.values()
        disks.not_kept.update((b.id, b.number) for b in brokers if b.shutting_down)


def _check_target(
    checker: Invariants, key: tuple[str, int], old: PartitionState, new: PartitionState
) -> None:
    """A reassignment begins with a target that was asked for, in its order, or is cancelled."""
    if new.target == old.target or set(new.target) in (set(old.target), set(old.original)):
        return
    if tuple(new.target) not in checker.state.targets.get(key, ()):
        asked = checker.state.targets.get(key)
        checker.violated("I51", f"{key[0]}-{key[1]} is assigned to {new.target}, asked was {asked}")
