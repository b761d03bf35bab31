"""One cluster of two Apache Kafka brokers in ZooKeeper mode and a kwire broker, and what is done to it.

Kafka's broker 1 is the controller and holds no partition of the tests; kwire is broker 2, Kafka's broker 3 its
peer. The state of a partition is read where the controller has written it, in ZooKeeper. A controller in ZooKeeper mode
does not tell brokers the configurations of topics: what replicas have to agree on is configured for all brokers.
"""

import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kazoo.exceptions import NoNodeError

from compat_tests import tooling
from compat_tests.mixed.processes import KafkaOnZooKeeper, Member, Registry, ZooKeeper
from kwire.client.blocking import Client
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)

CONTROLLER, KWIRE, PEER = 1, 2, 3
LAG_MS = 1500
"""replica.lag.time.max.ms of all: who is silent for longer leaves the ISR."""
SEGMENT_BYTES = 100_000
"""A follower of Kafka's refuses an answer of more than a segment, and a leader's answer is of one segment."""
PATIENCE_S = 60.0
_POLL_S = 0.02

Partition = tuple[str, int]


class MixedCluster:
    """`start` before, `close` after everything else."""

    def __init__(self, folder: Path, config: dict[str, str] | None = None) -> None:
        """`config`: of all brokers, beside what every test wants."""
        self.folder = folder
        self.config = config or {}
        self.zookeeper = ZooKeeper(folder / "zookeeper")
        self.registry: Registry
        self.controller: KafkaOnZooKeeper
        self.peer: KafkaOnZooKeeper
        self.kwire: Member

    def start(self) -> None:
        self.zookeeper.start()
        self.registry = registry = Registry(self.zookeeper)
        config = {
            "replica.lag.time.max.ms": str(LAG_MS),
            "log.segment.bytes": str(SEGMENT_BYTES),
            **self.config,
        }
        self.controller = KafkaOnZooKeeper(self.folder / "kafka-1", CONTROLLER, registry, config)
        self.peer = KafkaOnZooKeeper(self.folder / "kafka-3", PEER, registry, config)
        self.controller.start()
        self.kwire = Member(self.folder / "kwire-2", KWIRE, registry, self.controller, config)
        self.kwire.start()
        self.peer.start()
        assert registry.controller_id() == CONTROLLER

    def close(self) -> None:
        """Ends what has been started, whatever state it is in."""
        for name in ("kwire", "peer", "controller"):
            broker = getattr(self, name, None)
            if broker is not None:
                broker.kill9()
        if hasattr(self, "registry"):
            self.registry.close()
        self.zookeeper.kill9()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(b.bootstrap_servers for b in (self.controller, self.kwire, self.peer))

    def log_tails(self) -> str:
        return "\n".join(
            f"--- {broker.name} {broker.id}\n{broker.log_tail(30)}"
            for broker in (self.kwire, self.controller, self.peer)
        )

    # -- orders --------------------------------------------------------------------------------------------------

    def ask(self, request: Any) -> Any:
        """One request to the controller."""
        controller = Client(lambda: [("127.0.0.1", self.controller.port)], 60.0, "mixed")
        try:
            return controller.run(controller.ask_any(request))
        finally:
            controller.close()

    def create(self, topic: str, assignment: str, **config: str) -> None:
        """Kafka's own TopicCommand with replicas by hand: "3:2,2:3"."""
        argv = [
            "--bootstrap-server",
            self.controller.bootstrap_servers,
            "--create",
            "--topic",
            topic,
        ]
        argv += ["--replica-assignment", assignment]
        for key, value in config.items():
            argv += ["--config", f"{key.replace('_', '.')}={value}"]
        tool = "org.apache.kafka.tools.TopicCommand"
        argv = tooling.java_argv(tooling.KAFKA_BROKER, tool, *argv, heap_mb=96)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr

    def reassign(self, partitions: Iterable[Partition], replicas: list[int]) -> None:
        """Asks for it; `await_replicas` tells when it is done."""
        topics: dict[str, ReassignableTopic] = {}
        for topic, index in partitions:
            named = topics.setdefault(topic, ReassignableTopic(name=topic, partitions=[]))
            named.partitions.append(ReassignablePartition(partition_index=index, replicas=replicas))
        request = AlterPartitionReassignmentsRequest(topics=list(topics.values()))
        answer = self.ask(request)
        errors = {p.error_code for t in answer.responses for p in t.partitions} | {
            answer.error_code
        }
        assert errors == {0}, answer

    def elect_preferred(self, partitions: Iterable[Partition]) -> None:
        """Asks for it; `await_leader` tells when it is done.

        Kafka sometimes fails to notice that it is, and answers when the time is over: hence a short one."""
        topics: dict[str, TopicPartitions] = {}
        for topic, index in partitions:
            named = topics.setdefault(topic, TopicPartitions(topic=topic, partitions=[]))
            named.partitions.append(index)
        request = ElectLeadersRequest(topic_partitions=list(topics.values()), timeout_ms=2000)
        answer = self.ask(request)
        results = [p for t in answer.replica_election_results for p in t.partition_result]
        fine = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.REQUEST_TIMED_OUT)
        assert answer.error_code == 0 and all(p.error_code in fine for p in results), answer

    def lead(self, broker_id: int, partitions: list[Partition]) -> None:
        """Moves leadership to a broker, cleanly: it becomes the preferred one, and that is elected."""
        other = PEER if broker_id == KWIRE else KWIRE
        self.await_state("all in sync", partitions, lambda state: len(state["isr"]) == 2)
        self.reassign(partitions, [broker_id, other])
        self.await_replicas(partitions, [broker_id, other])
        self.elect_preferred(partitions)
        self.await_leader(broker_id, partitions)

    def depose_controller(self) -> None:
        """New elections of a controller until it is broker 1 again: each is one more controller epoch."""
        before = self.registry.controller_epoch()
        for _ in range(50):
            try:
                self.registry.client.delete("/controller")
            except NoNodeError:
                continue
            self.eventually("a controller", lambda: self.registry.controller_id() >= 0)
            if self.registry.controller_id() == CONTROLLER:
                break
        assert self.registry.controller_id() == CONTROLLER
        assert self.registry.controller_epoch() > before

    # -- waiting -------------------------------------------------------------------------------------------------

    def eventually(
        self, what: str, is_so: Callable[[], bool], patience_s: float = PATIENCE_S
    ) -> None:
        deadline = time.monotonic() + patience_s
        while not is_so():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {patience_s} s\n{self.log_tails()}")
            time.sleep(_POLL_S)

    def await_state(
        self, what: str, partitions: Iterable[Partition], is_so: Callable[[dict[str, Any]], bool]
    ) -> None:
        for partition in partitions:
            self._await_one(what, partition, is_so)

    def _await_one(
        self, what: str, partition: Partition, is_so: Callable[[dict[str, Any]], bool]
    ) -> None:
        name = f"{partition[0]}-{partition[1]}"
        try:
            self.eventually(f"{name}: {what}", lambda: is_so(self.registry.state(*partition)))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{name}: {self.registry.state(*partition)}") from None

    def await_leader(self, broker_id: int, partitions: Iterable[Partition]) -> None:
        self.await_state(f"led by {broker_id}", partitions, lambda s: s["leader"] == broker_id)

    def await_isr(self, broker_ids: Iterable[int], partitions: Iterable[Partition]) -> None:
        ids = sorted(broker_ids)
        self.await_state(f"ISR {ids}", partitions, lambda state: sorted(state["isr"]) == ids)

    def await_replicas(self, partitions: Iterable[Partition], replicas: list[int]) -> None:
        """Until a reassignment is done: the target's replicas only, all of them in sync."""
        partitions = list(partitions)
        registry = self.registry
        self.eventually(
            f"{partitions} on {replicas}",
            lambda: all(
                registry.replicas(*p) == replicas and not registry.is_reassigned(*p)
                for p in partitions
            ),
        )
        self.await_isr(replicas, partitions)
