"""Are the replicas equal? Logs of all brokers compared below the high watermark: by batches first, by records where
these differ.

Followers hold the very batches of their leader, so logs that agree have the same digests of headers and checksums, and
nothing is decoded. Compaction is each broker's own affair: compacted logs may differ in batches, and lack records that
a later one of the same key has made superfluous.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import NamedTuple

from kwire.audit.evidence.compare import Log, Pair, differences, digests, pairs
from kwire.audit.evidence.files import Replica, replicas
from kwire.audit.tables import FINDINGS, REPLICAS, ddl
from kwire.pipeline.schema import TORN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    Place = tuple[str, int]
    Key = tuple[str, int, int]


class ReplicaAudit(NamedTuple):
    replicas: DataFrame
    """As tables.REPLICAS."""
    findings: DataFrame
    """As tables.FINDINGS: `replica_differs`, one a replica, and `damaged`."""
    epochs: DataFrame
    """As EPOCHS."""


EPOCHS = {
    "topic": "string",
    "partition": "int",
    "broker": "int",
    "epoch": "int",
    "start": "bigint",
    "time": "timestamp",
}
"""One row a replica and leader epoch: its first offset, and the first record's timestamp (null: it has none)."""


def compared(
    session: SparkSession,
    paths: Sequence[str],
    topics: tuple[str, ...] = (),
    high_watermarks: Mapping[Key, int] | None = None,
) -> ReplicaAudit:
    """Compare all replicas below the paths, which the session's workers must see, too.

    `topics`: names or patterns; none: all but internal ones. `high_watermarks`: of replicas whose brokers run and
    have not written theirs yet. ConfigurationError before any record is read."""
    known = dict(high_watermarks or {})
    found = [
        each
        if each.high_watermark is not None
        else each._replace(high_watermark=_at_most(known.get(each[:3]), each.log_end))
        for each in replicas(paths, topics)
    ]
    options = {"path": json.dumps(list(paths)), "topic": json.dumps(list(topics))}
    if not topics:
        del options["topic"]
    log = Log(session, options)
    summary = digests(log.batches()).cache()
    try:
        return _compared(session, log, summary, found)
    finally:
        summary.unpersist()


def _compared(
    session: SparkSession, log: Log, summary: DataFrame, found: list[Replica]
) -> ReplicaAudit:
    epochs, sizes, damaged = _collected(summary)
    found = [
        each._replace(log_end=max(each.log_end, sizes[each[:3]].last + 1))
        if each[:3] in sizes
        else each
        for each in found
    ]
    chosen = pairs(found, damaged)
    different = {row[:3]: row for row in differences(session, log, summary, chosen, found)}
    rows, findings = [], []
    of_pair = {pair[:3]: pair for pair in chosen}
    for each in found:
        pair = of_pair.get(each[:3])
        first, words = _first_difference(each, pair, different.get(each[:3]), epochs)
        if words:
            findings.append(_finding("replica_differs", each, first, words))
        size = sizes.get(each[:3], _Size(0, 0, -1))
        rows.append((*each[:6], size.records, size.bytes, each.lineage(), first))
    findings += _of_damage(log, bool(damaged), {each[:3]: each for each in found})
    return ReplicaAudit(
        session.createDataFrame(rows, ddl(REPLICAS)),
        session.createDataFrame(findings, ddl(FINDINGS)),
        session.createDataFrame(_epoch_rows(found, epochs), ddl(EPOCHS)),
    )


class _Size(NamedTuple):
    records: int
    bytes: int
    last: int


def _collected(
    summary: DataFrame,
) -> tuple[dict[Key, list[Row]], dict[Key, _Size], set[Key]]:
    """Each replica's epochs as its batches have them, in the order of offsets; its size; which are damaged."""
    rows = summary.sparkSession.sql(
        """
        select topic, partition, broker, epoch, sum(records) as records, sum(bytes) as bytes, min(first) as first,
               max(last) as last, min_by(time, first) as time, sum(damaged) as damaged
        from {summary} group by all""",
        summary=summary,
    ).collect()
    epochs = defaultdict(list)
    damaged = {row[:3] for row in rows if row.damaged}
    for row in rows:
        if row["last"] is not None:
            epochs[row[:3]].append(row)
    sizes = {}
    for key, of_replica in epochs.items():
        of_replica.sort(key=lambda row: row["first"])
        records, size = (sum(row[name] or 0 for row in of_replica) for name in ("records", "bytes"))
        sizes[key] = _Size(records, size, max(row["last"] for row in of_replica))
    return epochs, sizes, damaged


