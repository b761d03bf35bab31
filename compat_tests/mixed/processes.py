"""The processes of a mixed cluster: ZooKeeper, Apache Kafka 3.9.1 in ZooKeeper mode, and a kwire broker as its member.

3.9 is the last line of Kafka with a ZooKeeper mode. In it the controller, one of the Kafka brokers, drives every
registered broker over the wire. A broker is registered by an ephemeral node below /brokers/ids; kwire knows nothing of
ZooKeeper, so the test holds its node, and closing the test's session is "the broker has died".
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from compat_tests import tooling
from compat_tests.brokers import Broker, answers_metadata, free_port, mortal

VERSION = tooling.KAFKA_BROKER
SESSION_TIMEOUT_S = 60.0  # of the test's own sessions: a busy machine must not end them


def _java(main: str, argument: str, heap_mb: int) -> list[str]:
    """A small server: it has to be ready soon rather than to be fast later."""
    return tooling.java_argv(VERSION, main, argument, heap_mb=heap_mb)


class ZooKeeper(Broker):
    name = "ZooKeeper"

    def _prepare(self) -> None:
        if self.port:
            return
        self.port = free_port()
        self.data.mkdir()
        (self.folder / "zoo.cfg").write_text(
            f"tickTime=500\ndataDir={self.data}\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxSessionTimeout=120000\n"
        )

    def _command(self) -> list[str]:
        # Its request log is flushed at each write; a test's ZooKeeper does not outlive a power cut.
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        argv = _java(main, "zoo.cfg", 96)
        return mortal([argv[0], "-Dzookeeper.forceSync=no", *argv[1:]])

    def _ready(self) -> bool:
        """The port is open before the server behind it serves."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as asked:
                asked.sendall(b"srvr")
                return b"Mode:" in asked.makefile("rb").read()
        except OSError:
            return False


class Registry:
    """What the test itself does in ZooKeeper: look, register kwire, declare brokers dead."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.hosts = f"127.0.0.1:{zookeeper.port}"
        self.client = self.session()

    def session(self) -> KazooClient:
        client = KazooClient(self.hosts, timeout=SESSION_TIMEOUT_S)
        client.start(timeout=30)
        return client

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def read(self, path: str) -> Any:
        """The JSON of a node, None when there is none."""
        try:
            data, _ = self.client.get(path)
        except NoNodeError:
            return None
        return json.loads(data)

    def broker_ids(self) -> set[int]:
        try:
            return {int(name) for name in self.client.get_children("/brokers/ids")}
        except NoNodeError:
            return set()

    def broker_epoch(self, broker_id: int) -> int:
        _, stat = self.client.get(f"/brokers/ids/{broker_id}")
        return int(stat.czxid)

    def controller_id(self) -> int:
        controller = self.read("/controller")
        return -1 if controller is None else int(controller["brokerid"])

    def state(self, topic: str, index: int) -> dict[str, Any]:
        """leader, leader_epoch, isr of a partition as the controller has written it."""
        found = self.read(f"/brokers/topics/{topic}/partitions/{index}/state")
        return {"leader": -1, "isr": [], "leader_epoch": -1} if found is None else dict(found)

    def replicas(self, topic: str, index: int) -> list[int]:
        found = self.read(f"/brokers/topics/{topic}")
        return [] if found is None else list(found["partitions"][str(index)])

    def is_reassigned(self, topic: str, index: int) -> bool:
        """Whether the partition is on its way to other replicas."""
        found = self.read(f"/brokers/topics/{topic}") or {}
        return any(
            found.get(f"{what}_replicas", {}).get(str(index)) for what in ("adding", "removing")
        )

    def controller_epoch(self) -> int:
        data, _ = self.client.get("/controller_epoch")
        return int(data)

    def declare_dead(self, broker_id: int) -> None:
        """As if the broker's session had expired: after kill -9 nobody has to wait for that."""
        self.client.delete(f"/brokers/ids/{broker_id}")


