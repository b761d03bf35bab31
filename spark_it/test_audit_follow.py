"""`kwire audit --follow`: a run is followed while it goes on, the driver is killed; at the end the whole is audited."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kwire import Cluster
from kwire.load.ledger import Ledger
from spark_it import support

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SECONDS = 200.0


class Followed:
    """The command, in a process group of its own."""

    def __init__(self, ledger: Path, out: Path, *arguments: str) -> None:
        support.use_fetched_jars()
        self.out = out
        self.log = out.parent / "follow.log"
        command = [sys.executable, "-m", "kwire", "audit", str(ledger), "--out", str(out)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--follow", *arguments],
                env={**os.environ, "PYTHONPATH": str(support.HERE.parent)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def await_running(self, condition: Callable[[str], bool], what: str) -> None:
        """Until the page, of a run that goes on, is as it should be."""
        page = self.out / "page.html"

        def has_it() -> bool:
            assert self.process.poll() is None, self.said
            text = page.read_text() if page.exists() else ""
            return "The audit is running" in text and condition(text)

        support.until(has_it, SECONDS, what)

    @property
    def said(self) -> str:
        return self.log.read_text()

    def kill9(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


class Load:
    """Records of a producer, written and noted one by one."""

    def __init__(self, brokers: Cluster, topic: str, folder: Path) -> None:
        self.brokers, self.topic = brokers, topic
        self.ledger = Ledger(
            folder, bootstrap=brokers.bootstrap_servers, topics=[topic], seconds=0.5
        )
        self.producer = self.ledger.producer("p-1")
        self.offset = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            record = self.producer.record(self.topic, b"x", key=b"k")
            self.brokers.produce(self.topic, record.value, key=b"k", partition=0)
            record.acknowledged(0, self.offset)
            self.offset += 1

    def lose(self) -> None:
        """What is acknowledged at the offset of the next record is not there."""
        self.producer.record(self.topic, b"x", key=b"k").acknowledged(0, self.offset)


def test_a_run_is_followed_by_a_driver_that_is_killed(
    brokers: Cluster, fresh: Callable[[str], str], tmp_path: Path, spark: Any
) -> None:
    import pyarrow.parquet as pq

    if spark.version.startswith("3."):
        pytest.skip("the audit needs PySpark 4")
    topic = fresh("followed")
    brokers.create_topic(topic, partitions=1, replication_factor=3)
    load = Load(brokers, topic, tmp_path / "ledger")
    out = tmp_path / "out"
    load.send(50)
    followed = Followed(tmp_path / "ledger", out)
    try:
        followed.await_running(lambda _: (out / "topics").exists(), "a first judgement")
        followed.kill9()
        (out / "page.html").unlink()
        load.lose()
        load.send(50)
        followed = Followed(tmp_path / "ledger", out)
        followed.await_running(lambda text: "lost" in text, "the loss is told while it runs")
        load.send(10)
        load.ledger.close()
        assert followed.process.wait(SECONDS) == 1, followed.said
    finally:
        followed.kill9()
    assert "111 acknowledged, 110 present: 1 lost" in followed.said
    assert "WARN" not in followed.said, "what Spark says is in its file"
    (found,) = pq.read_table(out / "findings").to_pylist()
    assert (found["kind"], found["offset"], found["number"]) == ("lost", 50, 50)
    assert "The audit is running" not in (out / "page.html").read_text()
    assert not (out / "work").exists()
