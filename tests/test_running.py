"""Running clusters are found, waited for and stopped: the registry, --detach, status, down, wait."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import server_harness

from kwire.launch import registry, running
from kwire.server.errors import NodeError, SettingsError
from kwire.tools import clusters

TIMEOUT = 20
ENTRY: dict[str, str | int | bool | None] = {
    "version": "0",
    "ready_ms": 1,
    "bootstrap": "localhost:19092",
    "addresses": "127.0.0.1:9092",
    "control": "http://127.0.0.1:41234",
    "data_dir": '/a "quoted" dir',
    "temporary": True,
    "log": None,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The registry of one test."""
    path = tmp_path / "running"
    monkeypatch.setenv("KWIRE_RUNTIME_DIR", str(path))
    return path


def kwire(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kwire", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        **more,  # type: ignore[call-overload]
    )


def said(result: subprocess.CompletedProcess[str], status: int) -> str:
    """The only line on stderr."""
    assert result.returncode == status, result
    (line,) = result.stderr.splitlines()
    return line


def ends(pid: int) -> bool:
    """Waits until a process that is nobody's child has ended."""
    poll = getattr(os, "pidfd_open", None)
    if poll is None:
        pytest.skip("no pidfd_open")
    import select

    try:
        descriptor = poll(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], TIMEOUT)[0])
    finally:
        os.close(descriptor)


# --- the registry


def test_an_entry_is_there_from_register_to_remove(folder: Path) -> None:
    registration = registry.register(ENTRY)
    assert os.stat(folder).st_mode & 0o777 == 0o700
    (found,) = running.all_running()
    assert {**ENTRY, "pid": os.getpid(), "started": registry.start_time("self")} == found.entry
    assert found.ports == {19092, 9092, 41234}
    assert running.choose() is not None
    registration.remove()
    assert running.all_running() == []
    assert list(folder.iterdir()) == []
    os.close(registration._descriptor)


def test_a_cluster_that_starts_is_found_by_down_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration = registry.begin()
    assert running.all_running() == [] and running.choose() is None
    (found,) = running.all_starting()
    assert (found.pid, found.ports) == (os.getpid(), set())
    assert str(found) == f"kwire up that is starting (pid {os.getpid()})"
    assert running.choose(os.getpid(), starting=True) is not None
    assert "a kwire up that is starting" in kwire("status").stdout
    registration.fill(ENTRY)
    assert running.all_starting() == [] and len(running.all_running()) == 1
    registration.remove()
    assert list(folder.iterdir()) == []
    os.close(registration._descriptor)


