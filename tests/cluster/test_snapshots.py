"""`snapshot`, `restore` and `fork`: what comes back, what clients see, what is left behind."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_clients import consume, produce
from plugin_run import run_pytest
from server_harness import kwire_up

import kwire
import kwire.aio
from kwire import errors
from kwire.client.retries import repeat
from kwire.client.streams import ask
from kwire.client.transactions import init_producer_id
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kwire.snapshots import restoring, saved
from kwire.snapshots.tree import has_restore


def digests(folder: str | Path, *, suffix: str = ".log") -> dict[str, str]:
    """The digests of the files below a folder, by path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in Path(folder).rglob("*")
        if path.is_file() and path.name.endswith(suffix) and path.stat().st_size
    }


def data_of(cluster: kwire.Cluster) -> Path:
    return Path(cluster.broker(1).log_dir).parent


def logs_of(cluster: kwire.Cluster) -> dict[str, str]:
    """The digests of all brokers' logs."""
    found: dict[str, str] = {}
    for broker in cluster.brokers:
        for name, digest in digests(broker.log_dir).items():
            found[f"{broker.id}/{name}"] = digest
    return found


def test_what_was_there_is_there_again() -> None:
    with kwire.Cluster(brokers=3, topics=["orders:2:3"]) as cluster:
        produce(cluster.bootstrap_servers, "orders", [f"v{n}" for n in range(50)])
        assert len(consume(cluster.bootstrap_servers, "orders", 20, "readers")) >= 20
        cluster.elect("orders", 0, leader=3)
        cluster.wait_in_sync()
        group = cluster.group("readers")
        before = cluster.partition("orders", 0)
        base = cluster.snapshot("base")
        logs = logs_of(cluster)
        saved_files = digests(base.path, suffix="")
        for _ in range(2):
            produce(cluster.bootstrap_servers, "orders", ["more"] * 30)
            consume(cluster.bootstrap_servers, "orders", 60, "readers")
            cluster.create_topic("later")
            cluster.broker(2).kill()
            cluster.elect("orders", 0, leader=1)
            cluster.clock.advance(hours=1)
            cluster.restore(base)
            assert "clock" not in cluster.describe()
            assert cluster.topics() == {"orders": 2}
            assert len(cluster.records("orders")) == 50
            after = cluster.partition("orders", 0)
            assert (after.leader, after.leader_epoch, after.isr) == (
                before.leader,
                before.leader_epoch,
                before.isr,
            )
            assert cluster.group("readers").offsets == group.offsets
            assert logs_of(cluster) == logs
        produce(cluster.bootstrap_servers, "orders", ["last"], acks="all")
        assert cluster.records("orders", 0)[-1].value == b"last"
        assert digests(base.path, suffix="") == saved_files
        assert cluster.failures() == []


def test_names_are_counted_listed_replaced_and_deleted() -> None:
    with kwire.Cluster(topics=["t"]) as cluster:
        assert cluster.snapshots() == []
        assert [cluster.snapshot().name for _ in range(2)] == ["snapshot-1", "snapshot-2"]
        cluster.delete_snapshot("snapshot-1")
        assert cluster.snapshot().name == "snapshot-1"
        cluster.produce("t", "v")
        first = cluster.snapshot("snapshot-2")
        assert [each.name for each in cluster.snapshots()] == ["snapshot-1", "snapshot-2"]
        assert first.brokers == 1 and first.size_bytes > 0 and "snapshot-2" in repr(first)
        cluster.restore("snapshot-1")
        assert cluster.records("t") == []
        cluster.restore(Path(first.path))
        assert len(cluster.records("t")) == 1
        assert sorted(os.listdir(first.path))[1:] == ["kwire-snapshot.json"]
        with pytest.raises(errors.ClusterStateError, match="no snapshot x; there are snapshot-1, "):
            cluster.restore("x")
        with pytest.raises(errors.ClusterStateError, match="there is no snapshot /nowhere/x"):
            cluster.restore("/nowhere/x")
        cluster.delete_snapshot(first)
        with pytest.raises(errors.ClusterStateError):
            cluster.delete_snapshot(first)


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".x", "-x", "a/b", "../x", "a\0", "ä", "x" * 101, 5]
)
def test_a_name_leads_nowhere_else(name: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match="name of a snapshot"):
        saved.checked_name(name)
    with pytest.raises(errors.ConfigurationError, match="name of a snapshot"):
        saved.named("/tmp", name)


