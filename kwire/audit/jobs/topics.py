"""The topic audit: what a ledger says beside what lies in the topics. Each half is a set of tables.

`of_partitions` is done for some partitions at a time, so that its memory is bounded and a killed audit goes on with the
next ones; `of_all` takes what that has left over.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import functions as F

from kwire.audit.jobs import contents, partitions, verdicts
from kwire.audit.jobs.partitions import PARTITION
from kwire.audit.tables import KINDS, TOPICS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from kwire.audit.jobs.contents import Comparison

OF_PARTITIONS = ("extents", "residue", "reordered", "gaps", "vanished", "newest")
_INFINITY = "timestamp'9999-12-31 00:00:00'"


def of_partitions(
    sent: DataFrame,
    seen: DataFrame,
    records: DataFrame,
    bounds: DataFrame,
    run: str,
    known: Comparison | None = None,
) -> dict[str, DataFrame]:
    """The tables OF_PARTITIONS. `records` may be used several times: where they are read slowly they should be cached.

    `known`: what the contents have said; otherwise they are compared here."""
    if known is None:
        known = contents.comparison(sent, contents.of_records(records, run), is_order_known=False)
    uncompacted = bounds.where("not compacted")
    looked_at = records.join(F.broadcast(uncompacted.select(*PARTITION)), PARTITION, "left_semi")
    compacted = F.broadcast(bounds.where("compacted").select(*PARTITION))
    ordered = records
    if known.disordered is not None:
        ordered = records.join(F.broadcast(known.disordered), [*PARTITION, "producer"], "left_semi")
    return {
        "residue": contents.residue(sent, records, known, run),
        "extents": known.extents,
        "reordered": partitions.reordered(ordered, run),
        "gaps": partitions.gaps(looked_at, uncompacted),
        "vanished": partitions.vanished(seen, records, bounds),
        "newest": partitions.newest_of_keys(records.join(compacted, PARTITION, "left_semi")),
    }


def of_all(
    sent: DataFrame,
    seen: DataFrame,
    bounds: DataFrame,
    parts: Mapping[str, DataFrame],
    keep: Callable[[str, DataFrame], DataFrame],
) -> dict[str, DataFrame]:
    """The findings and the topics (`tables`), of the parts' tables put together. `bounds`: as they were when the parts
    had been read.

    `keep` stores a table and gives it back, without the plan that has made it: each is used several times, and plans
    would grow with every use."""
    oldest = parts["extents"].select(*PARTITION, "oldest")
    # What has no offset in the ledger was removed if it is older than what is there, and something was removed.
    dated = bounds.join(oldest, PARTITION, "left").withColumn(
        "oldest", F.expr(f"if(log_start > 0, coalesce(oldest, {_INFINITY}), null)")
    )
    nowhere = sent.where("offset is null")
    left = partitions.left_of_ledger(parts["residue"]).unionByName(nowhere)
    left = keep("ledger_left", left)
    topic_left = keep("topic_left", partitions.left_of_topic(parts["residue"]))
    rows = keep("cases", verdicts.cases(sent, left, topic_left))
    compacted = F.broadcast(bounds.where("compacted").select(*PARTITION))
    acknowledged = sent.where(partitions.is_acknowledged()).join(compacted, PARTITION, "left_semi")
    newest_sent = partitions.newest_of_keys(
        acknowledged.withColumn("key_hash", F.expr("if(key is null, null, xxhash64(key))"))
    )
    in_part = keep("transactions", verdicts.transactions(sent, rows))
    judged = verdicts.judged(rows, in_part, dated, newest_sent, parts["newest"])
    judged = keep("judged", judged)
    # While a part was read, retention went on.
    parts = {
        **parts,
        "gaps": partitions.gaps_behind(parts["gaps"], bounds),
        "vanished": partitions.behind(parts["vanished"], bounds),
    }
    found = keep("found", _findings(sent, seen, parts, judged))
    return {"findings": found, "topics": counted(sent, seen, bounds, parts, judged, found)}


def _findings(
    sent: DataFrame, seen: DataFrame, parts: Mapping[str, DataFrame], judged: DataFrame
) -> DataFrame:
    return reduce(
        lambda one, other: one.unionByName(other),
        (
            verdicts.of_verdicts(judged),
            verdicts.of_order(parts["reordered"], judged, sent),
            verdicts.of_vanished(parts["vanished"]),
            verdicts.read_though_aborted(seen, sent),
            verdicts.expired(judged),
            verdicts.of_gaps(parts["gaps"]),
            verdicts.of_foreign(parts["extents"]),
        ),
    )


def counted(
    sent: DataFrame,
    seen: DataFrame,
    bounds: DataFrame,
    parts: Mapping[str, DataFrame],
    judged: DataFrame,
    found: DataFrame,
) -> DataFrame:
    """`tables.TOPICS`."""
    is_acknowledged = F.expr(partitions.is_acknowledged())
    nowhere = sent.where("offset is null and partition is not null").groupBy(*PARTITION)
    without_offset = nowhere.agg(
        F.count("*").alias("more"), F.count_if(is_acknowledged).alias("more_acknowledged")
    )
    kinds = [name for name in TOPICS if name in KINDS]
    of_kinds = found.groupBy(*PARTITION).pivot("kind", kinds).count()
    removed = (
        judged.where("verdict = 'expired'").groupBy(*PARTITION).agg(F.count("*").alias("removed"))
    )
    strangers = parts["extents"].select(*PARTITION, "strangers")
    sights = seen.groupBy(*PARTITION).agg(F.count("*").alias("seen"))
    rows = bounds.select(*PARTITION, "log_start", "log_end")
    counts = partitions.counts(parts["residue"])
    for table in (counts, without_offset, of_kinds, removed, strangers, sights):
        rows = rows.join(table, PARTITION, "left")
    totals = {
        **{name: f"coalesce({name}, 0)" for name in TOPICS if TOPICS[name] == "bigint"},
        "sent": "coalesce(sent, 0) + coalesce(more, 0)",
        "acknowledged": "coalesce(acknowledged, 0) + coalesce(more_acknowledged, 0)",
        "expired": "coalesce(removed, 0)",
        "foreign": "coalesce(strangers, 0)",
    }
    return rows.select(
        *(
            F.expr(totals.get(name, f"`{name}`")).cast(kind).alias(name)
            for name, kind in TOPICS.items()
        )
    )
