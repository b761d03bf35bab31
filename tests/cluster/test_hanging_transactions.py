"""Transactions that no coordinator knows: `kwire transactions` and the image's tool find and end them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kwire import Cluster
from kwire.cli.main import cli
from kwire.client.blocking import Client
from kwire.client.connection import parse_address
from kwire.client.offsets import partitions
from kwire.docker import tools
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(60)
NEXT_ID = iter(range(70_000, 80_000))


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """Leaders verify nothing, so that a transaction can be open that its coordinator does not know."""
    config = {"transaction.partition.verification.enable": "false"}
    with Cluster(brokers=2, topics=["t:2:2", "u"], config=config) as cluster:
        yield cluster


def hang(cluster: Cluster, topic: str, partition: int, age_ms: int = 0) -> tuple[int, int]:
    """Write a record that nobody will commit: the producer id, and the record's offset."""
    client = Client(lambda: [parse_address(cluster.bootstrap_servers.split(",")[0])], 10, "test")
    (leader,) = client.run(partitions(client, topic, partition)).values()
    producer_id = next(NEXT_ID)
    record = Record(0, time.time_ns() // 1_000_000 - age_ms, None, b"tea", [])
    batch = build_batch(
        [record], producer_id=producer_id, producer_epoch=3, base_sequence=0, is_transactional=True
    )
    data = [PartitionProduceData(index=partition, records=batch)]
    request = ProduceRequest(
        transactional_id="nobody",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    answer = client.run(client.ask_at(leader, request)).responses[0].partition_responses[0]
    client.close()
    assert answer.error_code == 0
    return producer_id, answer.base_offset


def kwire(cluster: Cluster, *words: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr of `kwire transactions`."""
    environment = {"KWIRE_BOOTSTRAP": cluster.bootstrap_servers}
    done = CliRunner().invoke(cli, ["transactions", *words], env=environment, prog_name="kwire")
    return done.exit_code, done.stdout, done.stderr


def find(cluster: Cluster, *words: str) -> tuple[int, str, str]:
    return kwire(cluster, "find-hanging", "--max-transaction-timeout", "-1", "--json", *words)


def test_what_hangs_is_found_and_aborted_by_its_start(shared: Cluster) -> None:
    assert find(shared) == (0, "[]\n", "")
    assert kwire(shared, "find-hanging") == (0, "", "no transaction hangs\n")
    first = hang(shared, "t", 1)
    second = hang(shared, "u", 0, age_ms=16 * 60_000)
    status, out, _ = find(shared)
    found = json.loads(out)
    keys = ("topic", "partition", "producer_id", "start")
    assert (status, [tuple(row[key] for key in keys) for row in found]) == (
        1,
        [("t", 1, *first), ("u", 0, *second)],
    )
    assert [row["coordinator_epoch"] for row in found] == [-1, -1]
    status, out, _ = kwire(shared, "find-hanging")  # what is older than any time-out
    (row,) = [line.split() for line in out.splitlines()[1:]]
    assert (status, row[:5]) == (1, ["u-0", str(second[1]), str(second[0]), "3", "-1"])
    for narrower, count in ((["--topic", "t"], 1), (["--topic", "t", "--partition", "0"], 0)):
        assert len(json.loads(find(shared, *narrower)[1])) == count
    for broker in ("1", "2"):
        assert "t" in [r["topic"] for r in json.loads(find(shared, "--broker-id", broker)[1])]
    for topic, partition, (producer_id, start) in (("t", "1", first), ("u", "0", second)):
        at = ("--topic", topic, "--partition", partition)
        status, out, _ = kwire(shared, "abort", *at, "--start-offset", str(start))
        said = f"{topic}-{partition}: aborted what producer {producer_id}, epoch 3, had open\n"
        assert (status, out) == (0, said)
        status, _, err = kwire(shared, "abort", *at, "--start-offset", str(start))
        assert status == 1 and f"starting at offset {start} on partition {topic}-{partition}" in err
    assert find(shared) == (0, "[]\n", "")


def test_it_is_aborted_by_its_producer_too(shared: Cluster) -> None:
    producer_id, _ = hang(shared, "t", 0)
    at = ("--topic", "t", "--partition", "0", "--producer-id", str(producer_id))
    for epochs in (("3", "-1"), ("3", "0")):
        named = ("--producer-epoch", epochs[0], "--coordinator-epoch", epochs[1])
        assert kwire(shared, "abort", *at, *named)[0] == 0
        assert find(shared) == (0, "[]\n", "")
    fenced = ("--producer-epoch", "2", "--coordinator-epoch", "0")
    status, _, err = kwire(shared, "abort", *at, *fenced)
    assert status == 1 and "the marker in t-0" in err


def test_the_images_tool_ends_the_same(shared: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    def tool(*words: str) -> tuple[int, list[list[str]], str]:
        servers = ["--bootstrap-server", shared.bootstrap_servers]
        status = tools.main(["kafka-transactions", *servers, *words])
        out, err = capsys.readouterr()
        return (
            status,
            [[cell.strip() for cell in line.split("\t")] for line in out.split("\n")],
            err,
        )

    producer_id, start = hang(shared, "t", 1)
    limit = ("--max-transaction-timeout", "-1")
    status, rows, _ = tool("find-hanging", "--topic", "t", *limit)
    assert (status, rows[1][:6]) == (0, ["t", "1", str(producer_id), "3", "-1", str(start)])
    at = ("--topic", "t", "--partition", "1")
    assert tool("abort", *at, "--start-offset", str(start))[0] == 0
    assert find(shared) == (0, "[]\n", "")
    status, _, err = tool("abort", *at, "--start-offset", str(start))
    assert status == 1 and "Could not find any open transactions" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["find-hanging", "--partition", "1"], "--partition needs --topic"),
        (["abort", "--topic", "t", "--start-offset", "1"], "--topic and --partition say where"),
        (
            ["abort", "--topic", "t", "--partition", "0"],
            "the transaction is named by --start-offset",
        ),
        (
            [
                "abort",
                "--topic",
                "t",
                "--partition",
                "0",
                "--start-offset",
                "1",
                "--producer-id",
                "1",
            ],
            "the transaction is named by --start-offset",
        ),
        (
            ["abort", "--topic", "t", "--partition", "0", "--producer-id", "1"],
            "the transaction is named by --start-offset",
        ),
    ],
)
def test_wrong_words_are_refused_before_a_broker_is_asked(words: list[str], said: str) -> None:
    done: Any = CliRunner().invoke(cli, ["transactions", *words], env={"KWIRE_BOOTSTRAP": "x:1"})
    assert done.exit_code == 2 and said in done.stderr


def test_what_does_not_exist_is_said_in_one_line(shared: Cluster) -> None:
    for words in (
        ["find-hanging", "--topic", "tt"],
        ["find-hanging", "--topic", "t", "--partition", "7"],
        ["abort", "--topic", "tt", "--partition", "0", "--start-offset", "1"],
        ["find-hanging", "--broker-id", "9"],
    ):
        status, out, err = kwire(shared, *words)
        assert (status, out) == (1, "") and len(err.splitlines()) == 1
