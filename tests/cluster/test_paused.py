"""Connections to a broker that is paused: the kernel or kwire accepts them, and nobody answers until
the broker resumes. Brokers as threads do what processes do after SIGSTOP."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from kwire import Cluster
from kwire.cluster import Broker
from kwire.protocol import api
from kwire.protocol.language.schema import Message
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.metadata import MetadataRequest
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = pytest.mark.timeout(60)

API_VERSIONS = ApiVersionsRequest(client_software_name="t", client_software_version="1")
SILENT_SECONDS = 0.3
"""A broker that runs answers within a few milliseconds."""


@pytest.fixture(params=["thread", "process"])
def one(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(1, isolation=request.param, topics=["t"]) as cluster:
        yield cluster


@contextmanager
def connected(broker: Broker) -> Iterator[socket.socket]:
    host, _, port = broker.address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as client:
        yield client


def send(client: socket.socket, correlation: int, version: int, request: Message) -> None:
    parts = api.encode_request(api.key_of(request), version, correlation, "test", request)
    client.sendall(b"".join(bytes(part) for part in parts))


def is_silent(client: socket.socket) -> bool:
    """Whether the connection is open and nothing comes for `SILENT_SECONDS`."""
    client.settimeout(SILENT_SECONDS)
    try:
        client.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        client.settimeout(10)
    return False


def next_correlation(client: socket.socket) -> int:
    """Read a response; return its correlation id."""
    size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
    frame = client.recv(size, socket.MSG_WAITALL)
    assert size >= 4 and len(frame) == size
    return int.from_bytes(frame[:4], "big")


def produce(value: bytes, acks: int) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=build_batch([Record(-1, 1, None, value)]))
    topic = TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def values(cluster: Cluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("t")]


def test_a_new_connection_to_a_paused_broker_is_silent_until_it_resumes(one: Cluster) -> None:
    broker = one.broker(1)
    with connected(broker) as old:
        send(old, 1, 3, API_VERSIONS)
        assert next_correlation(old) == 1
        broker.pause()
        with connected(broker) as new, connected(broker) as idle:
            send(old, 2, 3, API_VERSIONS)
            send(new, 3, 3, API_VERSIONS)
            send(new, 4, 9, MetadataRequest(topics=[]))
            send(new, 5, 9, produce(b"tea", acks=1))
            assert is_silent(new) and is_silent(old)
            broker.resume()
            assert [next_correlation(new) for _ in range(3)] == [3, 4, 5]
            assert next_correlation(old) == 2
            assert values(one) == [b"tea"]
            for client in (new, idle):  # from now on a connection like any other
                send(client, 6, 3, API_VERSIONS)
                assert next_correlation(client) == 6
            broker.pause()
            send(new, 7, 3, API_VERSIONS)
            assert is_silent(new)
            broker.resume()
            assert next_correlation(new) == 7


def test_what_a_client_sent_to_a_paused_broker_before_it_went_is_served(one: Cluster) -> None:
    broker = one.broker(1)
    broker.pause()
    with connected(broker) as client:
        send(client, 1, 9, produce(b"tea", acks=0))
        send(client, 2, 9, produce(b"cake", acks=1))
        client.shutdown(socket.SHUT_WR)
        assert is_silent(client)
        broker.resume()
        assert next_correlation(client) == 2
        assert client.recv(1) == b""
    assert values(one) == [b"tea", b"cake"]


def test_a_large_request_waits_at_a_paused_broker(one: Cluster) -> None:
    """It is larger than what a connection reads ahead, and smaller than the buffers of the kernel."""
    broker = one.broker(1)
    broker.pause()
    with connected(broker) as client:
        send(client, 1, 9, produce(b"x" * 150_000, acks=1))
        send(client, 2, 9, produce(b"y" * 150_000, acks=1))
        assert is_silent(client)
        broker.resume()
        assert [next_correlation(client) for _ in range(2)] == [1, 2]
    assert values(one) == [b"x" * 150_000, b"y" * 150_000]


@pytest.mark.parametrize("verb", ["kill", "stop"])
def test_the_end_of_a_paused_broker_closes_its_new_connections(one: Cluster, verb: str) -> None:
    broker = one.broker(1)
    broker.pause()
    with connected(broker) as client:
        assert is_silent(client)
        if verb == "kill":
            send(client, 1, 9, produce(b"tea", acks=1))
        getattr(broker, verb)()
        with suppress(ConnectionResetError):  # as a killed process's kernel does
            assert client.recv(1) == b""
    broker.start()
    assert values(one) == []