def test_no_client_is_harmed_and_nothing_acknowledged_is_lost() -> None:
    with kwire.Cluster(brokers=3, topics=["t:1:3"]) as cluster:
        acknowledged: list[int] = []
        stop = threading.Event()

        def load() -> None:
            while not stop.is_set():
                acknowledged.append(cluster.produce("t", f"{len(acknowledged)}").offset)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            counts = []
            for number in range(3):
                cluster.wait_for(lambda _: len(acknowledged) > 20 * (number + 1), 20)  # noqa: B023
                counts.append(len(acknowledged))
                cluster.snapshot(f"s{number}")
        finally:
            stop.set()
            thread.join(20)
        assert acknowledged == list(range(len(acknowledged)))
        for number, count in enumerate(counts):
            cluster.restore(f"s{number}")
            values = [int(each.value) for each in cluster.records("t")]
            assert values == list(range(len(values))) and count <= len(values)
            cluster.wait_in_sync()
        assert len({digest for name, digest in logs_of(cluster).items() if "/t-0/" in name}) == 1


def test_a_client_that_stays_goes_on_with_what_is_there() -> None:
    from confluent_kafka import Producer

    with kwire.Cluster(brokers=2, topics=["t:1:2"]) as cluster:
        base = cluster.snapshot()
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
        producer.produce("t", "a")
        assert producer.flush(15) == 0
        cluster.restore(base)
        producer.produce("t", "b")
        assert producer.flush(15) == 0
        assert [each.value for each in cluster.records("t")] == [b"b"]


