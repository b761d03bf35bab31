"""`kwire topics`, `partitions`, `groups`, `produce`, `consume` against a running cluster."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from kwire import Cluster
from kwire.cli.main import cli

pytestmark = pytest.mark.timeout(60)
TIMEOUT = 30


@dataclass
class Shell:
    """The command line, pointed at a cluster."""

    cluster: Cluster

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit status, stdout, stderr, without a process."""
        environment = {"KWIRE_BOOTSTRAP": self.cluster.bootstrap_servers}
        done = CliRunner().invoke(cli, list(words), env=environment, prog_name="kwire")
        return done.exit_code, done.stdout, done.stderr

    def out(self, *words: str) -> str:
        status, out, errors = self.run(*words)
        assert status == 0, errors
        return out

    def rows(self, *words: str) -> list[list[str]]:
        """The cells of a table, without its head."""
        return [line.split() for line in self.out(*words).splitlines()[1:]]

    def process(self, *words: str, **more: object) -> subprocess.Popen[bytes]:
        bootstrap = ["--bootstrap", self.cluster.bootstrap_servers]
        return subprocess.Popen(
            [sys.executable, "-m", "kwire", *words, *bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,  # type: ignore[call-overload]
        )


@pytest.fixture(scope="module")
def of_module() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def shell(of_module: Cluster) -> Iterator[Shell]:
    of_module.reset()
    yield Shell(of_module)


# --- topics, partitions


def test_topics_are_created_listed_and_deleted(shell: Shell) -> None:
    assert shell.run("topics") == (0, "", "no topics\n")
    assert shell.out("topics", "create", "orders:3:2", "audit") == "created orders\ncreated audit\n"
    assert shell.rows("topics") == [["audit", "1", "1"], ["orders", "3", "2"]]
    assert json.loads(shell.out("topics", "--json"))[1] == {
        "topic": "orders",
        "partitions": 3,
        "replicas": 2,
        "internal": False,
    }
    assert shell.out("topics", "delete", "orders", "audit") == "deleted orders\ndeleted audit\n"
    assert shell.rows("topics") == []


def test_topics_list_is_topics(shell: Shell) -> None:
    shell.out("topics", "create", "orders:2")
    assert shell.out("topics", "list") == shell.out("topics")
    as_json = shell.out("topics", "--json")
    assert shell.out("topics", "list", "--json") == shell.out("topics", "--json", "list") == as_json


@pytest.mark.parametrize(
    ("words", "shown"),
    [("orders", "orders"), ("describe orders", "orders"), ("describe", "TOPIC")],
)
def test_topics_of_a_topic_names_partitions(words: str, shown: str) -> None:
    command = [sys.executable, "-m", "kwire", "topics", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done
    assert f"; kwire partitions {shown} shows a topic (try " in done.stderr


def test_topics_that_exist_or_do_not(shell: Shell) -> None:
    shell.out("topics", "create", "orders")
    status, _, errors = shell.run("topics", "create", "orders")
    assert (status, errors.count("\n")) == (1, 1)
    assert "kwire topics create: orders: TOPIC_ALREADY_EXISTS" in errors
    assert shell.out("topics", "create", "orders", "new", "--if-not-exists") == "created new\n"
    assert shell.run("topics", "delete", "none") == (
        1,
        "",
        "kwire topics delete: there is no topic none\n",
    )
    assert shell.out("topics", "delete", "none", "new", "--if-exists") == "deleted new\n"


def test_a_topics_configuration(shell: Shell) -> None:
    shell.out("topics", "create", "short", "-c", "retention.ms=1", "-c", "cleanup.policy=compact")
    status, _, errors = shell.run("topics", "create", "bad", "-c", "retention.ms=x")
    assert status == 1 and "bad: INVALID_CONFIG" in errors


def test_partitions_show_leaders_isr_and_offsets(shell: Shell) -> None:
    shell.out("topics", "create", "orders:2:3")
    shell.out("produce", "orders", "a", "b", "-p", "1")
    found = json.loads(shell.out("partitions", "orders", "--json"))
    assert [(p["partition"], p["isr"], p["start"], p["end"]) for p in found] == [
        (0, [1, 2, 3], 0, 0),
        (1, [1, 2, 3], 0, 2),
    ]
    shell.cluster.broker(3).kill()
    shell.cluster.wait_for(lambda c: c.partition("orders", 0).isr == {1, 2})
    rows = shell.rows("partitions")
    assert [row[-1] for row in rows] == ["under-replicated"] * 2
    status, _, errors = shell.run("partitions", "none")
    assert (status, errors) == (1, "kwire partitions: there is no topic none\n")


def test_an_offline_partition_has_no_offsets(shell: Shell) -> None:
    shell.cluster.create_topic("alone", assignment=[[3]])
    shell.cluster.broker(3).kill()
    shell.cluster.wait_for(lambda c: c.partition("alone", 0).leader == -1)
    assert shell.rows("partitions", "alone") == [
        ["alone-0", "none", "1", "3", "3", "-", "-", "offline"]
    ]


# --- records


def test_values_are_written_and_read(shell: Shell) -> None:
    shell.out("topics", "create", "orders")
    assert shell.out("produce", "orders", "tea", "milk") == "orders-0@0\norders-0@1\n"
    place = {"topic": "orders", "partition": 0, "offset": 2}
    more = ["--key", "ann", "-H", "lang=en", "-H", "x=", "--json"]
    assert json.loads(shell.out("produce", "orders", "coffee", *more)) == place
    assert shell.out("consume", "orders") == "tea\nmilk\ncoffee\n"
    assert shell.out("consume", "orders", "-K", ":") == ":tea\n:milk\nann:coffee\n"
    record = json.loads(shell.out("consume", "orders", "--from", "-1", "--json"))
    assert record.pop("timestamp") > 0
    headers = [{"name": "lang", "value": "en"}, {"name": "x", "value": ""}]
    assert record == {**place, "key": "ann", "value": "coffee", "headers": headers}
    formatted = shell.out("consume", "orders", "--from", "2", "--format", "%t-%p@%o %k=%s %h%%\\n")
    assert formatted == "orders-0@2 ann=coffee lang=en,x=%\n"


def test_a_tombstone_and_bytes_that_are_no_text(shell: Shell) -> None:
    shell.out("topics", "create", "orders")
    shell.out("produce", "orders", "", "--key", "k", "-Z")
    process = shell.process("produce", "orders")
    assert process.communicate(b"\xff\n", TIMEOUT) == (b"", b"")
    tombstone, odd = map(json.loads, shell.out("consume", "orders", "--json").splitlines())
    assert (tombstone["key"], tombstone["value"]) == ("k", None)
    assert odd["value_base64"] == "/w==" and "value" not in odd


def test_lines_of_stdin_become_records(shell: Shell) -> None:
    shell.out("topics", "create", "orders:4")
    lines = [f"k{number % 7}:v{number}" for number in range(1000)]
    process = shell.process("produce", "orders", "-K", ":")
    assert process.communicate("\r\n".join(lines).encode(), TIMEOUT) == (b"", b"")
    assert process.returncode == 0
    read = shell.out("consume", "orders", "-K", ":").splitlines()
    assert sorted(read) == sorted(lines)
    of_key = [line for line in read if line.startswith("k3:")]
    assert of_key == [line for line in lines if line.startswith("k3:")]  # one partition, in order


def test_a_line_without_a_separator_is_named_and_those_before_it_are_there(shell: Shell) -> None:
    shell.out("topics", "create", "orders")
    process = shell.process("produce", "orders", "-K", ":")
    out, errors = process.communicate(b"a:1\nno key\nb:2\n", TIMEOUT)
    assert (process.returncode, out) == (1, b"")
    assert errors == b"kwire produce: line 2 has no ':': no key; the line before it is written\n"
    assert shell.out("consume", "orders") == "1\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a:1\nb:2\nno key\nc:3\n", b"; the 2 lines before it are written\n"),
        (b"no key\n", b"; nothing is written\n"),
    ],
)
def test_a_bad_line_says_what_is_written(shell: Shell, data: bytes, said: bytes) -> None:
    shell.out("topics", "create", "orders")
    process = shell.process("produce", "orders", "-K", ":")
    _, errors = process.communicate(data, TIMEOUT)
    assert (process.returncode, errors.endswith(said)) == (1, True), errors


