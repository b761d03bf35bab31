"""Old orders of a controller, sent to a broker again: they must change nothing (I15)."""

from __future__ import annotations

from typing import Any

from kwire.protocol import api
from kwire.protocol.api import ApiKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.sim.faults.nemesis import Nemesis


def replay(nemesis: Nemesis) -> None:
    """Send a broker an old control request again, over another connection."""
    simulation, node = nemesis.simulation, nemesis.pick()
    if node is None or node.paused_until_us > simulation.schedule.now_us:
        return
    frames = simulation.control_frames.get(node.node_id)
    if not frames:
        return
    frame = nemesis.random.choice(frames)
    broker = simulation.broker(node.node_id)
    if not _is_harmless(broker, frame):
        return
    simulation.invariants.counts["replays"] += 1
    before = _state(broker)
    simulation.report_fault(f"{node} gets an old order again")
    number = -1 - simulation.schedule.events
    node.step(broker.connection_opened, number, "PLAINTEXT", "10.0.0.9")
    node.step(broker.receive_frame, number, frame)
    node.step(broker.connection_closed, number)
    after = _state(broker)
    if after != before:
        simulation.invariants.violated(
            "I15", f"{node} obeyed an old order: {before} became {after}"
        )


def _is_harmless(broker: Broker, frame: bytes) -> bool:
    """Whether a control request is stale or a repetition, and must change nothing."""
    manager = broker.services.replica_manager
    header = api.parse_request_header(frame)
    request: Any
    request, _ = api.request_class(header.api_key).decode_from(
        frame, header.body_position, header.api_version
    )
    if (
        request.controller_epoch < manager.controller_epoch
        or request.broker_epoch < manager.broker_epoch
    ):
        return True
    if header.api_key != ApiKey.LEADER_AND_ISR or request.type == 2:
        return False
    return all(
        (partition := manager.by_key.get((topic.topic_name, state.partition_index))) is not None
        and partition.leader_epoch >= state.leader_epoch
        for topic in request.topic_states
        for state in topic.partition_states
    )


def _state(broker: Broker) -> tuple[Any, ...]:
    manager = broker.services.replica_manager
    return (
        manager.controller_epoch,
        manager.broker_epoch,
        manager.metadata.brokers_version,
        [
            (
                key,
                p.is_leader,
                p.leader_id,
                p.leader_epoch,
                p.partition_epoch,
                p.isr_state,
                p.log.log_start_offset,
                p.log.high_watermark,
                p.log.log_end_offset,
                list(p.log.leader_epochs.entries),
            )
            for key, p in manager.by_key.items()
        ],
    )
