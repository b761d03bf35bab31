"""The timeline of partitions: who led them and when nobody did, in-sync sets, truncations, unclean elections, lags.

From a cluster's events; of a cluster without them, Apache Kafka's, from the leader epochs that its logs have.
"""

from __future__ import annotations

from kwire.audit.evidence.happenings import WANTED, Happening, happenings, in_utc
from kwire.audit.evidence.intervals import Interval, intervals, of_epochs, told_lags
from kwire.audit.tables import LAGS, TIMELINE, ddl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql import DataFrame


def timeline(events: DataFrame | None, epochs: DataFrame | None = None) -> DataFrame:
    """`tables.TIMELINE` of rows of `kwire-events`; of partitions that no event names, by their logs' epochs
    (`replicas.EPOCHS`). One of the two must be given."""
    found = intervals(collected(events)) if events is not None else []
    if epochs is not None:
        known = {(each.topic, each.partition) for each in found if each.kind == "leader"}
        found += [each for each in of_epochs(epoch_rows(epochs)) if each[:2] not in known]
    given = events if events is not None else epochs
    assert given is not None
    return given.sparkSession.createDataFrame([_listed(each) for each in found], ddl(TIMELINE))


def lags(events: DataFrame) -> DataFrame:
    """`tables.LAGS` of rows of `kwire-events`: where leaders say how far a follower is behind."""
    return events.sparkSession.createDataFrame(list(told_lags(collected(events))), ddl(LAGS))


def collected(events: DataFrame) -> list[Happening]:
    """The events that timeline and causes are made of."""
    wanted = ", ".join(f"'{name}'" for name in sorted(WANTED))
    return happenings(events.where(f"event in ({wanted})").collect())


def epoch_rows(epochs: DataFrame) -> list[tuple[Any, ...]]:
    """Rows of `replicas.EPOCHS`, their times in UTC."""
    return [(*row[:5], row.time and in_utc(row.time)) for row in epochs.collect()]


def _listed(interval: Interval) -> tuple[object, ...]:
    return tuple(interval._replace(isr=interval.isr and list(interval.isr)))  # type: ignore[arg-type]