def test_producers_get_what_kafkas_rules_say() -> None:
    async def main() -> None:
        async with kwire.aio.Cluster(brokers=2, topics=["t:1:2"]) as cluster:
            admin, now_ms = cluster.inside.admin, int(time.time() * 1000)
            await admin.run(repeat(lambda: init_producer_id(admin, "x", 60_000)))
            address = cluster.inside.node((await cluster.partition("t", 0)).leader).address

            async def append(producer: int, sequence: int) -> int:
                batch = build_batch(
                    [Record(-1, now_ms, None, b"v", ())],
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequence,
                )
                data = [PartitionProduceData(index=0, records=batch)]
                topics = [TopicProduceData(name="t", partition_data=data)]
                request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)
                answer = await ask(address, request, version=7)
                return int(answer.responses[0].partition_responses[0].error_code)

            assert [await append(7, number) for number in range(3)] == [0, 0, 0]
            base = await cluster.snapshot()
            assert [await append(7, 3), await append(8, 0)] == [0, 0]
            await cluster.restore(base)
            assert await append(7, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert await append(7, 2) == 0  # a duplicate of what the snapshot has
            assert len(await cluster.records("t")) == 3
            assert await append(7, 3) == 0
            assert await append(8, 1) == 0  # unknown: any sequence
            assert len(await cluster.records("t")) == 5
            assert (await cluster.transaction("x")).state == "Empty"

    asyncio.run(main())


def test_a_fork_has_its_own_life() -> None:
    with kwire.Cluster(brokers=2, config={"num.partitions": 3}, topics=["t:1:2"]) as cluster:
        cluster.produce("t", "a")
        number = cluster.events()[-1].number
        with cluster.fork() as other:
            assert not set(cluster.bootstrap_servers.split(",")) & {
                *other.bootstrap_servers.split(",")
            }
            other.produce("t", "b")
            other.create_topic("u")
            other.broker(1).kill()
            other.wait_for(lambda c: c.partition("t", 0).isr == {2})
            assert [each.value for each in other.records("t")] == [b"a", b"b"]
            assert cluster.topics() == {"t": 1} and other.topics() == {"t": 1, "u": 3}
            assert [each.value for each in cluster.records("t")] == [b"a"]
        assert [each.name for each in cluster.events(since=number)] == ["SNAPSHOT_SAVED"]
        assert cluster.partition("t", 0).leader_epoch == 0
        assert cluster.snapshots() == []
        base = cluster.snapshot()
        cluster.delete_topic("t")
        with cluster.fork(base) as other:
            assert len(other.records("t")) == 1


def test_a_snapshot_outlives_its_cluster_in_a_directory(tmp_path: Path) -> None:
    with kwire.Cluster(brokers=2, topics=["t:1:2"]) as cluster:
        cluster.produce("t", "a")
        cluster.snapshot(to=tmp_path / "base")
        with pytest.raises(errors.ConfigurationError, match="a name, or a directory"):
            cluster.snapshot("x", to=tmp_path / "x")
    for _ in range(2):
        with kwire.Cluster.from_snapshot(tmp_path / "base", {"num.partitions": 2}) as again:
            assert len(again.brokers) == 2 and len(again.records("t")) == 1
            again.produce("t", "b")
            with kwire.Cluster(brokers=2) as third:
                third.restore(tmp_path / "base")  # of a cluster with another id
                assert len(third.records("t")) == 1
    with (
        kwire.Cluster() as one,
        pytest.raises(
            errors.ClusterStateError, match="of brokers 1 to 2, this cluster has broker 1"
        ),
    ):
        one.restore(tmp_path / "base")
    kept = kwire.Cluster.from_snapshot(tmp_path / "base", data_dir=tmp_path / "data")
    with kept:
        assert len(kept.records("t")) == 1
    with pytest.raises(errors.StartError, match="holds a cluster already"):
        kept.start()
    with kwire.Cluster(brokers=2, data_dir=tmp_path / "data") as cluster:
        assert len(cluster.records("t")) == 1


def test_brokers_that_are_down_or_paused() -> None:
    with kwire.Cluster(brokers=3, topics=["t:1:3"]) as cluster:
        cluster.produce("t", "a")
        cluster.broker(2).kill()
        cluster.wait_for(lambda c: 2 not in c.partition("t", 0).isr)
        cluster.broker(3).pause()
        base = cluster.snapshot()
        cluster.broker(3).resume()
        cluster.delete_topic("t")
        cluster.restore(base)
        assert all(broker.running for broker in cluster.brokers)
        assert len(cluster.records("t")) == 1
        cluster.wait_in_sync("t")


def test_several_controllers() -> None:
    with kwire.Cluster(brokers=2, controllers=3, topics=["t:1:2"]) as cluster:
        cluster.produce("t", "a")
        base = cluster.snapshot()
        cluster.active_controller().kill()
        cluster.wait_for(lambda c: c.active_controller())
        cluster.delete_topic("t")
        for _ in range(2):
            cluster.restore(base)
            assert len(cluster.records("t")) == 1
            cluster.create_topic("more")
        with cluster.fork() as other:
            assert sorted(other.topics()) == ["more", "t"]


def test_nodes_in_processes() -> None:
    with kwire.Cluster(brokers=2, isolation="process", topics=["t:1:2"]) as cluster:
        cluster.produce("t", "a")
        cluster.wait_in_sync()
        base, logs = cluster.snapshot(), logs_of(cluster)
        cluster.produce("t", "b")
        cluster.restore(base)
        assert len(cluster.records("t")) == 1 and logs_of(cluster) == logs


def test_where_there_are_none() -> None:
    cluster = kwire.Cluster()
    with pytest.raises(errors.ClusterStateError, match="does not run"):
        cluster.snapshot()
    with kwire.Cluster() as running:
        outside = kwire.Cluster.connect(running.bootstrap_servers)
        with pytest.raises(errors.NotSupportedError, match="somebody else has started"):
            outside.snapshot()
        outside.stop()


def test_kwire_up_starts_with_one_and_ctl_saves_one(tmp_path: Path) -> None:
    with kwire.Cluster(topics=["t:2"]) as cluster:  # one broker: kwire up would be standalone
        cluster.produce("t", "a")
        cluster.snapshot(to=tmp_path / "one")
    with kwire_up("--snapshot", str(tmp_path / "one")) as (process, line):
        control = line.split("control=")[1].split()[0]
        again = kwire.Cluster.connect(line.split("bootstrap=")[1].split()[0])
        assert [each.value for each in again.records("t")] == [b"a"]

        def ctl(*words: str) -> tuple[int, str]:
            command = [sys.executable, "-m", "kwire", "ctl", "snapshot", "--control", control]
            done = subprocess.run([*command, *words], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

        assert ctl("list") == (0, "no snapshots\n")
        status, text = ctl("save", "base", "--to", str(tmp_path / "two"))
        assert status == 0 and text.endswith(f"{tmp_path}/two\n"), text
        again.produce("t", "b")
        assert ctl("restore", "base") == (0, "restored base\n")
        assert len(again.records("t")) == 1
        assert ctl("rm", "base") == (0, "deleted base\n")
        status, text = ctl("restore", "base")
        assert status == 1 and "there is no snapshot base" in text
        status, text = ctl("restore", "../base")
        assert status == 1 and "name of a snapshot: expected" in text
        again.stop()
        process.terminate()
        assert process.wait(20) == 0
    assert saved.read(str(tmp_path / "two")).brokers == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--snapshot", "{tmp}/none"], "there is no snapshot {tmp}/none"),
        (["--snapshot", "{tmp}/base", "--brokers", "3"], "--brokers 3: snapshot base has 1"),
        (
            ["--snapshot", "{tmp}/base", "--first-id", "7"],
            "--first-id 7: that of snapshot base is 1",
        ),
        (["--snapshot", "{tmp}/two"], "snapshot two has 2 log directories: name as many new ones"),
    ],
)
def test_what_kwire_up_refuses(tmp_path: Path, words: list[str], says: str) -> None:
    about = {"cluster_id": "c", "first_id": 1, "brokers": 1, "controllers": 1}
    saved.save(str(tmp_path / "base"), lambda _: 0, **about)
    saved.save(str(tmp_path / "two"), lambda _: 0, **about, log_dirs=2)
    command = [sys.executable, "-m", "kwire", "up", *(word.format(tmp=tmp_path) for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (2, "")
    assert says.format(tmp=tmp_path) in done.stderr and done.stderr.count("\n") == 1


# --- the disk


def test_an_old_snapshot_is_whole_until_the_new_one_is(tmp_path: Path) -> None:
    path = tmp_path / "base"
    about = {"cluster_id": "c", "first_id": 1, "brokers": 1, "controllers": 1}

    def writes(text: str) -> Any:
        def copy(directory: str) -> int:
            Path(directory, "broker-1").mkdir()
            Path(directory, "broker-1", "x").write_text(text)
            return len(text)

        return copy

    saved.save(str(path), writes("old"), **about)
    killed = f"""
import os
from kwire.snapshots import saved
def copy(directory):
    os.mkdir(directory + "/broker-1")
    os.kill(os.getpid(), 9)
saved.save({str(path)!r}, copy, **{about!r})
"""
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", killed]).returncode == -9
        assert Path(saved.read(str(path)).data, "broker-1", "x").read_text() == "old"
    assert len(os.listdir(path)) == 3  # what the last one has left is deleted by the next

    def fails(directory: str) -> int:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        saved.save(str(path), fails, **about)
    assert Path(saved.read(str(path)).data, "broker-1", "x").read_text() == "old"
    assert len(os.listdir(path)) == 2
    new = saved.save(str(path), writes("new"), **about)
    assert Path(new.data, "broker-1", "x").read_text() == "new"
    assert len(os.listdir(path)) == 2
    with pytest.raises(OSError, match="No space"):
        saved.save(str(tmp_path / "none"), fails, **about)
    assert os.listdir(tmp_path) == ["base"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "data": "../x"}'])
def test_a_damaged_snapshot_is_not_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "kwire-snapshot.json").write_text(text)
    with pytest.raises(errors.ClusterStateError, match="is damaged, or of another version"):
        saved.read(str(tmp_path))


class Killed(Exception):
    pass


def test_a_restore_that_was_killed_is_finished_or_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(folder: Path, text: str, brokers: tuple[int, ...]) -> None:
        for broker in brokers:
            (folder / f"broker-{broker}").mkdir(parents=True)
            (folder / f"broker-{broker}" / "x").write_text(text)

    snapshot = saved.save(
        str(tmp_path / "base"),
        lambda directory: make(Path(directory), "new", (1, 2)) or 0,  # type: ignore[func-returns-value]
        cluster_id="c",
        first_id=1,
        brokers=2,
        controllers=1,
    )
    whole = os.rename
    for deadly in range(1, 9):
        data = tmp_path / f"data-{deadly}"
        make(data, "old", (1, 2, 3))
        (data / "other").mkdir()
        calls = 0

        def rename(old: str, new: str) -> None:
            nonlocal calls
            calls += 1
            if calls == deadly:  # noqa: B023
                monkeypatch.setattr(restoring, "delete_tree", dies)  # the dead clean up nothing
                raise Killed
            whole(old, new)

        def dies(path: str) -> None:
            pass

        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", rename)
            if deadly <= 7:
                with pytest.raises(Killed):
                    restoring.replace(str(data), snapshot)
            else:
                restoring.replace(str(data), snapshot)
        monkeypatch.undo()
        if restoring.is_open(str(data)):
            restoring.finish(str(data))
        texts = {path.parent.name: path.read_text() for path in data.rglob("x")}
        if deadly == 1:  # before the decision
            assert texts == {"broker-1": "old", "broker-2": "old", "broker-3": "old"}
        else:
            assert texts == {"broker-1": "new", "broker-2": "new"}
        assert not restoring.is_open(str(data)) and (data / "other").is_dir()


def test_a_killed_restore_is_finished_at_the_next_start(tmp_path: Path) -> None:
    with kwire.Cluster(data_dir=tmp_path, topics=["t"]) as cluster:
        cluster.produce("t", "a")
        base = cluster.snapshot("base")
        cluster.produce("t", "b")
    decided = tmp_path / ".kwire-restore"
    (decided / "old").mkdir(parents=True)
    (decided / "new").mkdir()
    restoring.fill(str(decided / "new"), base)
    with kwire.Cluster(data_dir=tmp_path) as cluster:
        assert [each.value for each in cluster.records("t")] == [b"a"]
        cluster.restore("base")
        assert [each.value for each in cluster.records("t")] == [b"a"]
    assert not decided.exists()


# --- what is left behind


def _deletes() -> bool:
    return any(each.name.startswith("kwire-aside") for each in threading.enumerate())


def _used() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.parametrize(
    "count", [15, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_restores_leave_nothing_behind(count: int) -> None:
    async def main() -> None:
        async with kwire.aio.Cluster(brokers=3, topics=["t:2:3"]) as cluster:
            await cluster.produce("t", "a")
            base = await cluster.snapshot()
            folder = Path(cluster.broker(1).log_dir).parent
            seen = []
            for _ in range(count):
                await cluster.restore(base)
                await cluster.produce("t", "b")
                assert len(await cluster.records("t")) == 2
                await cluster.wait_in_sync()
                await cluster.wait_for(lambda _: not (has_restore(str(folder)) or _deletes()))
                seen.append((*_used(), sorted(os.listdir(folder)), len(asyncio.all_tasks())))
            files = [each[2] for each in seen]
            assert files.count(files[0]) == count
            assert max(each[0] for each in seen[5:]) <= max(each[0] for each in seen[:5]) + 3
            assert max(each[1] for each in seen[5:]) <= max(each[1] for each in seen[:5])
            assert max(each[3] for each in seen[5:]) <= max(each[3] for each in seen[:5]) + 3
            for number in range(5):
                await cluster.snapshot("again")
                await cluster.produce("t", f"{number}")
            kept = [
                each for each in folder.rglob("t-*/*.snapshot") if "kwire-snap" not in str(each)
            ]
            assert len(kept) <= 2 * 6  # of two partitions on three brokers: the last two

    asyncio.run(main())


def test_the_fixture_gives_each_test_a_cluster_of_its_own(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path,
        """
        import pytest

        seen = set()

        @pytest.fixture(scope="session")
        def filled(kwire_cluster):
            kwire_cluster.create_topic("t")
            kwire_cluster.produce("t", "a")
            return kwire_cluster.snapshot()

        @pytest.mark.parametrize("number", range(3))
        def test_it(kwire_from, filled, number):
            cluster = kwire_from(filled, config={"num.partitions": 2})
            assert len(cluster.brokers) == 2 and cluster.bootstrap_servers not in seen
            seen.add(cluster.bootstrap_servers)
            assert len(cluster.records("t")) == 1
            cluster.produce("t", "b")
            cluster.create_topic("u")
            assert cluster.topics() == {"t": 1, "u": 2}

        def test_refused(kwire_from, filled):
            with pytest.raises(pytest.fail.Exception, match="^kwire_from: expected acl, .*not 'brokers'$"):
                kwire_from(filled, brokers=3)
            with pytest.raises(pytest.fail.Exception, match="there is no snapshot /nowhere$"):
                kwire_from("/nowhere")
        """,
        "--kwire-brokers=2",
    )
    assert run.counts == {"passed": 4}, run.text
