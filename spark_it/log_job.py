"""A batch job over log directories, for `test_log_cluster.py`: what each partition has, as JSON.

    spark-submit spark_it/log_job.py PATH [--split BYTES] [--meet FOLDER --at PARTITION]

With --meet a task of that partition stands still in the middle of a segment (`waiting_log.py`), so that somebody can
kill its worker.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def main() -> None:
    from pyspark.sql import SparkSession, functions

    from kwire.pipeline import source
    from spark_it import waiting_log

    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--split", default="100000")
    parser.add_argument("--meet")
    parser.add_argument("--at", type=int, default=1)
    given = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    if given.meet:
        waiting_log.register(spark, given.meet, given.at)
    else:
        source.register(spark)
    reader = spark.read.format("kwire-log").schema("partition int, offset bigint, value binary")
    rows = reader.option("splitBytes", given.split).load(given.path)
    sums = ("count(1)", "sum(offset)", "sum(crc32(value))")
    found = rows.groupBy("partition").agg(*map(functions.expr, sums)).collect()
    sys.stdout.write(json.dumps(sorted(map(list, found))) + "\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
