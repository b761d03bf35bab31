"""A data directory that is taken for what it is not: one line, status 1, and everything in it as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from server_harness import kwire_up

from kwire import Cluster, errors
from kwire.launch.shape import ClusterLock, check_node, check_standalone
from kwire.server.errors import NodeError

pytestmark = pytest.mark.timeout(60)

UP = [sys.executable, "-m", "kwire", "up", "--port", "0", "--log-level", "error"]


def up(*arguments: str) -> str:
    """The one line of a `kwire up` that is refused."""
    result = subprocess.run(
        [*UP, *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, ""), result
    (line,) = result.stderr.splitlines()
    return line.removeprefix("kwire up: ")


def content(path: Path) -> dict[str, bytes]:
    """All files but locks."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != ".lock"
    }


def cluster_in(path: Path, brokers: int = 3) -> None:
    with Cluster(
        brokers=brokers, data_dir=path, topics={"t": 3}
    ) as cluster:  # one on each broker at least
        produce(cluster)


def produce(cluster: Cluster) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(10):
        producer.produce("t", str(number).encode(), partition=number % 2)
    assert producer.flush(10) == 0


def end_offsets(cluster: Cluster) -> int:
    found = [cluster.partition("t", index) for index in range(3)]
    return sum(each.replica(each.leader).log_end_offset for each in found)


