"""Orders that must change nothing (I15): old ones of a controller, and those of strangers."""

from __future__ import annotations

from typing import Any

from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.replication.core.broker_epochs import SECRETS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.sim.faults.nemesis import Nemesis
    from kwire.sim.node import Node


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
    _order(nemesis, node, frame, "an old order")


def stranger(nemesis: Nemesis) -> None:
    """Send a broker an order as a client of the brokers' listener could: it has seen small epochs, and
    guesses a broker epoch, which has nine digits that it cannot know (replication/core/broker_epochs.py)."""
    simulation, node, random = nemesis.simulation, nemesis.pick(), nemesis.random
    if node is None or node.paused_until_us > simulation.schedule.now_us:
        return
    frames = simulation.control_frames.get(node.node_id)
    if not frames:
        return
    frame = random.choice(frames)
    header = api.parse_request_header(frame)
    request: Any
    request, _ = api.request_class(header.api_key).decode_from(
        frame, header.body_position, header.api_version
    )
    request.controller_epoch += 1000
    number = request.broker_epoch // SECRETS + random.choice((0, 1, 1000))
    request.broker_epoch = number * SECRETS + random.randrange(SECRETS)
    if header.api_key == ApiKey.LEADER_AND_ISR:
        for topic in request.topic_states:
            for state in topic.partition_states:
                state.leader_epoch += 1000
                state.partition_epoch += 1000
                state.controller_epoch += 1000
    forged = api.encode_request(
        header.api_key, header.api_version, header.correlation_id, "stranger", request
    )
    simulation.invariants.counts["orders of strangers"] += 1
    _order(nemesis, node, b"".join(forged)[4:], "the order of a stranger")


def _order(nemesis: Nemesis, node: Node, frame: bytes, what: str) -> None:
    """Send an order over a connection of its own: it must change nothing."""
    simulation = nemesis.simulation
    broker = simulation.broker(node.node_id)
    before = _state(broker)
    simulation.report_fault(f"{node} gets {what}")
    number = -1 - simulation.schedule.events
    node.step(broker.connection_opened, number, "PLAINTEXT", "10.0.0.9")
    node.step(broker.receive_frame, number, frame)
    node.step(broker.connection_closed, number)
    after = _state(broker)
    if after != before:
        simulation.invariants.violated("I15", f"{node} obeyed {what}: {before} became {after}")


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
