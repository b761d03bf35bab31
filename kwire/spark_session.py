"""A SparkSession with Kafka's source: what it needs is found, what is missing is named in one line.

PySpark is imported when a session is started, not before. The connector is not part of Spark and is looked for in this
order: `spark.jars` or `spark.jars.packages` of the given configuration, the paths in KWIRE_SPARK_JARS, PySpark's folder
of jars, and finally the artifact of the same version, which Spark fetches.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path

from kwire.errors import KwireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

JARS_VARIABLE = "KWIRE_SPARK_JARS"
CONNECTOR = "spark-sql-kafka-0-10"
TESTED = ("4.0.0", "3.5.7")
"""The versions of PySpark that kwire's tests run with; pyproject.toml and spark_it/setup.sh have them, too."""
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_OWN_JARS = ("spark.jars", "spark.jars.packages")
_JAVA_SECONDS = 60
_FETCH_SECONDS = 120
_MINIMUM_JAVA = {"3": 8, "4": 17}


class SparkError(KwireError):
    """PySpark, Java or the connector is missing, or Spark did not start; no process is left running."""


@contextmanager
def running_session(
    config: Mapping[str, str], defaults: Mapping[str, str], *, kafka: bool = True
) -> Iterator[SparkSession]:
    """A session with Kafka's source and sink, stopped at the end; one that runs already is used and left running.

    `config`: Spark's configuration, before the defaults. Without `kafka` the connector need not be there. SparkError in
    one line when there is no session."""
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
            require_java(version)
            more = {
                **_files(folder),
                **_workers(version, {**defaults, **config}),
                **(jars(version, config) if kafka else {}),
            }
            session = _start({**more, **defaults, **config})
        else:
            session = SparkSession.builder.getOrCreate()
        try:
            if kafka:
                _require_connector(session, version)
            yield session
        finally:
            if mine:
                session.stop()


WORKERS = {
    "spark.python.daemon.module": "kwire.pipeline.daemon",
    # Between the JVM and Python; with 64 kB, the default, each MB costs sixteen waits for the socket.
    "spark.buffer.size": str(1 << 20),
}
"""What makes Python workers cheap for kwire's sources."""


def _workers(version: str, config: Mapping[str, str]) -> dict[str, str]:
    """The configuration by which Python workers begin with what kwire's sources need imported.

    It saves each query about half a second. Empty where the sources cannot run, and on other machines, which may have
    no kwire."""
    has_all = all(importlib.util.find_spec(name) for name in ("pyarrow", "numpy"))
    is_here = config.get("spark.master", "local").startswith("local")
    if int(version.split(".")[0]) < 4 or not has_all or not is_here:
        return {}
    return WORKERS


def pyspark_version() -> str:
    """The version of PySpark that is installed. SparkError if none is."""
    try:
        import pyspark
    except ImportError:
        raise SparkError(
            "PySpark is not installed: pip install 'kwire[spark]' (and a Java 17)"
        ) from None
    version: str = pyspark.__version__
    return version


def _start(config: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in config.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:  # Py4J's, PySpark's and Java's errors have no common base
        if "JAVA_GATEWAY_EXITED" in str(error):
            raise SparkError(f"Spark did not start: {_launch_problem(config)}") from error
        raise SparkError(f"Spark did not start: {first_line(error)}") from error
    return session


def _launch_problem(config: Mapping[str, str]) -> str:
    """Why Spark's launcher has ended: it is run once more, for its words."""
    said = ""
    command = [str(_spark_home() / "bin" / "spark-submit"), "--class", "none"]
    for key, value in config.items():
        command += ["--conf", f"{key}={value}"]
    with suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run(
            [*command, "none.jar"],
            capture_output=True,
            text=True,
            timeout=_FETCH_SECONDS,
            stdin=subprocess.DEVNULL,
        ).stderr
    return launch_problem(said, config, pyspark_version())


def launch_problem(said: str, config: Mapping[str, str], version: str) -> str:
    """The line for what a launcher with a configuration has said."""
    missing = missing_modules(said)
    packages = config.get("spark.jars.packages")
    if not missing and not packages:
        words = re.search(
            r'^(?:Exception in thread "main" (?:\w+\.)*|(?=Invalid ))(.+)$', said, re.M
        )
        cause = (
            words[1]
            if words and not re.search(r"\bnone\b", words[1])
            else "its Java process has ended"
        )
        jars = config.get("spark.jars", "")
        is_fetched = re.search(r"(^|,)\s*(?!file:|local:)\w+:", jars)
        return f"it could not fetch {jars} ({cause})" if is_fetched else cause
    what = f"it could not fetch {packages}"
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
        wanted["SPARK_LOCAL_IP"] = LOOPBACK["spark.driver.host"]
    mine = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)


def source(session: SparkSession, name: str) -> str:
    """The name of a data source of kwire's, "kwire-log", which the session knows afterwards.

    SparkError before PySpark 4.0, which has no data sources in Python, and where a package is missing."""
    require_sources(name)
    from kwire.pipeline.source import register

    register(session)
    return name


def require_sources(what: str) -> None:
    """SparkError where data sources in Python cannot be: an old PySpark, or no PyArrow."""
    version = pyspark_version()
    if int(version.split(".")[0]) < 4:
        raise SparkError(f"{what} needs PySpark 4.0 or later, this is {version}")
    try:
        import kwire.pipeline.source  # noqa: F401
    except ModuleNotFoundError as error:
        raise SparkError(
            f"{what} needs {error.name}, which is not installed: pip install 'kwire[spark]'"
        ) from None


# --- what must be there


def require_java(version: str) -> None:
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
        raise SparkError(f"{wanted}; {java} does not run: {first_line(error)}") from None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    if found is None:
        raise SparkError(f"{wanted}; {java} -version ended with {done.returncode}")
    if int(found[1]) < _MINIMUM_JAVA.get(version.partition(".")[0], 17):
        raise SparkError(f"{wanted}; {java} is a Java {found[1]}: set JAVA_HOME")


def jars(version: str, config: Mapping[str, str]) -> dict[str, str]:
    """The configuration that brings the connector. SparkError when KWIRE_SPARK_JARS does not hold it, or a file of
    `spark.jars` is not there: Spark itself would start without it."""
    given = os.environ.get(JARS_VARIABLE)
    if any(name in config for name in _OWN_JARS):
        for item in config.get("spark.jars", "").split(","):
            path = re.sub(r"^file:(//)?", "", item.strip())
            is_here = path and not re.match(r"\w+:", path)  # not of HDFS, not of each worker
            if is_here and not glob(path):  # noqa: PTH207 - Path.glob refuses absolute patterns
                raise SparkError(f"spark.jars: nothing is at {path}")
        return {}
    if given:
        return {"spark.jars": ",".join(jar_files(given))}
    folder = _spark_home() / "jars"
    if any(folder.glob(f"{CONNECTOR}_*.jar")):
        return {}
    return {"spark.jars.packages": _coordinates(version, folder)}


def jar_files(text: str) -> list[str]:
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
            f"{version}, or let kwire_spark start it ({first_line(error)})"
        ) from None
    except Exception:  # Java's IllegalArgumentException: no topic was named
        return


def first_line(error: BaseException) -> str:
    """What has happened; of an exception in Java that one, not which call of Python's has met it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        return lines[1].removeprefix(": ")
    return lines[0]
