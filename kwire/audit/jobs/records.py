"""What lies in a topic, one narrow row a record: where, whose record it is, checksum, whether it is visible.

`RECORDS` are the columns. The value itself is not kept: its first words say whose record it is
(`ledger.value_prefix`), its CRC-32 says whether it is the one that was sent.
"""

from __future__ import annotations

from pyspark.sql import Window
from pyspark.sql import functions as F

from kwire.audit.evidence.stamps import HEAD_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RECORDS = (
    *("topic", "partition", "offset", "run", "producer", "number", "hash", "key_hash"),
    *("timestamp", "visible", "control"),
)
"""`run`, `producer`, `number` are null for records of no run; `key_hash` is null for a null key; `visible`: to a reader
of committed records, once its transaction has ended; `control`: a transaction's marker."""
LOG_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
"""What of `kwire-log` is needed without transactions, where every row is a record."""
TRANSACTIONAL_LOG_COLUMNS = (
    *LOG_COLUMNS,
    *("producer_id", "is_transactional", "is_control", "control_type"),
)


def of_log(rows: DataFrame) -> DataFrame:
    """Rows of `kwire-log` (either set of columns) as RECORDS."""
    if "is_control" not in rows.columns:
        return _narrow(rows, F.lit(True), F.lit(False))
    # A record is decided by the first marker of its producer behind it, in the same partition.
    behind = (
        Window.partitionBy("topic", "partition", "producer_id")
        .orderBy("offset")
        .rowsBetween(0, Window.unboundedFollowing)
    )
    decided = rows.where("is_transactional").withColumn(
        "decision", F.first("control_type", ignorenulls=True).over(behind)
    )
    plain = rows.where("not is_transactional").withColumn("decision", F.lit("commit"))
    everything = plain.unionByName(decided)
    visible = F.coalesce(F.col("decision") == "commit", F.lit(False)) & ~F.col("is_control")
    return _narrow(everything, visible, F.col("is_control"))


def of_topic(rows: DataFrame, committed: DataFrame | None = None) -> DataFrame:
    """Rows of Spark's Kafka source, read uncommitted, as RECORDS.

    `committed`: the same topics read by a reader of committed records, where there are transactions."""
    if committed is None:
        return _narrow(rows, F.lit(True), F.lit(False))
    seen = committed.select("topic", "partition", "offset", F.lit(True).alias("is_committed"))
    joined = rows.join(seen, ["topic", "partition", "offset"], "left")
    return _narrow(joined, F.coalesce("is_committed", F.lit(False)), F.lit(False))


def _narrow(rows: DataFrame, visible: Column, control: Column) -> DataFrame:
    # One array, in a projection of its own: Spark would split it again for every column.
    head = f"string(substring(value, 1, {HEAD_BYTES}))"
    rows = rows.withColumn("words", F.expr(f"split({head}, ' ', 4)"))
    run, producer = F.expr("get(words, 0)"), F.expr("get(words, 1)")
    number = F.expr("try_cast(get(words, 2) as bigint)")
    is_of_a_run = run.rlike("^[0-9a-f]{8}$") & number.isNotNull() & ~control
    return rows.select(
        *("topic", "partition", "offset"),
        F.when(is_of_a_run, run).alias("run"),
        F.when(is_of_a_run, producer).alias("producer"),
        F.when(is_of_a_run, number).alias("number"),
        F.crc32("value").alias("hash"),
        F.when(F.col("key").isNotNull(), F.xxhash64("key")).alias("key_hash"),
        "timestamp",
        visible.alias("visible"),
        control.alias("control"),
    )
