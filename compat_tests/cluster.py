"""A kwire cluster of broker processes under test: kill -9, pauses, cut links, what is on disks.

The supervisor is the one `kwire up --brokers N --isolation process` runs. It lives on the event
loop of `kwire.Cluster`, so that tests with stock clients, which block, read from top to bottom.
What `kwire.Cluster` has not is here: links that are cut one way, what each broker's Metadata says,
the bytes on the disks, and nodes that log what they do.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compat_tests import stock
from compat_tests.locked import LOCKS, access_of, client_of
from kwire.backends.loop_thread import acquire, release
from kwire.client.connection import NEWEST
from kwire.client.streams import Client, ask
from kwire.client.transactions import list_transactions
from kwire.client.views import Transaction
from kwire.launch.spec import PROCESS, ClusterSpec, NodeSpec
from kwire.launch.supervisor import Handle, ProcessHandle, Supervisor
from kwire.protocol.api import key_of
from kwire.protocol.language.schema import Message
from kwire.protocol.records import BatchHeader, iter_batches
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.protocol.schemas.topics import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kwire.server.link_rules import LinkRule

POLL_SECONDS = 0.005
SECONDS = 10.0
"""How long the controller may take for a request."""


def until(condition: Callable[[], Any], seconds: float = 12.0, what: str = "") -> Any:
    """The first true value of `condition`. Errors of connecting count as false: brokers come and
    go."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            value = condition()
        except (OSError, EOFError, TimeoutError):
            value = None
        if value:
            return value
        assert time.monotonic() < deadline, f"waited in vain: {what or condition}"
        time.sleep(POLL_SECONDS)


