"""What a snapshot, a restore and a reset cost: three brokers in this process, wall time and CPU time of the process.

    python bench/snapshots.py                 100 MB over all brokers
    TMPDIR=/dev/shm python bench/snapshots.py --megabytes 10 --runs 20

The best and the median of all runs, half a second apart, so that the old data is deleted in between, as between two
tests. On a machine that others use CPU says more.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kwire.aio import Cluster

_VALUE = b"x" * 10_000


def write(bootstrap: str, megabytes: int) -> None:
    """Write records to three partitions of three replicas, until all logs have so many megabytes."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(megabytes * 100 // 3):
        producer.produce("t", _VALUE, partition=number % 3)
        if number % 200 == 0:
            producer.flush()
    producer.flush()


async def measure(what: str, runs: int, act: Callable[[], Awaitable[object]]) -> None:
    walls, cpus = [], []
    for _ in range(runs):
        await asyncio.sleep(0.5)
        wall, cpu = time.perf_counter(), time.process_time()
        await act()
        walls.append((time.perf_counter() - wall) * 1000)
        cpus.append((time.process_time() - cpu) * 1000)
    found = [(min(each), statistics.median(each)) for each in (walls, cpus)]
    texts = [f"{best:6.1f} best {median:6.1f} median" for best, median in found]
    print(f"{what:20} wall ms {texts[0]}   cpu ms {texts[1]}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=10)
    given = parser.parse_args()
    async with Cluster(3) as cluster:
        await measure("reset, empty", given.runs, cluster.reset)
        await cluster.create_topic("t", 3, 3)
        await asyncio.to_thread(write, cluster.bootstrap_servers, given.megabytes)
        await cluster.wait_in_sync()
        base = await cluster.snapshot("base")
        print(f"{base.size_bytes / 1e6:.0f} MB in {base.brokers} brokers")
        await measure("snapshot", given.runs, lambda: cluster.snapshot("base"))
        await measure("restore", given.runs, lambda: cluster.restore("base"))


if __name__ == "__main__":
    asyncio.run(main())
