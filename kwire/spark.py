"""A SparkSession wired to a cluster, for tests of Spark jobs: the pytest fixture `kwire_spark`.

Answers to Spark's "Structured Streaming + Kafka Integration Guide": source and sink `kafka`. Left out: Spark
Connect, a master that is not this machine (give `spark.master` for one), databases and tables that a test makes.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress

from kwire import spark_audit, spark_log, spark_session
from kwire.load import rows as spark_rows
from kwire.spark_options import to_texts, topics_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from kwire.client.views import Record
    from kwire.cluster import Cluster
    from kwire.load.ledger import Ledger
    from kwire.load.rows import BackgroundLoad
    from kwire.spark_audit import Audit
    from kwire.spark_options import Topics

# Java's admin client, by which Spark asks for offsets, holds on to a leader that has died until the time of the call is
# over; by default that is a minute.
_TIMEOUTS = {"kafka.default.api.timeout.ms": "15000", "kafka.request.timeout.ms": "10000"}

# A Spark for tests: small, of this machine, and silent about its progress.
_DEFAULTS = {
    "spark.master": "local[2]",
    "spark.app.name": "kwire tests",
    "spark.driver.memory": "1g",
    **spark_session.LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "30s",
}


class Spark:
    """A session and a cluster: reads and writes topics without further plumbing."""

    def __init__(self, session: SparkSession, cluster: Cluster, folder: Path) -> None:
        """`folder`: for checkpoints of streams that are given none."""
        self.session = session
        self.cluster = cluster
        self._folder = folder
        self._checkpoints = 0
        self._loads = 0
        self._audits = 0
        self.ledger: Path | None = None
        """Of the last `load`; `audit` takes it unless it is given another."""

    @property
    def options(self) -> dict[str, str]:
        """The options by which any `format("kafka")` finds the cluster."""
        return {"kafka.bootstrap.servers": self.cluster.bootstrap_servers}

    def read(self, topic: Topics | None = None, **options: object) -> DataFrame:
        """The records of a topic, or of a list of them, as a DataFrame, from the first to the current last.

        `options`: Spark's own (`startingOffsets={"orders": {0: 5}}`, `**{"kafka.group.id": …}`); without a topic they
        select what is read (`subscribePattern`, `assign`). ConfigurationError for a name that Spark would ignore."""
        given = self._source("read", topic, options)
        frame: DataFrame = self.session.read.format("kafka").options(**given).load()
        return frame

    def read_stream(self, topic: Topics | None = None, **options: object) -> DataFrame:
        """Topics as a streaming DataFrame: from the first record, unless an option says otherwise."""
        given = self._source("read_stream", topic, options)
        if not any(name.lower().startswith("starting") for name in given):
            given["startingOffsets"] = "earliest"
        frame: DataFrame = self.session.readStream.format("kafka").options(**given).load()
        return frame

    def write(self, frame: DataFrame, topic: str | None = None, **options: object) -> None:
        """Append a DataFrame (column `value`; `key`, `partition`, `headers` are optional); return when it is written.

        Without a topic the column `topic` says where each row goes."""
        frame.write.format("kafka").options(**self._sink("write", topic, options)).save()

    def write_stream(
        self, frame: DataFrame, topic: str | None = None, **options: object
    ) -> DataStreamWriter:
        """Spark's writer of a streaming DataFrame into a topic, to `.trigger(…)` and `.start()`.

        Without the option `checkpointLocation` its checkpoint is a new directory, deleted after the test."""
        given = self._sink("write_stream", topic, options)
        if "checkpointLocation" not in given:
            self._checkpoints += 1
            given["checkpointLocation"] = str(self._folder / f"checkpoint-{self._checkpoints}")
        writer: DataStreamWriter = frame.writeStream.format("kafka").options(**given)
        return writer

    def produce(
        self, topic: str, rows: Iterable[object], *, ledger: Ledger | None = None
    ) -> list[Record]:
        """Write rows in their order, without a DataFrame; return them with partition and offset.

        A row is a dict of `value`, `key`, `timestamp` (a datetime, ms since 1970, or an ISO text; UTC without a zone),
        `headers` (a dict or pairs) and `partition`, or a value alone: text, bytes, None, or what JSON can hold.
        `ledger`: notes each; values begin with RUN PRODUCER NUMBER then. RequestError, ConfigurationError."""
        return spark_rows.produce(self.cluster.bootstrap_servers, topic, rows, ledger)

    def load(self, topic: str = "load", **options: object) -> BackgroundLoad:
        """Begin a load by a stock client, as `kwire load`; it goes on in threads, best in a `with` block.

        `options`: those of `kwire load` with underscores (`seconds=5, rate=500, readers=1, mode="idempotent"`). Its
        ledger is in the directory `load.ledger`; `stop()` and `wait()` return what it has done. ConfigurationError."""
        self._loads += 1
        folder = self._folder / f"ledger-{self._loads}"
        begun = spark_rows.load(self.cluster.bootstrap_servers, topic, folder, options)
        self.ledger = folder
        return begun

    def log(
        self,
        topic: Topics | None = None,
        *,
        broker: int | None = None,
        columns: Sequence[str] = (),
        **options: object,
    ) -> DataFrame:
        """The brokers' log directories as a DataFrame, each replica's records: `spark.read.format("kwire-log")`.

        `topic`: names or patterns; without one all but internal topics. `broker`: one broker's log; else all of them, a
        row each. `columns`: only these are decoded. `options`: those of `kwire-log` (`startingOffset`, `verify="crc"`,
        `mode="damage"` …). Brokers may be running, stopped or killed. SparkError before PySpark 4.0."""
        return spark_log.frame(
            self.session, self.session.read, self.cluster, topic, broker, columns, options
        )

    def log_stream(
        self,
        topic: Topics | None = None,
        *,
        broker: int | None = None,
        columns: Sequence[str] = (),
        **options: object,
    ) -> DataFrame:
        """The brokers' log directories as a streaming DataFrame, from the first record on; otherwise as `log`."""
        return spark_log.frame(
            self.session, self.session.readStream, self.cluster, topic, broker, columns, options
        )

    def audit(
        self,
        ledger: str | os.PathLike[str] | None = None,
        topics: Sequence[str] = (),
        *,
        logs: bool = False,
    ) -> Audit:
        """A ledger of `kwire load` beside what lies in its topics: lists `.lost`, `.doubled`, `.reordered` …

        `topics`: of the ledger's, all by default. `logs`: the brokers' log directories are read, not the topics; so
        brokers may be dead. ConfigurationError for a ledger that is none; SparkError before PySpark 4.0."""
        self._audits += 1
        out = self._folder / f"audit-{self._audits}"
        return spark_audit.audit(self, ledger, topics, out, logs)

    def _source(
        self, method: str, topics: Topics | None, options: Mapping[str, object]
    ) -> dict[str, str]:
        subscribe = {} if topics is None else {"subscribe": topics_text(method, topics)}
        return {**self.options, **_TIMEOUTS, **subscribe, **to_texts(method, options)}

    def _sink(
        self, method: str, topic: str | None, options: Mapping[str, object]
    ) -> dict[str, str]:
        target = {} if topic is None else {"topic": topics_text(method, topic)}
        return {**self.options, **target, **to_texts(method, options)}


