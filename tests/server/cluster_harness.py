"""A cluster under its supervisor, on a loop in a thread of its own, for tests that block."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kwire.backends.loop_thread import acquire, release
from kwire.client.connection import NEWEST
from kwire.client.streams import ask
from kwire.launch.spec import ClusterSpec, NodeSpec
from kwire.launch.supervisor import Supervisor, ThreadHandle
from kwire.protocol.api import ApiKey
from kwire.protocol.language.schema import Message
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic

METADATA_VERSION = NEWEST[ApiKey.METADATA]


class RunningCluster:
    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._thread = acquire(self, self.close)

    def close(self) -> None:
        self.run(self.supervisor.kill())
        release(self)

    def run(self, work: Coroutine[Any, Any, Any], seconds: float = 30) -> Any:
        return self._thread.run(asyncio.wait_for(work, seconds))

    def call(self, function: Callable[[], Any]) -> Any:
        async def work() -> Any:
            return function()

        return self.run(work())

    @property
    def bootstrap(self) -> str:
        return self.supervisor.bootstrap_servers

    def ask(self, node_id: int, version: int, request: Message) -> Any:
        return self.run(ask(self.supervisor.brokers[node_id].address, request, version=version))

    def partition(self, topic: str, index: int = 0, by: int | None = None) -> Any:
        """What a broker's Metadata says of a partition."""
        if by is None:
            by = next(n for n, handle in self.supervisor.brokers.items() if handle.running)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        (found,) = self.ask(by, METADATA_VERSION, request).topics
        return next((p for p in found.partitions if p.partition_index == index), None)

    def core(self, node_id: int) -> Any:
        """A broker's core, on isolation `thread`."""
        handle = self.supervisor.brokers[node_id]
        assert isinstance(handle, ThreadHandle) and handle.runner is not None
        return handle.runner.core

    def peers(self, node_id: int) -> Any:
        handle = self.supervisor.brokers[node_id]
        assert isinstance(handle, ThreadHandle) and handle.runner is not None
        return handle.runner.node.peer_connections()

    def logs(self, topic: str, index: int = 0) -> list[bytes]:
        """The bytes of each broker's copy of a partition."""
        found = []
        for node_id in self.supervisor.brokers:
            directory = Path(self.supervisor.data_dir) / f"broker-{node_id}" / f"{topic}-{index}"
            found.append(b"".join(p.read_bytes() for p in sorted(directory.glob("*.log"))))
        return found


def until(condition: Callable[[], Any], seconds: float = 15) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
    return value


@contextmanager
def running_cluster(
    data_dir: Path,
    isolation: str = "thread",
    brokers: int = 3,
    as_version: str | None = None,
    temporary: bool = True,
    **config: str,
) -> Iterator[RunningCluster]:
    """Starts a cluster and stops it; what a core kept in `failed` fails the test. Keys with _ for dots."""
    values = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    values.update({key.replace("_", "."): value for key, value in config.items()})
    node = NodeSpec(
        node_id=1,
        values=values,
        data_dir=str(data_dir),
        temporary=temporary,
        as_version=as_version,
        log_level="warning",
    )
    supervisor = Supervisor(ClusterSpec(brokers=brokers, isolation=isolation, node=node))
    cluster = RunningCluster(supervisor)
    failed: list[BaseException] = []
    try:
        cluster.run(supervisor.start())
        yield cluster
        for handle in (*supervisor.brokers.values(), supervisor.controller):
            if isinstance(handle, ThreadHandle) and handle.runner is not None:
                failed += handle.runner.core.failed
        cluster.run(supervisor.stop())
    finally:
        cluster.close()
    assert failed == []
