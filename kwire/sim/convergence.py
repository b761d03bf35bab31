"""Convergence at the end of a run: I7, I30, and no acknowledged batch is missing (I24)."""

from __future__ import annotations

from typing import Any

from kwire.replication.config.broker_config import topic_log_config
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.sim.clients.base import Client
from kwire.sim.compaction import is_compacted, verify_compacted
from kwire.sim.ghost import read_entries
from kwire.sim.retention import late_retention
from kwire.sim.transactions.coordinators import check_replay, unfinished
from kwire.sim.transactions.fates import verify_transactions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.controller.state import ControllerState, PartitionState
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition
    from kwire.sim.disks import Disks
    from kwire.sim.ghost import GhostPartition
    from kwire.sim.simulation import Simulation


def unconverged(simulation: Simulation) -> str | None:
    """The first reason why the cluster has not converged yet, or None."""
    controller = simulation.controller
    if controller is None:
        return "there is no controller"
    for node in simulation.clients:
        client = node.core
        assert isinstance(client, Client)
        if client.stopping and not client.idle:
            return f"{client.name} waits for {list(client.sent.values())[:3]}"
    state, invariants = controller.controller.state, simulation.invariants
    for broker_id in simulation.broker_ids:
        if not simulation.nodes[broker_id].up or broker_id not in controller.controller.brokers:
            return f"broker {broker_id} is not there"
        broker = simulation.broker(broker_id)
        manager = broker.services.replica_manager
        if (busy := _unfinished(simulation, manager)) is not None:
            return f"broker {broker_id} {busy}"
        if (still_open := unfinished(invariants, broker, simulation.answers.offsets)) is not None:
            return f"broker {broker_id} {still_open}"
        wanted = {
            (topic.name, index)
            for topic in state.topics.values()
            for index, partition in enumerate(topic.partitions)
            if broker_id in partition.replicas
        }
        if manager.by_key.keys() != wanted:
            return f"broker {broker_id} has {sorted(manager.by_key)}, not {sorted(wanted)}"
        cache = broker.services.metadata
        if {name: topic.topic_id for name, topic in cache.topics.items()} != {
            name: topic.topic_id for name, topic in state.topics.items()
        }:
            return f"broker {broker_id} knows the topics {list(cache.topics)}, not {list(state.topics)}"
    for topic in state.topics.values():
        for index, partition in enumerate(topic.partitions):
            reason = _unconverged_partition(simulation, topic.name, index, partition)
            if reason is not None:
                return f"{topic.name}-{index}: {reason}"
    return _other_configuration(simulation, state)


def _other_configuration(simulation: Simulation, state: ControllerState) -> str | None:
    """A log that does not obey the configuration that the controller has of its topic."""
    for broker_id in simulation.broker_ids:
        broker = simulation.broker(broker_id)
        for (name, index), partition in broker.services.replica_manager.by_key.items():
            if partition.log.config != topic_log_config(state.topic_config(name), broker.config):
                return f"{name}-{index} at {broker_id} obeys {broker.services.metadata.topic_config(name)}"
    return None


def _unfinished(simulation: Simulation, manager: ReplicaManager) -> str | None:
    """What a broker has not finished or not got over, or None."""
    if len(manager.produce_purgatory) or len(manager.delete_records_purgatory):
        return "has requests that wait"
    if manager.fetchers is not None:
        if manager.fetchers.failed:
            return f"has failed partitions {manager.fetchers.failed}"
        for key in manager.by_key:
            state: Any = manager.fetchers.state(key)
            if state is not None and (state.retries or state.delay_until_ms is not None):
                return f"has followed {key} with {state.retries} retries"
    # A move ends for good where it meets a damaged batch.
    if manager.log_manager.has_future_logs and not simulation.invariants.counts["bits rotten"]:
        return "still moves logs between its directories"
    return None


def unconverged_with_broken_disks(simulation: Simulation) -> str | None:
    """As `unconverged`, with broken disks: no leader on one, all other partitions unaffected."""
    controller = simulation.controller
    if controller is None:
        return None  # the only controller has resigned
    state = controller.controller.state
    for broker_id in simulation.broker_ids:
        if not simulation.nodes[broker_id].up or broker_id not in controller.controller.brokers:
            return f"broker {broker_id} is not there"
        manager = simulation.broker(broker_id).services.replica_manager
        store = simulation.stores[broker_id]
        whole = len(manager.log_manager.online()) < len(manager.log_manager.directories)
        if not whole and len(manager.offline) > len(store.failed) + store.faults_taken:
            return f"broker {broker_id} has {sorted(manager.offline)} offline, broken is {store.failed}"
        for topic in state.topics.values():
            for index, partition in enumerate(topic.partitions):
                key = topic.name, index
                broken = key in manager.offline or _has_met_fault(
                    store, manager.hosted(key), f"{topic.name}-{index}"
                )
                # A partition's fault that so far only cleaning, retention or a flush has hit, no reader or writer.
                only_tasks = is_compacted(topic.name) or _has_failed_task(simulation, *key)
                noticed = key in manager.offline or not only_tasks
                if broken and noticed and partition.leader == broker_id:
                    return f"broker {broker_id} leads {topic.name}-{index}, its disk is broken"
                if not broken and broker_id in partition.replicas and key not in manager.by_key:
                    return f"broker {broker_id} does not have {topic.name}-{index}"
    return None


def _has_failed_task(simulation: Simulation, topic: str, index: int) -> bool:
    names = (
        f"partition {topic}-{index}:",
        f"'{topic}-{index}'",
    )  # of a task; of a flush that was started
    return any(name in text for text in simulation.failed_tasks for name in names)


