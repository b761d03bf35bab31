"""The part of the topic audit that looks at each partition for itself: what is as the ledger says, and what is left.

Every function takes DataFrames and returns one: `sent` and `seen` of a ledger, `records` of a topic
(`records.RECORDS`), `bounds` with one row a partition (`BOUNDS`). A record that the ledger has at an offset is looked
for there first (in `contents` those of whole ranges at once); only what does not agree is left, and goes on to
`verdicts`, which looks across partitions.
"""

from __future__ import annotations

from pyspark.sql import Window
from pyspark.sql import functions as F

from kwire.pipeline.ledger import ACKNOWLEDGED, COMMITTED, UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BOUNDS = "topic string, partition int, log_start bigint, log_end bigint, compacted boolean"
PLACE = ["topic", "partition", "offset"]
PARTITION = ["topic", "partition"]
IDENTITY = ["producer", "number"]


def is_acknowledged(outcome: str = "outcome") -> str:
    """An SQL condition: the producer was told that the record, and its transaction, are there to stay."""
    return f"{outcome} in ('{ACKNOWLEDGED}', '{COMMITTED}')"


IS_OPEN = f"(outcome = '{UNKNOWN}' and transaction is not null)"
"""Whether it should be visible is not known from the record's own row."""


def pairs(sent: DataFrame, records: DataFrame, run: str) -> DataFrame:
    """Ledger and topic side by side, by place, producer and number: columns of `sent`, and `found` of the topic.

    One row a record of either, without those whose offset the ledger does not know; `agrees`: the ledger and the topic
    say the same of it. What became of a transaction whose end is unknown, only all its records together can say."""
    found = records.where(F.col("run") == run).select(
        *PLACE,
        *IDENTITY,
        F.struct(F.col("hash"), "key_hash", "timestamp", "visible").alias("found"),
    )
    joined = sent.where("offset is not null").join(found, [*PLACE, *IDENTITY], "full")
    agrees = f"found.hash <=> hash and found.visible = ({is_acknowledged()}) and not {IS_OPEN}"
    return joined.withColumn("agrees", F.coalesce(F.expr(agrees), F.lit(False)))


def residue(paired: DataFrame, columns: list[str]) -> DataFrame:
    """What is worth keeping of `pairs`: the rows that do not agree, and how many of each partition do.

    `of_ledger` and `of_topic` are structs, null where a side has nothing and in rows that count what agrees."""
    in_doubt = ~F.col("agrees")
    of_ledger = F.when(in_doubt & F.col("outcome").isNotNull(), F.struct(*columns))
    of_topic = F.when(in_doubt & F.col("found").isNotNull(), F.struct(*PLACE, *IDENTITY, "found.*"))
    kept = paired.select(
        *PARTITION,
        F.col("outcome").isNotNull().alias("is_sent"),
        F.expr(f"coalesce({is_acknowledged()}, false)").alias("is_acknowledged"),
        F.coalesce("found.visible", F.lit(False)).alias("is_visible"),
        of_ledger.alias("of_ledger"),
        of_topic.alias("of_topic"),
    )
    return kept.groupBy(*kept.columns).count()


def left_of_ledger(residue: DataFrame) -> DataFrame:
    """Rows of the ledger that do not agree with what lies at their offset."""
    return residue.where("of_ledger is not null").select("of_ledger.*")


def left_of_topic(residue: DataFrame) -> DataFrame:
    """Records of the topic that do not agree with the ledger at their offset."""
    return residue.where("of_topic is not null").select("of_topic.*")


def counts(residue: DataFrame) -> DataFrame:
    """By partition: records `sent` and `acknowledged` that the ledger has at an offset, and those `present`."""
    return residue.groupBy(*PARTITION).agg(
        *(
            F.sum(F.expr(f"if({condition}, count, 0)")).alias(name)
            for name, condition in (
                ("sent", "is_sent"),
                ("acknowledged", "is_acknowledged"),
                ("present", "is_visible"),
            )
        )
    )


