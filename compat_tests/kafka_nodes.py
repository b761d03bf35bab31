"""Apache Kafka in KRaft mode with brokers and their one controller apart, so that either can be killed alone."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

from compat_tests.brokers import RealKafka, answers_metadata, free_port, mortal

CONTROLLER_ID = 100


class KafkaNode(RealKafka):
    """A broker, or the controller (its id is CONTROLLER_ID)."""

    heap_mb = 256

    def __init__(
        self, folder: Path, node_id: int, controller_port: int, config: dict[str, str] | None = None
    ) -> None:
        super().__init__(folder, config)
        self.node_id = node_id
        self.controller_port = controller_port
        self.port = free_port()

    def _prepare(self) -> None:
        controls = self.node_id == CONTROLLER_ID
        listener = f"PLAINTEXT://127.0.0.1:{self.port}"
        changed = {
            "node.id": str(self.node_id),
            "process.roles": "controller" if controls else "broker",
            "controller.quorum.voters": f"{CONTROLLER_ID}@127.0.0.1:{self.controller_port}",
            "listeners": f"CONTROLLER://127.0.0.1:{self.controller_port}" if controls else listener,
            # Kafka's own, where RealKafka has those of a test
            "broker.session.timeout.ms": "9000",
            "broker.heartbeat.interval.ms": "2000",
            **self.config,
        }
        lines = self._properties(self.controller_port).splitlines()
        dropped = {*changed, *({"advertised.listeners"} if controls else ())}
        kept = [line for line in lines if line.partition("=")[0] not in dropped]
        kept += [f"{key}={value}" for key, value in changed.items()]
        (self.folder / "server.properties").write_text("\n".join([*kept, ""]))
        if not self.data.exists():
            shutil.copytree(self._formatted_storage(), self.data)
            meta = self.data / "meta.properties"
            said = [line for line in meta.read_text().splitlines() if "directory.id" not in line]
            meta.write_text("\n".join(said).replace("node.id=1", f"node.id={self.node_id}") + "\n")

    def _command(self) -> list[str]:
        return mortal(super()._command())

    def _ready(self) -> bool:
        if self.node_id != CONTROLLER_ID:
            return answers_metadata(self.port)
        try:
            with socket.create_connection(("127.0.0.1", self.controller_port), timeout=1):
                return True
        except OSError:
            return False


class KafkaNodes:
    """A controller and brokers 1, 2, …"""

    def __init__(self, folder: Path, brokers: int, config: dict[str, str] | None = None) -> None:
        port = free_port()
        self.controller = KafkaNode(folder / "controller", CONTROLLER_ID, port, config)
        self.brokers = {
            n: KafkaNode(folder / f"broker-{n}", n, port, config) for n in range(1, brokers + 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self.brokers.values())

    def start(self) -> None:
        self.controller.start()
        for node in self.brokers.values():
            node.start()

    def kill9(self) -> None:
        """Ends all that runs."""
        for node in (*self.brokers.values(), self.controller):
            node.kill9()