def _has_met_fault(disks: Disks, hosted: Partition | None, directory: str) -> bool:
    """Whether a replica's directory is broken, and an operation has met that: the directory of the log as it
    is now, not the one on another disk from which it has moved away."""
    store = None if hosted is None else hosted.log.store
    return directory in (store.failed if isinstance(store, MemoryLogStore) else disks.failed)


def _unconverged_partition(
    simulation: Simulation, topic: str, index: int, truth: PartitionState
) -> str | None:
    if truth.leader < 0:
        return "it has no leader"
    if truth.adding or truth.removing:
        return f"replicas {truth.adding} are being added, {truth.removing} removed"
    if set(truth.isr) != set(truth.replicas):
        return f"ISR {truth.isr} of {truth.replicas}"
    leader = simulation.broker(truth.leader).services.replica_manager.by_key[topic, index]
    if not leader.is_leader or leader.leader_epoch != truth.leader_epoch:
        return f"{truth.leader} does not lead in epoch {truth.leader_epoch}: {leader}"
    if leader.isr_state.in_flight:
        return f"{leader.isr_state} is in flight"
    if (late := late_retention(leader)) is not None:
        return late
    end = leader.log.log_end_offset
    for broker_id in truth.replicas:
        partition = simulation.broker(broker_id).services.replica_manager.by_key[topic, index]
        log = partition.log
        if broker_id != truth.leader and (
            partition.is_leader or partition.leader_epoch != truth.leader_epoch
        ):
            return f"{broker_id} does not follow in epoch {truth.leader_epoch}: {partition}"
        if not log.log_end_offset == log.high_watermark == end:
            return (
                f"{broker_id} has high watermark {log.high_watermark}, end {log.log_end_offset}; "
                f"leader {truth.leader} ends at {end}"
            )
        if log.last_stable_offset != end:
            ghost = simulation.invariants.ghost_of(partition)
            if not simulation.invariants.transactions.excepts(ghost):
                return f"{broker_id} has an open transaction at {log.last_stable_offset}"
        if log.log_start_offset < leader.log.log_start_offset:
            return (
                f"{broker_id} starts at {log.log_start_offset}, not {leader.log.log_start_offset}"
            )
    return None


def verify_end(simulation: Simulation) -> None:
    """Check all logs as read from their disks, and all acknowledged batches."""
    controller = simulation.controller
    assert controller is not None
    for topic in controller.controller.state.topics.values():
        for index, truth in enumerate(topic.partitions):
            ghost = simulation.invariants.ghost(topic.name, topic.topic_id, index)
            if ghost.compacted is not None:
                verify_compacted(simulation, topic.name, index, ghost, truth)
                check_replay(simulation.invariants, truth.leader, ghost)
                continue
            _verify_logs(simulation, topic.name, index, ghost, truth)
            _verify_acked(simulation, ghost, truth)
    verify_transactions(simulation)
    _verify_restarts(simulation)


def _verify_restarts(simulation: Simulation) -> None:
    """I25, I49: every broker starts again, after a kill or a clean stop, and has what it had."""
    for broker_id in simulation.broker_ids:
        node = simulation.nodes[broker_id]
        rules, broker = simulation.invariants.state, simulation.broker(broker_id)
        rules.check_files(broker_id, broker.services.log_manager.logs())
        if (broker_id + simulation.seed) % 2:
            broker.close()
        node.stop()
        node.start()


def _verify_logs(
    simulation: Simulation, topic: str, index: int, ghost: GhostPartition, truth: PartitionState
) -> None:
    violated = simulation.invariants.violated
    contents = {}
    for broker_id in truth.replicas:
        partition = simulation.broker(broker_id).services.replica_manager.by_key[topic, index]
        log = partition.log
        entries = read_entries(log, log.log_start_offset, log.log_end_offset)
        mirror = ghost.logs[broker_id].entries
        if len(entries) != len(mirror) or not all(
            a.same(b) for a, b in zip(entries, mirror, strict=True)
        ):
            violated("I3", f"{ghost.name} on {broker_id} is not what was seen to be written")
        contents[broker_id] = log, entries
    leader_log, leader_entries = contents[truth.leader]
    for broker_id, (log, entries) in contents.items():
        start = max(log.log_start_offset, leader_log.log_start_offset, ghost.deleted_until)
        ours = [e for e in entries if e.next > start]
        theirs = [e for e in leader_entries if e.next > start]
        if len(ours) != len(theirs) or not all(
            a.same(b) for a, b in zip(ours, theirs, strict=True)
        ):
            violated("I3", f"{ghost.name}: {broker_id} and its leader {truth.leader} differ")
        own = [(e, max(o, start)) for e, o in log.leader_epochs.entries]
        known = [(e, max(o, start)) for e, o in leader_log.leader_epochs.entries]
        end = log.log_end_offset
        if [e for e in own if start < e[1] < end] != [e for e in known if start < e[1] < end]:
            violated(
                "I7",
                f"{ghost.name}: epochs {own} on {broker_id}, {known} on its leader {truth.leader}",
            )


def _verify_acked(simulation: Simulation, ghost: GhostPartition, truth: PartitionState) -> None:
    """I24: each acknowledged batch is in the log, deleted by request, or excused by a loss."""
    log = ghost.logs[truth.leader]
    for acked in ghost.acked:
        entry = acked.entry
        if entry.next <= log.start or log.holds(entry):
            continue
        if (entry.epoch, entry.base) not in ghost.given_up:
            losers = {loss.node_id for loss in ghost.losses if loss.start < entry.next}
            simulation.invariants.violated(
                "I24",
                f"{ghost.name}: {entry}, acknowledged under min ISR {acked.min_isr}, is gone; "
                f"tails were lost on {sorted(losers)}",
            )