def alone_in(*paths: Path, partitions: int = 2) -> None:
    """What a broker alone leaves behind."""
    where = ",".join(map(str, paths))
    process = subprocess.Popen(
        [*UP, "--data-dir", where, "--topic", f"t:{partitions}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_a_cluster_s_directory_is_not_for_a_broker_alone(tmp_path: Path) -> None:
    cluster_in(tmp_path)
    before = content(tmp_path)
    assert up("--data-dir", str(tmp_path)) == (
        f"data directory {tmp_path} holds a cluster (controller, broker-1, broker-2, broker-3):"
        " start it with --brokers 3"
    )
    assert content(tmp_path) == before
    with Cluster(brokers=3, data_dir=tmp_path) as cluster:
        assert end_offsets(cluster) == 10


def test_one_broker_of_a_cluster_is_not_for_a_broker_alone(tmp_path: Path) -> None:
    cluster_in(tmp_path)
    before = content(tmp_path)
    line = up("--data-dir", str(tmp_path / "broker-1"))
    assert f"{tmp_path}/broker-1 belongs to broker 1 of a cluster" in line
    assert f"is in {tmp_path}/controller" in line
    # nor where its controller is not beside it
    moved = (tmp_path / "broker-1").rename(tmp_path / "elsewhere")
    line = up("--data-dir", str(moved))
    assert f"{moved} has partitions, but the controller's journal" in line
    moved.rename(tmp_path / "broker-1")
    assert content(tmp_path) == before


def test_the_controller_s_directory_is_not_for_a_broker(tmp_path: Path) -> None:
    cluster_in(tmp_path, 1)
    before = content(tmp_path)
    assert "belongs to node 1000, not to 1" in up("--data-dir", str(tmp_path / "controller"))
    assert content(tmp_path) == before


def test_the_directory_of_a_broker_alone_is_not_for_a_cluster(tmp_path: Path) -> None:
    alone_in(tmp_path)
    before = content(tmp_path)
    line = up("--data-dir", str(tmp_path), "--brokers", "3")
    assert line.startswith(f"data directory {tmp_path} holds the data of a single broker: ")
    with (
        pytest.raises(errors.StartError, match="holds the data of a single broker"),
        Cluster(brokers=3, data_dir=tmp_path),
    ):
        pass
    assert content(tmp_path) == before


@pytest.mark.parametrize("is_controller", [False, True])
def test_nor_for_one_node_of_a_cluster(tmp_path: Path, is_controller: bool) -> None:
    alone_in(tmp_path)
    with pytest.raises(NodeError, match="holds the data of a single broker"):
        check_node([str(tmp_path)], is_controller=is_controller)


def test_a_directory_with_a_container_s_controller_is_not_for_a_broker_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "kwire-controller").mkdir()
    (tmp_path / "kwire-controller" / "meta.properties").write_text("version=1\n")
    with pytest.raises(NodeError, match="belongs to a node of a cluster"):
        check_standalone([str(tmp_path)])


def test_one_of_two_log_directories_is_not_enough_for_a_broker_alone(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    alone_in(a, b, partitions=4)
    before = content(tmp_path)
    for one in (a, b):
        line = up("--data-dir", str(one))
        assert line.startswith(f"data directory {one} was one of 2 log directories ({a},{b}): ")
    assert content(tmp_path) == before
    alone_in(a, b, partitions=4)


def test_without_the_line_that_remembers_the_others_a_directory_goes_on_alone(
    tmp_path: Path,
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    alone_in(a, b, partitions=4)
    properties = a / "meta.properties"
    lines = properties.read_text().splitlines(keepends=True)
    properties.write_text("".join(line for line in lines if "kwire.log.dirs" not in line))
    alone_in(a)


def test_one_of_two_log_directories_is_not_enough_for_a_cluster(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with Cluster(brokers=2, config={"log.dirs": f"{a},{b}"}, topics={"t": 4}):
        pass
    before = content(tmp_path)
    line = up("--brokers", "2", "--data-dir", str(a))
    assert line.startswith(f"data directory {a} was one of 2 log directories ({a},{b}): ")
    line = up("--brokers", "2", "--data-dir", str(b))
    assert line.startswith(f"data directory {b} holds broker-1, broker-2 of a cluster, but ")
    with (
        pytest.raises(errors.StartError, match="was one of 2 log directories"),
        Cluster(brokers=2, data_dir=a),
    ):
        pass
    assert content(tmp_path) == before
    with Cluster(brokers=2, config={"log.dirs": f"{a},{b}"}) as cluster:
        assert [cluster.partition("t", index).leader > 0 for index in range(4)] == [True] * 4


def test_a_cluster_holds_its_directory(tmp_path: Path) -> None:
    with Cluster(brokers=1, data_dir=tmp_path):
        with (
            pytest.raises(errors.StartError) as caught,
            Cluster(brokers=1, data_dir=tmp_path),
        ):
            pass
        assert str(caught.value) == (
            f"data directory {tmp_path} is in use: another process holds the .lock in it"
        )
    ClusterLock([str(tmp_path)]).release()


def test_one_that_is_new_is_held_before_anything_is_in_it(tmp_path: Path) -> None:
    lock = ClusterLock([str(tmp_path)])
    try:
        assert "is in use" in up("--data-dir", str(tmp_path))
    finally:
        lock.release()
    assert content(tmp_path) == {}


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    for brokers in ("1", "2"):
        line = up("--brokers", brokers, "--data-dir", str(path))
        assert line == f"data directory {path} is not a directory"


def test_two_words_on_where_the_data_is_are_one_too_many(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "kwire", "up", "--data-dir", "d", "-c", "log.dirs=q"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd=tmp_path,
    )
    assert result.returncode == 2
    assert result.stderr == "kwire up: --data-dir d and -c log.dirs=q: give one of them\n"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(errors.ConfigurationError, match="give one of them"):
        Cluster(data_dir=tmp_path, config={"log.dirs": "q"})


def test_brokers_that_are_not_started_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster_in(tmp_path, 3)
    assert "not started" not in caplog.text
    with Cluster(brokers=1, data_dir=tmp_path):
        pass
    assert "has data of brokers that are not started: 2,3" in caplog.text
    assert any(getattr(each, "event", None) == "UNUSED_DATA_FOUND" for each in caplog.records)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_brokers_that_are_not_started_are_not_waited_for_and_lead_nothing(
    tmp_path: Path, isolation: str
) -> None:
    """Their leases would be nine seconds; and who registers while they count as alive leaves every ISR to them."""
    with Cluster(brokers=3, data_dir=tmp_path, topics=["t:3:3"]) as cluster:
        produce(cluster)
    begin = time.monotonic()
    with Cluster(brokers=2, data_dir=tmp_path, isolation=isolation) as cluster:
        assert time.monotonic() - begin < 8
        for index in range(3):
            found = cluster.partition("t", index)
            assert found.leader in (1, 2) and 3 not in found.isr
            assert "broker 3 is not started in this run" in str(found)
            cluster.wait_for(lambda c, i=index: c.partition("t", i).isr == {1, 2})
        assert cluster.partition("t", 0).high_watermark == 5
        produce(cluster)
    with Cluster(brokers=3, data_dir=tmp_path, isolation=isolation) as cluster:
        for index in range(3):
            cluster.wait_for(lambda c, i=index: c.partition("t", i).isr == {1, 2, 3}, 10)
        assert cluster.partition("t", 1).replica(3).log_end_offset == 10


def test_when_no_node_is_left_neither_is_kwire_up(tmp_path: Path) -> None:
    arguments = ("--brokers", "2", "--isolation", "process", "--data-dir", str(tmp_path))
    with kwire_up("--log-level", "error", *arguments) as (process, _):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 3
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert said.splitlines()[-1] == "kwire up: no node is left"
    assert sum("has ended (killed by SIGKILL)" in line for line in said.splitlines()) == 3
