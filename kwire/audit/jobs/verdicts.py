"""The part of the topic audit that looks across partitions: what is left of ledger and topic becomes findings.

Every function takes DataFrames and returns one of `tables.FINDINGS`, or of what the next needs. What is left is little
when all is well: joins with the whole ledger are by the few records in question.
"""

from __future__ import annotations

from pyspark.sql import Window
from pyspark.sql import functions as F

from kwire.audit.jobs.partitions import IDENTITY, PARTITION, PLACE, is_acknowledged
from kwire.audit.tables import FINDINGS
from kwire.pipeline.ledger import ABORTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TRANSACTION = ["producer", "transaction"]


def findings(rows: DataFrame, kind: str | Column, detail: str) -> DataFrame:
    """Rows as findings: columns that they lack are null. `detail`: in SQL."""
    given = {"kind": F.lit(kind) if isinstance(kind, str) else kind, "detail": F.expr(detail)}
    for name in FINDINGS:
        if name not in given and name in rows.columns:
            given[name] = F.col(name)
    return rows.select(
        *(
            given.get(name, F.lit(None)).cast(column).alias(name)
            for name, column in FINDINGS.items()
        )
    )


def cases(sent: DataFrame, ledger_left: DataFrame, topic_left: DataFrame) -> DataFrame:
    """Ledger's rows in question beside each copy that is left in the topic, of the same producer and number.

    One row a copy, or a record without one. `is_left`: the ledger's row agrees with nothing at its offset (null where
    the ledger has no such record); `copy`: its place, `hash`, `visible`, and `rank` from 1 among the visible ones."""
    ranks = Window.partitionBy(*IDENTITY, "visible").orderBy(*PLACE)
    copies = topic_left.withColumn("rank", F.row_number().over(ranks)).select(
        *IDENTITY,
        F.struct(*PLACE, "hash", "key_hash", "visible", "timestamp", "rank").alias("copy"),
    )
    left = ledger_left.withColumn("is_left", F.lit(True))
    in_question = topic_left.select(*IDENTITY).distinct()
    settled = (
        sent.join(in_question, IDENTITY, "left_semi")
        .join(ledger_left.select(*IDENTITY), IDENTITY, "left_anti")
        .withColumn("is_left", F.lit(False))
    )
    return left.unionByName(settled).join(copies, IDENTITY, "full")


def transactions(sent: DataFrame, rows: DataFrame) -> DataFrame:
    """The producers' transactions in question of which at least one record is visible."""
    asked = rows.where("is_left and transaction is not null").select(*_TRANSACTION).distinct()
    members = sent.join(asked, _TRANSACTION, "left_semi").select(
        *IDENTITY, "transaction", "outcome"
    )
    state = rows.groupBy(*IDENTITY).agg(
        F.max(F.coalesce("copy.visible", F.lit(False))).alias("copy_visible"),
        F.max("is_left").alias("is_left"),
    )
    # What is not in question agrees with the topic: visible if it was committed.
    visible = F.expr(
        f"coalesce(copy_visible, false) or (coalesce(not is_left, true) and {is_acknowledged()})"
    )
    return (
        members.join(state, IDENTITY, "left")
        .where(visible)
        .select(*_TRANSACTION)
        .distinct()
        .withColumn("is_seen_in_part", F.lit(True))
    )


def judged(
    rows: DataFrame,
    seen_in_part: DataFrame,
    bounds: DataFrame,
    newest_sent: DataFrame,
    newest_found: DataFrame,
) -> DataFrame:
    """`cases` with a `verdict`: a kind of findings, or null where all is well.

    `newest_sent`, `newest_found`: by partition and key, in compacted topics, the newest offset that was acknowledged
    and that is there (`partitions.newest_of_keys`)."""
    facts = (
        rows.join(seen_in_part, _TRANSACTION, "left")
        .join(F.broadcast(bounds), PARTITION, "left")
        .withColumn("key_hash", F.when(F.col("key").isNotNull(), F.xxhash64("key")))
        .join(
            newest_sent.withColumnRenamed("newest", "newest_sent"), [*PARTITION, "key_hash"], "left"
        )
        .join(
            newest_found.withColumnRenamed("newest", "newest_found"),
            [*PARTITION, "key_hash"],
            "left",
        )
    )
    return facts.withColumn("verdict", F.expr(_verdict()))


def _verdict() -> str:
    """The kind of a row of `judged`, in SQL."""
    acknowledged = is_acknowledged()
    was_replaced = (
        "coalesce(compacted and"
        " greatest(coalesce(newest_sent, -1), coalesce(newest_found, -1)) > offset, false)"
    )
    was_removed = "coalesce(offset < log_start or (offset is null and sent < oldest), false)"
    is_torn = f"coalesce(is_seen_in_part, false) and outcome <> '{ABORTED}'"
    return f"""
        case
        when copy is not null and copy.visible then case
            when is_left is null then 'unacknowledged'
            when outcome = '{ABORTED}' then 'aborted_visible'
            when copy.rank > 1 or not is_left then 'doubled'
            when not (copy.hash <=> hash) then 'damaged'
            when not {acknowledged} then 'unacknowledged'
            end
        when is_left and copy is not null then case
            when {is_torn} then 'partly_visible'
            when {acknowledged} then 'lost'
            end
        when is_left then case
            when {was_removed} and {acknowledged} then 'expired'
            when {was_removed} or {was_replaced} then null
            when {acknowledged} then 'lost'
            when {is_torn} then 'partly_visible'
            end
        end"""


