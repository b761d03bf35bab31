"""kill -9 and a restart on the same data: acknowledged records and commits are there, groups resume."""

from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests import brokers
from compat_tests.brokers import Broker
from compat_tests.cases import numbered_records
from compat_tests.clients import ALL_CODECS, Client, eventually

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("kind", ["kafka-python-3", "franz-go", "confluent-kafka"])
def test_a_group_resumes_after_kill_9(
    own_broker: Broker, start_client: Callable[..., Client], kind: str
) -> None:
    client = start_client(kind, own_broker.bootstrap_servers)
    client.call("create", topic="t", partitions=2, config={})
    for codec, first in zip(ALL_CODECS, range(0, 50, 10), strict=True):
        client.produce("t", numbered_records(first, first + 10, 2), codec)
    client.call("join", group="g", topic="t")
    _, read = client.wait(2, 50)
    assert sorted(r.number for r in read) == list(range(50))
    client.call("commit")
    client.call("leave")
    client.produce("t", numbered_records(50, 60, 2), "lz4")

    own_broker.kill9()
    own_broker.restart()

    again = start_client(kind, own_broker.bootstrap_servers)
    assert [r.number for r in again.fetch("t", 30, partition=0)] == list(range(0, 60, 2))
    again.call("join", group="g", topic="t")
    _, read = again.wait(2, 10)
    assert sorted(r.number for r in read) == list(range(50, 60))
    eventually(lambda: again.produce("t", numbered_records(60, 62, 2)) == [30, 30])


def test_a_live_client_survives_kill_9_of_its_broker(
    own_broker: Broker, start_client: Callable[..., Client]
) -> None:
    member = start_client("franz-go", own_broker.bootstrap_servers)
    writer = start_client("franz-go", own_broker.bootstrap_servers)
    writer.call("create", topic="t", partitions=1, config={})
    member.call("join", group="g", topic="t")
    writer.produce("t", numbered_records(0, 5, 1))
    member.wait(1, 5)
    member.call("commit")

    own_broker.kill9()
    own_broker.restart()

    writer.produce("t", numbered_records(5, 10, 1))
    member.send("wait", partitions=1, records=10)
    _, read = member.received_wait()
    assert [r.number for r in read] == list(range(10))


@pytest.mark.kwire_only
def test_a_clean_stop_exits_with_0_and_keeps_everything(
    own_broker: Broker, start_client: Callable[..., Client]
) -> None:
    client = start_client("kafka-python-3", own_broker.bootstrap_servers)
    client.call("create", topic="t", partitions=1, config={"retention.ms": "-1"})
    client.produce("t", numbered_records(0, 20, 1), "zstd")

    assert own_broker.stop() == 0
    own_broker.restart()

    again = start_client("kafka-python-3", own_broker.bootstrap_servers)
    assert [r.number for r in again.fetch("t", 20)] == list(range(20))
    assert again.call("get_config", topic="t", key="retention.ms") == "-1"


@pytest.mark.kwire_only
def test_a_locked_data_directory_is_refused_in_one_line(own_broker: Broker, tmp_path: Path) -> None:
    second = brokers.KwireBroker(tmp_path / "second")
    second.data = own_broker.data
    with pytest.raises(brokers.BrokerFailed, match="ended with 1"):
        second.start()
    assert "Traceback" not in second.log_tail()