def test_an_offset_beyond_the_end_is_said(shell: Shell) -> None:
    shell.out("topics", "create", "orders")
    shell.out("produce", "orders", "a", "b")
    said = "kwire consume: nothing at offset 50: orders-0 ends at 2\n"
    assert shell.run("consume", "orders", "--from", "50") == (0, "", said)
    assert shell.run("consume", "orders", "--from", "1") == (0, "b\n", "")
    words = ("consume", "orders", "--from", "50", "--follow", "--count", "1", "--timeout", "0")
    assert shell.run(*words) == (1, "", said.replace("2\n", "2; from the end on:\n"))


def test_near_names_are_proposed(shell: Shell) -> None:
    shell.out("topics", "create", "orders:2")
    for words in (["consume", "ordrs"], ["partitions", "ordrs"], ["topics", "delete", "ordrs"]):
        status, _, said = shell.run(*words)
        assert status == 1 and "there is no topic ordrs; did you mean orders?" in said, said
    status, _, said = shell.run("consume", "orders", "-p", "5")
    assert status == 1 and "no partition orders-5; orders has 2 partitions, 0 to 1" in said, said


def test_count_and_the_last_ones(shell: Shell) -> None:
    shell.out("topics", "create", "orders:2")
    shell.out("produce", "orders", "a", "b", "c", "-p", "0")
    shell.out("produce", "orders", "d", "e", "-p", "1")
    assert shell.out("consume", "orders", "--count", "4") == "a\nb\nc\nd\n"
    assert shell.out("consume", "orders", "--from", "-1") == "c\ne\n"
    assert shell.out("consume", "orders", "--from", "1", "-p", "1") == "e\n"
    assert shell.out("consume", "orders", "--from", "99") == ""
    assert shell.out("consume", "orders", "--from", "end") == ""