_DETAILS = {
    "lost": "concat('acknowledged at ', string(acknowledged), if(copy is null, '', '; in the log, but its"
    " transaction was not committed'))",
    "doubled": "concat('once more at ', copy.topic, '-', copy.partition, ' offset ', copy.offset,"
    " if(offset is null, '', concat('; acknowledged at offset ', offset)))",
    "damaged": "'the value is not the one that was sent: its CRC-32 differs'",
    "unacknowledged": "if(is_left is null, 'the ledger does not have it', concat('its producer was told: ',"
    " coalesce(error, outcome)))",
    "aborted_visible": "concat('its transaction ', transaction, ' was aborted')",
    "partly_visible": "concat('others of its transaction ', transaction, ' are visible')",
}


_OF_COPIES = "verdict in ('doubled', 'unacknowledged', 'aborted_visible', 'damaged')"
"""Where the finding is a record of the topic; of the others the ledger says where they should be."""


def of_verdicts(judged_rows: DataFrame) -> DataFrame:
    """Findings of the verdicts, one a record, but for those of retention (`expired`)."""
    details = " ".join(f"when '{kind}' then {detail}" for kind, detail in _DETAILS.items())
    rows = judged_rows.where("verdict <> 'expired'").withColumn(
        "detail", F.expr(f"case verdict {details} end")
    )
    places = {name: F.expr(f"if({_OF_COPIES}, copy.{name}, {name})") for name in PLACE}
    time = F.expr(f"if({_OF_COPIES}, copy.timestamp, coalesce(acknowledged, sent))")
    return findings(rows.withColumns({**places, "time": time}), F.col("verdict"), "detail")


def expired(judged_rows: DataFrame) -> DataFrame:
    """One finding a partition: how many acknowledged records retention or DeleteRecords has removed."""
    rows = judged_rows.where("verdict = 'expired'")
    grouped = rows.groupBy(*PARTITION).agg(
        F.min("offset").alias("offset"),
        F.max("offset").alias("last"),
        F.min("acknowledged").alias("time"),
        F.count("*").alias("count"),
    )
    return findings(grouped, "expired", "concat(count, ' records, offsets ', offset, ' to ', last)")


def of_order(reordered: DataFrame, judged_rows: DataFrame, sent: DataFrame) -> DataFrame:
    """Findings of `partitions.reordered`: a record that is there twice is out of order of itself, and left out."""
    doubled = judged_rows.where("verdict = 'doubled'").select(*IDENTITY).distinct()
    rows = reordered.join(doubled, IDENTITY, "left_anti")
    keys = sent.join(rows.select(*IDENTITY), IDENTITY, "left_semi").select(*IDENTITY, "key")
    overtaking = (
        rows.select("producer", F.col("overtaken_by").alias("number"))
        .distinct()
        .join(sent.select(*IDENTITY, F.col("key").alias("other_key")), IDENTITY)
        .withColumnRenamed("number", "overtaken_by")
    )
    explained = (
        rows.withColumnRenamed("timestamp", "time")
        .join(keys, IDENTITY, "left")
        .join(overtaking, ["producer", "overtaken_by"], "left")
    )
    return findings(
        explained,
        "reordered",
        "concat('behind number ', overtaken_by, if(key = other_key, ', of the same key', ''))",
    )


def of_vanished(rows: DataFrame) -> DataFrame:
    """Findings of `partitions.vanished`."""
    return findings(
        rows,
        "vanished",
        "concat('seen by ', reader, if(readers > 1, concat(' and ', readers - 1, ' more'), ''),"
        " if(hash_now is null, '; nothing is there now', '; another record is there now'))",
    )


def of_gaps(gaps: DataFrame) -> DataFrame:
    """Findings of `partitions.gaps`."""
    return findings(
        gaps, "gap", "concat(length, if(length = 1, ' offset', ' offsets'), ' without a record')"
    )


def of_foreign(extents: DataFrame) -> DataFrame:
    """Findings of the strangers of `partitions.extents`, one a partition."""
    rows = extents.where("strangers > 0").select(
        *PARTITION,
        "strangers",
        F.col("first_strange").alias("offset"),
        F.col("strange_time").alias("time"),
    )
    words = "if(strangers = 1, ' record', ' records')"
    return findings(rows, "foreign", f"concat(strangers, {words}, ' of no producer of this run')")


def read_though_aborted(seen: DataFrame, sent: DataFrame) -> DataFrame:
    """Findings: what a reader of committed records saw of transactions that were aborted."""
    aborted = sent.where(F.col("outcome") == ABORTED).select(*IDENTITY, "transaction")
    sights = seen.where("isolation = 'read_committed'").join(aborted, IDENTITY)
    first = sights.groupBy(*IDENTITY, "transaction").agg(
        F.min("seen").alias("time"),
        F.min("reader").alias("reader"),
        *(F.first(name).alias(name) for name in (*PLACE, "key")),
    )
    return findings(
        first,
        "aborted_visible",
        "concat(reader, ' was given it; its transaction ', transaction, ' was aborted')",
    )


def latencies(sent: DataFrame) -> DataFrame:
    """`tables.LATENCIES`: by partition and second in which records were sent, until they were acknowledged."""
    lasted = (
        sent.where("acknowledged is not null")
        .withColumn("ms", F.expr("(unix_micros(acknowledged) - unix_micros(sent)) / 1000D"))
        # As date_trunc, which costs more than all else.
        .withColumn("time", F.expr("timestamp_seconds(unix_seconds(sent))"))
    )
    grouped = lasted.groupBy(*PARTITION, "time").agg(
        F.count("*").alias("count"),
        F.percentile_approx("ms", [0.5, 0.99], 1000).alias("ms"),
        F.max("ms").alias("max_ms"),
    )
    return grouped.select(
        *PARTITION, "time", "count", F.expr("ms[0] as p50_ms"), F.expr("ms[1] as p99_ms"), "max_ms"
    )