def _first_difference(
    replica: Replica,
    pair: Pair | None,
    row: Row | None,
    epochs: Mapping[Key, Sequence[Row]],
) -> tuple[int | None, str | None]:
    """The first offset below the high watermark at which a replica is not as it must be, and that in words."""
    backwards = _epochs_backwards(replica, epochs.get(replica[:3], ()))
    if pair is None or pair.bound is None:
        return backwards or (None, None)
    if row is not None:
        return row["first"], _difference(replica, pair, row, epochs)
    if backwards:
        return backwards
    if replica.log_end < pair.bound:
        detail = (
            f"its log ends at {replica.log_end}, below its high watermark {replica.high_watermark}"
        )
        return replica.log_end, f"broker {replica.broker}: {detail}"
    return None, None


def _difference(replica: Replica, pair: Pair, row: Row, epochs: Mapping[Key, Sequence[Row]]) -> str:
    where = f"offset {row['first']}"
    if row["last"] > row["first"]:
        where = f"offsets {row['first']} to {row['last']}"
    what = f"{_many(row.records, 'record')} ({where})"
    if row.missing == row.records:
        return f"broker {replica.broker} lacks {what} that broker {pair.reference} has"
    if row.surplus == row.records:
        return f"broker {replica.broker} has {what} that broker {pair.reference} lacks"
    here, there = (
        _epoch_at(epochs.get((*replica[:2], broker), ()), row["first"])
        for broker in (replica.broker, pair.reference)
    )
    of_epochs = ""
    if here != there and None not in (here, there):
        of_epochs = f", of epoch {here}, there {there}"
    return (
        f"broker {replica.broker} has other records than broker {pair.reference}: {what}{of_epochs}"
    )


def _epochs_backwards(replica: Replica, rows: Sequence[Row]) -> tuple[int, str] | None:
    """Where a later record has an earlier epoch, or the checkpoint contradicts the batches."""
    checkpoint = replica.epochs
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and (row.epoch < before.epoch or row["first"] <= before["last"]):
            detail = f"epoch {row.epoch} at offset {row['first']} follows epoch {before.epoch}"
            return row["first"], f"broker {replica.broker}: {detail}"
        if row.epoch < 0 or not checkpoint or row.epoch > checkpoint[-1][0]:
            continue  # of an old format, or not written yet
        said = [
            epoch for epoch, start in checkpoint if start <= max(row["first"], replica.log_start)
        ]
        if (said[-1] if said else None) != row.epoch and row["last"] >= replica.log_start:
            detail = (
                f"offset {row['first']} is of epoch {row.epoch},"
                f" not as leader-epoch-checkpoint has it ({replica.lineage()})"
            )
            return row["first"], f"broker {replica.broker}: {detail}"
    return None


def _epoch_at(rows: Iterable[Row], offset: int) -> int | None:
    return next((row.epoch for row in rows if row["first"] <= offset <= row["last"]), None)


def _of_damage(
    log: Log, is_damaged: bool, found: Mapping[Key, Replica]
) -> list[tuple[object, ...]]:
    """One finding a place that cannot be read. A torn tail is none: the broker writes there, or cuts it off when it
    starts."""
    if not is_damaged:
        return []
    rows = (
        log.batches()
        .where("damage is not null")
        .orderBy("topic", "partition", "broker", "segment", "position")
    )
    findings = []
    for row in rows.collect():
        replica = found.get((row.topic, row.partition, row.broker))
        if replica is None:
            continue
        is_last = row.base_offset is None or row.base_offset >= replica.log_end
        if row.damage == TORN and is_last:
            continue
        where = f"broker {row.broker}, {row.segment} at {row.position}, {row.bytes} bytes"
        findings.append(
            _finding("damaged", replica, row.base_offset, f"{where}: {row.damage}: {row.detail}")
        )
    return findings


def _finding(
    kind: str, replica: Replica, offset: int | None, detail: str | None
) -> tuple[object, ...]:
    named = {"kind": kind, "topic": replica.topic, "partition": replica.partition}
    named |= {"offset": offset, "broker": replica.broker, "detail": detail}
    return tuple(named.get(name) for name in FINDINGS)


def _epoch_rows(
    found: Iterable[Replica], epochs: Mapping[Key, Sequence[Row]]
) -> list[tuple[object, ...]]:
    """EPOCHS: first offsets by the checkpoint, times by the batches."""
    rows: list[tuple[object, ...]] = []
    for each in found:
        of_batches = {row.epoch: row for row in epochs.get(each[:3], ()) if row.epoch >= 0}
        starts = {epoch: row["first"] for epoch, row in of_batches.items()} | dict(each.epochs)
        rows += (
            (*each[:3], epoch, start, of_batches[epoch].time if epoch in of_batches else None)
            for epoch, start in sorted(starts.items())
        )
    return rows


def _at_most(high_watermark: int | None, log_end: int) -> int | None:
    return None if high_watermark is None else min(high_watermark, log_end)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
