"""The pytest plugin in mode process: a new cluster for each test, and no process that outlives pytest."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from plugin_run import run_pytest

pytestmark = pytest.mark.timeout(120)

SESSION = """
import os, time
from kwire.forks import forked

def test_it(kwire):
    kwire.broker(2).pause()
    pids = [kwire._inner.node(each).pid for each in (1, 2, 1000)]
    with open("pids.new", "w") as file:
        print(*pids, forked._template._process.pid, os.getpid(), file=file)
    os.rename("pids.new", "pids")
    time.sleep(60)
"""


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def take_interrupts() -> None:
    """In a new process: a shell that runs these tests in the background has SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
@pytest.mark.parametrize("options", [(), ("-n1",)], ids=["alone", "xdist"])
def test_no_process_outlives_a_session(
    tmp_path: Path, options: tuple[str, ...], number: int
) -> None:
    (tmp_path / "test_it.py").write_text(SESSION)
    (tmp_path / "pytest.ini").write_text("[pytest]\nkwire_mode = process\nkwire_brokers = 2\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    run = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=take_interrupts,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "pids").exists():
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert all(map(runs, pids))
    run.send_signal(number)
    run.wait(60)
    while any(map(runs, pids)):
        assert time.monotonic() < deadline + 30, [pid for pid in pids if runs(pid)]
        time.sleep(0.01)


def test_workers_of_xdist_have_processes_of_their_own(tmp_path: Path) -> None:
    source = """
    import os, pytest
    from kwire.forks import forked

    SEEN = set()

    @pytest.mark.parametrize("number", range(12))
    def test_worker(kwire, number):
        kwire.create_topic("t")
        assert kwire.topics() == {"t": 1}
        kwire.broker(1).kill()
        assert kwire.bootstrap_servers not in SEEN
        SEEN.add(kwire.bootstrap_servers)
        with open("templates", "a") as file:
            print(forked._template._process.pid, file=file)
    """
    run = run_pytest(tmp_path, source, "-n2", "--kwire-mode=process")
    assert run.counts == {"passed": 12}, run.text
    templates = set((tmp_path / "templates").read_text().split())
    assert len(templates) == 2 and not any(runs(int(pid)) for pid in templates)


def test_fixtures_of_a_wider_scope_share_their_cluster_on_purpose(tmp_path: Path) -> None:
    source = """
    import pytest

    @pytest.fixture(scope="module")
    def shop(kwire_session_factory):
        with kwire_session_factory() as cluster:
            yield cluster

    @pytest.mark.parametrize("number", range(2))
    def test_share(shop, kwire_cluster, kwire_factory, kwire, number):
        assert len(shop.topics()) == len(kwire_cluster.topics()) == number
        assert kwire.topics() == kwire_factory().topics() == {}
        for each in (shop, kwire_cluster, kwire):
            each.create_topic(f"t{number}")
    """
    run = run_pytest(tmp_path, source, "--kwire-mode=process")
    assert run.counts == {"passed": 2}, run.text


def test_the_report_of_a_failed_test_shows_the_cluster_that_it_used(tmp_path: Path) -> None:
    source = """
    def test_before(kwire):
        kwire.create_topic("earlier")

    def test_it(kwire):
        kwire.create_topic("orders")
        kwire.broker(1).kill()
        assert kwire.topics() == {}, kwire.bootstrap_servers
    """
    options = ("--kwire-mode=process", "--kwire-report=pages")
    run = run_pytest(tmp_path, source, *options)
    assert run.counts == {"failed": 1, "passed": 1}, run.text
    assert "orders" in run.text and "earlier" not in run.text
    (page,) = (tmp_path / "pages").glob("*.html")
    assert "orders" in page.read_text()
