"""A broker whose descriptors run out goes on; it has as many as its process may have."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from server_harness import Client

from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.server import descriptors

CREATE_TOPICS, PRODUCE = 19, 0


def test_the_soft_limit_becomes_the_hard_one() -> None:
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (100, 300))\n"
        "from kwire.server import descriptors as d; d.raise_limit()\n"
        "print(*r.getrlimit(r.RLIMIT_NOFILE), d.limit(), d.default_max_open_files())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["300", "300", "300", "150"]


def test_a_system_that_does_not_grant_the_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS: the hard limit is "unlimited", and more than OPEN_MAX is refused."""
    granted = []

    def refuse(_: int, limits: tuple[int, int]) -> None:
        if limits[0] != 10_240:
            raise ValueError("not allowed to raise maximum limit")
        granted.append(limits)

    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, unlimited))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    descriptors.raise_limit()
    assert granted == [(10_240, unlimited)]


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_out_of_descriptors_a_broker_refuses_connections_and_serves_the_others(
    tmp_path: Path, loop: str
) -> None:
    """Creating a topic imports modules, writing to it opens files."""
    (tmp_path / "modules").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "modules")}
    if loop == "asyncio":
        (tmp_path / "modules" / "uvloop.py").write_text("raise ImportError")
    tmp_path /= "data"
    command = [sys.executable, "-m", "kwire", "up", "--port", "0", "--data-dir", str(tmp_path)]
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # noqa: E731
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
        env=environment,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().split("bootstrap=")[1].split()[0].rpartition(":")[2])
        with Client(port) as client:
            crowd = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(150)]
            crowd[-1].settimeout(10)
            assert crowd[-1].recv(1) == b"", "one too many was not closed"
            request = CreateTopicsRequest(
                topics=[CreatableTopic(name="a", num_partitions=30, replication_factor=1)],
                timeout_ms=1000,
            )
            created = client.ask(CREATE_TOPICS, 5, request)
            assert [topic.error_code for topic in created.topics] == [0]
            for index in range(30):
                assert produce(client, index) == 0
            assert len(os.listdir(f"/proc/{process.pid}/fd")) < 64
            for each in crowd:
                each.close()
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors and "Logging error" not in errors
    refused = [line for line in errors.splitlines() if "no descriptors are left" in line]
    assert 1 <= len(refused) <= 5, errors


def produce(client: Client, index: int) -> int:
    batch = build_batch([Record(-1, 1, None, b"x")])
    data = PartitionProduceData(index=index, records=batch)
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="a", partition_data=[data])]
    )
    response = client.ask(PRODUCE, 8, request)
    return response.responses[0].partition_responses[0].error_code
