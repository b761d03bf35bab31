"""The benchmark's own rules: turns of the brokers, the table and its page, CPU of a process, the wheel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import cluster, run, sendfile
from bench.brokers import cpu_ms, installed_wheel


def test_each_broker_is_first_second_and_third_in_turn() -> None:
    orders = [run.order_of(["a", "b", "c"], number) for number in range(3)]
    assert [set(place) for place in zip(*orders, strict=True)] == [{"a", "b", "c"}] * 3


def figures(value: float) -> run.Figures:
    return {row.figure: value for row in run.ROWS}


def test_the_table_compares_cpu() -> None:
    results = {"kwire": figures(1.0), "kfake": figures(2.0), "kafka": figures(4.0)}
    results["kwire"]["produce_cpu_ms"] = 3.0
    lines, missed = run.cells_of(results)
    assert {row.figure for row in run.ROWS + run.TRANSACTIONS if "CPU" in row.title} == {
        "start_cpu_ms",
        *(figure for figure, _ in run.CPU_FIGURES.values()),
    }
    judged = [line for line in lines if line[-1] == "MISSED"]
    assert [line[0] for line in judged] == [
        "produce, MB/s",
        "… CPU a MB, ms",
        "fetch, MB/s",
        "create a topic p50, ms",
    ]
    assert missed == len(judged)


def test_a_target_without_its_broker_is_not_judged() -> None:
    lines, missed = run.cells_of({"kwire": figures(1.0)})
    assert missed == 1, "create a topic in 1 ms"
    assert [line[-1] for line in lines if line[0].startswith("acks=all round trip p50")] == ["?"]


def test_the_page_gets_the_table_between_its_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{run.BEGIN}\nold\n{run.END}\nafter\n")
    run.write_page("new", page)
    assert page.read_text() == f"before\n{run.BEGIN}\n\nnew\n\n{run.END}\nafter\n"


def test_the_page_has_the_rows_of_the_table() -> None:
    """A row that is new or renamed: run `make bench ARGS=--write` on a quiet machine."""
    text = run.PAGE.read_text()
    assert text.count(run.BEGIN) == 1
    written = text.partition(run.BEGIN)[2].partition(run.END)[0]
    titles = [line.split(" | ")[0].removeprefix("| ") for line in written.splitlines()]
    assert [title for title in titles if title in {row.title for row in run.ROWS}] == [
        row.title for row in run.ROWS
    ]
    assert "Load averages" in written
    assert sendfile.table([])[0][1] in written


@pytest.mark.parametrize(
    ("begin", "rows"),
    [
        (run.BEGIN_TRANSACTIONS, run.TRANSACTIONS),
        (cluster.BEGIN_TRANSACTIONS, cluster.TRANSACTIONS),
    ],
)
def test_the_page_has_transactions_twice_medians_and_the_least(
    begin: str, rows: tuple[run.Row, ...]
) -> None:
    """Rows that are new or renamed: run `make bench` and `make bench-cluster` with ARGS=--write."""
    _, _, rest = run.PAGE.read_text().partition(begin)
    written, _, _ = rest.partition(run.END)
    known = {row.title for row in rows}
    titles = [line.split(" | ")[0].removeprefix("| ") for line in written.splitlines()]
    assert [title for title in titles if title in known] == [row.title for row in rows] * 2


def test_a_commit_is_judged_by_parts_of_others() -> None:
    row = run.commit_row("txn_p50_ms", "commit", kfake=1.5, kafka=0.05)
    assert row.target == "≤ 1.5 kfake, ≤ 0.05 Kafka" and row.holds is not None
    results = {name: {"txn_p50_ms": 1.0} for name in ("kwire", "kfake", "kafka")}
    assert not row.holds(results)
    results["kafka"]["txn_p50_ms"] = 20.0
    assert row.holds(results)


def test_nothing_is_divided_by_what_another_broker_does_not_do() -> None:
    results = {"kwire": {"txn_retries": 1.0}, "kfake": {"txn_retries": 0.0}}
    lines, _ = run.cells_of(results, run.TRANSACTIONS)
    assert lines[1][1:4] == ["1", "0", ""]


def test_the_cpu_of_a_process_is_that_of_its_children_too() -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    shell = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, burn]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 190 <= cpu_ms(process.pid) < 2000
        process.communicate(b"\n")


@pytest.mark.timeout(60)
def test_the_wheel_runs_without_the_checkout(tmp_path: Path) -> None:
    script = installed_wheel(run.ROOT, tmp_path)
    code = "import kwire; print(kwire.__file__)"
    done = subprocess.run(
        [script.with_name("python"), "-c", code], capture_output=True, text=True, cwd="/", env={}
    )
    assert done.stdout.startswith(str(tmp_path)), done.stderr
    assert os.access(script, os.X_OK)