def test_a_start_is_stopped_by_down(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "kwire", "up", "--port", "0", "--brokers", "9"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 30
        while not (found := running.all_starting()) and time.monotonic() < deadline:
            assert process.poll() is None
        assert [each.pid for each in found] == [process.pid]
        done = kwire("down")
        ready, _ = process.communicate(timeout=30)
    assert done.returncode == 0 and done.stdout in (
        f"stopped kwire up that is starting (pid {process.pid})\n",
        f"stopped kwire up at {ready.partition('bootstrap=')[2].partition(' ')[0]} (pid {process.pid})\n",
    )
    assert process.returncode == 0
    assert [each for each in folder.iterdir() if each.suffix == ".starting"] == []


def test_an_entry_that_nobody_holds_is_removed(folder: Path) -> None:
    registration = registry.register(ENTRY)
    os.close(registration._descriptor)  # as the end of the process does
    assert running.all_running() == []
    assert list(folder.iterdir()) == []


def test_a_pid_of_another_process_is_not_taken_for_ours(folder: Path) -> None:
    """A container that shares the directory has pids of its own: SIGTERM would hit a stranger."""
    registration = registry.register(ENTRY)
    path = Path(registration.path)
    entry = json.loads(path.read_text())
    with open(path, "r+") as file:
        file.write(json.dumps({**entry, "started": entry["started"] + 1}) + " " * 9)
    assert running.all_running() == []
    assert path.exists()
    os.close(registration._descriptor)


def test_what_is_no_entry_is_passed_over(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    for text in ("", "[]", "{}", '{"pid": 1}', "\0"):
        with open(folder / "7-1.json", "w") as file:
            file.write(text)
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX)
            assert running.all_running() == []


def test_a_directory_that_others_could_write_to_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(registry.RegistryError, match="is writable for other users"):
        registry.register(ENTRY)
    folder.rmdir()
    folder.symlink_to(folder.parent)
    with pytest.raises(registry.RegistryError, match="is no directory"):
        registry.register(ENTRY)
    assert running.all_running() == []


def test_without_a_session_directory_it_is_below_tmp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KWIRE_RUNTIME_DIR")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    own = f"/tmp/kwire-{os.getuid()}"
    assert registry.directories() == [own]
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert registry.directories() == [f"{tmp_path}/kwire", own]
    assert registry.runtime_directory() == f"{tmp_path}/kwire"


def test_of_several_one_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = running.Running("", {**ENTRY, "pid": 1})
    other = running.Running(
        "",
        {
            **ENTRY,
            "pid": 2,
            "bootstrap": "127.0.0.1:7",
            "addresses": "127.0.0.1:7",
            "control": None,
        },
    )
    monkeypatch.setattr(running, "all_running", lambda: [one, other])
    assert running.choose(9092) is one
    assert running.choose(2) is other
    with pytest.raises(SettingsError) as several:
        running.choose()
    assert str(several.value) == (
        "2 are running: localhost:19092 (pid 1), 127.0.0.1:7 (pid 2); name one by --port PORT"
    )
    with pytest.raises(NodeError, match="no kwire up with port or pid 8 is running; there is"):
        running.choose(8)
    failure = "broker 1: cannot listen on 127.0.0.1:7 (listener P): the port is taken by another"
    assert running.holder_text(failure) == (
        "port 7 is in use by kwire up, pid 2; kwire down 7 stops it"
    )
    assert running.holder_text(failure.replace(":7", ":8")) is None


# --- the commands


def test_up_in_front_is_seen_and_stopped(folder: Path) -> None:
    with server_harness.kwire_up() as (process, ready):
        bootstrap = ready.split()[1].removeprefix("bootstrap=")
        (entry,) = json.loads(kwire("status", "--json").stdout)
        assert (entry["pid"], entry["bootstrap"]) == (process.pid, bootstrap)
        assert kwire("wait").stdout == ready
        port = bootstrap.rpartition(":")[2]
        taken = kwire("up", "--port", port, "--log-level", "error")
        assert said(taken, 1) == (
            f"kwire up: port {port} is in use by kwire up, pid {process.pid}; kwire down stops it;"
            " another port: --port"
        )
        control = ready.rpartition(":")[2].strip()
        taken = kwire("up", "--port", "0", "--control-port", control, "--log-level", "error")
        assert said(taken, 1).endswith("; kwire down stops it; another port: --control-port")
        assert (
            kwire("down", port).stdout == f"stopped kwire up at {bootstrap} (pid {process.pid})\n"
        )
        assert process.wait(TIMEOUT) == 0
    assert list(folder.iterdir()) == []


def test_a_killed_one_is_forgotten(folder: Path) -> None:
    with server_harness.kwire_up() as (process, _):
        process.kill()
        process.wait(TIMEOUT)
        assert len(list(folder.iterdir())) == 1
        result = kwire("status")
        assert (result.returncode, result.stdout) == (1, "no kwire up is running\n")
        assert list(folder.iterdir()) == []


def test_detach_returns_when_it_is_ready_and_outlives_its_session(folder: Path) -> None:
    started = kwire("up", "--detach", "--port", "0", "--topic", "orders:3", start_new_session=True)
    assert started.returncode == 0, started
    (entry,) = json.loads(kwire("status", "--json").stdout)
    pid, log = entry["pid"], entry["log"]
    assert started.stdout == f"ready bootstrap={entry['bootstrap']} control={entry['control']}\n"
    assert started.stderr == f"kwire up: pid {pid}, log {log}; stop it with: kwire down\n"
    assert os.getsid(pid) == pid
    assert "listening" in Path(log).read_text()
    host, _, port = entry["bootstrap"].rpartition(":")
    socket.create_connection((host, int(port)), 5).close()
    again = kwire("up", "--detach", "--port", port)
    assert said(again, 1) == (
        f"kwire up: port {port} is in use by kwire up, pid {pid}; kwire down stops it;"
        " another port: --port"
    )
    assert kwire("down").returncode == 0
    assert ends(pid)
    assert "stopped" in Path(log).read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["-c", "num.partitions=x"], 2, "num.partitions"),
        (["--config", "/nowhere"], 1, "/nowhere"),
        (["--brokers", "2", "-c", "listeners=SSL://:1"], 2, "no listener"),
    ],
)
def test_a_detached_start_that_fails_is_that_of_the_foreground(
    folder: Path, arguments: list[str], status: int, words: str
) -> None:
    line = said(kwire("up", "--detach", *arguments), status)
    assert line == said(kwire("up", "--log-level", "error", *arguments), status)
    assert words in line
    assert not [path for path in folder.iterdir() if path.suffix == ".json"]


