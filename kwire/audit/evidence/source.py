"""`kwire-log-contents`: the `contents` of brokers' logs as a Spark data source.

    session.read.format("kwire-log-contents").option("run", …).option("bounds", …).options(…of kwire-log…)

`run`: the ledger's; `bounds`: of each partition of one topic number, first offset and end, in JSON.
"""

from __future__ import annotations

import json

from pyspark.sql.datasource import DataSource, DataSourceReader

from kwire.audit.evidence.contents import CONTENTS, MANY, RECORDS, Rows
from kwire.pipeline import reading
from kwire.pipeline.options import parse
from kwire.pipeline.schema import ddl
from kwire.pipeline.source import LogReader
from kwire.pipeline.workers import forget_zip_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from kwire.pipeline.source import Part


def register(session: SparkSession) -> None:
    if not getattr(session, "_has_kwire_contents", False):
        session.dataSource.register(LogContents)
        session._has_kwire_contents = True


class LogContents(DataSource):  # type: ignore[misc]  # PySpark is not there when types are checked
    @classmethod
    def name(cls) -> str:
        return "kwire-log-contents"

    def schema(self) -> str:
        return ddl(CONTENTS)

    def reader(self, schema: StructType) -> ContentsReader:
        given = {name.lower(): text for name, text in self.options.items()}
        bounds = {int(name): (start, end) for name, start, end in json.loads(given.pop("bounds"))}
        return ContentsReader(given.pop("run"), bounds, given)


class ContentsReader(DataSourceReader):  # type: ignore[misc]
    def __init__(
        self, run: str, bounds: Mapping[int, tuple[int, int]], options: dict[str, str]
    ) -> None:
        self._run = run
        self._bounds = bounds
        self._log = LogReader(RECORDS, parse(options))

    def partitions(self) -> list[Part]:
        return self._log.partitions()

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:
        where = partition.range.where
        rows = Rows(where.topic, where.partition)
        for table in reading.records(partition.range, RECORDS):
            rows.add(table, self._run, *self._bounds[where.partition])
            yield from rows.take(MANY)
        yield from rows.take()
        forget_zip_files()
