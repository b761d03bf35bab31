"""The two faces of the client against brokers of kwire, and the image's tools against those of
older releases."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from server_harness import kwire_up

import kwire
import kwire.aio
from kwire.client import blocking, streams
from kwire.client.admin import EARLIEST, LATEST, NoBrokerError
from kwire.client.connection import NoResponseError, parse_address
from kwire.docker import tools
from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.topics import DeleteRecordsRequest

if TYPE_CHECKING:
    from kwire.client.connection import Address


@contextmanager
def listener(answer: bytes = b"") -> Iterator[Address]:
    """Takes connections one after the other, sends `answer` on each once something came, and closes
    it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    if not connection.recv(1 << 16):
                        return
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        address = server.getsockname()[:2]
        try:
            yield address
        finally:
            with socket.create_connection(address):
                pass
            thread.join(10)


def both(address: Address, operation: str, *arguments: Any) -> Any:
    """An operation's result, or its error, which is the same over either face."""

    async def over_streams() -> Any:
        client = streams.Client(lambda: [address])
        return await client.run(getattr(client, operation)(*arguments))

    client = blocking.Client(lambda: [address], 10.0, "test")
    outcomes: list[Any] = []
    for run in (
        lambda: asyncio.run(over_streams()),
        lambda: client.run(getattr(client, operation)(*arguments)),
    ):
        try:
            outcomes.append(run())
        except NoBrokerError as error:
            outcomes.append((str(error), error.api))
    client.close()
    assert outcomes[0] == outcomes[1]
    return outcomes[0]


def test_an_operation_is_the_same_over_both_faces() -> None:
    with kwire.Cluster(topics=["t:2"]) as cluster:
        address = parse_address(cluster.bootstrap_servers)
        assert both(address, "leaders", "t", 5.0) == {0: address, 1: address}
        assert both(address, "offset", address, "t", 0, LATEST) == 0
        assert both(address, "coordinator", "g", 5.0) == address


def test_an_answer_that_is_no_kafkas_is_the_same_over_both_faces() -> None:
    with listener(b"HTTP/1.1 400 Bad Request\r\n\r\n") as (host, port):
        text = f"no broker answers: {host}:{port}: this is an HTTP server, no Kafka broker"
        assert both((host, port), "metadata") == (text, "Metadata")


def test_a_closed_connection_is_the_same_over_both_faces() -> None:
    with listener() as (host, port):
        text = f"{host}:{port}: the broker closed the connection"
        found = both((host, port), "offset", (host, port), "t", 0, EARLIEST)
        assert found == (text, "ListOffsets")


def test_a_broker_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()[:2]
        with pytest.raises(NoResponseError, match=r"^no answer$"):
            asyncio.run(streams.ask(address, ApiVersionsRequest(), version=0, seconds=0.05))
        client = blocking.Client(lambda: [address], 0.05, "test")
        with pytest.raises(NoBrokerError, match="timed out"):
            client.run(client.metadata())


def test_the_blocking_face_connects_again_after_an_error() -> None:
    with kwire.Cluster() as cluster:
        address = parse_address(cluster.bootstrap_servers)
        client = blocking.Client(lambda: [address], 10.0, "test")
        assert len(client.run(client.metadata()).brokers) == 1
        cluster.broker(1).stop()
        for _ in range(2):
            with pytest.raises(NoBrokerError):
                client.run(client.metadata())
        cluster.broker(1).start()
        assert len(client.run(client.metadata()).brokers) == 1
        client.close()


def test_a_version_that_is_given_is_not_negotiated() -> None:
    with kwire.Cluster() as cluster:
        address = parse_address(cluster.bootstrap_servers)
        response = asyncio.run(streams.ask(address, DeleteRecordsRequest(), version=1))
        assert response.topics == []


@pytest.mark.parametrize("release", ["2.0", "2.4", "2.8", "4.4"])
def test_tools_and_cluster_at_brokers_of_other_releases(
    release: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def tool(name: str, *arguments: str) -> str:
        status = tools.main([name, "--bootstrap-server", servers, *arguments])
        out, err = capsys.readouterr()
        assert status == 0, err
        return out

    with kwire_up("--as-version", release, "--topic", "t:2") as (_, line):
        servers = line.split("bootstrap=")[1].split()[0]
        assert tool("kafka-topics", "--create", "--topic", "x") == "Created topic x.\n"
        assert tool("kafka-topics", "--list") == "t\nx\n"
        assert "PartitionCount: 2" in tool("kafka-topics", "--describe", "--topic", "t")
        assert tool("kafka-get-offsets") == "t:0:0\nt:1:0\nx:0:0\n"
        tool("kafka-configs", "--describe", "--topic", "t")
        tool("kafka-topics", "--delete", "--topic", "x")
        read = ["--topic", "t", "--group", "g", "--from-beginning", "--timeout-ms", "0"]
        tool("kafka-console-consumer", *read)
        assert tool("kafka-consumer-groups", "--list") == "g\n"
        assert "g     t     1         0" in tool(
            "kafka-consumer-groups", "--describe", "--group", "g"
        )
        assert "Produce(0): 0 to " in tool("kafka-broker-api-versions")

        cluster = kwire.Cluster.connect(servers)
        try:
            cluster.create_topic("y", 1)
            assert cluster.topics(internal=True) == {
                "__consumer_offsets": cluster.topics(internal=True)["__consumer_offsets"],
                "t": 2,
                "y": 1,
            }
            assert cluster.partition("y", 0).leader == 1
            assert cluster.produce("y", "v", "k", timestamp=5).offset == 0
            assert [(r.key, r.value, r.timestamp) for r in cluster.records("y")] == [
                (b"k", b"v", 5)
            ]
            assert cluster.groups() == ["g"]
            assert [each.topic for each in cluster.group("g").offsets] == ["t", "t"]
            cluster.delete_topic("y")
            if release == "2.0":
                with pytest.raises(kwire.errors.RequestError, match="no version of ElectLeaders"):
                    cluster.elect("t", 0)
            else:
                cluster.elect("t", 0)
        finally:
            cluster.stop()


def test_a_cluster_of_processes_starts_as_an_older_release() -> None:
    arguments = ["--brokers", "2", "--isolation", "process", "--as-version", "2.4"]
    with kwire_up(*arguments, "--topic", "t:1:2") as (process, line):
        assert line.count("127.0.0.1:") >= 2
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.parametrize("negotiates", [True, False])
def test_a_cluster_of_this_kwire_is_not_asked_for_its_versions(negotiates: bool) -> None:
    async def api_versions_asked() -> list[ApiKey]:
        asked: list[ApiKey] = []
        async with kwire.aio.Cluster() as cluster:
            address = parse_address(cluster.bootstrap_servers)
            client = streams.Client(lambda: [address], negotiates=negotiates)
            core = cluster.inside.node(1).runner.core
            whole = core.receive_frame

            def receive_frame(connection: int, frame: Any) -> Any:
                asked.append(ApiKey(int.from_bytes(frame[:2], "big")))
                return whole(connection, frame)

            core.receive_frame = receive_frame
            for _ in range(2):
                await client.run(client.metadata())
        return asked

    metadata = [ApiKey.METADATA] * 2
    expected = [ApiKey.API_VERSIONS, *metadata] if negotiates else metadata
    assert asyncio.run(api_versions_asked()) == expected