class KafkaOnZooKeeper(Broker):
    """One Kafka broker in ZooKeeper mode. The first that is ready is the controller."""

    name = f"Apache Kafka {VERSION} (ZooKeeper)"
    heap_mb = 224

    def __init__(
        self, folder: Path, broker_id: int, registry: Registry, config: dict[str, str] | None = None
    ) -> None:
        super().__init__(folder, config)
        self.id = broker_id
        self.registry = registry

    def _prepare(self) -> None:
        self.port = self.port or free_port()
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        settings = {
            "broker.id": str(self.id),
            "zookeeper.connect": self.registry.hosts,
            "zookeeper.session.timeout.ms": "30000",
            "listeners": listener,
            "advertised.listeners": listener,
            "log.dirs": str(self.data),
            "num.network.threads": "1",
            "num.io.threads": "3",
            "background.threads": "2",
            "log.cleaner.enable": "false",
            "auto.create.topics.enable": "false",
            "auto.leader.rebalance.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            "controlled.shutdown.retry.backoff.ms": "500",
            "controller.socket.timeout.ms": "20000",
            **self.config,
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.folder / "server.properties").write_text(text)

    def _command(self) -> list[str]:
        return mortal(_java("kafka.Kafka", "server.properties", self.heap_mb))

    def _ready(self) -> bool:
        return answers_metadata(self.port) and self.id in self.registry.broker_ids()

    def pause(self) -> None:
        """SIGSTOP: the process neither answers nor ends; its session lives on for half a minute."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class KwireNode(Broker):
    """`kwire node` under a controller that is not kwire's: its broker epoch comes from outside."""

    name = "kwire node"

    def __init__(self, folder: Path, broker_id: int, config: dict[str, str] | None = None) -> None:
        super().__init__(folder, config)
        self.id = broker_id
        self.epoch = -1
        self.controller = "1@127.0.0.1:1"
        self.cluster_id = ""

    def _prepare(self) -> None:
        self.port = self.port or free_port()

    def _command(self) -> list[str]:
        node = [sys.executable, "-m", "kwire", "node", "--id", str(self.id), "--roles", "broker"]
        node += ["--broker-epoch", str(self.epoch), "--controller", self.controller]
        node += ["--listener", f"PLAINTEXT://127.0.0.1:{self.port}", "--data-dir", str(self.data)]
        if self.cluster_id:
            node += ["--cluster-id", self.cluster_id]
        for key, value in self.config.items():
            node += ["-c", f"{key}={value}"]
        return mortal(node)

    def _ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class Member(KwireNode):
    """A kwire broker and its registration, which the test holds."""

    def __init__(
        self,
        folder: Path,
        broker_id: int,
        registry: Registry,
        controller: KafkaOnZooKeeper,
        config: dict[str, str] | None = None,
    ) -> None:
        super().__init__(folder, broker_id, config)
        self.registry = registry
        self.controller = f"{controller.id}@127.0.0.1:{controller.port}"
        self.session: KazooClient | None = None

    def start(self) -> None:
        """Registers and starts; the controller tries to connect until the process listens."""
        self.port = self.port or free_port()
        assert self.session is None
        self.session = self.registry.session()
        self.session.create(f"/brokers/ids/{self.id}", self._registration(), ephemeral=True)
        self.epoch = self.registry.broker_epoch(self.id)
        self.cluster_id = self.registry.read("/cluster/id")["id"]
        super().start()

    def _registration(self) -> bytes:
        said = {
            "features": {},
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "endpoints": [f"PLAINTEXT://127.0.0.1:{self.port}"],
            "jmx_port": -1,
            "port": self.port,
            "host": "127.0.0.1",
            "version": 5,
            "timestamp": str(int(time.time() * 1000)),
        }
        return json.dumps(said).encode()

    def sign_off(self) -> None:
        """Takes the registration back: from now on the broker is dead for the controller."""
        if self.session is not None:
            session, self.session = self.session, None
            session.stop()
            session.close()

    def kill9(self) -> None:
        super().kill9()
        self.sign_off()