# --- the session


@contextmanager
def running_session(config: Mapping[str, str]) -> Iterator[SparkSession]:
    """`spark_session.running_session` with the defaults of tests."""
    with spark_session.running_session(config, _DEFAULTS) as session:
        yield session


@contextmanager
def left_as_found(session: SparkSession) -> Iterator[None]:
    """Remove what a test leaves in the session: streaming queries, temporary views, caches, configuration."""
    config = _config(session)
    queries = {query.id for query in session.streams.active}
    try:
        yield
    finally:
        for query in session.streams.active:
            if query.id not in queries:
                query.stop()
        _close_producers(session)
        session.catalog.clearCache()
        for table in session.catalog.listTables():
            if table.isTemporary:
                session.catalog.dropTempView(table.name)
        _restore(session, config)


# --- between tests


def _config(session: SparkSession) -> dict[str, str]:
    return {row[0]: row[1] for row in session.sql("SET").collect()}


def _restore(session: SparkSession, before: Mapping[str, str]) -> None:
    now = _config(session)
    for key in now.keys() - before.keys():
        session.conf.unset(key)
    for key, value in before.items():
        if now.get(key) != value:
            session.conf.set(key, value)


def _close_producers(session: SparkSession) -> None:
    """Close Spark's idle producers: kept for ten minutes, their metadata requests would recreate topics."""
    sql = session.sparkContext._jvm.org.apache.spark.sql
    with suppress(Exception):  # a connector that keeps them elsewhere
        pool = getattr(sql.kafka010.producer, "InternalKafkaProducerPool$")
        getattr(pool, "MODULE$").reset()
