"""`make bench`: kwire beside kfake and Apache Kafka, the same load, in turns, one table.

kwire is installed from a wheel built of this checkout, as a user's is. Each round starts each broker
afresh, measures its start, drives it with kload, phase by phase, and stops it; the order turns with
the round, and the table shows medians over the rounds. Memory is touched and freed before each start
and before records are produced (`warm_memory`), else whoever writes later in a round is slower. CPU is
the broker's own in a phase, with the connections that the client makes in it. Two processes share the
machine at a time: the broker and kload. Then memory: kwire's after 100 MB and after 1 GB stored; what
importing its server costs; and what sendfile would save (`bench/sendfile.py`).
Options: --rounds, --brokers kwire,kfake, --phases topics,ping, --check (exit 1 when a target is missed),
--write (the figures go into docs/benchmarks.md, with machine and load: the tables whose phases have all run).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bench import rdkafka, sendfile
from bench.brokers import (
    BROKERS,
    KLOAD,
    Kwire,
    cpu_ms,
    installed_wheel,
    resident_mb,
    started,
    warm_memory,
)
from compat_tests import tooling
from compat_tests.brokers import BrokerFailed

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin: written by bench/run.py --write -->", "<!-- end -->"
BEGIN_TRANSACTIONS = "<!-- begin: transactions, written by bench/run.py --write -->"
# kload's own numbers, for figures per request and per MB
PINGS, RECORDS, RECORD_BYTES = 2000, 200_000, 1024
PHASES = ("topics", "ping", "produce", "fetch", "group")
TRANSACTION_PHASES = ("txn", "txn-offsets", "txn-franz", "txn-rdkafka")
TXNS = 500
LOAD = ["-pings", str(PINGS), "-records", str(RECORDS), "-size", str(RECORD_BYTES)]
LOAD += ["-txns", str(TXNS)]
_MB = RECORDS * RECORD_BYTES / 1e6
# Phase: the figure of the broker's CPU in it, and what its milliseconds are divided by.
CPU_FIGURES = {
    "ping": ("ping_cpu_us", (PINGS + 100) / 1000),
    "produce": ("produce_cpu_ms", _MB),
    "fetch": ("fetch_cpu_ms", _MB),
    "txn": ("txn_cpu_us", (TXNS + 50) / 1000),
}

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


COMMIT = "transaction's commit p50"


def commit_row(figure: str, title: str, **limits: float) -> Row:
    """A commit's time, with its limits as parts of other brokers'."""
    target = ", ".join(
        f"≤ {limit} {name.capitalize() if name == 'kafka' else name}"
        for name, limit in limits.items()
    )
    return Row(
        figure,
        title,
        target,
        lambda results: all(
            ratio(results, figure, name) <= limit for name, limit in limits.items()
        ),
    )


TRANSACTIONS = (
    commit_row(
        "txn_commit_p50_ms", f"{COMMIT}, client that never sleeps, ms", kfake=1.5, kafka=0.05
    ),
    Row("txn_commit_p99_ms", "… p99, ms"),
    Row("txn_p50_ms", "… all of the transaction p50, ms"),
    Row("txn_retries", "… refused while the last one is being ended, times"),
    Row("txn_cpu_us", "… CPU a transaction, µs"),
    Row("txn_offsets_p50_ms", "… all of one with a group's offsets p50, ms"),
    commit_row("txn_franz_commit_p50_ms", f"{COMMIT}, franz-go, ms", kfake=1.5, kafka=0.05),
    Row("txn_franz_p50_ms", "… all of the transaction p50, ms"),
    Row("txn_rdkafka_commit_p50_ms", f"{COMMIT}, librdkafka, ms"),
    Row("txn_rdkafka_p50_ms", "… all of the transaction p50, ms"),
)
ROWS = (
    Row("start_ms", "start to first Metadata answer, ms", "≤ 150", lambda r: kwire(r, "start_ms") <= 150),
    Row("start_cpu_ms", "… CPU of it, ms"),
    Row("rss_mb", "resident then, MiB", "≤ 45", lambda r: kwire(r, "rss_mb") <= 45),
    Row(
        "ping_p50_ms", "acks=all round trip p50, ms", "≤ 1.3 kfake, ≤ 0.4 Kafka",
        lambda r: ratio(r, "ping_p50_ms", "kfake") <= 1.3 and ratio(r, "ping_p50_ms", "kafka") <= 0.4,
    ),
    Row("ping_p99_ms", "acks=all round trip p99, ms"),
    Row(
        "ping_cpu_us", "… CPU a request, µs", "≤ 2 kfake, ≤ 0.5 Kafka",
        lambda r: ratio(r, "ping_cpu_us", "kfake") <= 2 and ratio(r, "ping_cpu_us", "kafka") <= 0.5,
    ),
    Row("produce_MBps", "produce, MB/s", "≥ kfake", lambda r: ratio(r, "produce_MBps", "kfake") >= 1),
    Row("produce_cpu_ms", "… CPU a MB, ms", "≤ kfake", lambda r: ratio(r, "produce_cpu_ms", "kfake") <= 1),
    Row("fetch_MBps", "fetch, MB/s", "≥ kfake", lambda r: ratio(r, "fetch_MBps", "kfake") >= 1),
    Row("fetch_cpu_ms", "… CPU a MB, ms", "≤ kfake", lambda r: ratio(r, "fetch_cpu_ms", "kfake") <= 1),
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


def one_run(name: str, folder: Path, phases: list[str]) -> Figures:
    warm_memory()
    broker, figures = started(name, folder)
    try:
        for phase in phases:
            if phase == "produce":
                warm_memory()
            before = cpu_ms(broker.pid)
            # fetch reads what produce has written
            topic = "load" if phase in ("produce", "fetch") else phase
            if phase == "txn-rdkafka":
                figures |= rdkafka.transactions(broker.bootstrap_servers, topic)
            else:
                arguments = ["-only", phase, "-topic", topic]
                figures |= kload(broker.bootstrap_servers, *arguments, *LOAD)
            if phase in CPU_FIGURES:
                figure, divisor = CPU_FIGURES[phase]
                figures[figure] = (cpu_ms(broker.pid) - before) / divisor
        figures["loaded_rss_mb"] = resident_mb(broker.pid)
    finally:
        broker.stop()
    return figures


def order_of(names: list[str], number: int) -> list[str]:
    """The order of the brokers in a round: each is the first, the second … in turn."""
    turn = number % len(names)
    return names[turn:] + names[:turn]


def compare(
    names: list[str], rounds: int, phases: list[str], folder: Path
) -> dict[str, list[Figures]]:
    """The figures of each round."""
    runs: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(rounds):
        for name in order_of(names, number):
            print(f"bench: round {number + 1} of {rounds}, {name}", file=sys.stderr, flush=True)
            runs[name].append(one_run(name, folder / name, phases))
    return runs


def over(runs: dict[str, list[Figures]], pick: Callable[[Iterable[float]], float]) -> Results:
    """One figure for those of all rounds: their median, or the least."""
    return {
        name: {figure: pick([run[figure] for run in done]) for figure in done[0]}
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


def import_ms(module: str, python: Path, runs: int = 9) -> float:
    """What importing a module adds to Python's own start: least of some runs, both sides in turns."""
    least = {"pass": 1e9, f"import {module}": 1e9}
    for _ in range(runs):
        for code in least:
            begin = time.perf_counter()
            subprocess.run([python, "-c", code], check=True, cwd=python.parent, env={})
            least[code] = min(least[code], (time.perf_counter() - begin) * 1000)
    bare, loaded = least.values()
    return loaded - bare


