"""`kwire_spark.audit`: the topic audit in a test, `assert kwire_spark.audit(ledger).lost == []`."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from kwire import spark_session
from kwire.audit.tables import KINDS
from kwire.errors import ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kwire.audit.results import Finding
    from kwire.spark import Spark


class Audit:
    """What an audit has found: `.lost`, `.doubled` and the other kinds are lists, `.findings` is the DataFrame."""

    def __init__(self, session: SparkSession, out: Path) -> None:
        self._session = session
        self.out = out
        """The directory with the tables."""

    @cached_property
    def findings(self) -> DataFrame:
        return self.table("findings")

    def table(self, name: str) -> DataFrame:
        """A table of the audit: "findings", "topics", "latencies"."""
        from kwire.audit.runs import table

        return table(self._session, self.out, name)

    def page(self, path: str | os.PathLike[str]) -> None:
        """Write what was found as one HTML page."""
        from kwire.audit import page

        Path(path).write_bytes(page.write(self.out).read_bytes())

    @cached_property
    def _rows(self) -> list[Finding]:
        from kwire.audit.results import Finding

        rows = self.findings.orderBy("topic", "partition", "offset", "producer", "number").collect()
        return [Finding.of(row) for row in rows]

    def __getattr__(self, name: str) -> list[Finding]:
        if name not in KINDS:
            raise AttributeError(f"an audit has no kind {name!r}; there are {', '.join(KINDS)}")
        return [row for row in self._rows if row.kind == name]

    def __repr__(self) -> str:
        from kwire.audit.results import MOST_LINES, table

        counts = {kind: sum(row.kind == kind for row in self._rows) for kind in KINDS}
        found = {kind: count for kind, count in counts.items() if count}
        if not found:
            return "<Audit: nothing found>"
        rows = sorted(self._rows, key=lambda row: list(KINDS).index(row.kind))
        return f"<Audit:\n{table(rows[:MOST_LINES], found)}>"


def audit(
    spark: Spark,
    ledger: str | os.PathLike[str] | None,
    topics: Sequence[str],
    out: Path,
    logs: bool,
) -> Audit:
    """Audit a ledger's topics of a cluster, read of the brokers or of their log directories. The tables go to `out`."""
    spark_session.require_sources("kwire_spark.audit")
    from kwire.audit import runs

    given = ledger if ledger is not None else spark.ledger
    if given is None:
        raise ConfigurationError(
            "kwire_spark.audit: no ledger is given: a directory that kwire load has written"
        )
    if isinstance(topics, str):
        raise ConfigurationError(f"kwire_spark.audit: expected a list of topics, not {topics!r}")
    request = runs.Request(
        str(Path(given).absolute()),
        tuple(path for each in spark.cluster.brokers for path in each.log_dirs) if logs else (),
        None if logs else spark.cluster.bootstrap_servers,
        tuple(topics),
    )
    runs.run(spark.session, runs.planned(request, out), out)
    return Audit(spark.session, out)
