"""Brokers under test, as processes: kwire, or Apache Kafka in KRaft mode, with one surface."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from compat_tests import tooling
from kwire.client.admin import NoBrokerError
from kwire.client.blocking import Client
from kwire.protocol.errors import KafkaError

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
CLUSTER_ID = "a3dpcmUtY29tcGF0LTAwMQ"


class BrokerFailed(Exception):
    """The broker's process ended or never answered; the message holds the end of its log."""


def free_port() -> int:
    """A port the kernel calls free now (for programs that cannot bind port 0 themselves)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def mortal(argv: list[str]) -> list[str]:
    """The command as one that ends with the test's process, even if that is killed (where setpriv is at hand)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *argv] if setpriv else argv


def answers_metadata(port: int) -> bool:
    """Whether a Metadata request to the port is answered with at least one broker."""
    client = Client(lambda: [("127.0.0.1", port)], 5.0, "probe")
    try:
        return bool(client.run(client.metadata()).brokers)
    except (NoBrokerError, KafkaError):
        return False
    finally:
        client.close()


class Broker:
    """A broker process on one port and one data folder, both kept over restarts."""

    name = ""
    poll_s = 0.005  # there is nothing to await from a foreign process

    def __init__(self, folder: Path, config: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.config = config or {}
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _ready(self) -> bool:
        raise NotImplementedError

    def _prepare(self) -> None:
        """What must be there before the command runs."""

    def start(self) -> None:
        """Starts the process and returns when it answers."""
        self._prepare()
        with (self.folder / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment(),
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._ready():
            if self.process.poll() is not None:
                raise BrokerFailed(
                    f"{self.name} ended with {self.process.returncode}\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                self.kill9()
                raise BrokerFailed(
                    f"{self.name} not ready in {READY_TIMEOUT_S} s\n{self.log_tail()}"
                )
            time.sleep(self.poll_s)

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def log_tail(self, lines: int = 40) -> str:
        text = (self.folder / "broker.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill9(self) -> None:
        """kill -9: nothing is flushed, nothing is said to anybody."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        """SIGTERM and the exit status; a broker that does not end in time is killed."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise BrokerFailed(f"{self.name} ignores SIGTERM\n{self.log_tail()}") from None

    def restart(self) -> None:
        """Starts the process again on the same port and data, after kill9() or stop()."""
        assert not self.alive()
        self.start()


class KwireBroker(Broker):
    name = "kwire"
    options: tuple[str, ...] = ()

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready.json"

    def _prepare(self) -> None:
        self.ready_file.unlink(missing_ok=True)

    def _command(self) -> list[str]:
        up = [sys.executable, "-m", "kwire", "up", "--port", str(self.port)]
        up += ["--data-dir", str(self.data), "--ready-file", str(self.ready_file), *self.options]
        for key, value in self.config.items():
            up += ["-c", f"{key}={value}"]
        return up

    def _ready(self) -> bool:
        import json

        try:
            said = json.loads(self.ready_file.read_text())
        except (OSError, ValueError):
            return False
        self.port = int(said["bootstrap"].rsplit(":", 1)[1])
        return True


class RealKafka(Broker):
    """Apache Kafka, one node, KRaft, storage formatted once and copied."""

    name = f"Apache Kafka {tooling.KAFKA_BROKER}"
    version = tooling.KAFKA_BROKER
    heap_mb = 512

    def _prepare(self) -> None:
        if not self.port:
            self.port, self.controller_port = free_port(), free_port()
            (self.folder / "server.properties").write_text(self._properties(self.controller_port))
        if not self.data.exists():
            shutil.copytree(self._formatted_storage(), self.data)

    def _properties(self, controller_port: int) -> str:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "broker.session.timeout.ms": "2000",  # back sooner after kill -9
            "broker.heartbeat.interval.ms": "500",
            **self.config,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())

    def _formatted_storage(self) -> Path:
        """A formatted, empty log directory: StorageTool costs seconds, so it runs once."""
        folder = tooling.BUILD / f"formatted-{self.version}"
        with tooling._locked("formatted"):
            if not (folder / "meta.properties").exists():
                shutil.rmtree(folder, ignore_errors=True)
                text = self._properties(1).replace(str(self.data), str(folder))
                (self.folder / "format.properties").write_text(text)
                argv = ["format", "-t", CLUSTER_ID, "-c", "format.properties"]
                argv = tooling.java_argv(self.version, "kafka.tools.StorageTool", *argv)
                tooling._run("format storage", argv, cwd=self.folder)
        return folder

    def _command(self) -> list[str]:
        # The broker keeps the optimising compiler: it is measured, too.
        heap = [f"-Xms{self.heap_mb}m", f"-Xmx{self.heap_mb}m", "-XX:+UseSerialGC"]
        jars = ["-cp", tooling.kafka_jars(self.version)]
        return [tooling.java(), *heap, *tooling.QUIET, *jars, "kafka.Kafka", "server.properties"]

    def _ready(self) -> bool:
        return answers_metadata(self.port)


class RealKafka4(RealKafka):
    """Apache Kafka 4: transactions of version 2 (KIP-890), with the newest metadata version."""

    version = tooling.KAFKA_BROKER_4
    name = f"Apache Kafka {version}"


def broker_class() -> type[Broker]:
    """Which broker the tests run against: kwire, or Kafka itself with REAL=1."""
    return RealKafka if os.environ.get("REAL") == "1" else KwireBroker
