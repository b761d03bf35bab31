"""Ledger and topic compared by their contents: some ten thousand records in a row (`evidence.contents.CONTENTS`).

What agrees is settled by these rows alone; only where they do not agree, records are looked at.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from kwire.audit.evidence.contents import NULL_HASH, RANGE_BITS, SUM_SHIFT
from kwire.audit.jobs import partitions
from kwire.audit.jobs.partitions import IS_OPEN, PARTITION, is_acknowledged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

    from kwire.audit.places import Place

_RANGE = f"offset >> {RANGE_BITS}"


class Comparison(NamedTuple):
    """What is known of a ledger and a topic by their contents."""

    ranges: DataFrame
    """`ranges`."""
    agrees: bool
    """Whether all of them do: no record needs to be looked at."""
    extents: DataFrame
    """`extents`."""
    disordered: DataFrame | None
    """`disordered`; None: nobody has looked."""
    is_ordered: bool
    """Whether none is in there."""


def comparison(sent: DataFrame, of_topic: DataFrame, *, is_order_known: bool) -> Comparison:
    """Compare a ledger with the CONTENTS of a topic. The jobs are run at once, their few rows kept on the driver."""
    session = sent.sparkSession
    found = ranges(of_ledger(sent), of_topic)
    rows = found.collect()
    agrees = all(row.agrees for row in rows)
    kept = session.createDataFrame(rows, found.schema)
    if not is_order_known:
        return Comparison(kept, agrees, extents(of_topic), None, False)
    doubtful = disordered(of_topic)
    strays = doubtful.collect()
    kept_strays = session.createDataFrame(strays, doubtful.schema)
    return Comparison(kept, agrees, extents(of_topic), kept_strays, not strays)


def in_doubt(places: Iterable[Place], found: Comparison) -> list[Place]:
    """The places without what is before their first range that does not agree, and behind the last one."""
    doubtful = found.ranges.where("not agrees").groupBy(*PARTITION)
    edges = {
        row[:2]: (row["first"] << RANGE_BITS, (row["last"] + 1) << RANGE_BITS)
        for row in doubtful.agg(
            F.min("range").alias("first"), F.max("range").alias("last")
        ).collect()
    }
    return [
        place._replace(
            log_start=max(place.log_start, edges[place[:2]][0]),
            log_end=min(place.log_end, edges[place[:2]][1]),
        )
        for place in places
        if place[:2] in edges
    ]


def _content(is_visible: str) -> str:
    return f"xxhash64(offset, number, 2 * coalesce(hash, {NULL_HASH}L) + int({is_visible}))"


_SUMS = {
    "rows": "count(*)",
    "content": "bit_xor(content)",
    "content_sum": f"sum(content >> {SUM_SHIFT})",
}


def of_records(records: DataFrame, run: str) -> DataFrame:
    """The CONTENTS of `records.RECORDS`. Nobody looks at their order here."""
    ours = f"run <=> '{run}'"
    return (
        records.select(
            *PARTITION,
            F.expr(_RANGE).alias("range"),
            F.expr(f"if({ours}, producer, null)").alias("producer"),
            *("control", "offset", "timestamp", "number"),
            F.expr(_content("visible")).alias("content"),
        )
        .groupBy(*PARTITION, "range", "producer", "control")
        .agg(
            F.expr(_SUMS["rows"]).alias("rows"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.min("timestamp").alias("oldest"),
            *(F.expr(_SUMS[name]).alias(name) for name in ("content", "content_sum")),
            F.min("number").alias("low"),
            F.max("number").alias("high"),
            F.lit(None).cast("boolean").alias("is_ordered"),
        )
    )


def of_ledger(sent: DataFrame) -> DataFrame:
    """The same of what a ledger has at an offset, how many rows are `acknowledged`, and whether one's end is open."""
    return (
        sent.where("offset is not null")
        .select(
            *PARTITION,
            F.expr(_RANGE).alias("range"),
            "producer",
            F.expr(_content(f"coalesce({is_acknowledged()}, false)")).alias("content"),
            F.expr(f"coalesce({is_acknowledged()}, false)").alias("is_acknowledged"),
            F.expr(f"outcome is null or {IS_OPEN}").alias("is_open"),
        )
        .groupBy(*PARTITION, "range", "producer")
        .agg(
            *(F.expr(words).alias(name) for name, words in _SUMS.items()),
            F.count_if("is_acknowledged").alias("acknowledged"),
            F.expr("bool_or(is_open)").alias("is_open"),
        )
    )


