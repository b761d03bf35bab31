"""`kwire audit`: checks what was given, starts Spark, runs the audits, says what they found."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from kwire.audit import runs
from kwire.audit.tables import TABLES
from kwire.errors import ConfigurationError
from kwire.spark_session import SparkError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from kwire.audit.runs import Plan, Request

DONE, FOUND, BAD_INPUT = 0, 1, 2
PAGE = "page.html"  # as `page.NAME`, whose module imports matplotlib
SPARK_LOG = "spark.log"
"""What Spark's JVM says, in the directory of the results."""
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception): ")


def command(
    request: Request,
    out: Path,
    master: str | None,
    config: Mapping[str, str],
    *,
    goes_on: bool = False,
) -> int:
    """The exit status. ConfigurationError and SparkError, in one line, before Spark starts where that can be.

    `goes_on`: the ledger's run is followed first, until it has ended."""
    from kwire.audit import results
    from kwire.audit import session as spark
    from kwire.audit.live import follow

    require_own(out)
    kafka = goes_on or not request.logs
    spark.require(config, kafka=kafka)
    if goes_on:
        follow.check(request)
    else:
        _planned(request, out)
    from pyspark.errors import PySparkException

    log = out / SPARK_LOG
    with spark.running_session(master, config=config, log=log, kafka=kafka) as session:
        try:
            with results.progress(session) as say:
                if goes_on:
                    follow.follow(session, request, out, say)
                plan = _planned(request, out)
                tables = runs.run(session, plan, out, say)
            return _told(tables, out)
        except PySparkException as error:
            raise SparkError(f"Spark: {problem(error)} (more is in {log})") from error


def _planned(request: Request, out: Path) -> Plan:
    try:
        return runs.planned(request, out)
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}") from None


def require_own(out: Path) -> None:
    """Make the directory of the results. ConfigurationError if it cannot be, or holds anything but an audit's."""
    own = {*TABLES, PAGE, SPARK_LOG, runs.WORK}
    try:
        out.mkdir(parents=True, exist_ok=True)
        strange = sorted(path.name for path in out.iterdir() if path.name not in own)
    except OSError as error:
        raise ConfigurationError(f"--out {out}: {error.strerror}") from None
    strange = [name for name in strange if not name.startswith(f".{PAGE}")]
    if strange:
        raise ConfigurationError(
            f"--out {out} holds {strange[0]}, which no audit writes: give an empty or a new directory"
        )
    if not os.access(out, os.W_OK | os.X_OK):
        raise ConfigurationError(f"--out {out}: it cannot be written")


def _told(tables: Mapping[str, DataFrame], out: Path) -> int:
    """Write the page, say what was found; the exit status."""
    from kwire.audit import page, results

    counts = results.counted(tables["findings"])
    rows = results.first(tables["findings"], results.MOST_LINES)
    totals = results.totals(tables["topics"]) if "topics" in tables else None
    path = page.write(out)
    if rows:
        sys.stdout.write(results.table(rows, counts))
    sys.stdout.write(f"{results.summary(counts, totals)}; {path}\n")
    return FOUND if results.failed(counts) else DONE


def problem(error: BaseException) -> str:
    """What has happened, in one line: of an exception in Python that Spark hands on the exception, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if "Traceback (most recent call last):" in str(error):
        raised = [line for line in lines if _RAISED.match(line)]
        if raised:
            return raised[-1]
    return lines[0] if lines else repr(error)
