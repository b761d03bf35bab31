"""kafka-consumer-groups of the image against groups of live consumers and of none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer

import kwire
from kwire.docker import tools

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[kwire.Cluster]:
    with kwire.Cluster() as running:
        running.create_topic("orders", partitions=2)
        for partition in (0, 0, 0, 1):
            running.produce("orders", "tea", partition=partition)
        yield running


@pytest.fixture(scope="module")
def consumer(cluster: kwire.Cluster) -> Iterator[KafkaConsumer]:
    """Has read everything, and committed all but the last record of partition 0."""
    from kafka import OffsetAndMetadata, TopicPartition

    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="shop",
        client_id="till",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    taken = 0
    while taken < 4:
        taken += sum(map(len, consumer.poll(1000).values()))
    consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(2, "", -1)})
    yield consumer
    consumer.close(autocommit=False)


class Groups:
    """Runs kafka-consumer-groups: the words of each line of stdout, and stderr."""

    def __init__(self, servers: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._servers = servers
        self._capsys = capsys

    def __call__(self, *arguments: str, status: int = 0) -> tuple[list[list[str]], str]:
        found = tools.main(
            ["kafka-consumer-groups", "--bootstrap-server", self._servers, *arguments]
        )
        said = self._capsys.readouterr()
        assert found == status, said
        return [line.split() for line in said.out.splitlines() if line], said.err


@pytest.fixture
def groups(cluster: kwire.Cluster, capsys: pytest.CaptureFixture[str]) -> Groups:
    return Groups(cluster.bootstrap_servers, capsys)


def test_a_group_with_members(consumer: KafkaConsumer, groups: Groups) -> None:
    assert groups("--list") == ([["shop"]], "")
    assert groups("--list", "--state") == ([["shop", "Stable"]], "")
    (head, first, second), err = groups("--describe", "--group", "shop")
    assert (head[3:6], err) == (["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"], "")
    assert first[:6] == ["shop", "orders", "0", "2", "3", "1"]
    assert second[:6] == ["shop", "orders", "1", "-", "1", "-"]
    assert first[6].startswith("till-") and first[7:] == ["/127.0.0.1", "till"]
    (_, member), _ = groups("--describe", "--group", "shop", "--members")
    assert member[2:] == ["/127.0.0.1", "till", "2"]
    (_, state), _ = groups("--describe", "--group", "shop", "--state")
    assert state == ["shop", "range", "Stable", "1"]
    _, err = groups("--delete", "--group", "shop", status=1)
    assert "group 'shop' could not be deleted: it is not empty" in err
    reset = ("--reset-offsets", "--group", "shop", "--all-topics", "--to-earliest")
    assert "is inactive" in groups(*reset, status=1)[1]


def test_a_group_without_members_is_reset_and_deleted(
    cluster: kwire.Cluster, groups: Groups, capsys: pytest.CaptureFixture[str]
) -> None:
    read = ["kafka-console-consumer", "--bootstrap-server", cluster.bootstrap_servers]
    read += ["--topic", "orders", "--group", "once", "--from-beginning", "--max-messages", "4"]
    assert tools.main(read) == 0
    capsys.readouterr()
    rows, err = groups("--describe", "--group", "once")
    assert [row[3:] for row in rows[1:]] == [[n, n, "0", "-", "-", "-"] for n in "31"]
    assert "has no active members" in err
    rows, _ = groups(
        "--reset-offsets", "--group", "once", "--topic", "orders:0", "--shift-by", "-2", "--execute"
    )
    assert rows[1] == ["once", "orders", "0", "1"]
    (_, first, _), _ = groups("--describe", "--group", "once")
    assert first[3:6] == ["1", "3", "2"]
    groups("--delete", "--group", "once")
    assert "'once' does not exist" in groups("--describe", "--group", "once", status=1)[1]


def test_a_group_that_never_was(groups: Groups) -> None:
    _, err = groups("--describe", "--group", "nobody", status=1)
    assert err == "kafka-consumer-groups: Consumer group 'nobody' does not exist.\n"
