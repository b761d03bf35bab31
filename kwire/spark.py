"""A SparkSession wired to a cluster, for tests of Spark jobs: the pytest fixture `kwire_spark`.

Answers to Spark's "Structured Streaming + Kafka Integration Guide": source and sink `kafka`, whose connector is not
part of Spark and is looked for in this order: `spark.jars` or `spark.jars.packages` of the user's own configuration,
the paths in KWIRE_SPARK_JARS, PySpark's folder of jars, and finally the artifact of the same version, which Spark
fetches.

PySpark is imported when a session is started, not before. Left out: Spark Connect, a master that is not this machine
(give `spark.master` for one), databases and tables that a test makes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

from kwire import spark_log
from kwire.spark_log import SparkError, pyspark_version
from kwire.spark_options import to_texts, topics_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from kwire.cluster import Cluster
    from kwire.spark_options import Topics

JARS_VARIABLE = "KWIRE_SPARK_JARS"
CONNECTOR = "spark-sql-kafka-0-10"
TESTED = ("4.0.0", "3.5.7")
"""The versions of PySpark that kwire's tests run with; pyproject.toml and spark_it/setup.sh have them, too."""
_OWN_JARS = ("spark.jars", "spark.jars.packages")
_JAVA_SECONDS = 60
_FETCH_SECONDS = 120
# Java's admin client, by which Spark asks for offsets, holds on to a leader that has died until the time of the call is
# over; by default that is a minute.
_TIMEOUTS = {"kafka.default.api.timeout.ms": "15000", "kafka.request.timeout.ms": "10000"}
_MINIMUM_JAVA = {"3": 8, "4": 17}

