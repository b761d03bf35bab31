"""Results of audits, made by hand: what `kwire audit` would have written, for tests of the page."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kwire.audit.tables import TABLES, TOPICS

DEATH = Path(__file__).with_name("leaders_death.json")
START = 1_795_435_200_000_000
"""2026-11-23 12:00:00 UTC, in microseconds."""
TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<int>": pa.list_(pa.int32()),
}

Row = dict[str, Any]


def at(seconds: float) -> int:
    return START + round(seconds * 1_000_000)


def write(folder: Path, **tables: list[Row]) -> Path:
    """Tables with these rows, as Spark writes them: a folder each; missing columns are null."""
    for name, rows in tables.items():
        columns = TABLES[name]
        whole = [{column: row.get(column) for column in columns} for row in rows]
        schema = pa.schema([(column, TYPES[kind]) for column, kind in columns.items()])
        there = folder / name
        there.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(whole, schema), there / "part-00000.parquet")
        (there / "_SUCCESS").touch()
    return folder


def interval(kind: str, partition: int, begin: float, end: float | None = None, **more: Any) -> Row:
    row = {"topic": "orders", "partition": partition, "kind": kind, "begin": at(begin)}
    return {**row, "end": None if end is None else at(end), **more}


def leads(partition: int, broker: int, epoch: int, begin: float, end: float | None = None) -> Row:
    return interval("leader", partition, begin, end, broker=broker, epoch=epoch, event=10 + epoch)


def in_sync(partition: int, isr: list[int], begin: float, end: float | None = None) -> Row:
    return interval("isr", partition, begin, end, isr=isr)


CAUSE = (
    "orders-0 offset {}: acknowledged by broker 1 (epoch 0, ISR 1) at {}; broker 3 was elected uncleanly"
    " in epoch 1 at 12:00:08.714 with log end 1412; broker 1 truncated to 1412"
)


def timeline() -> list[Row]:
    """Broker 1 dies alone in the ISR of orders-0; 500 ms later broker 3 leads, and broker 1 comes back."""
    rows = [
        leads(0, 1, 0, -2, 8.214),
        interval("leaderless", 0, 8.214, 8.714, event=16, detail="broker 1 has failed"),
        leads(0, 3, 1, 8.714),
        interval("unclean", 0, 8.714, broker=3, epoch=1, event=17, detail="leader none -> 3"),
        interval(
            "truncated",
            0,
            14.352,
            broker=1,
            detail="1415 -> 1412: the epoch 0 of the leader ends there",
        ),
        in_sync(0, [1, 2, 3], -2, 6.9),
        in_sync(0, [1], 6.9, 8.714),
        in_sync(0, [3], 8.714, 9.31),
        in_sync(0, [2, 3], 9.31, 14.61),
        in_sync(0, [1, 2, 3], 14.61),
    ]
    for partition, leader in ((1, 2), (2, 3)):
        rows += [
            leads(partition, leader, 0, -2),
            in_sync(partition, [1, 2, 3], -2, 8.22),
            in_sync(partition, [2, 3], 8.22, 14.64),
            in_sync(partition, [1, 2, 3], 14.64),
        ]
    return rows


def latencies(lost: bool = True) -> list[Row]:
    chance = random.Random(7)
    rows = []
    for partition in range(3):
        for second in range(20):
            slow = lost and partition == 0 and second in (8, 9)
            p50 = 2.1 + chance.random() * 0.7 + (9 if slow else 0)
            p99 = p50 * (3 + chance.random()) + (480 if slow and second == 8 else 0)
            most = p99 * (1.1 + chance.random()) + (60 if slow else 0)
            row = {"topic": "orders", "partition": partition, "time": at(second), "count": 150}
            rows.append({**row, "p50_ms": p50, "p99_ms": p99, "max_ms": most})
    return rows


def topics(lost: int = 3) -> list[Row]:
    zeros = {name: 0 for name in TOPICS if name not in ("topic", "partition")}
    return [
        {
            **zeros,
            "topic": "orders",
            "partition": partition,
            "log_end": 3000 - (lost if partition == 0 else 0),
            "sent": 3002 if partition == 0 and lost else 3000,
            "acknowledged": 3000,
            "present": 3000 - (lost if partition == 0 else 0),
            "lost": lost if partition == 0 else 0,
            "seen": 2990,
        }
        for partition in range(3)
    ]


def replicas() -> list[Row]:
    return [
        {
            "topic": "orders",
            "partition": partition,
            "broker": broker,
            "log_start": 0,
            "log_end": 2997 if partition == 0 else 3000,
            "high_watermark": 2997 if partition == 0 else 3000,
            "records": 2997 if partition == 0 else 3000,
            "bytes": 3_100_000,
            "epochs": "0@0 1@1412" if partition == 0 else "0@0",
        }
        for partition in range(3)
        for broker in (1, 2, 3)
    ]


def lags() -> list[Row]:
    rows = []
    for tick in range(100):
        seconds = tick / 5
        for broker in (1, 2, 3):
            lag = 2 if tick % 23 == broker else 0
            if broker == 2 and 5.5 < seconds < 9.3:
                lag = round((seconds - 5.5) * 40)
            if broker == 1 and 8.2 < seconds < 14.6:
                lag = round(min((seconds - 8.2) * 150, (14.61 - seconds) * 4000))
            row = {"topic": "orders", "partition": 0, "broker": broker}
            rows.append({**row, "time": at(seconds), "lag": lag})
    return rows


def lost() -> list[Row]:
    return [
        {
            "kind": "lost",
            "topic": "orders",
            "partition": 0,
            "offset": 1412 + number,
            "producer": "p0",
            "number": 4239 + 3 * number,
            "key": f"customer-{17 * number + 4}".encode(),
            "time": at(8.203 + number * 0.004),
            "broker": 1,
            "event": 17,
            "cause": CAUSE.format(1412 + number, f"12:00:08.2{3 + 4 * number:02}"),
            "detail": f"acknowledged at 2026-11-23 12:00:08.2{3 + 4 * number:02}",
        }
        for number in range(3)
    ]


def disaster(folder: Path) -> Path:
    """A leader's death, 500 ms without a leader, three records lost."""
    return write(
        folder,
        findings=lost(),
        latencies=latencies(),
        topics=topics(),
        replicas=replicas(),
        timeline=timeline(),
        lags=lags(),
    )


def good(folder: Path) -> Path:
    """The same load with a clean election, of which nothing was lost."""
    rows = [row for row in timeline() if row["kind"] not in ("unclean", "truncated")]
    rows = [row for row in rows if row.get("isr") not in ([1], [3])]
    for row in rows:
        if row.get("isr") == [1, 2, 3] and row["partition"] == 0 and row["end"]:
            row["end"] = at(8.7)
        elif row.get("isr") == [2, 3] and row["partition"] == 0:
            row["begin"] = at(8.7)
        elif row["kind"] == "leaderless":
            row["end"] = at(8.26)
        elif row["kind"] == "leader" and row["epoch"] == 1:
            row["begin"] = at(8.26)
    return write(
        folder,
        findings=[],
        latencies=latencies(),
        topics=topics(0),
        replicas=replicas(),
        timeline=rows,
        lags=[],
    )


def leaders_death(folder: Path) -> Path:
    """A leader's death as `spark_it/leaders_death.py` has staged it with stock clients, in the tables of an audit."""
    tables = json.loads(DEATH.read_text())
    for row in tables["findings"]:
        row["key"] = b64decode(row["key"]) if "key" in row else None
    return write(folder, **tables)
