"""The tables that an audit writes, and the kinds of its findings, as data.

A column is a name and Spark's word for its type. Times are UTC, in microseconds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(NamedTuple):
    """A kind of finding."""

    name: str
    fails: bool
    """Whether one of them makes the audit fail; otherwise it only informs."""
    words: str
    """For people, after a number: "3 lost"."""
    meaning: str


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind(
            "lost",
            True,
            "lost",
            "acknowledged, not in the topic, and not removed by retention, DeleteRecords or compaction",
        ),
        Kind("doubled", True, "doubled", "the same record of a producer is there more than once"),
        Kind(
            "reordered",
            True,
            "out of order",
            "a record lies behind one that its producer sent later, in the same partition",
        ),
        Kind("vanished", True, "seen, then gone", "a reader saw it, and it is no longer there"),
        Kind(
            "partly_visible",
            True,
            "of torn transactions",
            "some records of a transaction are visible, this one is not",
        ),
        Kind(
            "aborted_visible",
            True,
            "visible though aborted",
            "a record of an aborted transaction is visible to a reader of committed records",
        ),
        Kind(
            "replica_differs",
            True,
            "different replicas",
            "below the high watermark a replica has another record than the leader, or none",
        ),
        Kind("damaged", True, "damaged places", "a place of a log that cannot be read"),
        Kind(
            "unacknowledged",
            False,
            "present, never acknowledged",
            "in the topic, though its producer got no acknowledgement",
        ),
        Kind(
            "expired",
            False,
            "removed by retention",
            "acknowledged, and removed by retention or DeleteRecords; no loss",
        ),
        Kind(
            "gap",
            False,
            "gaps in offsets",
            "offsets without a record which no marker, compaction or deletion explains",
        ),
        Kind("foreign", False, "of no run", "a record that no producer of the ledger has sent"),
    )
}
"""By name, in the order in which people read them."""

AT_ONCE: Final = ("expired", "foreign")
"""Kinds with one finding a partition: how many records it is about, TOPICS says."""

FINDINGS: Final = {
    "kind": "string",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "producer": "string",
    "number": "bigint",
    "key": "binary",
    "time": "timestamp",
    "broker": "int",
    "event": "bigint",
    "cause": "string",
    "detail": "string",
}
"""One row a finding. `time`: when it happened, as far as known; `event`: the number of the event that explains it;
`cause`: that in words. Null where none is known."""

LATENCIES: Final = {
    "topic": "string",
    "partition": "int",
    "time": "timestamp",
    "count": "bigint",
    "p50_ms": "double",
    "p99_ms": "double",
    "max_ms": "double",
}
"""One row a partition and a second (`time`: its begin): from the send to the acknowledgement."""

TOPICS: Final = {
    "topic": "string",
    "partition": "int",
    "log_start": "bigint",
    "log_end": "bigint",
    "sent": "bigint",
    "acknowledged": "bigint",
    "present": "bigint",
    "seen": "bigint",
    **{name: "bigint" for name in KINDS if name not in ("replica_differs", "damaged")},
}
"""One row a partition: counts of the ledger, of the topic, and of each kind. `present`: records of the ledger that are
in the topic; `seen`: that readers saw."""

REPLICAS: Final = {
    "topic": "string",
    "partition": "int",
    "broker": "int",
    "log_start": "bigint",
    "log_end": "bigint",
    "high_watermark": "bigint",
    "records": "bigint",
    "bytes": "bigint",
    "epochs": "string",
    "first_difference": "bigint",
}
"""One row a replica. `epochs`: its leader epochs with their first offsets, "0@0 2@1500"; `first_difference`: the first
offset below the high watermark at which it is not as the others, or null."""

TIMELINE: Final = {
    "topic": "string",
    "partition": "int",
    "kind": "string",
    "broker": "int",
    "epoch": "int",
    "isr": "array<int>",
    "begin": "timestamp",
    "end": "timestamp",
    "event": "bigint",
    "detail": "string",
}
"""One row an interval; `kind` is one of `INTERVALS`, `end` null while it goes on."""

INTERVALS: Final = ("leader", "leaderless", "isr", "truncated", "unclean")

LAGS: Final = {
    "topic": "string",
    "partition": "int",
    "broker": "int",
    "time": "timestamp",
    "lag": "bigint",
}
"""One row a replica and a moment: records that it lacks of the leader's."""

TABLES: Final = {
    "findings": FINDINGS,
    "latencies": LATENCIES,
    "topics": TOPICS,
    "replicas": REPLICAS,
    "timeline": TIMELINE,
    "lags": LAGS,
}
"""By the name of the folder with its Parquet files. An audit without a ledger has no latencies and topics, one without
log directories no replicas, one without events no timeline."""


def ddl(table: Mapping[str, str]) -> str:
    """The columns in Spark's words: "kind string, topic string, …"."""
    return ", ".join(f"`{name}` {kind}" for name, kind in table.items())
