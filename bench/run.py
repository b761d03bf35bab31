"""`make bench`: kwire beside kfake and Apache Kafka, the same load, in turns, one table.

kwire's modules are byte-compiled first, as those of an installed package are. Each round starts each
broker afresh, measures its start, drives it with kload and stops it; the order turns with the round,
the table shows medians over the rounds. Two processes share the machine at a time: the broker and
kload. Then memory: kwire's after 100 MB and after 1 GB stored; and what importing its server costs.
Options: --rounds, --brokers kwire,kfake, --phases topics,ping, --check (exit 1 when a target is missed).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import BROKERS, KLOAD, resident_mb, started
from compat_tests import tooling
from compat_tests.brokers import BrokerFailed

Figures = dict[str, float]
Results = dict[str, Figures]


@dataclass(frozen=True)
class Row:
    """A line of the table and, where there is one, its target on kwire's figure."""

    figure: str
    title: str
    target: str = ""
    holds: Callable[[Results], bool] | None = None


def kwire(results: Results, figure: str) -> float:
    return results["kwire"][figure]


def ratio(results: Results, figure: str, other: str) -> float:
    return kwire(results, figure) / results[other][figure]


ROWS = (
    Row("start_ms", "start to first Metadata answer, ms", "≤ 150", lambda r: kwire(r, "start_ms") <= 150),
    Row("rss_mb", "resident then, MiB", "≤ 45", lambda r: kwire(r, "rss_mb") <= 45),
    Row(
        "ping_p50_ms", "acks=all round trip p50, ms", "≤ 1.3 kfake, ≤ 0.4 Kafka",
        lambda r: ratio(r, "ping_p50_ms", "kfake") <= 1.3 and ratio(r, "ping_p50_ms", "kafka") <= 0.4,
    ),
    Row("ping_p99_ms", "acks=all round trip p99, ms"),
    Row("produce_MBps", "produce, MB/s", "≥ kfake", lambda r: ratio(r, "produce_MBps", "kfake") >= 1),
    Row("fetch_MBps", "fetch, MB/s", "≥ kfake", lambda r: ratio(r, "fetch_MBps", "kfake") >= 1),
    Row("topic_p50_ms", "create a topic p50, ms", "≤ 0.5", lambda r: kwire(r, "topic_p50_ms") <= 0.5),
    Row("topic_p99_ms", "create a topic p99, ms"),
    Row("group_p50_ms", "first record in a new group p50, ms", "≤ 10", lambda r: kwire(r, "group_p50_ms") <= 10),
    Row("group_first_ms", "… in the very first group, ms"),
    Row("loaded_rss_mb", "resident after the load, MiB"),
)  # fmt: skip


def kload(bootstrap: str, *arguments: str) -> Figures:
    program = tooling.go_program(KLOAD, ".", "kload")
    argv = [program, "-brokers", bootstrap, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=320)
    if done.returncode:
        raise BrokerFailed(f"kload against {bootstrap}: {done.stderr.strip()}")
    figures: Figures = json.loads(done.stdout)
    return figures


def one_run(name: str, folder: Path, phases: str) -> Figures:
    broker, figures = started(name, folder)
    try:
        figures |= kload(broker.bootstrap_servers, "-only", phases)
        figures["loaded_rss_mb"] = resident_mb(broker.pid)
    finally:
        broker.stop()
    return figures


def compare(names: list[str], rounds: int, phases: str, folder: Path) -> Results:
    """Medians over the rounds."""
    runs: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            print(f"bench: round {number + 1} of {rounds}, {name}", file=sys.stderr, flush=True)
            runs[name].append(one_run(name, folder / name, phases))
    return {
        name: {figure: statistics.median(run[figure] for run in done) for figure in done[0]}
        for name, done in runs.items()
    }


def memory_with_data(folder: Path) -> tuple[float, float]:
    """kwire's resident MiB after 100 MB and after 1 GB of records stored, all of them also read."""
    print("bench: memory with 100 MB and with 1 GB stored, kwire", file=sys.stderr, flush=True)
    broker, _ = started("kwire", folder)
    try:
        arguments = ["-size", "1000", "-only", "produce,fetch"]
        kload(broker.bootstrap_servers, "-records", "100000", "-topic", "first", *arguments)
        small = resident_mb(broker.pid)
        kload(broker.bootstrap_servers, "-records", "900000", "-topic", "second", *arguments)
        return small, resident_mb(broker.pid)
    finally:
        broker.stop()


def import_ms(module: str, runs: int = 9) -> float:
    """What importing a module adds to Python's own start: least of some runs, both sides in turns."""
    least = {"pass": 1e9, f"import {module}": 1e9}
    for _ in range(runs):
        for code in least:
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            least[code] = min(least[code], (time.perf_counter() - begin) * 1000)
    bare, loaded = least.values()
    return loaded - bare


def table(results: Results, rows: tuple[Row, ...] = ROWS) -> tuple[str, int]:
    """The table as text and how many targets are missed."""
    names = list(results)
    others = [name for name in names if name != "kwire"] if "kwire" in names else []
    heads = ["", *names, *(f"÷ {other}" for other in others), "target", ""]
    lines, missed = [heads], 0
    for row in rows:
        if any(row.figure not in results[name] for name in names):
            continue
        cells = [row.title, *(f"{results[name][row.figure]:.3g}" for name in names)]
        cells += [f"{ratio(results, row.figure, other):.2f}" for other in others]
        verdict = ""
        if row.holds is not None:
            try:
                verdict = "ok" if row.holds(results) else "MISSED"
            except KeyError:
                verdict = "?"  # a broker of the target did not take part
        missed += verdict == "MISSED"
        lines.append([*cells, row.target, verdict])
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    text = [
        "  ".join(
            cell.rjust(width) if 0 < column <= len(names) + len(others) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join(text), missed


def not_within(title: str, figure: float, limit: float) -> bool:
    """Prints a figure beside its limit."""
    missed = figure > limit
    print(f"{title}: {figure:.1f}, target ≤ {limit:.0f}: {'MISSED' if missed else 'ok'}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brokers", default=",".join(BROKERS))
    parser.add_argument("--phases", default="topics,ping,produce,fetch,group")
    parser.add_argument("--no-memory", action="store_true", help="leave out the gigabyte")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args()
    names = options.brokers.split(",")
    sources = [str(KLOAD.parent.parent / name) for name in ("kwire", "protocol", "replication")]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *sources], check=True)
    try:
        with tempfile.TemporaryDirectory(prefix="kwire-bench-") as folder:
            results = compare(names, options.rounds, options.phases, Path(folder))
            memory = None
            if "kwire" in names and not options.no_memory:
                memory = memory_with_data(Path(folder) / "memory")
    except (BrokerFailed, tooling.ToolMissing, subprocess.TimeoutExpired) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    text, missed = table(results)
    print(text)
    if memory:
        small, large = memory
        print(f"kwire resident with 100 MB stored {small:.0f} MiB, with 1 GB {large:.0f} MiB")
        missed += not_within(
            "kwire resident with 1 GB stored less with 100 MB, MiB", large - small, 20
        )
    added = import_ms("kwire.server.node")
    missed += not_within("importing kwire's server, over Python's own start, ms", added, 60)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