def reordered(records: DataFrame, run: str) -> DataFrame:
    """Records that lie behind one that the same producer sent later, in the same partition.

    `overtaken_by`: the greatest number before it."""
    before = (
        Window.partitionBy("topic", "partition", "producer")
        .orderBy("offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    ours = records.where((F.col("run") == run) & F.col("visible"))
    ranked = ours.withColumn("overtaken_by", F.max("number").over(before))
    return ranked.where("number < overtaken_by").select(
        *PLACE, *IDENTITY, "key_hash", "timestamp", "overtaken_by"
    )


def are_whole(extents: DataFrame, bounds: DataFrame) -> bool:
    """Whether every partition has a row for each of its offsets, so that there are no gaps. By `contents.extents`."""
    known = bounds.where("log_end > log_start").join(extents, PARTITION, "left")
    return bool(known.where("rows is null or rows <> log_end - log_start").isEmpty())


def gaps(records: DataFrame, bounds: DataFrame) -> DataFrame:
    """Ranges of offsets between a log's start and end at which nothing lies: `offset`, `length`."""
    edges = bounds.select(
        *PARTITION,
        F.explode(F.array(F.col("log_start") - 1, F.col("log_end"))).alias("offset"),
    )
    rows = records.select(*PLACE).unionByName(edges)
    following = F.lead("offset").over(Window.partitionBy(*PARTITION).orderBy("offset"))
    spans = rows.withColumn("length", following - F.col("offset") - 1)
    return spans.where("length > 0").select(
        *PARTITION, (F.col("offset") + 1).alias("offset"), "length"
    )


def behind(rows: DataFrame, bounds: DataFrame) -> DataFrame:
    """The rows whose offset is not before their log's start."""
    starts = F.broadcast(bounds.select(*PARTITION, "log_start"))
    return rows.join(starts, PARTITION).where("offset >= log_start").drop("log_start")


def gaps_behind(found: DataFrame, bounds: DataFrame) -> DataFrame:
    """What of the `gaps` is not before their log's start."""
    rows = found.join(F.broadcast(bounds.select(*PARTITION, "log_start")), PARTITION)
    cut = rows.withColumn("cut", F.expr("greatest(log_start - offset, 0)")).where("cut < length")
    return cut.select(
        *PARTITION, F.expr("offset + cut").alias("offset"), F.expr("length - cut").alias("length")
    )


def vanished(seen: DataFrame, records: DataFrame, bounds: DataFrame) -> DataFrame:
    """Records that a reader saw and that are not there: neither removed by retention nor by compaction.

    One row a record; `time`: when it was seen first; `readers`: how many saw it."""
    there = records.where("not control").select(
        *PLACE, F.col("hash").alias("hash_now"), F.lit(True).alias("is_there")
    )
    missed = (
        seen.join(there, PLACE, "left")
        .where("is_there is null or not (hash <=> hash_now)")
        .join(F.broadcast(bounds), PARTITION)
        .where("offset >= log_start")
    )
    gone = missed.groupBy(*PLACE, "hash", *IDENTITY, "compacted").agg(
        F.min("seen").alias("time"),
        F.countDistinct("reader").alias("readers"),
        F.min("reader").alias("reader"),
        F.first("key").alias("key"),
        F.first("hash_now").alias("hash_now"),
    )
    newest = newest_of_keys(records)
    kept = gone.withColumn("key_hash", F.xxhash64("key")).join(
        newest, [*PARTITION, "key_hash"], "left"
    )
    return kept.where("not compacted or newest is null or newest < offset").select(
        *PLACE, *IDENTITY, "key", "time", "reader", "readers", "hash_now"
    )


def newest_of_keys(records: DataFrame) -> DataFrame:
    """By partition and key: the greatest offset, `newest`."""
    keyed = records.where("key_hash is not null")
    return keyed.groupBy(*PARTITION, "key_hash").agg(F.max("offset").alias("newest"))
