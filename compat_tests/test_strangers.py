"""Orders of a controller and requests of brokers from a client's connection: not served, nothing planted."""

import socket
from collections.abc import Callable

import pytest

from compat_tests.brokers import Broker
from kwire.client.blocking import Client
from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.language.schema import Message
from kwire.protocol.schemas import control_plane, nodes
from kwire.protocol.schemas.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)

pytestmark = pytest.mark.timeout(120)

LAST = 2**31 - 1  # the highest controller epoch: after it no controller would be obeyed
STRANGE = (
    (control_plane.LeaderAndIsrRequest(controller_epoch=LAST), 7),
    (control_plane.StopReplicaRequest(controller_epoch=LAST), 4),
    (control_plane.UpdateMetadataRequest(controller_epoch=LAST), 8),
    (control_plane.EnvelopeRequest(request_data=b"", client_host_address=b""), 0),
    (control_plane.ControlledShutdownRequest(broker_id=1), 3),
    (control_plane.AlterPartitionRequest(broker_id=1), 3),
    (control_plane.AllocateProducerIdsRequest(broker_id=1), 0),
    (nodes.BrokerRegistrationRequest(broker_id=7, cluster_id="c"), 4),
    (nodes.BrokerHeartbeatRequest(broker_id=1, broker_epoch=1), 1),
)


def answer_to(port: int, request: Message, version: int) -> bytes:
    """What comes back before the broker closes the connection, or its first bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        key = api.key_of(request)
        connection.sendall(b"".join(api.encode_request(key, version, 7, "stranger", request)))
        try:
            return connection.recv(4096)
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize(
    ("request_", "version"), STRANGE, ids=[type(each).__name__ for each, _ in STRANGE]
)
def test_a_request_of_a_node_closes_a_clients_connection(
    broker: Broker, request_: Message, version: int
) -> None:
    assert answer_to(broker.port, request_, version) == b""


def test_the_broker_obeys_its_controller_afterwards(
    broker: Broker, fresh: Callable[[str], str]
) -> None:
    for request, version in STRANGE:
        answer_to(broker.port, request, version)
    client = Client(lambda: [("127.0.0.1", broker.port)], 20.0, "honest")
    topic = fresh("topic")
    try:
        client.run(client.create_topic(topic, 1, 1, {}, None, 20.0))
        found = client.run(client.metadata([topic]))
    finally:
        client.close()
    assert [partition.leader_id for partition in found.topics[0].partitions] == [1]


@pytest.mark.parametrize(
    ("replica", "epoch", "version", "leader_epoch", "error"),
    [
        (7, -1, 12, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (7, -1, 12, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (7, 2**63 - 1, 17, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, 2**63 - 1, 17, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_a_client_that_poses_as_a_broker_without_the_replica_reads_nothing(
    broker: Broker,
    fresh: Callable[[str], str],
    replica: int,
    epoch: int,
    version: int,
    leader_epoch: int,
    error: ErrorCode,
) -> None:
    client = Client(lambda: [("127.0.0.1", broker.port)], 20.0, "honest")
    name = fresh("topic")
    try:
        client.run(client.create_topic(name, 1, 1, {}, None, 20.0))
        (topic,) = client.run(client.metadata([name])).topics
    finally:
        client.close()

    def fetch(replica_id: int, replica_epoch: int) -> PartitionData:
        wanted = FetchPartition(
            partition=0, partition_max_bytes=1 << 20, current_leader_epoch=leader_epoch
        )
        request = FetchRequest(
            max_bytes=1 << 20,
            topics=[FetchTopic(topic=name, topic_id=topic.topic_id, partitions=[wanted])],
        )
        if version >= 15:
            request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch)
        else:
            request.replica_id = replica_id
        frame = answer_to(broker.port, request, version)
        _, response = api.parse_response(ApiKey.FETCH, version, frame[4:])
        (found,) = response.responses[0].partitions
        return found

    assert fetch(replica, epoch).error_code == error
    assert fetch(-1, -1).error_code == 0  # a consumer goes on


def test_api_versions_does_not_list_them(broker: Broker) -> None:
    client = Client(lambda: [("127.0.0.1", broker.port)], 20.0, "honest")
    client.run(client.metadata())
    listed = client.ranges(("127.0.0.1", broker.port)).keys()
    client.close()
    keys = {api.key_of(request) for request, _ in STRANGE}
    assert not keys & listed and ApiKey.METADATA in listed
