"""Spark's Kafka source and `kwire-log` on the same topics, in one run: the time of queries with three narrow columns.

    spark_it/.build/venv-4.0.0/bin/python bench/spark_log.py      2 GB each, best of 2
    … --megabytes 400 --runs 1 --own-daemon no                    smaller; with PySpark's own daemon
    … --data DIR                                                  keeps the logs, and uses those that are there

One kwire broker in a process of its own, filled by a stock producer; Spark is local[2], its driver has 2 GB. "values"
has to move every value to Spark, "times" decodes records without their values, "metadata" needs no record. The first
query of each source is not counted. "worker" is the largest resident set of a Python worker while kwire-log ran.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kwire import Cluster
from kwire.spark_session import WORKERS
from spark_it.support import use_fetched_jars

PARTITIONS = 4
TOPICS = {"kb": 1000, "small": 180}
"""Bytes of a value."""
QUERIES = {
    "values": (
        ("partition", "offset", "value"),
        "count(1)", "sum(offset)", "sum(length(value))", "sum(crc32(value))",
    ),
    "times": (("partition", "offset", "timestamp"), "count(1)", "min(timestamp)", "max(timestamp)"),
    "metadata": (("topic", "partition", "offset"), "count(1)", "min(offset)", "max(offset)"),
}  # fmt: skip
"""Columns, and what is computed from them for each partition."""


def fill(cluster: Cluster, topic: str, records: int) -> None:
    from confluent_kafka import Producer

    cluster.create_topic(topic, partitions=PARTITIONS, config={"segment.bytes": str(1 << 30)})
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    value = bytes(range(256)) * 4
    size = TOPICS[topic]
    for number in range(records):
        while True:
            try:
                producer.produce(
                    topic, value[number % 24 : number % 24 + size], partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


class Workers:
    """The largest resident set of this process's Python descendants, looked at every 0.2 s."""

    def __init__(self) -> None:
        self.largest_mb = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Workers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for pid in _workers():
                try:
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                except (OSError, IndexError):
                    continue
                self.largest_mb = max(self.largest_mb, pages * 4096 >> 20)


def _workers() -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if (
                folder.name.isdigit()
                and b"daemon\0pyspark.worker" in (folder / "cmdline").read_bytes()
            ):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def session(own_daemon: bool) -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
    for key, value in {
        "spark.jars": ",".join(map(str, Path(os.environ["KWIRE_SPARK_JARS"]).glob("*.jar"))),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
        **(WORKERS if own_daemon else {}),
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def cpu_seconds() -> float:
    """CPU time so far of the JVM and its living Python workers, which other load of the machine changes little."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    is_java = {pid for pid in ticks if parents[pid] == os.getpid() and _is_java(pid)}
    found = 0
    for pid, count in ticks.items():
        ancestor = pid
        while ancestor and ancestor not in is_java:
            ancestor = parents.get(ancestor, 0)
        found += count if ancestor else 0
    return found / os.sysconf("SC_CLK_TCK")


def _is_java(pid: int) -> bool:
    try:
        return b"java" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return False


def seconds(frame: Any, query: str) -> tuple[float, float, list[Any]]:
    """Wall time and CPU time of a query, and its rows."""
    from pyspark.sql import functions

    columns, *wanted = QUERIES[query]
    begun, cpu = time.perf_counter(), cpu_seconds()
    rows = frame.select(*columns).groupBy("partition").agg(*map(functions.expr, wanted)).collect()
    return time.perf_counter() - begun, cpu_seconds() - cpu, sorted(tuple(row) for row in rows)


def fastest(makes: Sequence[Any], query: str, runs: int) -> list[tuple[float, float, list[Any]]]:
    """Each frame's fastest run, by CPU time: what else the machine does changes that less. The frames take turns."""
    rounds = [[seconds(make(), query) for make in makes] for _ in range(runs)]
    return [min(of_one, key=lambda each: each[1]) for of_one in zip(*rounds, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000, help="of values, of each topic")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--own-daemon", choices=("yes", "no"), default="yes")
    parser.add_argument("--data", metavar="DIR")
    parser.add_argument("--queries", default=",".join(QUERIES))
    given = parser.parse_args()
    use_fetched_jars()
    with Cluster(isolation="process", data_dir=given.data) as cluster:
        for topic, size in TOPICS.items():
            if topic in cluster.topics():
                continue
            begun = time.perf_counter()
            fill(cluster, topic, given.megabytes * 1_000_000 // size)
            print(f"# {topic} filled in {time.perf_counter() - begun:.1f} s", flush=True)
        compare(cluster, session(given.own_daemon == "yes"), given)


def compare(cluster: Cluster, spark: Any, given: argparse.Namespace) -> None:
    from kwire.pipeline.schema import COLUMNS, ddl
    from kwire.pipeline.source import register

    register(spark)

    def of_kafka(topic: str) -> Any:
        reader = spark.read.format("kafka").option("subscribe", topic)
        return reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers).load()

    def of_log(topic: str, query: str) -> Any:
        columns = {name: COLUMNS[name] for name in QUERIES[query][0]}
        reader = spark.read.format("kwire-log").schema(ddl(columns)).option("topic", topic)
        return reader.load(str(cluster.brokers[0].log_dirs[0]))

    with Workers() as workers:
        seconds(of_kafka("kb"), "metadata")
        seconds(of_log("kb", "metadata"), "metadata")
        least = of_log("kb", "metadata").where("false")
        took, cpu, _ = seconds(spark.createDataFrame([], least.schema), "metadata")
        print(f"# a query of nothing: {took:.2f} s, CPU {cpu:.2f} s; load {os.getloadavg()[0]:.1f}")
        print(
            "topic query     Kafka source (CPU)    kwire-log (CPU)   ratio (CPU)   MB/s  M rows/s, at 2 CPUs"
        )
        for topic, size in TOPICS.items():
            for query in given.queries.split(","):
                makes = partial(of_kafka, topic), partial(of_log, topic, query)
                fast = fastest(makes, query, given.runs)
                (kafka, kafka_cpu, expected), (log, cpu, found) = fast
                assert found == expected, (topic, query)
                records = sum(row[1] for row in found)
                quiet = [f"{records * size / cpu * 2e-6:.0f}", f"{records / cpu * 2e-6:.2f}"]
                print(
                    f"{topic:5} {query:9} {kafka:8.2f} s ({kafka_cpu:6.2f}) {log:8.2f} s ({cpu:6.2f})"
                    f" {kafka / log:6.1f} ({kafka_cpu / cpu:4.1f}) {records * size / log / 1e6:6.0f}"
                    f" {records / log / 1e6:6.2f}, {quiet[0]} MB/s {quiet[1]} M rows/s",
                    flush=True,
                )
        print(f"# worker: {workers.largest_mb} MB; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
