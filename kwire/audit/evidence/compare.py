"""Logs of several brokers compared: by digests of batches, by batches where digests differ, then by records."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import NamedTuple

from kwire.audit.evidence.files import Replica
from kwire.pipeline.schema import BATCHES, COLUMNS
from kwire.pipeline.schema import ddl as log_ddl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from typing import Any

    from pyspark.sql import DataFrame, Row, SparkSession

_BUCKET_BITS = 14
"""A digest covers so many offsets, as a power of two."""


class Pair(NamedTuple):
    """A replica and the one that it is compared with: the one in the latest epoch, of these the longest."""

    topic: str
    partition: int
    broker: int
    reference: int
    first: int
    """Offsets below this are not in both."""
    end: int
    """Exclusive: from here on they are not in both, or need not be equal."""
    bound: int | None
    """Below it they must be equal: the lower high watermark. None: not both brokers have written one yet."""


class Log:
    """`kwire-log` of the paths, in the columns that are wanted."""

    def __init__(self, session: SparkSession, options: dict[str, str]) -> None:
        from kwire.pipeline.source import register

        register(session)
        self._session = session
        self._options = options

    def batches(self) -> DataFrame:
        return self._read(BATCHES, _OF_BATCHES, mode="batches", verify="crc")

    def records(self, topics: Iterable[str], names: Sequence[str]) -> DataFrame:
        return self._read(COLUMNS, names, topic=json.dumps(sorted(topics)))

    def _read(self, columns: Mapping[str, Any], names: Sequence[str], **more: str) -> DataFrame:
        schema = log_ddl({name: columns[name] for name in names})
        reader = self._session.read.format("kwire-log").schema(schema)
        return reader.options(**{**self._options, **more}).load()


_OF_BATCHES = (
    *("broker", "topic", "partition", "segment", "position", "bytes", "base_offset", "last_offset"),
    *("leader_epoch", "records", "timestamp", "crc", "crc_ok", "damage", "detail"),
)
_CONTENT = "xxhash64(base_offset, last_offset, leader_epoch, crc, bytes, coalesce(crc_ok, true))"
IS_WHOLE = "last_offset is not null"


def digests(batches: DataFrame) -> DataFrame:
    """What is left of batches to compare: a row for each leader epoch in each 2^14 offsets of each replica."""
    return batches.sparkSession.sql(
        f"""
        select topic, partition, broker, base_offset >> {_BUCKET_BITS} as bucket, leader_epoch as epoch,
               bit_xor(if({IS_WHOLE}, {_CONTENT}, 0L)) as digest,
               count_if({IS_WHOLE}) as batches, sum(records) as records, sum(bytes) as bytes,
               min(base_offset) as first, max(last_offset) as last,
               min_by(timestamp, base_offset) as time, count(damage) as damaged
        from {{batches}} group by all""",
        batches=batches,
    )


def pairs(found: Iterable[Replica], damaged: Container[tuple[str, int, int]] = ()) -> list[Pair]:
    """Whom to compare with whom, and which offsets; with one of `damaged` only if there is no other."""
    groups: dict[tuple[str, int], list[Replica]] = defaultdict(list)
    for each in found:
        groups[each.topic, each.partition].append(each)
    chosen = []
    for group in groups.values():
        reference = max(
            group,
            key=lambda each: (
                *(each.epochs[-1:], each[:3] not in damaged),
                *(each.log_end, -each.broker),
            ),
        )
        for each in group:
            if each is reference:
                continue
            known = (each.high_watermark, reference.high_watermark)
            bound = None if None in known else min(end for end in known if end is not None)
            first = max(each.log_start, reference.log_start)
            end = first if bound is None else min(each.log_end, reference.log_end, bound)
            chosen.append(Pair(*each[:3], reference.broker, first, max(first, end), bound))
    return chosen


def differences(
    session: SparkSession, log: Log, summary: DataFrame, chosen: list[Pair], found: list[Replica]
) -> list[Row]:
    """One row a pair that differs in offsets which both have: topic, partition, broker, first, last, records,
    missing, surplus: how many records differ, and of these are the reference's or the replica's alone."""
    if not chosen:
        return []
    compared = session.createDataFrame(
        [pair[:6] for pair in chosen],
        "topic string, partition int, broker int, reference int, first bigint, end bigint",
    )
    suspects = session.sql(_SUSPECTS, compared=compared, summary=summary).collect()
    if not suspects:
        return []
    suspected = session.createDataFrame(
        suspects, "topic string, partition int, broker int, bucket bigint"
    )
    batches = log.batches().where(IS_WHOLE)
    places = session.sql(
        _DIFFERENT_BATCHES, compared=compared, suspected=suspected, batches=batches
    )
    parts = places.collect()
    if not parts:
        return []
    ranges = session.createDataFrame(
        parts, "topic string, partition int, broker int, reference int, first bigint, last bigint"
    )
    records = log.records({row.topic for row in parts}, _OF_RECORDS)
    different = session.sql(_DIFFERENT_RECORDS, ranges=ranges, records=records)
    cleaned = [(*each[:3], each.cleaned) for each in found if each.cleaned is not None]
    if cleaned:
        cleaned_to = session.createDataFrame(
            cleaned, "topic string, partition int, broker int, cleaned bigint"
        )
        different = session.sql(
            _NOT_COMPACTED, different=different, cleaned=cleaned_to, records=records
        )
    rows: list[Row] = session.sql(_BY_REPLICA, different=different).collect()
    return rows


_OF_RECORDS = (
    *(
        "broker",
        "topic",
        "partition",
        "offset",
        "leader_epoch",
        "timestamp",
        "key",
        "value",
        "headers",
    ),
    *("producer_id", "producer_epoch", "sequence", "is_transactional", "is_control"),
)

_SUSPECTS = f"""
    with sides as (
        select c.topic, c.partition, c.broker, s.bucket, s.digest
        from {{compared}} c join {{summary}} s
          on s.topic = c.topic and s.partition = c.partition and s.broker in (c.broker, c.reference)
        where s.bucket between c.first >> {_BUCKET_BITS} and (c.end - 1) >> {_BUCKET_BITS} and c.first < c.end)
    select topic, partition, broker, bucket from sides group by all having bit_xor(digest) <> 0"""
"""Buckets whose digests differ. The last may differ only because one log is longer."""

_DIFFERENT_BATCHES = f"""
    with sides as (
        select /*+ broadcast(c), broadcast(s) */ c.topic, c.partition, c.broker, c.reference, c.first, c.end,
               b.base_offset, b.last_offset, {_CONTENT} as content
        from {{batches}} b
        join {{compared}} c
          on b.topic = c.topic and b.partition = c.partition and b.broker in (c.broker, c.reference)
        join {{suspected}} s
          on s.topic = c.topic and s.partition = c.partition and s.broker = c.broker
         and s.bucket = b.base_offset >> {_BUCKET_BITS}
        where b.last_offset >= c.first and b.base_offset < c.end),
    alone as (
        select topic, partition, broker, reference, first, end, min(base_offset) as base, max(last_offset) as last
        from sides group by topic, partition, broker, reference, first, end, content having count(*) = 1)
    select topic, partition, broker, reference,
           greatest(min(base), first) as first, least(max(last), end - 1) as last
    from alone group by topic, partition, broker, reference, alone.first, alone.end"""
"""Offsets between which batches differ, for each pair."""

_DIFFERENT_RECORDS = """
    with sides as (
        select /*+ broadcast(r) */ r.topic, r.partition, r.broker, r.reference, l.offset,
               l.broker = r.broker as is_own, l.key, l.value is null or l.is_control as is_removable,
               xxhash64(l.leader_epoch, l.timestamp, l.key is null, l.key, l.value is null, l.value, l.headers,
                        l.producer_id, l.producer_epoch, l.sequence, l.is_transactional, l.is_control) as content
        from {records} l join {ranges} r
          on l.topic = r.topic and l.partition = r.partition and l.broker in (r.broker, r.reference)
         and l.offset between r.first and r.last)
    select topic, partition, broker, reference, offset, any_value(key) as key, bool_and(is_removable) as is_removable,
           bool_or(is_own) as is_own, bool_or(not is_own) as is_reference
    from sides group by topic, partition, broker, reference, offset
    having count(*) <> 2 or min(content) <> max(content)"""

_NOT_COMPACTED = """
    with lacking as (
        select *, if(is_own, reference, broker) as lacks from {different}),
    newest as (
        select topic, partition, key, max(offset) as newest from {records} group by topic, partition, key)
    select l.* from lacking l
    left join {cleaned} c on c.topic = l.topic and c.partition = l.partition and c.broker = l.lacks
    left join newest n on n.topic = l.topic and n.partition = l.partition and n.key = l.key
    where l.is_own = l.is_reference or c.cleaned is null or l.offset >= c.cleaned
       or not (l.is_removable or coalesce(n.newest > l.offset, false))"""
"""Of records that one replica lacks those that compaction there does not explain."""

_BY_REPLICA = """
    select topic, partition, broker, min(offset) as first, max(offset) as last, count(*) as records,
           count_if(not is_own) as missing, count_if(not is_reference) as surplus
    from {different} group by all"""
