"""A batch job over log directories, for `test_log_cluster.py`: what each partition has, as JSON.

    spark-submit spark_it/log_job.py PATH [--split BYTES] [--meet FOLDER --at PARTITION]

With --meet the first task of that partition says by FOLDER/standing where it runs, and goes on when FOLDER/go is
there, so that somebody can kill its worker in the middle of a segment; when it runs again it does not wait.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kwire.pipeline.source import KafkaLog, LogReader, Part

PATIENCE_S = 240.0


class WaitingReader(LogReader):  # type: ignore[misc]
    folder = ""
    partition = -1

    def read(self, partition: Part) -> Iterator[Any]:
        for table in LogReader.read(self, partition):
            yield table.slice(0, 1)
            if partition.range.where.partition == self.partition:
                self._wait()
            yield table.slice(1)

    def _wait(self) -> None:
        try:
            with Path(self.folder, "standing").open("x") as file:
                file.write(str(Path.cwd()))  # below the worker's folder
        except FileExistsError:
            return
        deadline = time.monotonic() + PATIENCE_S
        while not Path(self.folder, "go").exists() and time.monotonic() < deadline:
            time.sleep(0.05)


class WaitingLog(KafkaLog):  # type: ignore[misc]
    def reader(self, schema: Any) -> WaitingReader:
        options = dict(self.options)
        folder, partition = options.pop("meet"), int(options.pop("at"))
        self.options = options
        found = KafkaLog.reader(self, schema)
        waiting = WaitingReader(found._names, found._options)
        waiting.folder, waiting.partition = folder, partition
        return waiting

    @classmethod
    def name(cls) -> str:
        return "waiting-log"


def main() -> None:
    from pyspark.sql import SparkSession, functions

    from kwire.pipeline.source import register

    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--split", default="100000")
    parser.add_argument("--meet")
    parser.add_argument("--at", default="1")
    given = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    spark.dataSource.register(WaitingLog)
    reader = spark.read.format("waiting-log" if given.meet else "kwire-log")
    reader = reader.schema("partition int, offset bigint, value binary")
    if given.meet:
        reader = reader.option("meet", given.meet).option("at", given.at)
    rows = reader.option("splitBytes", given.split).load(given.path)
    sums = ("count(1)", "sum(offset)", "sum(crc32(value))")
    found = rows.groupBy("partition").agg(*map(functions.expr, sums)).collect()
    sys.stdout.write(json.dumps(sorted(map(list, found))) + "\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
