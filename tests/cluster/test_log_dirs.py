"""kwire.Cluster with several log directories a broker (`log.dirs`), one of which is gone; and with all of them gone."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_clients import produce

from kwire import Cluster, errors
from kwire.client.streams import ask
from kwire.protocol.errors import ErrorCode
from kwire.protocol.schemas.cluster import DescribeLogDirsRequest

pytestmark = pytest.mark.timeout(60)
BOTH = pytest.mark.parametrize("isolation", ["thread", "process"])
OFTEN = {"replica.high.watermark.checkpoint.interval.ms": "50"}


def until(true: Callable[[], Any], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def described(cluster: Cluster, broker: int) -> dict[str, tuple[int, list[str]]]:
    """Directory → (error, partitions), as the broker tells."""
    host, port = cluster.broker(broker).address.split(":")
    response = asyncio.run(ask((host, int(port)), DescribeLogDirsRequest(topics=None), version=4))
    return {
        result.log_dir: (
            result.error_code,
            sorted(f"{t.name}-{p.partition_index}" for t in result.topics for p in t.partitions),
        )
        for result in response.results
    }


@BOTH
def test_one_directory_is_gone_and_the_other_serves(tmp_path: Path, isolation: Any) -> None:
    config = {"log.dirs": f"{tmp_path}/a,{tmp_path}/b", **OFTEN}
    with Cluster(brokers=2, config=config, isolation=isolation, topics={"t": 1}) as cluster:
        cluster.create_topic("u", partitions=4, replication_factor=2)
        first, second = cluster.broker(1).log_dirs
        assert (first, second) == (f"{tmp_path}/a/broker-1", f"{tmp_path}/b/broker-1")
        assert cluster.broker(1).log_dir == first
        before = described(cluster, 1)
        assert before[first][0] == before[second][0] == 0
        assert sum(len(names) for _, names in before.values()) >= 4
        lost = [name for name in before[second][1] if name.startswith("u-")]
        assert lost and len(lost) < 4
        # when the second directory of broker 1 is not there any more
        Path(second).rename(f"{second}.gone")

        def described_so() -> bool:
            for index in range(4):
                produce(cluster.bootstrap_servers, "u", ["x"], partition=index)
            return described(cluster, 1)[second] == (ErrorCode.KAFKA_STORAGE_ERROR, [])

        # then writers go on: what was in it is led by the other broker, the rest is as it was
        until(described_so)
        for index in range(4):
            produce(cluster.bootstrap_servers, "u", ["y"], partition=index)
            found = cluster.partition("u", index)
            assert (1 in found.isr) is (f"u-{index}" not in lost)
        assert described(cluster, 1)[first] == before[first]
        # and with the directory back and the broker started again all is well
        cluster.broker(1).stop()
        Path(f"{second}.gone").rename(second)
        cluster.broker(1).start()
        until(lambda: all(set(cluster.partition("u", i).isr) == {1, 2} for i in range(4)))
        assert described(cluster, 1) == before


@BOTH
def test_a_broker_without_any_directory_ends(tmp_path: Path, isolation: Any) -> None:
    cluster = Cluster(
        brokers=2, config=OFTEN, isolation=isolation, data_dir=tmp_path, topics=["t:2:2"]
    )
    cluster.start()
    (only,) = cluster.broker(2).log_dirs
    Path(only).rename(f"{only}.gone")

    def ended() -> bool:
        produce(cluster.bootstrap_servers, "t", ["x"], partition=0)
        return not cluster.broker(2).running

    until(ended)
    produce(cluster.bootstrap_servers, "t", ["y"], partition=1)
    with pytest.raises(errors.InternalError, match="broker 2 has ended by itself"):
        cluster.stop()