class Cluster:
    """N broker processes (ids 1 to N) and the controller's, started; made by `running`."""

    def __init__(self, supervisor: Supervisor, log_folder: Path) -> None:
        self.supervisor = supervisor
        self.log_folder = log_folder
        self._rules: dict[int, dict[int, LinkRule]] = {}  # by sender and receiver
        self._thread = acquire(self, self.close)
        self._access = access_of(supervisor.spec.node.values)
        self._admin = Client(self._addresses)
        self._admin.access = self._access

    def close(self) -> None:
        for handle in self.handles:
            if isinstance(handle, ProcessHandle):
                handle.send_signal(signal.SIGCONT)
        self.run(self.supervisor.kill())
        release(self)

    def run(self, work: Coroutine[Any, Any, Any], seconds: float = 40.0) -> Any:
        return self._thread.run(asyncio.wait_for(work, seconds))

    def begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._thread.loop)

    @property
    def ids(self) -> list[int]:
        return list(self.supervisor.brokers)

    @property
    def controller_id(self) -> int:
        return self.supervisor.controller_id

    @property
    def handles(self) -> list[Handle]:
        return [*self.supervisor.brokers.values(), *self.supervisor.controllers.values()]

    @property
    def bootstrap(self) -> str:
        return self.supervisor.bootstrap_servers

    def handle(self, node: int) -> Handle:
        return self.supervisor.controllers.get(node) or self.supervisor.brokers[node]

    def running_ids(self) -> list[int]:
        return [node for node, handle in self.supervisor.brokers.items() if handle.running]

    def _addresses(self) -> list[tuple[str, int]]:
        return [self.handle(node).address for node in self.running_ids()]

    # --- stock clients ---

    def client(self, kind: str, at: Iterable[int] = ()) -> dict[str, Any]:
        """The configuration of a client, which starts with these brokers or all."""
        servers = ",".join(self.handle(node).advertised for node in at) or self.bootstrap
        return client_of(self.supervisor.spec.node.values, kind, servers)

    def writer(self, at: Iterable[int] = (), **settings: Any) -> stock.Writer:
        return stock.Writer(self.client("librdkafka", at), **settings)

    def read(self, topic: str, partition: int = 0) -> list[str]:
        return stock.read(self.client("kafka-python"), topic, partition)

    # --- faults ---

    def kill9(self, node: int) -> None:
        """kill -9 from outside; returns when the process is gone."""
        handle = self.handle(node)
        if handle.pid > 0:
            os.kill(handle.pid, signal.SIGKILL)
        until(lambda: not handle.running, what=f"node {node} ends")

    def start(self, node: int) -> None:
        """Without its cuts and delays."""
        self._rules.pop(node, None)
        self.run(self.handle(node).start())

    def stop(self, node: int) -> None:
        """SIGTERM: controlled shutdown."""
        self.run(self.handle(node).stop())

    def pause(self, node: int) -> None:
        self._signal(node, signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._signal(node, signal.SIGCONT)

    def _signal(self, node: int, number: int) -> None:
        handle = self.handle(node)
        if isinstance(handle, ProcessHandle):
            handle.send_signal(number)
        else:
            raise TypeError("only processes take signals")

    def _set_link_rules(self, node: int) -> None:
        rules = list(self._rules.get(node, {}).values())
        self.run(self.handle(node).set_link_rules(rules))

    def delay(self, node: int, other: int, milliseconds: int) -> None:
        """What `node` sends to another takes longer, and so do the answers."""
        self._rules.setdefault(node, {})[other] = LinkRule(other, milliseconds)
        self._set_link_rules(node)

    def cut(self, node: int, *others: int) -> None:
        """Nothing that `node` sends gets to the others; what they send gets to `node`."""
        self._rules.setdefault(node, {}).update({other: LinkRule(other) for other in others})
        self._set_link_rules(node)

    def heal(self, node: int, *others: int) -> None:
        for other in others:
            self._rules.get(node, {}).pop(other, None)
        self._set_link_rules(node)

    # --- questions, over the wire ---

    def ask(self, node: int, version: int | None, request: Message) -> Any:
        """The response of a node. `version`: None: the newest that the client writes."""
        version = NEWEST[key_of(request)] if version is None else version
        return self.begin_ask(node, version, request).result(40.0)

    def begin_ask(self, node: int, version: int | None, request: Message) -> Future[Any]:
        address = self.handle(node).address
        return self.begin(ask(address, request, version=version, access=self._access))

    def create(
        self,
        name: str,
        assignment: Iterable[list[int]],
        config: dict[str, str] | None = None,
    ) -> None:
        """Makes a topic with these replicas, partition by partition; all have leaders."""
        steps = self._admin.create_topic(name, -1, -1, config or {}, list(assignment), SECONDS)
        self.run(self._admin.run(steps))

    def delete(self, name: str) -> None:
        self.run(self._admin.run(self._admin.delete_topics([name], SECONDS)))

    def reassign(
        self, topic: str, index: int, replicas: list[int] | None, by: int | None = None
    ) -> int:
        """The error code of AlterPartitionReassignments; None cancels."""
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[partition])],
            timeout_ms=int(SECONDS * 1000),
        )
        node = self.running_ids()[0] if by is None else by
        response = self.ask(node, None, request)
        if response.error_code:
            return int(response.error_code)
        return int(response.responses[0].partitions[0].error_code)

    def partition(self, topic: str, index: int = 0, by: int | None = None) -> Any:
        """What a broker's Metadata says of a partition."""
        node = self.running_ids()[0] if by is None else by
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        (found,) = self.ask(node, None, request).topics
        return next((p for p in found.partitions if p.partition_index == index), None)

    def leader(self, topic: str, index: int = 0, by: int | None = None) -> int:
        found = self.partition(topic, index, by)
        return -1 if found is None else int(found.leader_id)

    def await_leader(self, topic: str, leader: int, index: int = 0, by: int | None = None) -> Any:
        """The partition as Metadata tells it once this broker leads it."""

        def led() -> Any:
            found = self.partition(topic, index, by)
            return found if found is not None and found.leader_id == leader else None

        return until(led, what=f"{topic}-{index} is led by {leader}")

    def await_isr(self, topic: str, *isr: int, index: int = 0, by: int | None = None) -> Any:
        def settled() -> Any:
            found = self.partition(topic, index, by)
            same = found is not None and sorted(found.isr_nodes) == sorted(isr)
            return found if same else None

        return until(settled, what=f"{topic}-{index} has the ISR {isr}")

    def transactions(self) -> list[Transaction]:
        """The transactional ids of all coordinators."""
        return list(self.run(self._admin.run(list_transactions(self._admin))))

    # --- disks ---

    def directory(self, node: int, topic: str, index: int = 0) -> Path:
        """Where a broker keeps its copy of a partition, in whichever of its log directories."""
        folders = [
            Path(path) / f"broker-{node}" / f"{topic}-{index}"
            for path in self.supervisor.data_dir.split(",")
        ]
        return next((folder for folder in folders if folder.exists()), folders[0])

    def log(self, node: int, topic: str, index: int = 0) -> bytes:
        """The bytes of a broker's copy of a partition."""
        segments = sorted(self.directory(node, topic, index).glob("*.log"))
        return b"".join(path.read_bytes() for path in segments)

    def batches(self, node: int, topic: str, index: int = 0) -> list[BatchHeader]:
        return list(iter_batches(self.log(node, topic, index)))

    def epochs(self, node: int, topic: str, index: int = 0) -> list[tuple[int, int]]:
        """The leader epochs that start in a broker's copy, by its batches: (epoch, first
        offset)."""
        found: list[tuple[int, int]] = []
        for batch in self.batches(node, topic, index):
            if not found or found[-1][0] != batch.partition_leader_epoch:
                found.append((batch.partition_leader_epoch, batch.base_offset))
        return found

    def await_equal_logs(self, topic: str, *nodes: int, index: int = 0) -> bytes:
        """The bytes of the partition, when all these brokers have the same."""

        def equal() -> Any:
            first, *others = [self.log(node, topic, index) for node in nodes]
            return (first,) if all(other == first for other in others) else None

        (found,) = until(equal, what=f"equal logs of {topic}-{index} at {nodes}")
        return bytes(found)

    def await_active(self, controller: int, epoch: int) -> None:
        """Returns when this controller says that it is the active one."""
        line = f"controller {controller} is active with epoch {epoch};"
        until(lambda: line in self.said(controller), what=line)

    def said(self, node: int) -> str:
        """What the node has logged so far."""
        return (self.log_folder / f"node-{node}.log").read_text()


