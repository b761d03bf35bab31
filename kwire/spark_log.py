"""`kwire-log` in a session of tests: options as Python values, and one line for what is missing."""

from __future__ import annotations

import json

from kwire import spark_session
from kwire.errors import ConfigurationError
from kwire.spark_options import topics_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from kwire.cluster import Cluster
    from kwire.spark_options import Topics


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
    name = spark_session.source(session, "kwire-log")
    from kwire.pipeline.options import parse
    from kwire.pipeline.reading import columns_of
    from kwire.pipeline.schema import ddl

    given = _texts(cluster, topics, broker, options)
    parsed = parse(given)
    if parsed.bootstrap:
        from kwire.pipeline.remote import replicas

        replicas(parsed)
    known = columns_of(parsed)
    for column in columns:
        if column not in known:
            raise ConfigurationError(
                f"kwire_spark.log: there is no column {column!r}; there are {', '.join(known)}"
            )
    if columns:
        reader = reader.schema(ddl({column: known[column] for column in columns}))
    found: DataFrame = reader.format(name).options(**given).load()
    return found


def _texts(
    cluster: Cluster, topics: Topics | None, broker: int | None, options: Mapping[str, object]
) -> dict[str, str]:
    """The options of the data source: those given, and where the cluster's logs are."""
    brokers = cluster.brokers if broker is None else [cluster.broker(broker)]
    given = {}
    if "bootstrap" not in options:
        given["path"] = json.dumps([path for each in brokers for path in each.log_dirs])
    elif broker is not None:
        given["replica"] = str(broker)
    if topics is not None:
        given["topic"] = topics_text("log", topics)
    for option, value in options.items():
        if isinstance(value, list | tuple | set | frozenset | range):
            given[option] = json.dumps(list(value))
        elif value is not None:
            given[option] = str(value)
    return given
