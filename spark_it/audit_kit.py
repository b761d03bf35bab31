"""A ledger with a known truth, and the command beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from kwire import Cluster
from kwire.pipeline import ledger
from spark_it import support

RUN = "00c0ffee"


class Story(NamedTuple):
    topic: str
    ledger: Path


def story(brokers: Cluster, topic: str, folder: Path) -> Story:
    """Writes 20 records to each of two partitions; then the ledger has one more at the end of partition 0, partition 1
    has number 0 of its producer again, and a record that was not acknowledged."""
    rows = []
    for number in range(40):
        partition, offset = number % 2, number // 2
        value = value_of("p-1", number)
        brokers.produce(topic, value, key=b"k", partition=partition)
        rows.append(sent(topic, "p-1", number, partition, offset, value))
    rows.append(sent(topic, "p-1", 40, 0, 20, value_of("p-1", 40)))
    again, unknown = value_of("p-1", 1), value_of("p-1", 41)
    brokers.produce(topic, again, key=b"k", partition=1)
    brokers.produce(topic, unknown, key=b"k", partition=1)
    rows.append(sent(topic, "p-1", 41, None, None, unknown, outcome="unknown"))
    return Story(topic, write(folder, brokers.bootstrap_servers, [topic], rows))


def value_of(producer: str, number: int) -> bytes:
    return ledger.value_prefix(RUN, producer) + b"%d %s" % (number, b"x" * 20)


def sent(
    topic: str,
    producer: str,
    number: int,
    partition: int | None,
    offset: int | None,
    value: bytes,
    outcome: str = "acknowledged",
) -> dict[str, Any]:
    begin = datetime.fromtimestamp(time.time() // 1, UTC)
    return {
        **dict.fromkeys(ledger.COLUMNS[ledger.SENT]),
        "run": RUN,
        "producer": producer,
        "number": number,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "key": b"k",
        "size": len(value),
        "hash": zlib.crc32(value),
        "outcome": outcome,
        "sent": begin,
        "acknowledged": begin + timedelta(milliseconds=2) if outcome == "acknowledged" else None,
    }


def write(
    folder: Path, bootstrap: str, topics: list[str], rows: list[dict[str, Any]], run: str = RUN
) -> Path:
    """`run`: whose ledger it is said to be."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / ledger.SENT).mkdir(parents=True)
    (folder / ledger.SEEN).mkdir()
    told = ledger.Run(run, bootstrap, tuple(topics), "tests", "plain", "all", 0, 1, len(rows))
    ledger.write_run(folder, told)
    rows = [{**row, "run": run} for row in rows]
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        table = pa.Table.from_pylist(part, ledger.schema(ledger.SENT))
        pq.write_table(table, folder / ledger.SENT / f"part-{number}.parquet")
    return folder


def copy_with(folder: Path, to: Path, **changes: Any) -> Path:
    """A copy of a ledger with another run.json."""
    shutil.copytree(folder, to)
    path = to / ledger.RUN_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return to


def command(
    folder: Path, out: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`kwire audit`, as a user runs it."""
    support.use_fetched_jars()
    return subprocess.run(
        [sys.executable, "-m", "kwire", "audit", str(folder), "--out", str(out), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
