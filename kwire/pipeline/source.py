"""`kwire-log`: brokers' logs as a Spark data source, batch and streaming; from their directories, or by Fetch.

    register(spark)
    spark.read.format("kwire-log").option("topic", "orders").load("/var/lib/kafka")

Needs PySpark 4.0 or later (SPARK-44076) and kwire on the workers. Filters are not pushed down: PySpark 4.1 keeps those
of one plan for the next plan of the same DataFrame, so bounds are options.
"""

from __future__ import annotations

from dataclasses import dataclass

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
    )
except ModuleNotFoundError as error:
    if error.name != "pyspark.sql.datasource":
        raise
    from pyspark import __version__

    raise ModuleNotFoundError(
        f"kwire-log needs PySpark 4.0 or later, this is {__version__}", name=error.name
    ) from None

from kwire.errors import ConfigurationError
from kwire.pipeline import following, planning, reading
from kwire.pipeline.options import Options, parse
from kwire.pipeline.schema import checked_names, ddl
from kwire.pipeline.workers import forget_zip_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from kwire.pipeline.planning import Range
    from kwire.pipeline.remote import Reach


def register(session: SparkSession) -> None:
    """Let a session know `kwire-log` and `kwire-events`; a second time it does nothing (Spark would warn)."""
    from kwire.pipeline.events import EventLog

    if not getattr(session, "_has_kwire_sources", False):
        session.dataSource.register(KafkaLog)
        session.dataSource.register(EventLog)
        session._has_kwire_sources = True


class KafkaLog(DataSource):  # type: ignore[misc]  # PySpark is not there when types are checked
    @classmethod
    def name(cls) -> str:
        return "kwire-log"

    def schema(self) -> str:
        return ddl(reading.columns_of(parse(self.options)))

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(_names(schema, self.options), parse(self.options))

    def streamReader(self, schema: StructType) -> LogStreamReader:
        options = parse(self.options)
        if options.mode == "damage" or options.starting_timestamp is not None:
            raise ConfigurationError(
                "kwire-log: mode=damage and startingTimestamp are for batches, not for streams"
            )
        return LogStreamReader(_names(schema, self.options), options)


def _names(schema: StructType, given: dict[str, str]) -> tuple[str, ...]:
    return checked_names("kwire-log", schema, reading.columns_of(parse(given)))


@dataclass
class Part(InputPartition):  # type: ignore[misc]
    range: Range | Reach

    def __post_init__(self) -> None:
        super().__init__(None)


def _read(part: Part, names: tuple[str, ...], options: Options) -> Iterator[pa.RecordBatch]:
    yield from reading.read(part.range, names, options)
    forget_zip_files()


class LogReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, names: tuple[str, ...], options: Options) -> None:
        self._names = names
        self._options = options

    def partitions(self) -> list[Part]:
        """One task a range. A log without a record has one task that reads nothing: Spark wants one at least."""
        ranges: Sequence[Range | Reach]
        if self._options.bootstrap:
            from kwire.pipeline import remote

            ranges = remote.plan(self._options)
        else:
            ranges = planning.plan(self._options)
        return [Part(each) for each in ranges] or [Part(planning.nothing())]

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._names, self._options)


class LogStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Offsets are those of the log, by the folder of the partition, or by its name where it is fetched."""

    def __init__(self, names: tuple[str, ...], options: Options) -> None:
        self._names = names
        self._options = options
        self._ends: remote.Ends | following.Ends
        self._between: Callable[..., Iterator[Range | Reach]]
        if options.bootstrap:
            from kwire.pipeline import remote

            self._ends, self._between = remote.Ends(options), remote.between
        else:
            self._ends, self._between = following.Ends(options), following.between

    def initialOffset(self) -> dict[str, int]:
        return {}

    def latestOffset(self) -> dict[str, int]:
        return self._ends.latest()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Part]:
        return [Part(each) for each in self._between(self._options, start, end)]

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._names, self._options)