def test_follow_goes_on_over_a_change_of_leader(shell: Shell) -> None:
    cluster = shell.cluster
    cluster.create_topic("orders", partitions=1, replication_factor=3)
    shell.out("produce", "orders", "old")
    process = shell.process("consume", "orders", "--follow", "--count", "3")
    assert process.stdout is not None
    assert process.stdout.readline() == b"old\n"
    shell.out("produce", "orders", "new")
    assert process.stdout.readline() == b"new\n"
    cluster.broker(cluster.partition("orders", 0).leader).kill()
    cluster.wait_for(lambda c: c.partition("orders", 0).leader > 0)
    cluster.create_topic("other")
    shell.out("produce", "orders", "newest")
    assert process.communicate(timeout=TIMEOUT) == (b"newest\n", b"")
    assert process.returncode == 0


def test_follow_for_a_time_is_status_1_when_too_few_came(shell: Shell) -> None:
    shell.out("topics", "create", "orders")
    shell.out("produce", "orders", "a")
    words = ["consume", "orders", "-f", "--timeout", "0.05"]
    assert shell.run(*words, "-n", "2")[:2] == (1, "a\n")
    assert shell.run(*words, "-n", "1")[:2] == (0, "a\n")
    assert shell.run(*words)[:2] == (0, "a\n")


def test_a_reader_that_ends_early_ends_consume_without_a_word(shell: Shell) -> None:
    shell.out("topics", "create", "orders")
    shell.out("produce", "orders", *["x" * 1000] * 200)
    process = shell.process("consume", "orders", "--follow")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    shell.out("produce", "orders", "more")
    assert process.wait(TIMEOUT) == 141
    assert process.stderr.read() == b""


