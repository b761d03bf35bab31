"""`kwire audit`: checks what was given, starts Spark, runs the audits, says what they found."""

from __future__ import annotations

import sys
from pathlib import Path

from kwire.audit import runs
from kwire.errors import ConfigurationError
from kwire.spark_session import SparkError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kwire.audit.runs import Plan, Request

DONE, FOUND, BAD_INPUT = 0, 1, 2


def command(request: Request, out: Path, master: str | None, config: Mapping[str, str]) -> int:
    """The exit status. ConfigurationError and SparkError, in one line, before Spark starts where that can be."""
    from kwire.audit import session as spark

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--out {out}: {error.strerror}") from None
    spark.require(kafka=not request.logs)
    plan = runs.planned(request, out)
    with spark.running_session(master, config=config) as session:
        return _audited(session, plan, out)


def _audited(session: object, plan: Plan, out: Path) -> int:
    from pyspark.errors import PySparkException

    from kwire.audit import page, results

    try:
        with results.progress(session) as say:
            tables = runs.run(session, plan, out, say)
        counts = results.counted(tables["findings"])
        rows = results.first(tables["findings"], results.MOST_LINES)
        totals = _totals(tables["topics"]) if "topics" in tables else None
    except PySparkException as error:
        raise SparkError(f"Spark: {first_line(error)}") from error
    path = page.write(out)
    if rows:
        sys.stdout.write(results.table(rows, counts))
    sys.stdout.write(f"{results.summary(counts, totals)}; {path}\n")
    return FOUND if results.failed(counts) else DONE


def _totals(topics: object) -> dict[str, int]:
    from kwire.audit.tables import AT_ONCE

    names = ("acknowledged", "present", *AT_ONCE)
    row = topics.selectExpr(*(f"sum({name}) as {name}" for name in names)).first()  # type: ignore[attr-defined]
    return {name: value or 0 for name, value in row.asDict().items()}


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