def cells_of(results: Results, rows: tuple[Row, ...] = ROWS) -> tuple[list[list[str]], int]:
    """The lines of the table, its head first, and how many targets are missed."""
    names = list(results)
    others = [name for name in names if name != "kwire"] if "kwire" in names else []
    lines, missed = [["", *names, *(f"÷ {other}" for other in others), "target", ""]], 0
    for row in rows:
        if any(row.figure not in results[name] for name in names):
            continue
        cells = [row.title, *(_shown(results[name][row.figure]) for name in names)]
        cells += [_ratio(results, row.figure, other) for other in others]
        verdict = ""
        if row.holds is not None:
            try:
                verdict = "ok" if row.holds(results) else "MISSED"
            except KeyError:
                verdict = "?"  # a broker of the target did not take part
        missed += verdict == "MISSED"
        lines.append([*cells, row.target, verdict])
    return lines, missed


def _ratio(results: Results, figure: str, other: str) -> str:
    return f"{ratio(results, figure, other):.2f}" if results[other][figure] else ""


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def text_of(lines: list[list[str]]) -> str:
    """The table for a terminal: titles and targets to the left, figures to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if 0 < column < len(line) - 2 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def table(results: Results, rows: tuple[Row, ...] = ROWS) -> tuple[str, int]:
    """The table as text and how many targets are missed."""
    lines, missed = cells_of(results, rows)
    return text_of(lines), missed


def markdown_of(lines: list[list[str]]) -> str:
    """A table as Markdown, the first line its head."""
    head, *rest = lines
    rule = ["---", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rest))


def machine() -> str:
    """The machine in a line: processors, memory, system, Python."""
    cpus = Path("/proc/cpuinfo").read_text().split("model name\t: ")
    model = cpus[1].splitlines()[0] if len(cpus) > 1 else platform.machine()
    kib = int(Path("/proc/meminfo").read_text().split()[1])
    return (
        f"{os.cpu_count()} processors ({model}), {kib >> 20} GiB, {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}"
    )


def load() -> str:
    """How busy the machine is: processes that run or wait, averages over 1 and 5 minutes."""
    one, five, *_ = os.getloadavg()
    return f"{one:.1f} and {five:.1f}"


def write_page(text: str, page: Path = PAGE, begin: str = BEGIN) -> None:
    """Put `text` between the markers of the page, from `begin` to the next END."""
    head, _, rest = page.read_text().partition(begin)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{begin}\n\n{text}\n\n{END}{tail}")


def transactions_text(said: str, runs: dict[str, list[Figures]], rows: tuple[Row, ...]) -> str:
    """The tables of transactions as Markdown: medians of the rounds, and the least."""
    tables = [markdown_of(cells_of(over(runs, pick), rows)[0]) for pick in (statistics.median, min)]
    return f"{said}\n\n{tables[0]}\n\nLeast of the rounds:\n\n{tables[1]}"


def told(rounds: int, loads: list[str]) -> str:
    """What the figures are of: rounds, day, machine, and its load before and after."""
    return (
        f"Medians of {rounds} rounds, {time.strftime('%Y-%m-%d', time.gmtime())}, on {machine()}.\n"
        f"Load averages (1 and 5 minutes) before: {loads[0]}; after: {loads[1]}, the benchmark's own included."
    )


def not_within(title: str, figure: float, limit: float) -> bool:
    """Prints a figure beside its limit."""
    missed = figure > limit
    print(f"{title}: {figure:.1f}, target ≤ {limit:.0f}: {'MISSED' if missed else 'ok'}")
    return missed


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brokers", default=",".join(BROKERS))
    parser.add_argument("--phases", default=",".join(PHASES + TRANSACTION_PHASES))
    parser.add_argument("--no-memory", action="store_true", help="leave out the gigabyte")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    options.names, options.phases = options.brokers.split(","), options.phases.split(",")
    for given, known in (
        (options.names, list(BROKERS)),
        (options.phases, [*PHASES, *TRANSACTION_PHASES]),
    ):
        for unknown in sorted(set(given) - set(known)):
            parser.error(f"{unknown!r} is none of {', '.join(known)}")
    if "fetch" in options.phases and "produce" not in options.phases:
        parser.error("the phase fetch reads what produce writes: name both")
    return options


def main() -> int:
    options = parse_options()
    loads = [load()]
    try:
        with tempfile.TemporaryDirectory(prefix="kwire-bench-") as folder:
            Kwire.script = installed_wheel(ROOT, Path(folder) / "wheel")
            runs = compare(options.names, options.rounds, options.phases, Path(folder))
            memory = None
            if "kwire" in options.names and not options.no_memory:
                memory = memory_with_data(Path(folder) / "memory")
            added = import_ms("kwire.server.node", Kwire.script.with_name("python"))
    except (BrokerFailed, tooling.ToolMissing, subprocess.TimeoutExpired) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    loads.append(load())
    results = over(runs, statistics.median)
    lines, missed = cells_of(results)
    ended, missed_commits = cells_of(results, TRANSACTIONS)
    missed += missed_commits
    least, _ = cells_of(over(runs, min), TRANSACTIONS)
    print(f"{text_of(lines)}\n{text_of(ended)}\nLeast of the rounds:\n{text_of(least)}")
    measured = said = told(options.rounds, loads)
    if memory:
        small, large = memory
        resident = f"kwire resident with 100 MB stored {small:.0f} MiB, with 1 GB {large:.0f} MiB"
        print(resident)
        said += f"\n{resident}."
        missed += not_within(
            "kwire resident with 1 GB stored less with 100 MB, MiB", large - small, 20
        )
    missed += not_within("importing kwire's server, over Python's own start, ms", added, 60)
    if options.write and set(PHASES) <= set(options.phases):
        zero_copy = markdown_of(sendfile.table(sendfile.measure(256)))
        write_page(f"{said}\n\n{markdown_of(lines)}\n\n{zero_copy}")
    if options.write and set(TRANSACTION_PHASES) <= set(options.phases):
        write_page(transactions_text(measured, runs, TRANSACTIONS), begin=BEGIN_TRANSACTIONS)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
