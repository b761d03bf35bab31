"""A fork server for tools/mutants.py: runs tests or simulations against one changed module at a time.

Started with its working directory in a copy of the tree. Reads tasks from stdin and answers on stdout, one line of
JSON each. A task: {"file", "text" (the changed source; absent: as it is), "by": "tests" with "tests" (arguments of
pytest; "lenient": they may be gone), or "sim" with "seeds" and "steps"; "cpu_s" and "wall_s" (limits)}. The answer:
{"killed_by": text or null, "cpu_s", "files": {test file: CPU seconds}}.

Each task runs in a child that was forked after pytest and the modules below the changed one were imported: that
is what makes a task take tenths of a second.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

TIME_OUT = "time-out"
_MEMORY_BYTES = 4 << 30
_PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly")
_KEPT = ("kwire.protocol", "kwire.errors")
"""Loaded once, before the fork, as no changed module but their own is below them."""


def preload() -> None:
    """Import what takes long and is the same for every task."""
    for name in ("pytest", "pytest_asyncio", "hypothesis", "uvloop", "click", "kwire.broker"):
        importlib.import_module(name)
    from hypothesis import Phase, settings

    # A failure counts, however large its example: no shrinking, and none is remembered.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", database=None, derandomize=True, phases=phases)
    settings.load_profile("mutants")


def forget_modules(changed: str) -> None:
    """Make the child import the changed module, and all that may depend on it, from the tree."""
    kept = () if changed.startswith(("protocol/", "kwire/errors")) else _KEPT
    for name in list(sys.modules):
        if name.partition(".")[0] == "kwire" and not name.startswith(kept or "\0"):
            del sys.modules[name]
    importlib.invalidate_caches()


class Recorder:
    """A plugin of pytest: the first failure, and the CPU time of each test file."""

    def __init__(self) -> None:
        self.killed_by: str | None = None
        self.files: dict[str, float] = {}
        self._began = time.process_time()

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.killed_by is None:
            self.killed_by = f"{report.nodeid} (not importable)"

    def pytest_runtest_logreport(self, report: Any) -> None:
        now = time.process_time()
        name = report.nodeid.partition("::")[0]
        self.files[name] = self.files.get(name, 0.0) + now - self._began
        self._began = now
        if report.failed and self.killed_by is None:
            self.killed_by = report.nodeid


def run_tests(task: dict[str, Any]) -> dict[str, Any]:
    import pytest

    recorder = Recorder()
    status = pytest.main([*_PYTEST, *task["tests"]], plugins=[recorder])
    killed_by = recorder.killed_by
    if killed_by is None and status != 0 and not task.get("lenient"):
        killed_by = f"pytest ended with {int(status)}"
    return {"killed_by": killed_by, "files": recorder.files}


def run_seeds(task: dict[str, Any]) -> dict[str, Any]:
    """Run seeds of the simulator until one fails."""
    from kwire.sim.command import failure_of, parse_seeds
    from kwire.sim.plan import Plan
    from kwire.sim.simulation import Simulation

    for seed in parse_seeds(task["seeds"]):
        failure = failure_of(Simulation(seed, steps=task["steps"], plan=Plan(seed)))
        if failure is not None:
            return {"killed_by": f"seed {seed}: {failure}"}
    return {"killed_by": None}


_KILLERS = {"tests": run_tests, "sim": run_seeds}


def child(task: dict[str, Any], answer: int) -> None:
    """Carry out a task and write the answer; never returns."""
    os.setsid()
    cpu_s = int(task["cpu_s"]) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 2))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    log = os.open("mutants.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.dont_write_bytecode = "text" in task  # only what is compiled from the tree as it is stays
    try:
        forget_modules(task.get("file", ""))
        result = _KILLERS[task["by"]](task)
    except BaseException as error:
        result = {"killed_by": f"{type(error).__name__}: {error}"}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result["cpu_s"] = usage.ru_utime + usage.ru_stime
    os.write(answer, json.dumps(result).encode())
    os._exit(0)


def forked(task: dict[str, Any]) -> dict[str, Any]:
    """Carry out a task in a child, within its limits."""
    began = time.monotonic()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        child(task, writer)
    os.close(writer)
    data = b""
    left_s = task["wall_s"]
    while left_s > 0 and select.select([reader], [], [], left_s)[0]:
        more = os.read(reader, 1 << 16)
        if not more:
            break
        data += more
        left_s = task["wall_s"] - (time.monotonic() - began)
    os.close(reader)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # the child's own session, with what it may have started
    _, status = os.waitpid(pid, 0)
    if data:
        return json.loads(data)
    is_late = left_s <= 0 or os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
    return {"killed_by": TIME_OUT if is_late else f"signal {os.WTERMSIG(status)}"}


def serve() -> None:
    sys.path.insert(0, str(Path.cwd()))
    sys.argv = ["pytest"]
    preload()
    gc.freeze()
    for line in sys.stdin:
        task = json.loads(line)
        path = Path(task["file"]) if "text" in task else None
        if path is None:
            result = forked(task)
        else:
            original, times = path.read_bytes(), path.stat()
            path.write_text(task["text"])
            os.utime(path, (0, time.time_ns() % 1_000_000_000))  # no compiled file is of that time
            try:
                result = forked(task)
            finally:
                path.write_bytes(original)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    serve()
