"""`kwire load` with stock clients against real processes: a leader killed in the middle, Ctrl-C, kill -9, bad input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kwire
from kwire.pipeline.ledger import check_files, files, read_run

pytestmark = pytest.mark.timeout(110)
CLIENTS = ("confluent-kafka", "kafka-python")
TOPIC = "load"
MIN_ISR = {"min.insync.replicas": "2"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[kwire.Cluster]:
    """Three brokers, each in a process."""
    folder = tmp_path / "kwire"
    with kwire.Cluster(3, isolation="process", fast=True, data_dir=folder) as cluster:
        yield cluster


def started(bootstrap: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kwire", "load", "--bootstrap", bootstrap, *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    try:
        out, errors = process.communicate(timeout=80)
    finally:
        process.kill()
    return process.returncode, out, errors


def rows(ledger: Path, table: str) -> list[dict[str, Any]]:
    return [row for path in files(ledger, table) for row in pq.read_table(path).to_pylist()]


def wait_for_rows(process: subprocess.Popen[str], ledger: Path) -> None:
    """Return when a file of the table sent is closed."""
    deadline = time.monotonic() + 40
    while not files(ledger, "sent"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def in_topic(cluster: kwire.Cluster) -> dict[tuple[int, int], bytes | None]:
    """The values, by partition and offset."""
    return {(each.partition, each.offset): each.value for each in cluster.records(TOPIC)}


@pytest.mark.parametrize("client", CLIENTS)
def test_every_acknowledged_record_outlives_its_leader(
    cluster: kwire.Cluster, tmp_path: Path, client: str
) -> None:
    cluster.create_topic(TOPIC, 3, 3, config=MIN_ISR)
    ledger = tmp_path / "ledger"
    words = ["--client", client, "--seconds", "8", "--rate", "400", "--readers", "1"]
    process = started(
        *(cluster.bootstrap_servers, *words, "--producers", "2", "--ledger", str(ledger))
    )
    wait_for_rows(process, ledger)
    leader = cluster.partition(TOPIC, 0).leader
    cluster.broker(leader).kill()
    status, out, errors = ended(process)
    cluster.broker(leader).start()
    assert (status, errors) == (0, ""), out
    run = read_run(ledger)
    check_files(ledger, run)
    sent = rows(ledger, "sent")
    assert run.records == len(sent) > 500
    assert {row["outcome"] for row in sent} == {"acknowledged"}
    assert f"{len(sent):,} acknowledged" in out
    values = in_topic(cluster)
    for row in sent:  # plain producers may write twice, and say where only one is
        prefix = b"%s %s %d " % (run.run.encode(), row["producer"].encode(), row["number"])
        if row["offset"] is not None and row["offset"] >= 0:
            value = values[row["partition"], row["offset"]]
            assert value is not None and value.startswith(prefix)
    seen = {(row["producer"], row["number"]) for row in rows(ledger, "seen")}
    assert seen == {(row["producer"], row["number"]) for row in sent}


@pytest.mark.parametrize("client", CLIENTS)
def test_transactions_some_of_which_are_aborted(
    cluster: kwire.Cluster, tmp_path: Path, client: str
) -> None:
    ledger = tmp_path / "ledger"
    words = ["--mode", "transactional", "--abort-every", "3", "--transaction-records", "10"]
    words += ["--client", client, "--records", "300", "--readers", "1", "--ledger", str(ledger)]
    status, out, errors = ended(started(cluster.bootstrap_servers, *words))
    assert (status, errors) == (0, ""), out
    assert "20 transactions committed, 10 aborted" in out
    sent = rows(ledger, "sent")
    by_outcome = {"committed": 0, "aborted": 0}
    for row in sent:
        by_outcome[row["outcome"]] += 1
        assert row["outcome"] == ("aborted" if row["transaction"] % 3 == 2 else "committed")
    assert by_outcome == {"committed": 200, "aborted": 100}
    seen = rows(ledger, "seen")
    assert {row["isolation"] for row in seen} == {"read_committed"}
    assert {row["number"] for row in seen} == {
        row["number"] for row in sent if row["outcome"] == "committed"
    }


def test_records_that_nobody_takes_are_told_and_the_load_goes_on(
    cluster: kwire.Cluster, tmp_path: Path
) -> None:
    """min.insync.replicas=3 without one broker: no record is acknowledged, and it ends at its bound."""
    cluster.create_topic(TOPIC, 1, 3, config={"min.insync.replicas": "3"})
    follower = next(iter({1, 2, 3} - {cluster.partition(TOPIC, 0).leader}))
    cluster.broker(follower).kill()
    words = ["--records", "20", "--timeout", "2", "--ledger", str(tmp_path / "ledger")]
    status, out, errors = ended(started(cluster.bootstrap_servers, *words))
    assert (status, errors) == (1, "")
    assert "0 acknowledged" in out and "_MSG_TIMED_OUT" in out
    sent = rows(tmp_path / "ledger", "sent")
    assert len(sent) == 20
    assert {row["outcome"] for row in sent} <= {"unknown", "failed"}
    assert {row["error"] for row in sent} == {"_MSG_TIMED_OUT"}


def test_ctrl_c_leaves_a_whole_ledger_and_kill_9_a_readable_one(tmp_path: Path) -> None:
    with kwire.Cluster() as cluster:
        words = ["--seconds", "60", "--rate", "500", "--readers", "1", "--ledger"]
        for number in (signal.SIGINT, signal.SIGKILL):
            ledger = tmp_path / number.name
            process = started(cluster.bootstrap_servers, *words, str(ledger))
            wait_for_rows(process, ledger)
            os.kill(process.pid, number)
            status, out, errors = ended(process)
            run = read_run(ledger)
            check_files(ledger, run)
            sent = rows(ledger, "sent")
            assert {row["outcome"] for row in sent} == {"acknowledged"}
            assert errors == ""
            if number == signal.SIGINT:
                assert status == 130
                assert run.ended is not None and run.records == len(sent)
                assert len(rows(ledger, "seen")) == len(sent)
                assert "acknowledged" in out
            else:
                assert status == -signal.SIGKILL
                assert run.ended is None and len(sent) > 0


def test_progress_is_one_line_on_a_terminal(tmp_path: Path) -> None:
    with kwire.Cluster() as cluster:
        words = ["load", "--seconds", "2.5", "--rate", "50", "--readers", "1", "--bootstrap"]
        words += [cluster.bootstrap_servers, "--ledger", str(tmp_path / "ledger")]
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "kwire", *words], stdout=subprocess.PIPE, stderr=theirs
        )
        os.close(theirs)
        process.communicate(timeout=60)
        shown = os.read(ours, 10_000).decode()
        os.close(ours)
    assert "acknowledged  0 errors" in shown and "lag " in shown
    assert shown.startswith("\r1 s  ") and "\n" not in shown
    assert shown.endswith("\r")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--bootstrap", "127.0.0.1:1"], "no broker answers: 127.0.0.1:1: cannot connect to "),
        (["--bootstrap", "nope"], "--bootstrap: 'nope' is no HOST:PORT"),
        (["--mode", "often"], "mode 'often': there are plain, idempotent, transactional"),
        (["--client", "sarama"], "client 'sarama': there are confluent-kafka, kafka-python"),
        (["--acks", "1", "--mode", "idempotent"], "acks 1: mode idempotent needs acks all"),
        (["--ledger", "DIR"], "DIR is not empty: a ledger needs a directory of its own"),
        (["--records", "0"], "Invalid value for '--records': expected a number of 1 or more"),
    ],
)
def test_bad_input_is_one_line_and_status_2(words: list[str], line: str, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = subprocess.run(
        [sys.executable, "-m", "kwire", "load", "--bootstrap", "127.0.0.1:1"]
        + [word.replace("DIR", str(tmp_path)) for word in words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    said = done.stderr.replace(str(tmp_path), "DIR")
    assert said.startswith(f"kwire load: {line}") and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_topic_that_is_refused_is_one_line(tmp_path: Path) -> None:
    with kwire.Cluster() as cluster:
        for words, line in (
            (["--topic", "no/good"], "topic no/good: INVALID_TOPIC_EXCEPTION"),
            (["--replication-factor", "7"], "topic load: INVALID_REPLICATION_FACTOR: "),
        ):
            ledger = tmp_path / "ledger"
            words += ["--ledger", str(ledger)]
            status, out, errors = ended(started(cluster.bootstrap_servers, *words))
            assert (status, out) == (2, "")
            assert errors.startswith(f"kwire load: {line}") and errors.count("\n") == 1
            assert not ledger.exists()
