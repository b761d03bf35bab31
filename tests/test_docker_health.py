"""The health file of a container, and the image's check that reads it, as a program on this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kwire.launch.health import SEEN, read_health_file, remove_health_file, write_health_file

pytestmark = pytest.mark.timeout(60)

SSL_ONLY = ("-c", "security.inter.broker.protocol=SSL")
ONLY_1_2 = ("-c", "ssl.enabled.protocols=TLSv1.2")
ONLY_1_3 = ("-c", "ssl.enabled.protocols=TLSv1.3")
CHECK = Path(__file__).parent.parent / "docker" / "bin" / "kwire-health"


@pytest.fixture
def health_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "health"
    monkeypatch.setenv("KWIRE_HEALTH_FILE", str(path))
    return path


def check(*options: str) -> tuple[int, str]:
    """The status of a check, and what it says."""
    done = subprocess.run(
        ["bash", str(CHECK), *options], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.strip()


@contextmanager
def kwire_up(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A started `kwire up`: not yet ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kwire", "up", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_brokers_are_read_as_they_were_written(health_file: Path) -> None:
    assert read_health_file(str(health_file)) == []
    write_health_file(str(health_file), "127.0.0.1:9092,[::1]:9093")
    assert read_health_file(str(health_file)) == ["127.0.0.1:9092", "[::1]:9093"]
    remove_health_file(str(health_file))
    assert not health_file.exists()


def test_the_file_of_another_live_process_is_left_alone(health_file: Path) -> None:
    health_file.write_text(f"127.0.0.1 9092 {os.getppid()}\n")
    write_health_file(str(health_file), "127.0.0.1:1")
    remove_health_file(str(health_file))
    assert read_health_file(str(health_file)) == ["127.0.0.1:9092"]


def test_a_file_that_cannot_be_written_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "missing" / "health")
    write_health_file(path, "127.0.0.1:9092")
    said = capsys.readouterr().err
    assert said == f"kwire: no health check: {path}: No such file or directory\n"


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_broker_that_answers_is_healthy(health_file: Path, brokers: str) -> None:
    assert check() == (1, "not ready")
    with kwire_up("--brokers", brokers) as process:
        assert check("--watch") == (0, "")  # waits for the start
        assert len(read_health_file(str(health_file))) == int(brokers)
        assert check() == (0, "")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert check() == (1, "not ready")


@pytest.mark.parametrize(
    ("options", "brokers"),
    [
        (("--tls",), "1"),
        (("--tls",), "2"),
        (("--mtls", "--sasl", "plain", "--user", "alice:secret"), "1"),
        (("--tls", "-c", "listeners=SSL://127.0.0.1:0", *SSL_ONLY), "1"),
        (("--tls", "-c", "listeners=SSL://127.0.0.1:0", *SSL_ONLY, *ONLY_1_3), "1"),
        (("--mtls", "-c", "listeners=SSL://127.0.0.1:0", *SSL_ONLY, *ONLY_1_2), "1"),
    ],
)
def test_a_locked_broker_is_healthy_and_warns_of_no_check(
    health_file: Path, tmp_path: Path, options: tuple[str, ...], brokers: str
) -> None:
    log = tmp_path / "log"
    argv = [sys.executable, "-m", "kwire", "up", "--brokers", brokers, *options]
    argv += [] if "-c" in options else ["--port", "0"]
    with log.open("wb") as file:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=file)
    try:
        assert check("--watch") == (0, "")
        for _ in range(3):
            assert check() == (0, "")
        is_tls = any("SSL://" in option for option in options)
        assert [line.endswith(" tls") for line in health_file.read_text().splitlines()] == (
            [is_tls] * int(brokers)
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    said = [line for line in log.read_text().splitlines() if "WARN" in line or "ERROR" in line]
    assert [line for line in said if "inside the container only" not in line] == []


def test_a_restart_is_seen_again(health_file: Path) -> None:
    with kwire_up():
        assert check("--watch")[0] == 0
        assert Path(f"{health_file}{SEEN}").exists()
    with kwire_up() as process:
        assert process.stdout is not None and process.stdout.readline().startswith("ready ")
        assert not Path(f"{health_file}{SEEN}").exists()


def test_kwire_up_in_a_container_warns_of_a_port_that_cannot_be_published(
    health_file: Path,
) -> None:
    for more, warnings in ((), 1), (("--host", "0.0.0.0"), 0):
        done = subprocess.run(
            [sys.executable, "-m", "kwire", "up", "--port", "0", "--topic", "a:1:9", *more],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 2, done.stderr  # the replication factor
        assert done.stderr.count("accepts connections from inside the container only") == warnings


def test_one_broker_of_several_is_enough(health_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    with kwire_up() as process:
        assert process.stdout is not None
        port = process.stdout.readline().split()[1].rpartition(":")[2]
        health_file.write_text(f"127.0.0.1 {nobody} 1\n127.0.0.1 {port}\n")
        assert check() == (0, "")
    assert check() == (1, f"no connection to 127.0.0.1:{port}")


def test_a_watch_ends_soon_after_the_last_broker(health_file: Path) -> None:
    with kwire_up() as process:
        assert check("--watch")[0] == 0
        watch = subprocess.Popen(["bash", str(CHECK), "--watch"], stdout=subprocess.PIPE, text=True)
        process.kill()
        process.wait(20)
        begun = time.monotonic()
        said, _ = watch.communicate(timeout=40)
    assert watch.returncode == 1 and said.startswith("no connection to 127.0.0.1:")
    assert time.monotonic() - begun < 15


def test_an_unhealthy_container_is_healthy_as_soon_as_a_broker_is_back(health_file: Path) -> None:
    seen = Path(f"{health_file}{SEEN}")
    with kwire_up() as process:
        assert check("--watch")[0] == 0 and seen.read_text() == ""
        assert process.stdout is not None
        port = process.stdout.readline().split()[1].rpartition(":")[2]
        process.kill()
        process.wait(20)
    for failures in ("1", "2", "3"):  # the engine's --retries: it is unhealthy now
        assert check("--watch")[0] == 1 and seen.read_text().strip() == failures
    kept = health_file.read_text()
    watch = subprocess.Popen(["bash", str(CHECK), "--watch"], stdout=subprocess.PIPE, text=True)
    with subprocess.Popen(
        [sys.executable, "-m", "kwire", "up", "--port", port],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "KWIRE_HEALTH_FILE": f"{health_file}.other"},
    ) as again:
        assert again.stdout is not None and again.stdout.readline().startswith(b"ready ")
        begun = time.monotonic()
        if watch.wait(40):  # it had waited for its 5 s on a slow machine: the next one is at once
            assert check("--watch") == (0, "")
        assert time.monotonic() - begun < 15  # not 20 s of looking first
        assert seen.read_text() == "" and health_file.read_text() == kept
        again.kill()


def test_a_broker_that_is_silent_is_not_healthy(health_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        health_file.write_text(f"127.0.0.1 {port} 1\n")
        assert check() == (1, f"no answer from 127.0.0.1:{port}")
