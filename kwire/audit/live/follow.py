"""`kwire audit --follow`: the topic audit of a run that goes on, as a Structured Streaming job over its topics.

OUT/work/follow-RUN/checkpoint   Spark's: up to where the topics have been read
OUT/work/follow-RUN/read/batch-N what batch N has brought, `READ`; a batch that comes again replaces it

Batches are kept. Every now and then all that was read is judged beside the ledger's files of that moment, by the jobs
of a whole audit, up to the offset that was read of each partition; tables and page are written again. What is said
meanwhile is no verdict, because a stream reads every offset once: when the run has ended, the topics are audited as a
whole, and what this reader was given must still be there then.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from time import monotonic

from kwire.audit import runs
from kwire.audit.places import Place, of_cluster, of_logs
from kwire.errors import ConfigurationError
from kwire.pipeline import ledger
from kwire.spark_session import SparkError, first_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kwire.audit.runs import Request

READER = "kwire-audit"
READ = (
    "topic string, partition int, offset bigint, run string, producer string, number bigint, hash bigint,"
    " key_hash bigint, timestamp timestamp, visible boolean, control boolean,"
    " reader string, isolation string, seen timestamp"
)
"""`records.RECORDS`, and what makes a row one of a ledger's table seen."""
TRIGGER = "5 seconds"
RECORDS_OF_A_BATCH = 500_000
_REST = 2
"""Between judgements, so many times as long as the last one took: they may take a third of the time."""
_FAILURES = 10
_LEDGER = (ledger.SENT, ledger.SEEN)
_PROVISIONAL = ("unacknowledged", "expired")
"""Kinds that say nothing while the ledger is behind the topic."""


def read_files(out: Path, run: str) -> list[Path]:
    """What was read of the topics of a run: Parquet files that can stand beside those of its ledger's table seen."""
    return sorted((_folder(out, run) / "read").glob("batch-*/*.parquet"))


def _folder(out: Path, run: str) -> Path:
    return out / runs.WORK / f"follow-{run}"


def check(request: Request) -> None:
    """What can be known to be wrong before Spark starts. ConfigurationError in one line."""
    if request.ledger is None:
        raise ConfigurationError("--follow needs a LEDGER")
    run = ledger.read_run(Path(request.ledger))
    runs.require_events(request)
    topics = runs.topics_of(request, run)
    of_cluster(request.bootstrap or run.bootstrap, topics)
    if request.logs:
        of_logs(request.logs, topics)


def follow(
    session: SparkSession, request: Request, out: Path, say: Callable[[str], None] = lambda _: None
) -> None:
    """Follow the run of the ledger until it has ended; what was read is in `out` then (`read_files`).

    SparkError: the topics cannot be read, however often that is tried."""
    assert request.ledger is not None
    folder = Path(request.ledger)
    run = ledger.read_run(folder)
    if (out / runs.WORK / runs.PLAN_FILE).exists():
        return  # the audit of the whole was begun already
    if run.ended is None and not _folder(out, run.run).exists():
        runs.remove_tables(out)
    judge = Judge(session, request, run, out)
    failures, batches = 0, -1
    try:
        while not _has_ended(folder):
            try:
                _until_ended(judge, folder, say)
            except SparkError as error:
                failures = 0 if judge.batches > batches else failures + 1
                batches = judge.batches
                if failures >= _FAILURES:
                    raise
                say(f"following: {error}, tried again")
    finally:
        judge.end()


def _has_ended(folder: Path) -> bool:
    return ledger.read_run(folder).ended is not None


def _until_ended(judge: Judge, folder: Path, say: Callable[[str], None]) -> None:
    from pyspark.errors import StreamingQueryException

    query = judge.start()
    try:
        while not _has_ended(folder):
            judge.judge()
            say(f"following: {judge.told}{_behind(query)}")
            if query.awaitTermination(1):
                return
    except StreamingQueryException as error:
        raise SparkError(f"the stream has failed: {first_line(error)}") from error
    finally:
        query.stop()


def _behind(query: StreamingQuery) -> str:
    progress: Any = query.lastProgress
    for source in progress["sources"] if progress else ():
        behind = (source["metrics"] or {}).get("maxOffsetsBehindLatest")
        return f"; {behind} records behind" if behind not in (None, "0") else ""
    return ""


