"""The Spark of the command: this machine, or the master that is given; by spark-submit as that has configured it."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec

from kwire import spark_session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, whose JVM runs already: its master and memory cannot be changed."""

_JOBS = {
    "spark.app.name": "kwire audit",
    "spark.sql.shuffle.partitions": "32",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.ui.showConsoleProgress": "false",
    # Shuffles need memory, what is cached between them goes to disk.
    "spark.memory.storageFraction": "0.2",
}
_ANY_SIZE = {
    # What is cached is read once or twice: looking for its best encoding takes longer than making and reading it.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
_SMALL = {
    **_ANY_SIZE,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
FEW_RECORDS = 300_000
_PROCESS = {
    **spark_session.LOOPBACK,
    "spark.ui.enabled": "false",
}
DRIVER_MEMORY = "2g"


@contextmanager
def running_session(
    master: str | None = None,
    *,
    config: Mapping[str, str] | None = None,
    log: Path | None = None,
    kafka: bool = True,
) -> Iterator[SparkSession]:
    """A session for the audit's jobs, stopped at the end. SparkError in one line when Spark cannot start.

    `log`: a file for what its JVM says; by default that goes where this process writes. Without `kafka` it reads log
    directories alone: Spark's Kafka connector is neither needed nor fetched."""
    given = dict(config or {})
    defaults = dict(_JOBS)
    if _SUBMITTED not in os.environ:
        given["spark.master"] = master or given.get("spark.master", "local[*]")
        defaults["spark.driver.memory"] = DRIVER_MEMORY
        if given["spark.master"].startswith("local"):
            defaults |= _PROCESS
    elif master is not None:
        given["spark.master"] = master
    with ExitStack() as stack:
        with _output_of_children(log):
            session = stack.enter_context(
                spark_session.running_session(given, defaults, kafka=kafka)
            )
        session.sparkContext.setLogLevel("ERROR")
        yield session


@contextmanager
def tuned(session: SparkSession, records: int) -> Iterator[None]:
    """The session as it is best for so many records: of few, planning and compiling cost more than the work."""
    config = _SMALL if records < FEW_RECORDS else _ANY_SIZE
    before = {key: session.conf.get(key, None) for key in config}
    for key, value in config.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, old)


@contextmanager
def _output_of_children(log: Path | None) -> Iterator[None]:
    """Processes that are started meanwhile write what they say to the file, as long as they live.

    Ivy, which fetches packages for Spark, writes to stdout: that has the findings alone."""
    if log is None:
        yield
        return
    sys.stdout.flush()
    mine = os.dup(1), os.dup(2)
    try:
        with log.open("ab") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, saved in zip((1, 2), mine, strict=True):
            os.dup2(saved, number)
            os.close(saved)


def require(config: Mapping[str, str], *, kafka: bool) -> None:
    """What can be known to be missing before Spark starts with this configuration. SparkError in one line."""
    version = spark_session.pyspark_version()
    spark_session.require_sources("the audit")
    if find_spec("matplotlib") is None:
        raise spark_session.SparkError(
            "matplotlib is not installed: pip install 'kwire[spark]' brings it"
        )
    if _SUBMITTED not in os.environ:
        spark_session.require_java(version)
        if kafka:
            spark_session.jars(version, config)
