"""The three brokers of a comparison as processes, and what can be seen of a process from outside."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from compat_tests import tooling
from compat_tests.brokers import Broker, KwireBroker, RealKafka, answers_metadata, free_port

HERE = Path(__file__).resolve().parent
KLOAD = HERE / "kload"


def process_tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        for children in Path(f"/proc/{current}/task").glob("*/children"):
            try:
                todo += map(int, children.read_text().split())
            except OSError:
                continue  # ended meanwhile
    return found


def resident_mb(pid: int) -> float:
    """Resident memory of the process and its descendants, in MiB."""
    total_kib = 0
    for each in process_tree(pid):
        try:
            status = Path(f"/proc/{each}/status").read_text()
        except OSError:
            continue
        total_kib += sum(
            int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")
        )
    return total_kib / 1024


class ReadyByMetadata(Broker):
    """Starts on a port chosen here, ready at its first answer to Metadata: the same for every broker."""

    poll_s = 0.001

    def _ready(self) -> bool:
        return answers_metadata(self.port)


class Kwire(ReadyByMetadata, KwireBroker):
    name = "kwire"

    def _prepare(self) -> None:
        self.port = self.port or free_port()

    def _command(self) -> list[str]:
        script = Path(sys.executable).parent / "kwire"
        return [str(script), "up", "--port", str(self.port), "--data-dir", str(self.data)]


class Kfake(ReadyByMetadata):
    name = "kfake"

    def _command(self) -> list[str]:
        self.port = self.port or free_port()
        return [tooling.go_program(KLOAD, "./kfake", "kfake"), "--port", str(self.port)]


class Kafka(RealKafka):
    heap_mb = 1024


BROKERS: dict[str, type[Broker]] = {"kwire": Kwire, "kfake": Kfake, "kafka": Kafka}


def started(name: str, folder: Path) -> tuple[Broker, dict[str, float]]:
    """A running broker, milliseconds from exec to its first Metadata answer, and its memory then.

    Everything that can be done before (formatting storage, building, copying) is done before.
    """
    shutil.rmtree(folder, ignore_errors=True)
    broker = BROKERS[name](folder)
    broker._prepare()
    broker._command()
    begin = time.perf_counter()
    broker.start()
    start_ms = (time.perf_counter() - begin) * 1000
    return broker, {"start_ms": start_ms, "rss_mb": resident_mb(broker.pid)}