@contextmanager
def running(
    folder: Path,
    brokers: int = 3,
    log_level: str = "info",
    controllers: int = 1,
    dirs: int = 1,
    as_version: str | None = None,
    locked: bool = False,
    **config: str,
) -> Iterator[Cluster]:
    """A started cluster; configuration keys are written with _ for dots. `dirs`: log directories of
    a broker. `as_version`: the Kafka that it is like. `locked`: SASL_SSL and access rules everywhere."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        **(LOCKS if locked else {"listeners": "PLAINTEXT://127.0.0.1:0"}),
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    node = NodeSpec(
        node_id=1,
        values=values,
        data_dir=",".join(str(folder / f"data{number or ''}") for number in range(dirs)),
        temporary=True,
        log_level=log_level,
        as_version=as_version,
    )
    spec = ClusterSpec(brokers=brokers, controllers=controllers, isolation=PROCESS, node=node)
    supervisor = Supervisor(spec.with_certificates())
    cluster = Cluster(supervisor, folder)
    for handle in cluster.handles:
        assert isinstance(handle, ProcessHandle)
        handle.log_path = str(folder / f"node-{handle.node_id}.log")
    try:
        cluster.run(supervisor.start())
        yield cluster
        tracebacks = [
            node
            for node in (*cluster.ids, *supervisor.controllers)
            if "internal error" in cluster.said(node)
        ]
        assert not tracebacks, cluster.said(tracebacks[0])[-4000:]
    finally:
        cluster.close()


Start = Callable[..., Cluster]
"""`running` without its folder: the fixture `start`."""
