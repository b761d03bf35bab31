"""Snapshots of a standalone broker and of several log directories; under load; and by processes that are killed."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cluster_clients import consume, produce
from confluent_kafka import KafkaException, Producer
from server_harness import kwire_up
from test_snapshots import digests

import kwire
import kwire.aio
from kwire import errors
from kwire.backends.standalone import Standalone
from kwire.launch.node_runner import NodeRunner
from kwire.launch.spec import NodeSpec
from kwire.snapshots import restoring, saved
from kwire.snapshots.tree import has_restore

pytestmark = pytest.mark.timeout(90)


# --- a standalone broker


class Up:
    """A `kwire up` with one broker, asked over HTTP."""

    def __init__(self, process: Any, line: str) -> None:
        self.process = process
        self.bootstrap = line.split("bootstrap=")[1].split()[0]
        self._address = line.split("control=http://")[1].split()[0]

    def ask(self, request: str, body: Any = None, expected: int = 200) -> Any:
        method, _, path = request.partition(" ")
        connection = http.client.HTTPConnection(self._address, timeout=20)
        connection.request(method, path, json.dumps(body or {}))
        response = connection.getresponse()
        found = json.loads(response.read())
        assert response.status == expected, found
        connection.close()
        return found

    def values(self, topic: str) -> list[str]:
        found = self.ask(f"GET /v1/topics/{topic}/records")["records"]
        return sorted(each["value"] for each in found)


@contextmanager
def up(*words: str) -> Iterator[Up]:
    with kwire_up(*words) as (process, line):
        yield Up(process, line)


def test_a_standalone_broker_goes_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up("--data-dir", str(data), "--topic", "t:2") as broker:
        produce(broker.bootstrap, "t", ["a", "b"])
        assert len(consume(broker.bootstrap, "t", 2, "readers")) == 2
        base = broker.ask("POST /v1/snapshots", {"name": "base"})
        assert (base["brokers"], base["controllers"], base["log_dirs"]) == (1, 0, 1)
        files = digests(base["path"], suffix="")
        for _ in range(2):
            produce(broker.bootstrap, "t", ["c"] * 20)
            broker.ask("POST /v1/topics", {"name": "later"})
            broker.ask("POST /v1/clock", {"hours": 1})
            restored = broker.ask("POST /v1/snapshots/base/restore")
            assert restored == base and not has_restore(str(data))
            assert broker.ask("GET /v1/topics")["topics"] == {"t": 2}
            assert broker.values("t") == ["a", "b"]
            assert broker.ask("GET /v1/groups/readers")["offsets"][0]["topic"] == "t"
            assert broker.ask("GET /v1/clock")["offset_ms"] == 0
            assert broker.ask("GET /v1/failures") == {"failures": []}
        assert digests(base["path"], suffix="") == files
        events = broker.ask("GET /v1/events")["events"]
        assert [each["event"] for each in events].count("SNAPSHOT_RESTORED") == 2
        produce(broker.bootstrap, "t", ["d"])
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.wait(20) == 0
    with up("--data-dir", str(data)) as broker:  # a clean stop, and its snapshots are still there
        assert broker.values("t") == ["a", "b", "d"]
        assert [each["name"] for each in broker.ask("GET /v1/snapshots")["snapshots"]] == ["base"]
        broker.ask("POST /v1/snapshots/base/restore")
        assert broker.values("t") == ["a", "b"]
    with up("--snapshot", base["path"]) as other:
        assert other.values("t") == ["a", "b"]
        other.ask("POST /v1/snapshots", {"name": "x"})
        assert other.ask("GET /v1/brokers", expected=404)["message"].startswith("there is no GET")


def test_what_is_of_a_standalone_broker_is_no_clusters(tmp_path: Path) -> None:
    with up("--topic", "t") as broker:
        base = broker.ask("POST /v1/snapshots", {"name": "base"})
        saved.copy(saved.read(base["path"]), str(tmp_path / "base"))
    with pytest.raises(errors.ClusterStateError, match="is of a standalone broker: kwire up --sna"):
        kwire.Cluster.from_snapshot(tmp_path / "base")
    with (
        kwire.Cluster() as cluster,
        pytest.raises(errors.ClusterStateError, match="of a standalone broker, this is a cluster"),
    ):
        cluster.restore(tmp_path / "base")
    words = ("--snapshot", str(tmp_path / "base"), "--data-dir", str(tmp_path / "data"))
    with up(*words) as broker:
        assert broker.ask("GET /v1/topics")["topics"] == {"t": 1}
    with pytest.raises(AssertionError, match="holds data already"), up(*words):
        pass


def test_a_standalone_broker_that_cannot_start_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner is told, and the one that asked gets one line."""

    async def main() -> None:
        folder = kwire.server.temporary.TemporaryDirectory()
        spec = NodeSpec(
            node_id=1,
            values={"listeners": "PLAINTEXT://127.0.0.1:0", "node.id": "1"},
            data_dir=folder.path,
            temporary=True,
        )
        runner, halted = NodeRunner(spec), []
        runner.on_halted = halted.append
        await runner.start()
        cluster = kwire.aio.Cluster.of(runner)
        assert isinstance(cluster.inside, Standalone)
        base = await cluster.snapshot()
        await cluster.restore(base)
        assert runner.latest is not runner and not halted

        def broken(data_dir: str, _: Any) -> None:
            Path(data_dir, "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=7\n")

        monkeypatch.setattr(restoring, "replace", broken)
        with pytest.raises(errors.StartError, match="belongs to node 7"):
            await cluster.restore(base)
        assert len(halted) == 1 and "belongs to node 7" in halted[0]
        folder.remove()

    asyncio.run(main())