def ranges(of_ledger: DataFrame, of_topic: DataFrame) -> DataFrame:
    """By partition and `range` of offsets whether all that the ledger and the topic have there agrees (as in
    `partitions.pairs`), and how many records the ledger has, and how many of them as acknowledged."""
    topic = of_topic.where("producer is not null").select(
        *(*PARTITION, "range", "producer"),
        F.expr("-rows").alias("rows"),
        "content",
        F.expr("-content_sum").alias("content_sum"),
        F.lit(0).alias("sent"),
        F.lit(0).alias("acknowledged"),
        F.lit(False).alias("is_open"),
    )
    agrees = (
        "sum(rows) = 0 and bit_xor(content) = 0 and sum(content_sum) = 0 and not bool_or(is_open)"
    )
    return (
        of_ledger.withColumn("sent", F.col("rows"))
        .unionByName(topic)
        .groupBy(*PARTITION, "range", "producer")
        .agg(
            F.expr(agrees).alias("agrees"),
            F.sum("sent").alias("sent"),
            F.sum("acknowledged").alias("acknowledged"),
        )
        .groupBy(*PARTITION, "range")
        .agg(
            F.expr("bool_and(agrees)").alias("agrees"),
            F.sum("sent").alias("sent"),
            F.sum("acknowledged").alias("acknowledged"),
        )
    )


def extents(of_topic: DataFrame) -> DataFrame:
    """By partition: first and last offset, how many rows, markers included, and the oldest record's time; of records
    that are not of the run, how many `strangers` there are, the first one's offset and time."""
    is_strange = F.expr("producer is null and not control")
    return of_topic.groupBy(*PARTITION).agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sum("rows").alias("rows"),
        F.min("oldest").alias("oldest"),
        F.sum(F.when(is_strange, F.col("rows")).otherwise(0)).alias("strangers"),
        F.min(F.when(is_strange, F.col("first"))).alias("first_strange"),
        F.min(F.when(is_strange, F.col("oldest"))).alias("strange_time"),
    )


def disordered(of_topic: DataFrame) -> DataFrame:
    """Producers and partitions in which a record may lie behind one that was sent later."""
    before = (
        Window.partitionBy(*PARTITION, "producer")
        .orderBy("first")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    rows = of_topic.where("producer is not null").select(
        *(*PARTITION, "producer", "first", "low", "is_ordered"),
        F.max("last").over(before).alias("last_before"),
        F.max("high").over(before).alias("high_before"),
    )
    doubts = "not coalesce(is_ordered, false) or first <= last_before or low < high_before"
    return rows.where(doubts).select(*PARTITION, "producer").distinct()


def residue(sent: DataFrame, records: DataFrame, found: Comparison, run: str) -> DataFrame:
    """The `partitions.residue` of a ledger and a topic; only ranges that do not agree are looked at by record."""
    doubtful = F.broadcast(found.ranges.where("not agrees").select(*PARTITION, "range"))

    def in_doubt(rows: DataFrame) -> DataFrame:
        placed = rows.withColumn("range", F.expr(_RANGE))
        return placed.join(doubtful, [*PARTITION, "range"], "left_semi").drop("range")

    left = partitions.residue(
        partitions.pairs(in_doubt(sent), in_doubt(records), run), sent.columns
    )
    settled = (
        found.ranges.where("agrees")
        .groupBy(*PARTITION)
        .agg(F.sum("acknowledged").alias("acknowledged"), F.sum("sent").alias("sent"))
        .selectExpr(
            *PARTITION,
            "stack(2, true, acknowledged, false, sent - acknowledged) as (is_acknowledged, count)",
        )
        .where("count > 0")
    )
    columns = left.schema
    counted = settled.select(
        *PARTITION,
        F.lit(True).alias("is_sent"),
        "is_acknowledged",
        F.col("is_acknowledged").alias("is_visible"),
        *(
            F.lit(None).cast(columns[name].dataType).alias(name)
            for name in ("of_ledger", "of_topic")
        ),
        "count",
    )
    return counted if found.agrees else left.unionByName(counted)
