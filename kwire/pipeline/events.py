"""`kwire-events`: a cluster's event log (`kwire up --log-json`) as a Spark data source, batch and streaming.

    spark.dataSource.register(EventLog)
    spark.read.format("kwire-events").load("/var/log/kwire.json").where("event = 'LEADER_ELECTED'")

One task reads a file. A line that is no event is a row without `event`; one that is no JSON, without `level`, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from kwire.pipeline import event_files
from kwire.pipeline.schema import EVENTS, checked_names, ddl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kwire.pipeline.event_files import Place, Span


class EventLog(DataSource):  # type: ignore[misc]  # PySpark is not there when types are checked
    @classmethod
    def name(cls) -> str:
        return "kwire-events"

    def schema(self) -> str:
        return ddl(EVENTS)

    def reader(self, schema: StructType) -> EventReader:
        return EventReader(self._paths(), checked_names(self.name(), schema, EVENTS))

    def streamReader(self, schema: StructType) -> EventStreamReader:
        return EventStreamReader(self._paths(), checked_names(self.name(), schema, EVENTS))

    def _paths(self) -> tuple[str, ...]:
        return event_files.parse(self.options)


@dataclass
class Part(InputPartition):  # type: ignore[misc]
    span: Span

    def __post_init__(self) -> None:
        super().__init__(None)


class EventReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, paths: tuple[str, ...], names: tuple[str, ...]) -> None:
        self._paths = paths
        self._names = names

    def partitions(self) -> list[Part]:
        return [Part(event_files.whole(path)) for path in event_files.files(self._paths)]

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        return event_files.tables(partition.span, self._names)


class EventStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Offsets are places behind whole lines, by file."""

    def __init__(self, paths: tuple[str, ...], names: tuple[str, ...]) -> None:
        self._paths = paths
        self._names = names
        self._ends: dict[str, Place] = {}

    def initialOffset(self) -> dict[str, Place]:
        return {}

    def latestOffset(self) -> dict[str, Place]:
        for path in event_files.files(self._paths):
            self._ends[path] = event_files.end_of(path, self._ends.get(path, (0, 0)))
        return dict(self._ends)

    def partitions(self, start: dict[str, Place], end: dict[str, Place]) -> list[Part]:
        self._ends = {**end, **self._ends}  # after a restart
        return [Part(each) for each in event_files.between(start, end)]

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        return event_files.tables(partition.span, self._names)