def test_ctrl_c_ends_follow_without_a_word(shell: Shell) -> None:
    import signal

    shell.out("topics", "create", "orders")
    shell.out("produce", "orders", "a")
    process = shell.process("consume", "orders", "--follow")
    assert process.stdout is not None
    assert process.stdout.readline() == b"a\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=TIMEOUT) == (b"", b"")
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["consume", "none"], 1, "UNKNOWN_TOPIC_OR_PARTITION: there is no topic none"),
        (["consume", "none", "--from", "x"], 2, "beginning, end, an offset, or -N"),
        (["consume", "none", "--format", "%q"], 2, "expected one of %t %p"),
        (["consume", "none", "--json", "-K", ":"], 2, "give one of"),
        (["consume", "none", "--timeout", "1"], 2, "--timeout is for --follow"),
        (["produce", "none", "x", "-H", "y"], 2, "expected NAME=VALUE"),
        (["produce", "none", "x", "--key", "a", "-K", ":"], 2, "not both"),
        (["produce", "none", "x", "-p", "7"], 1, "there is no partition none-7"),
        (["topics", "--bootstrap", "nowhere"], 2, "--bootstrap: 'nowhere' is no HOST:PORT"),
        (["topics", "create", "a:0"], 2, "NAME[:PARTITIONS[:REPLICATION]]"),
        (["topics", "show"], 2, "No such command 'show'"),
    ],
)
def test_a_mistake_is_one_line(shell: Shell, words: list[str], status: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kwire", *words],
        env={**os.environ, "KWIRE_BOOTSTRAP": shell.cluster.bootstrap_servers},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert (done.returncode, done.stderr.count("\n")) == (status, 1), done
    assert said in done.stderr


# --- groups


def test_groups_with_members_offsets_and_lag(shell: Shell) -> None:
    from kafka import KafkaConsumer

    assert shell.run("groups") == (0, "", "no groups\n")
    nothing = (1, "", "kwire groups: there is no group shop\n")
    assert shell.run("groups", "shop") == shell.run("groups", "shop", "--json") == nothing
    shell.out("topics", "create", "orders")
    shell.out("produce", "orders", "a", "b", "c")
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=shell.cluster.bootstrap_servers,
        group_id="shop",
        client_id="till",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        next(consumer)
        consumer.commit()
        assert shell.rows("groups") == [["shop", "Stable", "1", "2", "orders"]]
        text = shell.out("groups", "shop")
        assert text.startswith("group shop: Stable (range), coordinator ")
        assert "till at 127.0.0.1 " in text
        (found,) = json.loads(shell.out("groups", "--json"))
        assert found == json.loads(shell.out("groups", "shop", "--json"))
        assert (found["id"], found["lag"], found["members"][0]["client_id"]) == ("shop", 2, "till")
        (offset,) = found["offsets"]
        assert (offset["committed"], offset["end"], offset["lag"]) == (1, 3, 2)
    finally:
        consumer.close()
    assert shell.rows("groups") == [["shop", "Empty", "0", "2", "orders"]]


# --- which cluster


def test_the_options_of_a_group_of_commands_reach_its_commands(shell: Shell) -> None:
    servers = shell.cluster.bootstrap_servers
    for words in (
        ["topics", "--bootstrap", servers, "create", "first"],
        ["topics", "create", "second", "-b", servers],
        ["topics", "-b", "nowhere", "create", "third", "-b", servers],
    ):
        done = CliRunner().invoke(cli, words, prog_name="kwire")
        assert done.exit_code == 0, done.stderr
    assert set(shell.cluster.topics()) == {"first", "second", "third"}


def test_without_a_name_it_is_the_running_one(monkeypatch: pytest.MonkeyPatch) -> None:
    import server_harness

    monkeypatch.delenv("KWIRE_BOOTSTRAP", raising=False)
    with server_harness.kwire_up("--topic", "mine:2") as (_, ready):
        port = ready.strip().rpartition(":")[2]
        for words in ([], ["--port", port]):
            done = CliRunner().invoke(cli, ["topics", *words], prog_name="kwire")
            assert "mine" in done.stdout, done.stderr
        with server_harness.kwire_up():
            done = CliRunner().invoke(cli, ["topics"], prog_name="kwire")
            assert done.exit_code == 2
            assert "2 are running" in done.stderr and "--port PORT or --bootstrap" in done.stderr
            done = CliRunner().invoke(cli, ["topics", "--port", port], prog_name="kwire")
            assert "mine" in done.stdout, done.stderr
        both = ["topics", "--port", port, "--bootstrap", f"127.0.0.1:{port}"]
        assert "not both" in CliRunner().invoke(cli, both, prog_name="kwire").stderr


@pytest.mark.parametrize(
    "doors", [["--sasl", "plain", "--user", "ann:s3cret"], ["--tls"]], ids=" ".join
)
def test_a_name_for_the_running_one_brings_what_it_takes_to_come_in(doors: list[str]) -> None:
    import server_harness

    with server_harness.kwire_up("--topic", "mine:2", *doors) as (_, ready):
        port = ready.partition("bootstrap=")[2].split()[0].rpartition(":")[2]
        for words in ([], ["-b", f"localhost:{port}"], ["-b", f"127.0.0.1:{port},[::1]:{port}"]):
            done = CliRunner().invoke(cli, ["topics", *words], prog_name="kwire")
            assert "mine" in done.stdout, done.stderr


# --- the reader


def test_a_reader_goes_on_where_the_log_begins_when_its_position_was_deleted(shell: Shell) -> None:
    from kwire.client.blocking import Client
    from kwire.client.connection import parse_address
    from kwire.client.reader import Reader
    from kwire.client.streams import ask
    from kwire.protocol.schemas.topics import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    shell.cluster.create_topic("orders", replication_factor=1)
    shell.out("produce", "orders", "a", "b", "c")
    address = parse_address(
        shell.cluster.broker(shell.cluster.partition("orders", 0).leader).address
    )
    client = Client(lambda: [address], 10, "test")
    reader = Reader(client, "orders")
    client.run(reader.seek(0))
    gone = DeleteRecordsTopic(
        name="orders", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)]
    )
    asyncio.run(ask(address, DeleteRecordsRequest(topics=[gone], timeout_ms=5000), version=2))
    assert client.run(reader.fetch(reader.positions)) == []
    assert reader.positions == {("orders", 0): 2}
    assert [record.value for record in client.run(reader.fetch(reader.positions))] == [b"c"]
    client.close()