# A Spark for tests: small, of this machine, and silent about its progress.
_DEFAULTS = {
    "spark.master": "local[2]",
    "spark.app.name": "kwire tests",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
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
    """A session with Kafka's source and sink, stopped at the end; one that runs already is used and left running.

    `config`: Spark's configuration, before the defaults. SparkError in one line when there is no session."""
    version = pyspark_version()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    mine = SparkContext._active_spark_context is None  # a process has one Spark
    with (
        _working_directory_left_alone(),
        tempfile.TemporaryDirectory(prefix="kwire-spark-", ignore_cleanup_errors=True) as folder,
        _environment(config),
    ):
        if mine:
            _require_java(version)
            session = _start({**_DEFAULTS, **_files(folder), **_jars(version, config), **config})
        else:
            session = SparkSession.builder.getOrCreate()
        try:
            _require_connector(session, version)
            yield session
        finally:
            if mine:
                session.stop()


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


def _start(config: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in config.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:  # Py4J's, PySpark's and Java's errors have no common base
        if config.get("spark.jars.packages") and "JAVA_GATEWAY_EXITED" in str(error):
            raise SparkError(f"Spark did not start: {_fetch_problem(config)}") from error
        raise SparkError(f"Spark did not start: {_first_line(error)}") from error
    return session


def _fetch_problem(config: Mapping[str, str]) -> str:
    """Why Spark's launcher did not get the packages: it is run once more, for its words."""
    version = pyspark_version()
    missing = []
    command = [str(_spark_home() / "bin" / "spark-submit"), "--class", "none"]
    for key, value in config.items():
        if key.startswith("spark.jars"):
            command += ["--conf", f"{key}={value}"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [*command, "none.jar"],
            capture_output=True,
            text=True,
            timeout=_FETCH_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        missing = missing_modules(done.stderr)
    what = f"it could not fetch {config['spark.jars.packages']}"
    if missing:
        what = f"{', '.join(missing)} is in none of the repositories that Spark has asked"
    if version not in TESTED:
        what += f" (PySpark is {version}; kwire is tested with {' and '.join(TESTED)})"
    return f"{what}; set {JARS_VARIABLE} to the connector's jars, or to a folder with them"


def missing_modules(said: str) -> list[str]:
    """The packages that Ivy, which fetches for Spark, has not found, by what it said: group:name:version."""
    found = re.findall(r"module not found: ([^\s#]+)#([^\s;]+);(\S+)", said)
    return [":".join(parts) for parts in dict.fromkeys(found)]


def _spark_home() -> Path:
    import pyspark

    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _files(folder: str) -> dict[str, str]:
    """Where Spark puts its own files (by default the working directory), and options of its JVM.

    A test's JVM ends before the second compiler pays off: with the first alone a run takes half the CPU time."""
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={folder}"
    return {
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.driver.extraJavaOptions": java,
    }


@contextmanager
def _working_directory_left_alone() -> Iterator[None]:
    """Remove the folder `artifacts` that Spark 4.0 creates there, unless it holds a file; no setting prevents it."""
    folder = Path("artifacts").absolute()
    there = folder.exists()
    yield
    if not there and not any(path.is_file() for path in folder.rglob("*")):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _environment(config: Mapping[str, str]) -> Iterator[None]:
    """Make this Python that of Spark's workers, not the python3 on the path, and loopback its address."""
    wanted = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if "spark.driver.host" not in config:
        wanted["SPARK_LOCAL_IP"] = _DEFAULTS["spark.driver.host"]
    mine = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)


# --- what must be there


def _require_java(version: str) -> None:
    """The Java that Spark's scripts would run. SparkError if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    wanted = f"Spark {version} needs a Java 17"
    if java is None:
        raise SparkError(f"{wanted}; no java is on the path, and JAVA_HOME is not set")
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_JAVA_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkError(f"{wanted}; {java} does not run: {_first_line(error)}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    if found is None:
        raise SparkError(f"{wanted}; {java} -version ended with {done.returncode}")
    if int(found[1]) < _MINIMUM_JAVA.get(version.partition(".")[0], 17):
        raise SparkError(f"{wanted}; {java} is a Java {found[1]}: set JAVA_HOME")


def _jars(version: str, config: Mapping[str, str]) -> dict[str, str]:
    """The configuration that brings the connector. SparkError when KWIRE_SPARK_JARS does not hold it."""
    given = os.environ.get(JARS_VARIABLE)
    if any(name in config for name in _OWN_JARS):
        return {}
    if given:
        return {"spark.jars": ",".join(_jar_files(given))}
    folder = _spark_home() / "jars"
    if any(folder.glob(f"{CONNECTOR}_*.jar")):
        return {}
    return {"spark.jars.packages": _coordinates(version, folder)}


def _jar_files(text: str) -> list[str]:
    """The jars of a list of files and folders, with the path's separator or a comma between them."""
    found: list[str] = []
    for item in re.split(rf"[,{os.pathsep}]", text):
        path = Path(item.strip()).expanduser()
        jars = sorted(path.glob("*.jar")) if path.is_dir() else [path]
        if not item.strip() or not jars or not all(jar.is_file() for jar in jars):
            raise SparkError(
                f"{JARS_VARIABLE}: expected jars or folders with jars, but {item!r} is not"
            )
        found += [str(jar.resolve()) for jar in jars]
    if not any(CONNECTOR in jar for jar in found):
        raise SparkError(f"{JARS_VARIABLE}: no {CONNECTOR}_*.jar is among its {len(found)} jars")
    return found


def _coordinates(version: str, folder: Path) -> str:
    """The connector's name in Maven's repositories, for the Scala this PySpark is built with."""
    core = next(folder.glob("spark-core_*.jar"), None)
    scala = core.name.split("_")[1].split("-")[0] if core else "2.13"
    return f"org.apache.spark:{CONNECTOR}_{scala}:{version}"


def _require_connector(session: SparkSession, version: str) -> None:
    """SparkError when the session does not know the format; asked for nothing, one that does refuses in other words."""
    from pyspark.errors import AnalysisException

    try:
        session.read.format("kafka").load()
    except AnalysisException as error:
        raise SparkError(
            f"this Spark session has no Kafka source: start it with spark.jars.packages=org.apache.spark:{CONNECTOR}_…:"
            f"{version}, or let kwire_spark start it ({_first_line(error)})"
        ) from None
    except Exception:  # Java's IllegalArgumentException: no topic was named
        return


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


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
