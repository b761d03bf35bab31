"""The three brokers of a comparison as processes, and what can be seen of a process from outside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from compat_tests import tooling
from compat_tests.brokers import (
    Broker,
    BrokerFailed,
    KwireBroker,
    RealKafka,
    answers_metadata,
    free_port,
)

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


def cpu_ms(pid: int) -> float:
    """CPU time of the process and its descendants so far, user and system, in milliseconds.

    To the nanosecond for threads that live (schedstat); what ended threads used counts, too, but only
    in the clock ticks (10 ms) of /proc/PID/stat."""
    total = 0.0
    for each in process_tree(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            tasks = list(Path(f"/proc/{each}/task").glob("*/schedstat"))
            exact = sum(int(task.read_text().split()[0]) for task in tasks) / 1e6
        except (OSError, IndexError):
            continue
        ticks = (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
        total += max(exact, ticks)
    return total


_WARM = "import mmap, sys\nm = mmap.mmap(-1, int(sys.argv[1]) << 20)\nfor i in range(0, len(m), 4096): m[i] = 1"


def warm_memory(mib: int = 1024) -> None:
    """Touch memory and free it again, so that the machine has pages at hand.

    In a virtual machine the first touch of a page that the host has not backed costs about twenty times
    as much as that of one it has; freed memory goes back to the host within seconds. Without this
    the broker that writes last in a round pays for the others."""
    subprocess.run([sys.executable, "-c", _WARM, str(mib)], check=True)


class ReadyByMetadata(Broker):
    """Starts on a port chosen here, ready at its first answer to Metadata: the same for every broker."""

    poll_s = 0.001

    def _ready(self) -> bool:
        return answers_metadata(self.port)


class Kwire(ReadyByMetadata, KwireBroker):
    name = "kwire"
    script = Path(sys.executable).parent / "kwire"
    """Set to that of an installed wheel (`installed_wheel`): a checkout pays for its finder at each start."""

    def _prepare(self) -> None:
        self.port = self.port or free_port()

    def _command(self) -> list[str]:
        return [str(self.script), "up", "--port", str(self.port), "--data-dir", str(self.data)]

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


class Kfake(ReadyByMetadata):
    name = "kfake"

    def _command(self) -> list[str]:
        self.port = self.port or free_port()
        return [tooling.go_program(KLOAD, "./kfake", "kfake"), "--port", str(self.port)]


class Kafka(RealKafka):
    heap_mb = 1024


BROKERS: dict[str, type[Broker]] = {"kwire": Kwire, "kfake": Kfake, "kafka": Kafka}


def installed_wheel(root: Path, folder: Path) -> Path:
    """Build a wheel of the checkout `root`, install it below `folder` and return its `kwire`.

    Its dependencies are those of the Python that runs this, so that nothing is downloaded."""
    source = folder / "source"  # a copy: builds leave build/ and *.egg-info behind
    source.mkdir(parents=True)
    for name in ("pyproject.toml", "setup.cfg", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy2(root / name, source)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("kwire", "protocol", "replication"):
        shutil.copytree(root / name, source / name, symlinks=True, ignore=ignored)
    environment = folder / "venv"
    python = environment / "bin" / "python"
    commands: tuple[list[str | Path], ...] = (
        [sys.executable, "-m", "build", "-q", "--wheel", "--no-isolation", "-o", folder, source],
        [sys.executable, "-m", "venv", "--without-pip", environment],
    )
    for command in commands:
        _run(command)
    (wheel,) = folder.glob("*.whl")
    (libraries,) = environment.glob("lib/python*/site-packages")
    (libraries / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python]
    _run([*pip, "install", "-q", "--no-deps", "--no-index", "--compile", wheel])
    return environment / "bin" / "kwire"


def _run(command: list[str | Path]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise BrokerFailed(f"{command[2]}: {(done.stdout + done.stderr).strip()[-500:]}")


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
    figures = {"start_ms": start_ms, "start_cpu_ms": cpu_ms(broker.pid)}
    return broker, {**figures, "rss_mb": resident_mb(broker.pid)}
