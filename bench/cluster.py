"""`make bench-cluster`: three brokers of kwire beside three of Apache Kafka, the same load, in turns, one table.

Each round starts each cluster afresh, drives it with kload (topics of three replicas, acks=all) and stops it; the table
shows medians over the rounds. Then, of kwire alone: how long after the death of a leader a client's write is
acknowledged by the next one, and what 300 partitions of three replicas cost when nothing happens.
Options: --rounds, --clusters kwire,processes,kafka, --phases ping,txn, --only load,failover,idle, --check.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import rdkafka
from bench.cluster_brokers import CLUSTERS, NODES, cpu_seconds, resident_of
from bench.cluster_failover import JUDGED, failover_times
from bench.run import (
    COMMIT,
    TXNS,
    Figures,
    Row,
    commit_row,
    kload,
    load,
    order_of,
    over,
    ratio,
    table,
    told,
    transactions_text,
    write_page,
)
from compat_tests import tooling
from compat_tests.brokers import BrokerFailed

PHASES = ("ping", "produce", "fetch", "txn", "txn-franz", "txn-rdkafka")
LOADS = ("produce", "fetch")
"""Phases of one topic: fetch reads what produce has written."""
IDLE_SECONDS = 20
IDLE_PARTITIONS = 300

ROWS = (
    Row("start_ms", "start of three brokers, ms"),
    Row("rss_mb", "resident then, MiB"),
    Row(
        "ping_p50_ms",
        "acks=all RF=3 round trip p50, ms",
        "≤ 1/3 Kafka",
        lambda r: ratio(r, "ping_p50_ms", "kafka") <= 1 / 3,
    ),
    Row("ping_p99_ms", "acks=all RF=3 round trip p99, ms"),
    Row(
        "produce_MBps",
        "RF=3 produce, MB/s",
        "≥ Kafka",
        lambda r: ratio(r, "produce_MBps", "kafka") >= 1,
    ),
    Row("fetch_MBps", "fetch, MB/s"),
    Row("loaded_rss_mb", "resident after the load, MiB"),
)
TRANSACTIONS = (
    commit_row("txn_commit_p50_ms", f"{COMMIT}, client that never sleeps, ms", kafka=0.2),
    Row("txn_p50_ms", "… all of the transaction p50, ms"),
    Row("txn_retries", "… refused while the last one is being ended, times"),
    Row("txn_cpu_us", "… CPU a transaction, µs"),
    commit_row("txn_franz_commit_p50_ms", f"{COMMIT}, franz-go, ms", kafka=0.2),
    Row("txn_franz_p50_ms", "… all of the transaction p50, ms"),
    Row("txn_rdkafka_commit_p50_ms", f"{COMMIT}, librdkafka, ms"),
    Row("txn_rdkafka_p50_ms", "… all of the transaction p50, ms"),
)
BEGIN_TRANSACTIONS = "<!-- begin: transactions, written by bench/cluster.py --write -->"


def one_run(name: str, folder: Path, phases: list[str], records: int) -> Figures:
    shutil.rmtree(folder, ignore_errors=True)
    cluster = CLUSTERS[name](folder)
    begin = time.perf_counter()
    cluster.start()
    figures: Figures = {"start_ms": (time.perf_counter() - begin) * 1000}
    try:
        figures["rss_mb"] = resident_of(cluster)
        for phase in phases:
            before, topic = cpu_seconds(cluster.pids), "load" if phase in LOADS else phase  # type: ignore[attr-defined]  # of every cluster
            if phase == "txn-rdkafka":
                figures |= rdkafka.transactions(cluster.bootstrap_servers, topic, replicas=NODES)
                continue
            arguments = ["-replicas", str(NODES), "-only", phase, "-topic", topic]
            arguments += ["-records", str(records), "-txns", str(TXNS)]
            figures |= kload(cluster.bootstrap_servers, *arguments)
            if phase == "txn":
                spent = cpu_seconds(cluster.pids) - before  # type: ignore[attr-defined]
                figures["txn_cpu_us"] = spent / (TXNS + 50) * 1e6
        figures["loaded_rss_mb"] = resident_of(cluster)
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return figures


def compare(
    names: list[str], rounds: int, phases: list[str], records: int, folder: Path
) -> dict[str, list[Figures]]:
    """The figures of each round."""
    runs: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(rounds):
        for name in order_of(names, number):
            said = f"bench-cluster: round {number + 1} of {rounds}, {name}"
            print(said, file=sys.stderr, flush=True)
            runs[name].append(one_run(name, folder / name, phases, records))
    return runs


def idle_cost(name: str, folder: Path) -> tuple[float, float]:
    """Percent of a core that three idle brokers take: without topics, and with 300 partitions of three replicas."""
    shutil.rmtree(folder, ignore_errors=True)
    cluster = CLUSTERS[name](folder)
    cluster.start()
    try:
        empty = _cost(cluster)
        arguments = ["-replicas", "3", "-partitions", str(IDLE_PARTITIONS), "-records", "3000"]
        kload(cluster.bootstrap_servers, "-only", "produce", *arguments)
        return empty, _cost(cluster)
    finally:
        cluster.stop()


def _cost(cluster: object) -> float:
    pids = cluster.pids  # type: ignore[attr-defined]  # of every cluster
    time.sleep(2)  # what the last load left to be done
    before, begin = cpu_seconds(pids), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(pids) - before) / (time.perf_counter() - begin) * 100


def measure(options: argparse.Namespace, folder: Path) -> int:
    """The loads, side by side; returns how many targets are missed."""
    names, phases, loads = options.clusters.split(","), options.phases.split(","), [load()]
    runs = compare(names, options.rounds, phases, options.records, folder)
    loads.append(load())
    results, missed = over(runs, statistics.median), 0
    for rows in (ROWS, TRANSACTIONS):
        text, count = table(results, rows)
        print(text)
        missed += count
    print(f"Least of the rounds:\n{table(over(runs, min), TRANSACTIONS)[0]}")
    if options.write:
        text = transactions_text(told(options.rounds, loads), runs, TRANSACTIONS)
        write_page(text, begin=BEGIN_TRANSACTIONS)
    return missed


def judged(text: str, holds: bool) -> tuple[str, int]:
    return f"{text}: {'ok' if holds else 'MISSED'}", not holds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clusters", default=",".join(CLUSTERS))
    parser.add_argument("--phases", default=",".join(PHASES))
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--only", default="load,failover,idle")
    parser.add_argument(
        "--write", action="store_true", help="write the page's table of transactions"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    parts, missed = options.only.split(","), 0
    try:
        with tempfile.TemporaryDirectory(prefix="kwire-bench-") as name:
            folder = Path(name)
            if "load" in parts:
                missed += measure(options, folder)
            if "failover" in parts:
                for client, times in failover_times(folder).items():
                    listed = ", ".join(f"{t:.0f}" for t in sorted(times))
                    median = statistics.median(times)
                    text = f"leader killed to first acknowledged write, {client}: median {median:.0f} ms of {listed}"
                    if client in JUDGED:
                        text, count = judged(f"{text} (target < 150)", median < 150)
                        missed += count
                    print(text, flush=True)
            if "idle" in parts:
                for cluster in ("kwire", "processes"):
                    empty, full = idle_cost(cluster, folder / "idle")
                    text, count = judged(
                        f"idle, {cluster}: {empty:.2f} % of a core without topics, {full:.2f} % with "
                        f"{IDLE_PARTITIONS} partitions RF=3 (target: RF=3 adds < 3)",
                        full < 3,
                    )
                    print(text, flush=True)
                    missed += count
    except (BrokerFailed, tooling.ToolMissing, subprocess.TimeoutExpired) as error:
        print(f"bench-cluster: {error}", file=sys.stderr)
        return 1
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
