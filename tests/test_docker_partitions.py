"""The image's tools for log directories, elections, deleted records, reassignments and load, against a cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kwire
from kwire.docker import tools
from kwire.docker.client import ToolError
from kwire.docker.options import Options

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[kwire.Cluster]:
    with kwire.Cluster(brokers=2) as running:
        running.create_topic("orders", partitions=2, replication_factor=2)
        yield running


class Tool:
    """Runs a tool: its status, and what it wrote to stdout and stderr."""

    def __init__(self, servers: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._servers = servers
        self._capsys = capsys

    def __call__(self, name: str, *arguments: str) -> tuple[int, str, str]:
        status = tools.main([name, "--bootstrap-server", self._servers, *arguments])
        said = self._capsys.readouterr()
        return status, said.out, said.err


@pytest.fixture
def tool(cluster: kwire.Cluster, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(cluster.bootstrap_servers, capsys)


def written(path: Path, *partitions: dict[str, object]) -> str:
    path.write_text(json.dumps({"partitions": partitions, "version": 1}))
    return str(path)


def test_log_directories_are_json_in_the_last_line(cluster: kwire.Cluster, tool: Tool) -> None:
    cluster.create_topic("sized")
    cluster.produce("sized", "x" * 1000)
    status, out, _ = tool("kafka-log-dirs", "--describe", "--topic-list", "sized,orders")
    assert status == 0
    head, received, last = out.splitlines()
    assert head == "Querying brokers for log directories information"
    assert received == "Received log directory information from brokers 1,2"
    found = json.loads(last)
    assert [each["broker"] for each in found["brokers"]] == [1, 2]
    directories = [each for broker in found["brokers"] for each in broker["logDirs"]]
    assert all(each["error"] is None and each["logDir"] for each in directories)
    sizes = {r["partition"]: r["size"] for each in directories for r in each["partitions"]}
    assert sorted(sizes) == ["orders-0", "orders-1", "sized-0"] and sizes["sized-0"] > 1000

    status, out, _ = tool("kafka-log-dirs", "--describe", "--broker-list", "2")
    assert [each["broker"] for each in json.loads(out.splitlines()[-1])["brokers"]] == [2]
    status, _, err = tool("kafka-log-dirs", "--describe", "--broker-list", "7")
    assert (status, err) == (
        1,
        "kafka-log-dirs: BROKER_NOT_AVAILABLE: there is no broker 7; alive: 1, 2\n",
    )


def test_the_preferred_leader_is_elected(
    cluster: kwire.Cluster, tool: Tool, tmp_path: Path
) -> None:
    elect = ("kafka-leader-election", "--election-type", "preferred")
    first, second = cluster.partition("orders", 0).replicas
    cluster.elect("orders", 0, leader=second)
    status, out, _ = tool(*elect, "--topic", "orders", "--partition", "0")
    assert status == 0
    assert out == "Successfully completed leader election (PREFERRED) for partitions orders-0\n"
    assert cluster.partition("orders", 0).leader == first
    path = written(tmp_path / "elect.json", {"topic": "orders", "partition": 0})
    status, out, _ = tool(*elect, "--path-to-json-file", path)
    assert (status, out) == (0, "Valid replica already elected for partitions orders-0\n")
    cluster.elect("orders", 0, leader=second)
    status, out, _ = tool(*elect, "--all-topic-partitions")
    assert (status, "orders-0" in out) == (0, True)
    status, out, err = tool(*elect, "--topic", "orders", "--partition", "7")
    assert (status, err) == (1, "kafka-leader-election: 1 replica(s) could not be elected\n")
    assert "for partition: orders-7: UNKNOWN_TOPIC_OR_PARTITION" in out


def test_records_are_deleted_up_to_an_offset(
    cluster: kwire.Cluster, tool: Tool, tmp_path: Path
) -> None:
    cluster.create_topic("deleted", partitions=3, replication_factor=2)
    for partition in (0, 1):
        for value in "abc":
            cluster.produce("deleted", value, partition=partition)
    before = [
        {"topic": "deleted", "partition": 0, "offset": 2},
        {"topic": "deleted", "partition": 1, "offset": -1},
        {"topic": "deleted", "partition": 2, "offset": 5},
        {"topic": "nosuch", "partition": 0, "offset": 1},
    ]
    path = written(tmp_path / "offsets.json", *before)
    status, out, _ = tool("kafka-delete-records", "--offset-json-file", path)
    assert status == 0
    assert "partition: deleted-0\tlow_watermark: 2\n" in out
    assert "partition: deleted-1\tlow_watermark: 3\n" in out
    assert "partition: deleted-2\terror: OFFSET_OUT_OF_RANGE\n" in out
    assert "partition: nosuch-0\terror: UNKNOWN_TOPIC_OR_PARTITION" in out
    assert [record.value for record in cluster.records("deleted")] == [b"c"]


def test_replicas_move_and_the_move_is_verified(
    cluster: kwire.Cluster, tool: Tool, tmp_path: Path
) -> None:
    cluster.create_topic("moved", assignment=[[1]])
    path = written(tmp_path / "move.json", {"topic": "moved", "partition": 0, "replicas": [2]})
    move = ("kafka-reassign-partitions", "--reassignment-json-file", path)
    status, out, _ = tool(*move, "--verify")
    assert (status, "moved-0 is not what was asked for: the replicas are 1." in out) == (0, True)
    status, out, _ = tool(*move, "--execute")
    assert status == 0
    assert '{"topic":"moved","partition":0,"replicas":[1],"log_dirs":["any"]}' in out
    assert out.endswith("Successfully started partition reassignment for moved-0\n")
    cluster.wait_for(lambda c: c.partition("moved", 0).replicas == (2,))
    status, out, _ = tool(*move, "--verify")
    assert "Reassignment of partition moved-0 is completed.\n" in out
    assert tool("kafka-reassign-partitions", "--list")[1] == "No partition reassignments found.\n"
    status, _, err = tool(*move, "--cancel")
    assert (status, "NO_REASSIGNMENT_IN_PROGRESS" in err) == (1, True)
    status, _, err = tool("kafka-reassign-partitions", "--generate")
    assert (status, "--generate is not supported" in err) == (1, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no JSON"),
        ("[]", 'expected {"partitions": ['),
        ('{"partitions": [7]}', 'expected {"partitions": ['),
        ('{"partitions": [{"partition": 0}]}', "the topic is missing"),
        (
            '{"partitions": [{"topic": "a", "partition": "0"}]}',
            "partition is missing, or no number",
        ),
        ('{"partitions": [{"topic": "a", "partition": 0}]}', "offset is missing, or no number"),
    ],
)
def test_a_file_that_makes_no_sense_is_a_line(
    tool: Tool, tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(text)
    status, _, err = tool("kafka-delete-records", "--offset-json-file", str(path))
    assert (status, err.count("\n")) == (1, 1) and says in err, err
    status, _, err = tool("kafka-delete-records", "--offset-json-file", str(tmp_path / "nosuch"))
    assert (status, err.endswith("nosuch: No such file or directory\n")) == (1, True)


def test_load_is_produced_and_consumed(cluster: kwire.Cluster, tool: Tool, tmp_path: Path) -> None:
    load = ("kafka-producer-perf-test", "--topic", "load", "--throughput", "-1")
    props = ("--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}", "acks=all")
    status, out, err = tool(*load, "--num-records", "2500", "--record-size", "70", *props)
    assert status == 0, err
    line = (
        r"2500 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency,"
        r" \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th.\n"
    )
    assert re.fullmatch(line, out)
    found = cluster.records("load")
    assert len(found) == 2500 and all(len(record.value or b"") == 70 for record in found)

    payloads = tmp_path / "payloads"
    payloads.write_text("one\ntwo\n")
    assert tool(*load, "--num-records", "3", "--payload-file", str(payloads), *props)[0] == 0
    assert [record.value for record in cluster.records("load")[2500:]] == [b"one", b"two", b"one"]

    read = ("kafka-consumer-perf-test", "--topic", "load", "--timeout", "200")
    status, out, _ = tool(*read, "--messages", "2503")
    header, figures = out.splitlines()
    assert (status, header.split(", ")[4]) == (0, "data.consumed.in.nMsg")
    assert figures.split(", ")[4] == "2503"
    status, out, err = tool(*read, "--messages", "9999", "--hide-header")
    assert (status, out.count("\n")) == (0, 1) and "Exiting before consuming" in err


@pytest.mark.parametrize("name", tools.NOT_SUPPORTED)
def test_a_tool_without_a_use_here_says_so(tool: Tool, name: str) -> None:
    status, out, err = tool(name, "--list", "--some-option-of-its-own")
    assert (status, out) == (1, "")
    assert err.startswith(f"{name}: not supported yet: ") and err.count("\n") == 1


def test_a_version_is_one_of_kafkas(tool: Tool) -> None:
    for name in (*tools.TOOLS, *tools.NOT_SUPPORTED):
        status, out, _ = tool(name, "--version")
        assert (status, out) == (0, f"3.9.1 (kwire {kwire.__version__})\n")


def test_the_image_has_every_tool_by_its_name() -> None:
    text = (Path(__file__).parent.parent / "docker" / "bin" / "link-tools").read_text()
    (listed,) = re.findall(r"^for tool in (.*?); do$", text, re.DOTALL | re.MULTILINE)[:1]
    linked = {f"kafka-{word}" for word in listed.replace("\\", " ").split()}
    assert linked == {*tools.TOOLS, *tools.NOT_SUPPORTED} - {"kafka-ready"}  # that one is cub's


def test_options_of_several_words_and_numbers() -> None:
    options = Options(["--producer-props", "acks=all", "x=1=2", "--broker-list", "1,2"])
    assert options.assignments("producer-props") == {"acks": "all", "x": "1=2"}
    assert options.numbers("broker-list") == [1, 2]
    assert options.numbers("topic-list") is None
    with pytest.raises(ToolError, match="--broker-list: expected numbers"):
        Options(["--broker-list", "localhost:9092"]).numbers("broker-list")
