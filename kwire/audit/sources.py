"""Ledgers and topics as DataFrames: the topics by Spark's Kafka source, or from log directories by `kwire-log`."""

from __future__ import annotations

import json
from functools import reduce
from itertools import groupby
from operator import attrgetter

from pyspark.sql import functions as F

from kwire import spark_session
from kwire.audit.evidence.contents import CONTENTS
from kwire.audit.evidence.source import LogContents, register
from kwire.audit.jobs.partitions import BOUNDS, PARTITION
from kwire.audit.jobs.records import LOG_COLUMNS, TRANSACTIONAL_LOG_COLUMNS, of_log, of_topic
from kwire.pipeline import ledger
from kwire.pipeline.schema import COLUMNS
from kwire.pipeline.schema import ddl as log_ddl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kwire.audit.places import Place

_KAFKA = {
    "kafka.default.api.timeout.ms": "15000",
    "kafka.request.timeout.ms": "10000",
    # Retention may remove records between the plan and the read.
    "failOnDataLoss": "false",
}


def of_ledger(session: SparkSession, files: Sequence[str], table: str) -> DataFrame:
    """The table "sent" or "seen" of a ledger, of these files."""
    schema = ledger.ddl(table)
    if not files:
        return session.createDataFrame([], schema)
    return session.read.schema(schema).parquet(*files)


def events(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The events of a cluster's files."""
    name = spark_session.source(session, "kwire-events")
    return session.read.format(name).option("path", json.dumps(list(paths))).load()


def bounds(session: SparkSession, places: Sequence[Place]) -> DataFrame:
    """`partitions.BOUNDS` of the places."""
    return session.createDataFrame([place[:5] for place in places], BOUNDS)


def of_places(rows: DataFrame, places: Sequence[Place]) -> DataFrame:
    """The rows of these partitions, and those of their topics of which nobody knows the partition; the topic and
    partition of few places are constants of the scan."""
    conditions = [
        f"(topic = '{topic}' and (partition is null"
        f" or partition in ({', '.join(str(each.partition) for each in group)})))"
        for topic, group in groupby(sorted(places), attrgetter("topic"))
    ]
    return rows.where(" or ".join(conditions) or "false")


def records(
    session: SparkSession, places: Sequence[Place], bootstrap: str | None, *, transactional: bool
) -> DataFrame:
    """What lies at the places (`records.RECORDS`), of the cluster at `bootstrap`, else of their log directories."""
    places = [place for place in places if place.log_end > place.log_start]
    if not places:
        rows = of_log(
            session.createDataFrame([], log_ddl({name: COLUMNS[name] for name in LOG_COLUMNS}))
        )
    elif bootstrap is None:
        rows = _united(of_log(_log(session, each, transactional)) for each in _by_log(places))
    else:
        asked = _assigned(places, bootstrap)
        committed = None
        if transactional:
            committed = _kafka(session, {**asked, "kafka.isolation.level": "read_committed"})
        rows = of_topic(_kafka(session, asked), committed)
    ends = F.broadcast(bounds(session, places).select(*PARTITION, "log_start", "log_end"))
    within = rows.join(ends, PARTITION).where("offset >= log_start and offset < log_end")
    return within.drop("log_start", "log_end")


def contents(session: SparkSession, places: Sequence[Place], run: str) -> DataFrame:
    """The CONTENTS (`evidence.contents`) of log directories without transactions, by the workers that read them."""
    register(session)
    places = [place for place in places if place.log_end > place.log_start]
    if not places:
        return session.createDataFrame([], log_ddl(CONTENTS))

    def of(group: list[Place]) -> DataFrame:
        bounds = [(place.partition, place.log_start, place.log_end) for place in group]
        reader = session.read.format(LogContents.name()).schema(log_ddl(CONTENTS))
        options = {"run": run, "bounds": json.dumps(bounds), **_options(group)}
        return reader.options(**options).load()

    return _united(map(of, _by_log(places)))


def _by_log(places: Iterable[Place]) -> list[list[Place]]:
    """The places in groups that one DataFrame can read."""
    log = attrgetter("log_dirs", "topic")
    return [list(group) for _, group in groupby(sorted(places, key=log), log)]


def _united(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)


def _log(session: SparkSession, places: list[Place], transactional: bool) -> DataFrame:
    names = TRANSACTIONAL_LOG_COLUMNS if transactional else LOG_COLUMNS
    reader = session.read.format(spark_session.source(session, "kwire-log"))
    schema = log_ddl({name: COLUMNS[name] for name in names})
    return reader.schema(schema).options(**_options(places)).load()


def _options(places: Sequence[Place]) -> dict[str, str]:
    return {
        "path": json.dumps(list(places[0].log_dirs)),
        "topic": places[0].topic,
        "partition": json.dumps([place.partition for place in places]),
        "startingOffset": str(min(place.log_start for place in places)),
        "endingOffset": str(max(place.log_end for place in places)),
    }


def _assigned(places: Sequence[Place], bootstrap: str) -> dict[str, str]:
    topics = {place.topic for place in places}

    def by_topic(name: str) -> str:
        return json.dumps(
            {
                topic: {
                    str(place.partition): getattr(place, name)
                    for place in places
                    if place.topic == topic
                }
                for topic in topics
            }
        )

    assigned = {
        topic: [place.partition for place in places if place.topic == topic] for topic in topics
    }
    return {
        **_KAFKA,
        "kafka.bootstrap.servers": bootstrap,
        "assign": json.dumps(assigned),
        "startingOffsets": by_topic("log_start"),
        "endingOffsets": by_topic("log_end"),
    }


def stream(
    session: SparkSession, bootstrap: str, topics: Sequence[str], records_of_a_batch: int
) -> DataFrame:
    """The topics from their first record on, as a reader of committed records gets them."""
    options = {
        **_KAFKA,
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": "read_committed",
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(records_of_a_batch),
    }
    frame: DataFrame = session.readStream.format("kafka").options(**options).load()
    return frame


def _kafka(session: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return session.read.format("kafka").options(**options).load()