class Judge:
    """Keeps the stream's batches, and judges what they have brought so far."""

    def __init__(self, session: SparkSession, request: Request, run: ledger.Run, out: Path) -> None:
        self._session, self._request, self._run, self._out = session, request, run, out
        self._folder = _folder(out, run.run)
        self._lock = threading.Lock()
        self._is_over = False
        self._ledger = Path(request.ledger or "")
        self._next = 0.0
        self._judged = -1, 0
        """After which batch, with how many files of the ledger, it has judged."""
        self.batches = -1
        """The number of the last one."""
        self.told = "nothing read yet"

    def start(self) -> StreamingQuery:
        """The stream over the run's topics, from where it was or from the first record on."""
        from kwire.audit import sources

        rows = sources.stream(
            self._session,
            self._request.bootstrap or self._run.bootstrap,
            self._request.topics or self._run.topics,
            RECORDS_OF_A_BATCH,
        )
        writer = rows.writeStream.foreachBatch(self.take).trigger(processingTime=TRIGGER)
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def end(self) -> None:
        """Wait for the batch that is being taken; none is taken afterwards."""
        self._is_over = True
        with self._lock:
            pass

    def take(self, batch: DataFrame, number: int) -> None:
        """Keep a batch of the stream."""
        with self._lock:
            if not self._is_over:
                self._keep(batch, number)
                self.batches = number

    def judge(self) -> None:
        """Judge what has arrived, unless that was done a short while ago or there is nothing new."""
        there = self.batches, sum(len(ledger.files(self._ledger, name)) for name in _LEDGER)
        if self.batches < 0 or there == self._judged or monotonic() < self._next:
            return
        with self._lock:
            begin = monotonic()
            self._judge()
            self._judged, self._next = there, monotonic() + _REST * (monotonic() - begin)

    def _keep(self, batch: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        from kwire.audit.jobs.records import of_topic

        rows = of_topic(batch).withColumns(
            {
                "reader": F.lit(READER),
                "isolation": F.lit("read_committed"),
                "seen": F.current_timestamp(),
            }
        )
        path = self._folder / "read" / f"batch-{number}"
        rows.coalesce(1).write.mode("overwrite").parquet(str(path))

    def _judge(self) -> None:
        from pyspark.sql import functions as F

        from kwire.audit import page, results
        from kwire.audit.jobs.partitions import PARTITION
        from kwire.audit.session import tuned
        from kwire.audit.stored import Stored

        read = self._session.read.schema(READ).parquet(str(self._folder / "read" / "batch-*"))
        spans = read.groupBy(*PARTITION).agg(F.min("offset"), F.max("offset") + 1).collect()
        places = [
            Place(topic, partition, start, end, topic in self._request.compacted)
            for topic, partition, start, end in spans
        ]
        with tuned(self._session, sum(place.log_end - place.log_start for place in places)):
            for name, frame in self._tables(read, places).items():
                frame.coalesce(1).write.mode("overwrite").parquet(str(self._out / name))
        page.write(self._out, running=True)
        stored = Stored(self._out)
        rows, _ = stored.rows("topics") or ([], 0)
        totals = {name: sum(row[name] for row in rows) for name in results.TOTALS}
        self.told = results.summary(stored.counts(), totals)

    def _tables(self, read: DataFrame, places: list[Place]) -> dict[str, DataFrame]:
        """The tables of what was read so far."""
        from pyspark.sql import functions as F

        from kwire.audit import sources
        from kwire.audit.jobs import topics, verdicts
        from kwire.audit.jobs.partitions import PARTITION
        from kwire.audit.jobs.records import RECORDS

        session, run = self._session, self._run
        bounds = sources.bounds(session, places)
        ends = F.broadcast(bounds.select(*PARTITION, "log_end"))

        def up_to_here(table: str) -> DataFrame:
            files = [str(path) for path in ledger.files(self._ledger, table)]
            rows = sources.of_ledger(session, files, table).join(ends, PARTITION)
            return rows.where("offset < log_end").drop("log_end")

        sent, seen = up_to_here(ledger.SENT).localCheckpoint(), up_to_here(ledger.SEEN)
        parts = topics.of_partitions(sent, seen, read.select(*RECORDS), bounds, run.run)
        if run.mode == "transactional":  # markers are not served, nor what was aborted
            parts["gaps"] = session.createDataFrame([], parts["gaps"].schema)
        for name in ("residue", "extents"):  # these are used more than once
            parts[name] = parts[name].localCheckpoint()
        whole = topics.of_all(sent, seen, bounds, parts, _kept)
        whole["findings"] = whole["findings"].where(~F.col("kind").isin(*_PROVISIONAL))
        made = {**whole, "latencies": verdicts.latencies(sent)}
        if self._request.events:
            request = replace(self._request, logs=())
            files = tuple(str(p) for p in ledger.files(self._ledger, ledger.SENT))
            plan = runs.Plan(request, run.run, "", False, files, (), ())
            made = runs.explained(session, plan, made)
        return made


def _kept(name: str, frame: DataFrame) -> DataFrame:
    return frame.localCheckpoint() if name in ("cases", "judged", "found") else frame
