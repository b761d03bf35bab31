"""Temporary data directories, also of processes that are killed."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kwire.server.temporary import TemporaryDirectory, sweep

pytestmark = pytest.mark.timeout(60)

CLUSTER = """
import sys
from kwire import Cluster
with Cluster(2, isolation="{isolation}") as cluster:
    print("ready", cluster._inner.node(1).pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts something that says "ready" and whose temporary directories are in tmp_path."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready"), line
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def directories(folder: Path) -> set[Path]:
    return set(folder.glob("kwire-*"))


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


UP = ("-m", "kwire", "up", "--port", "0")


@pytest.mark.parametrize(
    "command",
    [
        UP,
        (*UP, "--brokers", "2"),
        ("-c", CLUSTER.format(isolation="thread")),
    ],
    ids=["one broker", "several", "Cluster"],
)
def test_who_ends_takes_along_what_the_killed_have_left(
    command: tuple[str, ...], tmp_path: Path, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    kill(start(*command))
    (left,) = directories(tmp_path)
    living = start(*command)
    (its_own,) = directories(tmp_path) - {left}
    for stop in (signal.SIGINT, signal.SIGTERM):
        another = start(*UP)
        another.send_signal(stop)
        assert another.wait(20) == 0
        assert directories(tmp_path) == {its_own}
    assert living.poll() is None and any(its_own.iterdir())


def test_a_node_that_outlives_its_supervisor_keeps_its_directory(
    tmp_path: Path, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    code = CLUSTER.replace('print("ready"', 'cluster.broker(1).pause()\n    print("ready"')
    process = start("-c", code.format(isolation="process"))
    # The node's process stands still: it cannot notice that nobody supervises it any more.
    (found,) = directories(tmp_path)
    pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
    nodes = [pid for pid in pids if str(found).encode() in command_line(pid)]
    kill(process)
    try:
        assert sweep(str(tmp_path)) == []
        assert found.exists() and nodes
    finally:
        for pid in nodes:
            if str(found).encode() in command_line(pid):
                os.kill(pid, signal.SIGKILL)
    while not all(has_ended(pid) for pid in nodes):
        pass
    assert sweep(str(tmp_path)) == [str(found)]
    assert not found.exists()


def has_ended(pid: int) -> bool:
    """Gone, or a zombie without threads: only then are its locks released (its command line is gone before)."""
    try:
        ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        return ended and os.listdir(f"/proc/{pid}/task") == [str(pid)]
    except OSError:
        return True


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_only_what_is_ours_is_swept(tmp_path: Path) -> None:
    """Not without the mark, not another's name, nothing behind a link, nobody's who lives."""
    others = ["kwire-demo-12345678", "kwire-1-123", "other-1-12345678", "kwire-1-12345678"]
    for name in others:
        (tmp_path / name).mkdir()
        if name != others[-1]:
            (tmp_path / name / ".kwire-temporary").touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".kwire-temporary").touch()
    (tmp_path / "kwire-2-12345678").symlink_to(elsewhere)
    (tmp_path / "kwire-3-12345678").touch()
    mine = TemporaryDirectory(str(tmp_path / f"kwire-{os.getpid()}-12345678"))
    before = set(tmp_path.iterdir())
    assert sweep(str(tmp_path)) == []
    assert set(tmp_path.iterdir()) == before and elsewhere.is_dir()
    mine.remove()
    mine.remove()
    assert not Path(mine.path).exists()


def test_a_removal_may_stop_anywhere_and_be_finished(tmp_path: Path) -> None:
    for steps in range(1, 5):
        folder = TemporaryDirectory(str(tmp_path / f"kwire-{os.getpid()}-12345678"))
        for number in range(3):
            (Path(folder.path) / f"orders-{number}").mkdir()
            (Path(folder.path) / f"orders-{number}" / "0.log").touch()
        (Path(folder.path) / "link").symlink_to(tmp_path)
        removal = folder.removal()
        for _ in range(steps):
            next(removal)
        left = len(list(Path(folder.path).glob("orders-*")))
        assert left == max(3 - steps, 0)
        removal.close()
        folder.remove()
        assert not Path(folder.path).exists() and tmp_path.exists()


def test_the_pid_in_the_name_means_nothing(tmp_path: Path) -> None:
    """It may be somebody else's by now, or count in another container."""
    dead = tmp_path / f"kwire-{os.getpid()}-12345678"
    dead.mkdir()
    (dead / ".kwire-temporary").touch()
    (dead / "broker-1").mkdir()
    (dead / "broker-1" / ".lock").touch()
    assert sweep(str(tmp_path)) == [str(dead)]
    assert sweep(str(tmp_path / "nothing")) == []


def test_a_sweep_that_comes_while_a_directory_is_made_finds_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, found = os.rename, []

    def renamed(old: str, new: str) -> None:
        found.append(sweep(str(tmp_path)))
        rename(old, new)
        found.append(sweep(str(tmp_path)))

    monkeypatch.setattr(os, "rename", renamed)
    TemporaryDirectory(str(tmp_path / "kwire-1-12345678")).remove()
    assert found == [[], []]


def test_there_is_no_place_for_it(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.touch()
    environment = {**os.environ, "TMPDIR": str(place)}
    done = subprocess.run(
        [sys.executable, "-m", "kwire", "up", "--port", "0"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 1 and "temporary directory" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    shutil.rmtree(tmp_path, ignore_errors=True)
