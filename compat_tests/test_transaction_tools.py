"""Kafka's tools about transactions against kwire: the log's decoder, and kafka-transactions.sh."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests import tooling
from compat_tests.brokers import Broker, RealKafka4
from compat_tests.record_dialogue import SocketClient
from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    TopicRequest,
)

pytestmark = pytest.mark.timeout(180)
STATES = {"Empty": 0, "Ongoing": 1, "PrepareCommit": 2, "CompleteCommit": 4}


def run(*argv: str) -> str:
    done = subprocess.run(tooling.java_argv("3.9.1", *argv), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def open_transaction(broker: Broker, topic: str, tid: str) -> Producer:
    base = {"bootstrap.servers": broker.bootstrap_servers, "broker.address.family": "v4"}
    admin = AdminClient(base)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({**base, "transactional.id": tid})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    producer.flush(30)
    return producer


def test_kafka_decodes_the_log_of_transactions(own_broker: Broker) -> None:
    producer = open_transaction(own_broker, "t", "my-id")
    producer.commit_transaction(30)
    producer.begin_transaction()  # it can write once the coordinator has completed the first one
    producer.produce("t", b"v", partition=0)
    producer.flush(30)
    own_broker.stop()
    logs = sorted(own_broker.data.glob("**/__transaction_state-*/*.log"))
    names = ",".join(str(path) for path in logs if path.stat().st_size)
    decoder = ("--deep-iteration", "--transaction-log-decoder")
    said = run("kafka.tools.DumpLogSegments", *decoder, "--files", names)
    for state in ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit"):
        assert f"state={state}" in said or f'"transactionStatus":{STATES[state]}' in said, said
    assert "my-id" in said
    assert "partitions=[t-0]" in said or '"partitionIds":[0]' in said, said


def test_kafka_transactions_lists_describes_and_aborts(
    broker: Broker, fresh: Callable[[str], str]
) -> None:
    topic, tid = fresh("txn"), fresh("id")
    open_transaction(broker, topic, tid)

    def tool(*arguments: str) -> str:
        main = "org.apache.kafka.tools.TransactionsCommand"
        return run(main, "--bootstrap-server", broker.bootstrap_servers, *arguments)

    listed = tool("list")
    assert any(tid in line and "Ongoing" in line for line in listed.splitlines()), listed
    described = tool("describe", "--transactional-id", tid)
    assert "Ongoing" in described and f"{topic}-0" in described, described
    producers = tool("describe-producers", "--topic", topic, "--partition", "0")
    assert "CurrentTransactionStartOffset" in producers, producers
    hanging = tool("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "15")
    assert topic not in hanging, hanging
    tool("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert open_since(broker, topic) == [-1]


def open_since(broker: Broker, topic: str) -> list[int]:
    """The start offsets of the open transactions of partition 0; -1: none of that producer."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    answer = SocketClient(broker.port).ask(ApiKey.DESCRIBE_PRODUCERS, 0, request)
    partition = answer.topics[0].partitions[0]
    return [state.current_txn_start_offset for state in partition.active_producers]


@pytest.fixture(params=["this one", pytest.param("4.3.1", marks=pytest.mark.slow)])
def new_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """The broker under test, and the Kafka that has the newest admin clients."""
    if request.param == "this one":
        yield request.getfixturevalue("broker")
        return
    kafka = RealKafka4(tmp_path / "kafka")
    kafka.start()
    yield kafka
    kafka.kill9()


def described(broker: Broker, tid: str) -> tuple[int, str, int]:
    """Error, state and producer epoch."""
    request = DescribeTransactionsRequest(transactional_ids=[tid])
    (each,) = (
        SocketClient(broker.port).ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
    )
    return each.error_code, each.transaction_state, each.producer_epoch


def test_kafka_4_terminates_a_transaction_by_force(
    new_broker: Broker, fresh: Callable[[str], str]
) -> None:
    """Admin.forceTerminateTransaction (KIP-939), as kafka-transactions of 4.3.1 calls it."""
    topic, tid = fresh("txn"), fresh("id")

    def terminate(tid: str) -> None:
        main = "org.apache.kafka.tools.TransactionsCommand"
        servers = ("--bootstrap-server", new_broker.bootstrap_servers)
        argv = (main, *servers, "forceTerminateTransaction", "--transactionalId", tid)
        done = subprocess.run(
            tooling.java_argv("4.3.1", *argv), capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr

    producer = open_transaction(new_broker, topic, tid)
    error, state, epoch = described(new_broker, tid)
    assert (error, state) == (0, "Ongoing")
    terminate(tid)
    assert described(new_broker, tid) == (
        0,
        "Empty",
        epoch + 2,
    )  # the abort's, and the new producer's
    assert open_since(new_broker, topic) == [-1]
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction(30)
    assert fenced.value.args[0].fatal()
    terminate(tid)  # nothing is open: the id has another producer again
    assert described(new_broker, tid) == (0, "Empty", epoch + 3)
    other = fresh("id")
    terminate(other)  # an id that nobody has had exists from then on
    assert described(new_broker, other) == (0, "Empty", 0)