def test_warnings_of_a_detached_start_are_seen(folder: Path) -> None:
    started = kwire("up", "--detach", "--port", "0", "-c", "num.partition=3")
    try:
        assert "num.partitions" in started.stderr.splitlines()[0]
    finally:
        assert kwire("down", "--all").returncode == 0


def test_a_detached_one_holds_nothing_that_its_caller_has_open(folder: Path) -> None:
    held, end = os.pipe()
    try:
        started = kwire("up", "--detach", "--port", "0", pass_fds=(end,))
        assert started.returncode == 0
        os.close(end)
        assert os.read(held, 1) == b""  # nobody else has the other end
    finally:
        os.close(held)
        kwire("down", "--all")


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_foreground_start_with_closed_streams(folder: Path, closed: str, brokers: str) -> None:
    """It runs, without a log."""
    command = f"exec {sys.executable} -m kwire up --port 0 --brokers {brokers} {closed}"
    process = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready bootstrap=")
        assert kwire("status").returncode == 0
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_detach_with_closed_streams(folder: Path, closed: str) -> None:
    command = f"{sys.executable} -m kwire up --detach --port 0 {closed}"
    started = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=TIMEOUT)
    try:
        assert started.returncode == 0, started
        assert started.stdout.startswith("ready bootstrap=")
    finally:
        assert kwire("down").stdout.startswith("stopped ")


def test_detach_without_stdout_or_a_registry_is_one_line(folder: Path) -> None:
    command = f"{sys.executable} -m kwire up --detach --port 0 >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=TIMEOUT)
    assert said(done, 1) == "kwire up: nobody reads the ready line: stdout is closed"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    assert "is writable for other users" in said(kwire("up", "--detach", "--port", "0"), 1)


def test_a_foreground_start_works_without_a_registry(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with server_harness.kwire_up() as (process, _):
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0
    assert "is writable for other users" in errors


def test_down_wait_and_status_when_nothing_runs(folder: Path) -> None:
    result = kwire("down")
    assert (result.returncode, result.stdout) == (0, "no kwire up is running\n")
    assert "with port or pid 9092" in said(kwire("down", "9092"), 1)
    assert said(kwire("down", "9092", "--all"), 2).startswith("kwire down: ")
    assert "within 0 s" in said(kwire("wait", "--timeout", "0"), 1)
    assert json.loads(kwire("status", "--json").stdout) == []


def test_wait_does_not_choose_between_two(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"bootstrap": "127.0.0.1:7", "addresses": "127.0.0.1:7", "control": None}
    both = [
        running.Running("", {**ENTRY, "pid": 1}),
        running.Running("", {**ENTRY, **other, "pid": 2}),
    ]
    monkeypatch.setattr(clusters, "all_running", lambda: both)
    with pytest.raises(SettingsError) as several:
        clusters.wait(None, None, 0)
    assert str(several.value) == (
        "2 are running: localhost:19092 (pid 1), 127.0.0.1:7 (pid 2); name one by kwire wait PORT"
    )
    assert clusters.wait(7, None, 0) == 0
    assert capsys.readouterr().out == "ready bootstrap=127.0.0.1:7\n"


def test_wait_for_addresses(folder: Path) -> None:
    with server_harness.kwire_up() as (_, ready):
        bootstrap = ready.split()[1].removeprefix("bootstrap=")
        assert kwire("wait", "--bootstrap", bootstrap).stdout == f"ready bootstrap={bootstrap}\n"
    line = said(kwire("wait", "--bootstrap", bootstrap, "--timeout", "0.01"), 1)
    assert "not ready within 0.01 s" in line and bootstrap in line
    assert "no HOST:PORT" in said(kwire("wait", "--bootstrap", "x"), 2)


def test_status_of_several_brokers_has_their_states(folder: Path) -> None:
    with server_harness.kwire_up("--brokers", "2"):
        lines = kwire("status").stdout.splitlines()
        states = [line.split()[:1] + line.split()[3:] for line in lines if "running" in line]
        assert states == [["controller", "running", "active"]] + [["broker", "running"]] * 2


# --- the ready file


def test_a_ready_file_goes_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    program = """
import os, sys

class Probe:
    def find_spec(self, name, *_):
        if name == "kwire.cli":
            os.write(1, b"there" if os.path.exists(sys.argv[-1].removeprefix("--ready-file=")) else b"gone")
            os._exit(0)

sys.meta_path.insert(0, Probe())
from kwire.__main__ import main
main()
"""
    for command, options, expected in (
        ("up", ["--ready-file", str(path)], "gone"),
        ("up", [f"--ready-file={path}"], "gone"),
        ("ctl", ["--ready-file", str(path)], "there"),
    ):
        path.write_text("of an earlier run")
        done = subprocess.run(
            [sys.executable, "-c", program, command, *options],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.stdout == expected, done
