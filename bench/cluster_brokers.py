"""Clusters of three brokers as processes: kwire on one event loop, kwire in processes, Apache Kafka."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from bench.brokers import process_tree, resident_mb
from compat_tests.brokers import (
    Broker,
    BrokerFailed,
    KwireBroker,
    RealKafka,
    answers_metadata,
    free_port,
)

NODES = 3


class KwireThreads(KwireBroker):
    """`kwire up --brokers 3`."""

    name = "kwire"
    isolation = "thread"

    def _command(self) -> list[str]:
        script = Path(sys.executable).parent / "kwire"
        command = [str(script), "up", "--port", "0", "--brokers", str(NODES)]
        command += ["--isolation", self.isolation, "--log-level", "warning"]
        command += ["--data-dir", str(self.data), "--ready-file", str(self.ready_file)]
        for key, value in self.config.items():
            command += ["-c", f"{key}={value}"]
        return command

    def _ready(self) -> bool:
        if not super()._ready():
            return False
        import json

        self.servers = str(json.loads(self.ready_file.read_text())["bootstrap"])
        return True

    @property
    def bootstrap_servers(self) -> str:
        return self.servers

    @property
    def pids(self) -> list[int]:
        return process_tree(self.pid)


class KwireProcesses(KwireThreads):
    name = "kwire processes"
    isolation = "process"


class KafkaNode(RealKafka):
    """One of three nodes that are broker and controller."""

    heap_mb = 512

    def __init__(self, folder: Path, node_id: int, ports: list[tuple[int, int]]) -> None:
        super().__init__(folder)
        self.node_id = node_id
        self.ports = ports

    def _prepare(self) -> None:
        self.port, controller_port = self.ports[self.node_id - 1]
        properties = self._properties(controller_port).splitlines(keepends=True)
        voters = ",".join(f"{n + 1}@127.0.0.1:{c}" for n, (_, c) in enumerate(self.ports))
        changed = {
            "node.id": str(self.node_id),
            "controller.quorum.voters": voters,
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            # Kafka's own, where RealKafka has those of a test
            "broker.session.timeout.ms": "9000",
            "broker.heartbeat.interval.ms": "2000",
        }
        kept = [line for line in properties if line.partition("=")[0] not in changed]
        kept += [f"{key}={value}\n" for key, value in changed.items()]
        (self.folder / "server.properties").write_text("".join(kept))
        if not self.data.exists():
            shutil.copytree(self._formatted_storage(), self.data)
            meta = self.data / "meta.properties"
            lines = [line for line in meta.read_text().splitlines() if "directory.id" not in line]
            text = "\n".join(lines).replace("node.id=1", f"node.id={self.node_id}")
            meta.write_text(text + "\n")


class Kafka(Broker):
    """Three nodes of Apache Kafka in KRaft mode."""

    name = RealKafka.name

    def __init__(self, folder: Path, config: dict[str, str] | None = None) -> None:
        super().__init__(folder, config)
        ports = [(free_port(), free_port()) for _ in range(NODES)]
        self.nodes = [KafkaNode(folder / f"node-{n + 1}", n + 1, ports) for n in range(NODES)]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.nodes)

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self.nodes]

    def start(self) -> None:
        import threading

        failures: list[BrokerFailed] = []

        def start(node: KafkaNode) -> None:
            try:
                node.start()
            except BrokerFailed as failure:
                failures.append(failure)

        for node in self.nodes:
            node._prepare()
        threads = [threading.Thread(target=start, args=(node,)) for node in self.nodes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            self.kill9()
            raise failures[0]
        deadline = time.monotonic() + 30
        while not all(answers_metadata(node.port) for node in self.nodes):
            if time.monotonic() > deadline:
                raise BrokerFailed("the nodes of Apache Kafka do not find each other")
            time.sleep(0.05)

    def kill9(self) -> None:
        for node in self.nodes:
            node.kill9()

    def stop(self) -> int:
        """Without waiting for each other: the last ones have no quorum left."""
        self.kill9()
        return 0


CLUSTERS: dict[str, type[Broker]] = {
    "kwire": KwireThreads,
    "processes": KwireProcesses,
    "kafka": Kafka,
}


def resident_of(cluster: Broker) -> float:
    """MiB of all processes of a cluster."""
    if isinstance(cluster, Kafka):
        return sum(resident_mb(pid) for pid in cluster.pids)
    return resident_mb(cluster.pid)


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of processes so far."""
    import os

    ticks = 0
    for pid in pids:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")
