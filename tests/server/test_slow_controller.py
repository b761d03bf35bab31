"""A controller beside brokers on one loop whose disk is slow, or fails: its decisions wait, nobody else does."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from cluster_harness import RunningCluster, running_cluster, until
from server_harness import Client, request_bytes

from kwire.protocol import api
from kwire.protocol.schemas.api_versions import ApiVersionsRequest
from kwire.protocol.schemas.topics import CreatableTopic, CreateTopicsRequest
from kwire.server.errors import NodeError

API_VERSIONS, CREATE_TOPICS = 18, 19


class Disk:
    """Stands for os.fsync: of journals it waits while `open` is not set, then fails if `error` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        self.error = 0
        self.begun = threading.Event()
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, fd: int) -> None:
        if ".journal" in os.readlink(f"/proc/self/fd/{fd}"):
            self.begun.set()
            assert self.open.wait(20)
            if self.error:
                raise OSError(self.error, os.strerror(self.error))
        self._fsync(fd)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def port_of(cluster: RunningCluster, node_id: int) -> int:
    return int(cluster.supervisor.brokers[node_id].address[1])


def creation(name: str) -> bytes:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=2)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    return request_bytes(CREATE_TOPICS, 5, request)


def test_brokers_beside_a_controller_do_not_wait_for_its_disk(tmp_path: Path, disk: Disk) -> None:
    with (
        running_cluster(tmp_path, brokers=2, temporary=False) as cluster,
        Client(port_of(cluster, 1)) as client,
        Client(port_of(cluster, 2)) as other,
    ):
        disk.begun.clear()
        disk.open.clear()
        client.send(creation("a"))
        assert disk.begun.wait(10)
        for _ in range(3):
            assert other.ask(API_VERSIONS, 2, ApiVersionsRequest()).error_code == 0
        assert cluster.partition("a", by=2) is None  # no broker acts on what may be lost
        disk.open.set()
        _, response = api.parse_response(CREATE_TOPICS, 5, client.frame())
        assert response.topics[0].error_code == 0
        until(lambda: cluster.partition("a", by=2) is not None)


def test_a_controller_whose_disk_fails_resigns_and_nobody_acts_on_its_decision(
    tmp_path: Path, disk: Disk
) -> None:
    with (
        pytest.raises(NodeError, match="could not be closed cleanly"),
        running_cluster(tmp_path, brokers=2, temporary=False) as cluster,
        Client(port_of(cluster, 1)) as client,
    ):
        disk.begun.clear()
        disk.open.clear()
        client.send(creation("a"))
        assert disk.begun.wait(10)
        disk.error = errno.EIO
        disk.open.set()
        controller = cluster.supervisor.controller
        until(lambda: not controller.runner.core.controller.active)  # type: ignore[union-attr]
        assert cluster.partition("a", by=2) is None
        disk.error = 0
