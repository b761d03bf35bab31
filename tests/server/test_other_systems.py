"""What kwire does where Linux's facilities are missing, as on macOS (docs/macos.md): simulated here."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwire import Cluster, errors
from kwire.launch import registry
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.server import ports
from kwire.server.file_log_store import FileLogStore

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).resolve().parents[2]

# Modules that may name /proc, and what they do without it.
PROC = {
    "kwire/backends/engine.py": "the host's name alone tells machines apart",
    "kwire/launch/health.py": "in the image, which is Linux",
    "kwire/launch/registry.py": "an entry has no start time; its lock tells whether it runs",
    "kwire/forks/forked.py": "a process that was killed is noticed a moment later",
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "kwire").rglob("*.py")):
        if not {"protocol", "replication"} & set(path.relative_to(ROOT).parts):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def test_only_these_modules_read_proc() -> None:
    found = {
        name
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("/proc/")
    }
    assert found == PROC.keys()


# What Python has on Linux only, or not on macOS.
LINUX_ONLY = {
    *("sched_getaffinity", "sched_setaffinity", "memfd_create", "pidfd_open", "eventfd", "splice"),
    *("copy_file_range", "posix_fallocate", "posix_fadvise", "getrandom", "pipe2", "fdatasync"),
    *("O_TMPFILE", "O_PATH", "O_DIRECT", "O_NOATIME", "SO_PEERCRED", "SO_BINDTODEVICE"),
    *("TCP_USER_TIMEOUT", "TCP_QUICKACK", "TCP_INFO", "EPOLLIN", "sigtimedwait", "prctl"),
}


def test_nothing_is_used_that_only_linux_has() -> None:
    found = [
        f"{name}:{node.lineno} {node.attr}"
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in LINUX_ONLY
    ]
    assert found == []


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def refuse(path: str, *more: int, **options: int) -> int:
        if isinstance(path, str) and path.startswith("/proc/"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return really(path, *more, **options)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.usefixtures("no_proc")
def test_an_entry_of_the_registry_needs_no_proc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(registry.DIRECTORY_VARIABLE, str(tmp_path))
    assert registry.start_time("self") is None
    registration = registry.register({"bootstrap": "127.0.0.1:1"})
    (entry,) = tmp_path.iterdir()
    assert entry.name == f"{os.getpid()}-0{registry.SUFFIX}"
    assert '"started": null' in entry.read_text()
    registration.remove()
    assert list(tmp_path.iterdir()) == []


def test_ports_are_not_reserved_where_two_sockets_cannot_share_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (sys.platform == "linux") == ports._CAN_SHARE_PORTS
    monkeypatch.setattr(ports, "_CAN_SHARE_PORTS", False)
    assert ports.ReservedPorts(3).numbers == [0, 0, 0]
    with Cluster(2, topics=["t"]) as cluster:  # the kernel chooses at the bind
        assert cluster.produce("t", "x").offset == 0


def test_kwire_runs_on_asyncios_own_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with Cluster(2, topics=["t:1:2"]) as cluster:
        cluster.produce("t", "x")
        cluster.broker(1).kill()
        cluster.broker(1).start()
        cluster.wait_for(lambda c: c.partition("t", 0).isr == {1, 2}, timeout=20)


# --- file systems that ignore case


def test_a_file_system_that_ignores_case_is_noticed(tmp_path: Path) -> None:
    store = FileLogStore(str(tmp_path), fsync=False)
    assert store.ignores_case == (tmp_path / ".LOCK").exists()
    store.close()
    (tmp_path / ".LOCK").touch()  # as such a file system would say
    store = FileLogStore(str(tmp_path), fsync=False)
    assert store.ignores_case
    store.close()


def test_topics_that_differ_in_case_only_do_not_share_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really = FileLogStore.__init__

    def ignoring(store: FileLogStore, *arguments: object, **options: object) -> None:
        really(store, *arguments, **options)  # type: ignore[arg-type]
        store.ignores_case = True

    monkeypatch.setattr(FileLogStore, "__init__", ignoring)
    with Cluster(topics=["orders"]) as cluster:
        cluster.produce("orders", "tea")
        with pytest.raises(errors.KwireError):
            cluster.create_topic("Orders")
            cluster.produce("Orders", "coffee")
        assert [record.value for record in cluster.records("orders")] == [b"tea"]
        cluster.create_topic("other")
        cluster.delete_topic("Orders")
        assert cluster.topics() == {"orders": 1, "other": 1}


def test_the_refusal_names_both_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.log_config import LogConfig
    from kwire.replication.core.memory_log_store import MemoryLogStore
    from kwire.replication.log_dirs.manager import LogManager

    store = MemoryLogStore()
    store.ignores_case = True
    manager = LogManager(store, Clock(), Timers(), BrokerConfig(), cluster_id="cluster", node_id=1)
    manager.load()
    manager.get_or_create("orders", 0, b"1" * 16, LogConfig())
    with pytest.raises(KafkaError, match="does not tell Orders-0 from orders-0") as found:
        manager.get_or_create("Orders", 0, b"2" * 16, LogConfig())
    assert found.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    manager.get_or_create("Orders", 1, b"2" * 16, LogConfig())
    manager.delete("orders", 0)
    manager.get_or_create("Orders", 0, b"2" * 16, LogConfig())
