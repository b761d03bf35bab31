"""`kwire-log` in a session of tests: options as Python values, and one line for what is missing."""

from __future__ import annotations

import json

from kwire.errors import ConfigurationError, KwireError
from kwire.spark_options import topics_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from kwire.cluster import Cluster
    from kwire.spark_options import Topics


class SparkError(KwireError):
    """PySpark, Java or the connector is missing, or Spark did not start; no process is left running."""


def frame(
    session: SparkSession,
    reader: Any,
    cluster: Cluster,
    topics: Topics | None,
    broker: int | None,
    columns: Sequence[str],
    options: Mapping[str, object],
) -> DataFrame:
    """What a batch or streaming `reader` of a session reads of a cluster's log directories.

    ConfigurationError, SparkError: options are checked here, where an error is one line, not a worker's traceback."""
    name = _registered(session)
    from kwire.pipeline.options import parse
    from kwire.pipeline.reading import columns_of
    from kwire.pipeline.schema import ddl

    brokers = cluster.brokers if broker is None else [cluster.broker(broker)]
    given = {"path": json.dumps([path for each in brokers for path in each.log_dirs])}
    if topics is not None:
        given["topic"] = topics_text("log", topics)
    for option, value in options.items():
        if isinstance(value, list | tuple | set | frozenset | range):
            given[option] = json.dumps(list(value))
        elif value is not None:
            given[option] = str(value)
    known = columns_of(parse(given))
    for column in columns:
        if column not in known:
            raise ConfigurationError(
                f"kwire_spark.log: there is no column {column!r}; there are {', '.join(known)}"
            )
    if columns:
        reader = reader.schema(ddl({column: known[column] for column in columns}))
    found: DataFrame = reader.format(name).options(**given).load()
    return found


def _registered(session: Any) -> str:
    """The name of the data source, which the session knows afterwards."""
    version = pyspark_version()
    if int(version.split(".")[0]) < 4:
        raise SparkError(f"kwire-log needs PySpark 4.0 or later, this is {version}")
    try:
        from kwire.pipeline.source import KafkaLog, register
    except ModuleNotFoundError as error:
        raise SparkError(
            f"kwire-log needs {error.name}, which is not installed: pip install 'kwire[spark]'"
        ) from None
    register(session)
    return KafkaLog.name()


def pyspark_version() -> str:
    try:
        import pyspark
    except ImportError:
        raise SparkError(
            "kwire_spark needs PySpark, which is not installed: pip install 'kwire[spark]' (and a Java 17)"
        ) from None
    version: str = pyspark.__version__
    return version