@pytest.mark.parametrize(
    "count", [10, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_restores_of_a_standalone_broker_leave_nothing_behind(count: int) -> None:
    with up("--topic", "t:3", "--log-level", "error") as broker:
        produce(broker.bootstrap, "t", ["a"])
        path = Path(broker.ask("POST /v1/snapshots", {"name": "base"})["path"]).parents[1]
        pid, seen = broker.process.pid, []
        for _ in range(count):
            broker.ask("POST /v1/snapshots/base/restore")
            produce(broker.bootstrap, "t", ["b"])
            assert broker.values("t") == ["a", "b"]
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            threads = len(os.listdir(f"/proc/{pid}/task"))
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            seen.append((descriptors, threads, sorted(os.listdir(path)), pages))
        early, late = seen[:5], seen[5:]
        assert all(each[2] == seen[0][2] for each in seen)
        for number, slack in ((0, 3), (1, 1)):
            most = max(each[number] for each in early) + slack
            assert max(each[number] for each in late) <= most, [each[number] for each in seen]
        middle = seen[len(seen) // 2][3]
        assert seen[-1][3] - middle < (20 << 20) // 4096  # the resident memory, in pages


# --- killed


def test_a_process_that_is_killed_while_it_saves_leaves_the_old_one_whole(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up("--data-dir", str(data), "--topic", "t:40") as broker:
        produce(broker.bootstrap, "t", ["a"] * 40)
        base = broker.ask("POST /v1/snapshots", {"name": "base"})
        files = digests(base["path"], suffix="")
        produce(broker.bootstrap, "t", ["b"] * 40)

        def save() -> None:
            with suppress(OSError, http.client.HTTPException, ValueError):
                broker.ask("POST /v1/snapshots", {"name": "base"})

        thread = threading.Thread(target=save)
        thread.start()
        folder = Path(base["path"])
        while len(os.listdir(folder)) < 3 and thread.is_alive():  # the new data beside the old
            pass
        broker.process.kill()
        broker.process.wait(20)
        thread.join(20)
    found = saved.read(str(folder))
    if found.created_ms == base["created_ms"]:  # else it was faster than the signal
        assert {name: files[name] for name in files} == {
            name: digest
            for name, digest in digests(folder, suffix="").items()
            if name.startswith(os.path.basename(found.data)) or "/" not in name
        }
    with up("--data-dir", str(data)) as broker:
        assert broker.values("t") == ["a"] * 40 + ["b"] * 40
        broker.ask("POST /v1/snapshots/base/restore")
        assert broker.values("t")[:40] == ["a"] * 40
        broker.ask("POST /v1/snapshots", {"name": "base"})
        assert len(os.listdir(folder)) == 2  # what the dead one has left is gone


@pytest.mark.parametrize("standalone", [True, False])
def test_a_restore_of_several_directories_that_was_killed(
    standalone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever rename was the last one: all directories are old, or all are new."""

    def make(folder: str, text: str) -> int:
        names = ("x-0", "y-0") if standalone else ("broker-1", "broker-2")
        for name in names:
            Path(folder, name).mkdir(parents=True)
            Path(folder, name, "file").write_text(text)
        return 1

    def copy(data: str) -> int:
        places = [saved.place(data, number, standalone=standalone) for number in (0, 1)]
        return sum(make(place, "new") for place in places)

    about = {"cluster_id": "c", "first_id": 1, "brokers": 1, "log_dirs": 2}
    about["controllers"] = int(not standalone)
    snapshot = saved.save(str(tmp_path / "base"), copy, **about)
    whole, states = os.rename, set()
    for deadly in range(1, 20):
        dirs = [str(tmp_path / f"{deadly}-{name}") for name in "ab"]
        for directory in dirs:
            make(directory, "old")
            Path(directory, ".lock").touch()
        calls = 0

        def rename(old: str, new: str) -> None:
            nonlocal calls
            calls += 1
            if calls == deadly:  # noqa: B023
                monkeypatch.setattr(
                    restoring, "delete_tree", lambda _: None
                )  # the dead clean up nothing
                raise InterruptedError
            whole(old, new)

        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", rename)
            with suppress(InterruptedError):
                restoring.replace(",".join(dirs), snapshot)
        monkeypatch.undo()
        assert restoring.is_open(",".join(dirs))
        restoring.finish(",".join(dirs))
        texts = {path.read_text() for each in dirs for path in Path(each).rglob("file")}
        assert len(texts) == 1 and not restoring.is_open(",".join(dirs))
        assert all(len(os.listdir(each)) == 3 for each in dirs)
        states |= texts
    assert states == {"old", "new"} and calls < 19


# --- several log directories


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_several_log_directories(isolation: str, tmp_path: Path) -> None:
    dirs = f"{tmp_path}/a,{tmp_path}/b"
    config = {"log.dirs": dirs}
    with kwire.Cluster(2, config, isolation=isolation, topics=["t:4:2"]) as cluster:
        for number in range(20):
            cluster.produce("t", f"{number}", partition=number % 4)
        cluster.wait_in_sync()
        base = cluster.snapshot("base")
        assert base.log_dirs == 2 and base.path.startswith(f"{tmp_path}/a/")
        assert all(digests(tmp_path / each / "broker-1") for each in "ab")
        for _ in range(2):
            cluster.delete_topic("t")
            cluster.restore(base)
            assert sorted(int(each.value) for each in cluster.records("t")) == list(range(20))
            cluster.wait_in_sync()
        with cluster.fork(base) as other:
            assert len(other.records("t")) == 20
            assert other.snapshot().log_dirs == 2
        cluster.snapshot(to=tmp_path / "base")
        with pytest.raises(errors.ClusterStateError, match="has 2 log directories, this cluster h"):
            kwire_of_one_directory_restores(tmp_path / "base")
    with kwire.Cluster.from_snapshot(tmp_path / "base", isolation=isolation) as again:
        assert len(again.records("t")) == 20
    with (
        pytest.raises(errors.StartError, match="has 2 log directories, not 1: name as many"),
        kwire.Cluster.from_snapshot(tmp_path / "base", data_dir=tmp_path / "c"),
    ):
        pass
    assert not has_restore(f"{tmp_path}/a") and not has_restore(f"{tmp_path}/b")


def kwire_of_one_directory_restores(path: Path) -> None:
    with kwire.Cluster(2) as cluster:
        cluster.restore(path)


def test_a_standalone_broker_with_several_log_directories(tmp_path: Path) -> None:
    with up("--data-dir", f"{tmp_path}/a,{tmp_path}/b", "--topic", "t:4") as broker:
        produce(broker.bootstrap, "t", ["a"] * 8)
        base = broker.ask("POST /v1/snapshots", {"name": "base"})
        produce(broker.bootstrap, "t", ["b"] * 8)
        broker.ask("POST /v1/snapshots/base/restore")
        assert broker.values("t") == ["a"] * 8
        saved.copy(saved.read(base["path"]), str(tmp_path / "base"))
    words = ("--snapshot", f"{tmp_path}/base", "--data-dir", f"{tmp_path}/c,{tmp_path}/d")
    with up(*words) as broker:
        assert broker.values("t") == ["a"] * 8


# --- under load


def test_logs_are_byte_equal_after_a_restore_and_a_fork_under_load() -> None:
    """On all replicas, and with what the snapshot has; the producers are stock ones, idempotent, and go on."""
    with kwire.Cluster(3, topics=["t:2:3"]) as cluster:
        stop = threading.Event()
        counts = {"a": 0, "b": 0}

        def load(name: str) -> None:
            config = {
                "bootstrap.servers": cluster.bootstrap_servers,
                "log_level": 0,
                "linger.ms": 1,
            }
            while not stop.is_set():  # a producer that is fenced off by Kafka's rules is replaced
                producer = Producer({**config, "enable.idempotence": True})
                with suppress(KafkaException):
                    while not stop.is_set():
                        producer.produce("t", f"{name}{counts[name]}", on_delivery=done(name))
                        producer.poll(0.001)
                    producer.flush(5)

        def done(name: str) -> Any:
            def delivered(error: Any, _: Any) -> None:
                counts[name] += error is None

            return delivered

        threads = [threading.Thread(target=load, args=(name,)) for name in counts]
        for thread in threads:
            thread.start()
        try:
            cluster.wait_for(lambda _: min(counts.values()) > 50, 30)
            base = cluster.snapshot("base")
            of_base = [digests(Path(base.data, f"broker-{broker}")) for broker in (1, 2, 3)]
            before = dict(counts)
            cluster.wait_for(lambda _: min(counts[name] - before[name] for name in counts) > 20, 30)
            with cluster.fork(base) as other:
                other.wait_in_sync()
                logs = [digests(broker.log_dir) for broker in other.brokers]
                assert logs[0] == logs[1] == logs[2]
            cluster.restore(base)
            before = dict(counts)
            cluster.wait_for(lambda _: min(counts[name] - before[name] for name in counts) > 20, 30)
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
        cluster.wait_in_sync()
        logs = [digests(broker.log_dir) for broker in cluster.brokers]
        assert logs[0] == logs[1] == logs[2]
        assert [digests(Path(base.data, f"broker-{each}")) for each in (1, 2, 3)] == of_base
        assert cluster.failures() == []


def test_an_idempotent_producer_goes_on_where_the_snapshot_has_all_that_it_has_written() -> None:
    with kwire.Cluster(3, topics=["t:1:3"]) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        producer = Producer({**config, "enable.idempotence": True})
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        def write(first: int) -> None:
            for number in range(first, first + 10):
                producer.produce("t", f"{number}", on_delivery=delivered)
            assert producer.flush(20) == 0

        write(0)
        base = cluster.snapshot()
        cluster.restore(base)
        write(10)
        assert failed == []
        assert [int(each.value) for each in cluster.records("t")] == list(range(20))
