"""Transactions, as `kwire.Cluster`, the CLI, HTTP and reports show them beside a real producer."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer

from kwire import Cluster, errors
from kwire.cli.main import cli
from kwire.control.routes import ask_cluster
from kwire.docker import tools
from kwire.report import state

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(brokers=2, topics=["t:2:2"]) as cluster:
        yield cluster


@contextmanager
def open_transaction(cluster: Cluster, transactional_id: str) -> Iterator[Producer]:
    """A producer with a record in t-1 in an open transaction, which is aborted at the end."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": 30_000,
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("t", b"tea", partition=1)
    producer.flush(20)
    try:
        yield producer
    finally:
        producer.abort_transaction(20)


def kwire(cluster: Cluster, *words: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    environment = {"KWIRE_BOOTSTRAP": cluster.bootstrap_servers}
    done = CliRunner().invoke(cli, list(words), env=environment, prog_name="kwire")
    return done.exit_code, done.stdout, done.stderr


def test_a_look_at_a_cluster_without_transactions_creates_nothing() -> None:
    with Cluster(topics=["t"]) as cluster:
        assert cluster.transactions() == []
        dead = cluster.transaction("pay")
        assert (dead.state, dead.open, dead.coordinator, dead.partitions) == ("Dead", False, -1, [])
        assert str(dead) == "transaction pay: there is no such transactional id"
        assert kwire(cluster, "transactions") == (0, "", "no transactional ids\n")
        assert list(cluster.topics(internal=True)) == ["t"]
        broker: Any = cluster._inner.inside.node(1)
        core = broker.runner.core
        assert core.services.transactions_if_used is None


def test_an_open_transaction_with_the_offsets_that_it_holds(shared: Cluster) -> None:
    with open_transaction(shared, "payments"):
        found = shared.transaction("payments")
        assert (found.state, found.open, found.timeout_ms) == ("Ongoing", True, 30_000)
        assert found.start_ms is not None and found.coordinator in (1, 2)
        (part,) = found.partitions
        assert (part.topic, part.partition, part.holds) == ("t", 1, True)
        assert part.start is not None and part.start == part.stable
        assert part.end == part.start + 1
        with open_transaction(shared, "refunds"):
            assert [each.id for each in shared.transactions()] == ["payments", "refunds"]
            _, out, _ = kwire(shared, "top", "--once")
            top = [line.split() for line in out.splitlines()]
            (row,) = (line for line in top if line[:1] == ["payments"])
            assert row[1] == "Ongoing" and row[-1] == "t-1"
            (behind,) = shared.transaction("refunds").partitions
            assert behind.start == part.end and not behind.holds and behind.stable == part.start
            described = shared.describe()
            assert "\ntransaction payments: Ongoing, began " in described
            assert f"t-1: open since offset {part.start}, holds the last stable offset" in described
            assert f"t-1: open since offset {behind.start}, last stable offset" in described
        outside = Cluster.connect(shared.bootstrap_servers)
        assert outside.transaction("payments") == found.__class__(
            *(getattr(found, name) for name in found.__slots__[:7]),
            partitions=outside.transaction("payments").partitions,
        )
        outside.stop()
        assert shared.transaction("payment").similar == "payments"
    assert "payments" not in kwire(shared, "top", "--once")[1]
    ended = shared.transaction("payments")
    assert (ended.state, ended.open, ended.partitions) == ("CompleteAbort", False, [])
    assert "transaction payments" not in shared.describe()


def test_a_paused_broker_is_not_waited_for() -> None:
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", assignment=[[1, 2], [1, 2]])
        with open_transaction(cluster, "payments"):
            coordinator = cluster.transaction("payments").coordinator
            for broker in {1, coordinator}:
                cluster.broker(broker).pause()
                begun = time.monotonic()
                try:
                    (part,) = cluster.transaction("payments").partitions
                    assert broker != coordinator
                    assert (part.start, part.stable, part.end, part.holds) == (*3 * [None], False)
                except errors.BrokerNotAvailableError as error:
                    assert broker == coordinator and f"broker {broker} is paused" in str(error)
                with pytest.raises(errors.BrokerNotAvailableError, match="the others have"):
                    cluster.transactions()
                assert time.monotonic() - begun < 3
                cluster.broker(broker).resume()
                cluster.wait_in_sync()


def test_a_producer_is_fenced_and_its_transaction_aborted(shared: Cluster) -> None:
    with pytest.raises(KafkaException), open_transaction(shared, "old") as producer:
        before = shared.transaction("old")
        after = shared.fence_producer("old")
        assert (before.state, after.state, after.partitions) == ("Ongoing", "Empty", [])
        assert after.producer_epoch > before.producer_epoch
        assert after.timeout_ms == before.timeout_ms
        with pytest.raises(KafkaException):
            producer.commit_transaction(20)
    with pytest.raises(KafkaException), open_transaction(shared, "new") as fenced:
        status, out, _ = kwire(shared, "transactions", "fence", "new")
        assert status == 0 and out.startswith("transaction new: Empty, time-out 30 s")
        fenced.commit_transaction(20)
    nothing = "there is no transactional id nww"
    with pytest.raises(errors.RequestError, match=nothing):
        shared.fence_producer("nww")
    assert kwire(shared, "transactions", "fence", "nww")[0] == 1


def test_the_images_tool_shows_and_ends_what_hangs(
    shared: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tool(*words: str) -> list[list[str]]:
        """The cells of each line."""
        servers = ["--bootstrap-server", shared.bootstrap_servers]
        status = tools.main(["kafka-transactions", *servers, *words])
        out, err = capsys.readouterr()
        assert status == 0, err
        return [[cell.strip() for cell in line.split("\t")[:-1]] for line in out.splitlines()]

    at = ["--topic", "t", "--partition", "1"]
    with open_transaction(shared, "tool"):
        found = shared.transaction("tool")
        (part,) = found.partitions
        producer, coordinator = str(found.producer_id), str(found.coordinator)
        assert ["tool", coordinator, producer, "Ongoing"] in tool("list")
        head, row = tool("describe", "--transactional-id", "tool")
        assert (head[0], row[:3], row[-1]) == (
            "CoordinatorId",
            [coordinator, "tool", producer],
            "t-1",
        )
        for more in ([], ["--broker-id", "1"], ["--broker-id", "2"]):
            rows = tool("describe-producers", *at, *more)
            assert [row[-1] for row in rows if row[0] == producer] == [str(part.start)]
        # Its coordinator knows it, however old it is: not hanging.
        assert len(tool("find-hanging", *at, "--max-transaction-timeout", "-1")) == 1
        with monkeypatch.context() as patched:

            def no_transactions(_: Any) -> Iterator[Any]:
                yield from ()
                return []

            patched.setattr("kwire.client.hanging.list_transactions", no_transactions)
            _, hanging = tool("find-hanging", *at, "--max-transaction-timeout", "-1")
            assert hanging[:3] == ["t", "1", producer] and hanging[5] == str(part.start)
            assert len(tool("find-hanging", "--broker-id", "1")) == 1  # not 15 minutes old
        assert tool("abort", *at, "--start-offset", str(part.start)) == []
        (ended,) = shared.transaction("tool").partitions
        assert ended.start is None and ended.stable == ended.end == (part.end or 0) + 1
        servers = ["--bootstrap-server", shared.bootstrap_servers]
        assert (
            tools.main(["kafka-transactions", *servers, "abort", *at, "--start-offset", "9"]) == 1
        )
        assert "Could not find any open transactions" in capsys.readouterr().err


def test_a_wait_that_ends_too_late_shows_the_transaction(shared: Cluster) -> None:
    with (
        open_transaction(shared, "waits"),
        pytest.raises(TimeoutError, match="transaction waits: Ongoing"),
    ):
        shared.wait_for(lambda c: not c.transaction("waits").open, 0.2)


def test_the_same_over_the_command_line_http_and_in_a_report(shared: Cluster) -> None:
    with open_transaction(shared, "doors"):
        status, out, _ = kwire(shared, "transactions")
        (row,) = [line.split() for line in out.splitlines() if line.startswith("doors ")]
        assert (status, row[1], row[-1]) == (0, "Ongoing", "t-1")
        listed = json.loads(kwire(shared, "transactions", "list", "--json")[1])
        one = json.loads(kwire(shared, "transactions", "describe", "doors", "--json")[1])
        assert [each for each in listed if each["id"] == "doors"] == [one]
        assert one["partitions"][0]["stable"] == one["partitions"][0]["start"]
        assert "holds the last stable" in kwire(shared, "transactions", "describe", "doors")[1]

        def ask(path: str) -> Any:
            return asyncio.run_coroutine_threadsafe(
                ask_cluster(shared._inner, "GET", path, {}), shared._thread.loop
            ).result(20)

        assert ask("/v1/transactions/doors") == one
        assert one in ask("/v1/transactions")["transactions"]
        (reported,) = shared._run(state.transactions(shared._inner)) or []
        assert (reported["id"], reported["partitions"][0]["holds"]) == ("doors", True)
    assert shared._run(state.transactions(shared._inner)) == []
    missing = (
        1,
        "",
        "kwire transactions: there is no transactional id dors; did you mean doors?\n",
    )
    assert kwire(shared, "transactions", "describe", "dors") == missing
