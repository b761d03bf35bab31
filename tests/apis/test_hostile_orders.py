"""Requests between nodes with changed bytes: an error or a closed connection, no exception."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from test_control_plane import BROKER_EPOCH, Driven, envelope, overrides, recorded
from test_controller_plane import CREATE, Rig
from test_controller_plane import envelope as forwarded

from kwire.protocol import api
from kwire.protocol.schemas.control_plane import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    BrokerState,
    ControlledShutdownRequest,
    PartitionData,
    TopicData,
)
from kwire.protocol.schemas.nodes import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Listener,
    UnregisterBrokerRequest,
)
from kwire.protocol.schemas.topics import DeleteTopicsRequest, DeleteTopicState
from kwire.replication.controller.channels import controller_principal
from kwire.replication.core.metadata import BROKER_RESOURCE, TOPIC_RESOURCE

ROUNDS = 1500


def frame(request: Any, version: int) -> bytes:
    parts = api.encode_request(api.key_of(request), version, 7, "x", request)
    return b"".join(bytes(part) for part in parts)[4:]


def changed(rng: Random, data: bytes) -> bytes:
    """Up to three bytes changed, put in or cut off, the API key left alone."""
    result = bytearray(data)
    for _ in range(rng.randrange(4)):
        kind = rng.random()
        position = rng.randrange(4, len(result))
        if kind < 0.6:
            result[position] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
        elif kind < 0.8 and position > 8:
            del result[position:]
        else:
            result[position:position] = rng.randbytes(rng.randrange(4))
    return bytes(result)


def test_a_controller_survives_hostile_requests() -> None:
    rng = Random(1)
    rig = Rig()
    epoch = rig.register(1).broker_epoch
    rig.acknowledge()
    listener = Listener(name="PLAINTEXT", host="h", port=1)
    members = [BrokerState(broker_id=1)]
    topic = TopicData(topic_id=b"1" * 16, partitions=[PartitionData(new_isr_with_epochs=members)])
    frames = [
        frame(
            BrokerRegistrationRequest(broker_id=1, cluster_id="cluster", listeners=[listener]), 4
        ),
        frame(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch), 1),
        frame(ControlledShutdownRequest(broker_id=1, broker_epoch=epoch), 3),
        frame(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch), 0),
        frame(AlterPartitionRequest(broker_id=1, broker_epoch=epoch, topics=[topic]), 3),
        frame(UnregisterBrokerRequest(broker_id=1), 0),
        frame(forwarded(CREATE, 7), 0),
        frame(forwarded(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6), 0),
    ]
    for number in range(ROUNDS):
        connection = rig.open()
        rig.node.receive_frame(connection, changed(rng, rng.choice(frames)))
        rig.node.connection_closed(connection)
        if number % 10 == 0:
            rig.acknowledge()
            rig.pass_time(rng.randrange(500))
    assert rig.register(1).error_code == 0
    assert rig.node.failed == []


@pytest.mark.parametrize("open_to_all", [False, True])
def test_a_broker_survives_hostile_orders(open_to_all: bool) -> None:
    rng = Random(2)
    driven = Driven(open_to_all=open_to_all)
    orders = ("LeaderAndIsr", "StopReplica", "UpdateMetadata")
    frames = [data for _, name, data in recorded() if name in orders]
    configs = [
        overrides(TOPIC_RESOURCE, "a", retention_ms="5"),
        overrides(BROKER_RESOURCE, "", log_retention_ms="5"),
    ]
    frames.append(frame(envelope(controller_principal(1, 1, BROKER_EPOCH), *configs), 0))
    for number in range(ROUNDS):
        connection = driven.open()
        driven.broker.receive_frame(connection, changed(rng, rng.choice(frames)))
        driven.broker.connection_closed(connection)
        if number % 50 == 0:
            driven.broker.clock.now_ms += 500
            driven.broker.tick()
        driven.outbox.drain()
    assert driven.broker.failed == []
