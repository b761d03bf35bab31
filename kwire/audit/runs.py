"""A whole audit: planned once, done part by part, each kept when it is done, so that a killed one goes on.

OUT/findings, OUT/topics, …    Parquet, `tables.TABLES`
OUT/work/plan.json             what is audited, fixed when the audit began; removed with its folder at the end
OUT/work/part-N/               what `topics.of_partitions` has found; complete with its file _DONE
OUT/work/part-N/contents       of its topics, `evidence.contents.CONTENTS`
OUT/work/part-N/starts.json    where the logs began when it had been read
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from kwire.audit.places import Place, begin_now, of_cluster, of_ledger, of_logs, with_absent
from kwire.audit.tables import TABLES, ddl
from kwire.errors import ConfigurationError
from kwire.pipeline import event_files, ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from kwire.audit.jobs.contents import Comparison

RECORDS_OF_A_PART = 12_000_000
WORK, PLAN_FILE = "work", "plan.json"
_DONE = "_DONE"
_STARTS = "starts.json"
_CONFIG = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}


@dataclass(frozen=True)
class Request:
    """What is to be audited, as the command has it. Paths are absolute."""

    ledger: str | None
    """None: only replicas and timeline, of `logs`."""
    logs: tuple[str, ...]
    bootstrap: str | None
    topics: tuple[str, ...]
    """None: those of the ledger."""
    compacted: tuple[str, ...] = ()
    """Topics that are compacted, where log directories alone do not say so."""
    events: tuple[str, ...] = ()
    """Files with a cluster's events."""


@dataclass(frozen=True)
class Plan:
    request: Request
    run: str
    """The ledger's."""
    bootstrap: str
    """The ledger's."""
    transactional: bool
    sent: tuple[str, ...]
    seen: tuple[str, ...]
    """The ledger's files."""
    parts: tuple[tuple[Place, ...], ...]

    @property
    def places(self) -> list[Place]:
        return [place for part in self.parts for place in part]


def planned(request: Request, out: Path, records_of_a_part: int = RECORDS_OF_A_PART) -> Plan:
    """The plan of an audit that was interrupted in `out`, or a new one. ConfigurationError for what cannot be."""
    path = out / WORK / PLAN_FILE
    if path.exists():
        stored = _loaded(path)
        if stored is not None and stored.request == request:
            return stored
        shutil.rmtree(path.parent)
    plan = _plan(request, out, records_of_a_part)
    remove_tables(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(asdict(plan), indent=1))
    beside.replace(path)
    return plan


def remove_tables(out: Path) -> None:
    """Those of an earlier audit."""
    for name in TABLES:
        shutil.rmtree(out / name, ignore_errors=True)


def topics_of(request: Request, run: ledger.Run) -> tuple[str, ...]:
    """What is audited of a ledger. ConfigurationError if nobody names a topic."""
    topics = request.topics or run.topics
    if not topics:
        raise ConfigurationError(f"{request.ledger} names no topic: give one by --topic")
    return topics


def require_events(request: Request) -> None:
    """ConfigurationError where no files are."""
    if request.events:
        event_files.files(event_files.parse({"path": json.dumps(request.events)}))


def _loaded(path: Path) -> Plan | None:
    try:
        stored: dict[str, Any] = json.loads(path.read_text())
        asked: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in stored["request"].items()
        }
        return Plan(
            Request(**asked),
            stored["run"],
            stored["bootstrap"],
            stored["transactional"],
            tuple(stored["sent"]),
            tuple(stored["seen"]),
            tuple(
                tuple(Place._make([*values[:-1], tuple(values[-1])]) for values in part)
                for part in stored["parts"]
            ),
        )
    except (OSError, ValueError, TypeError, KeyError):  # of another version
        return None


def _plan(request: Request, out: Path, records_of_a_part: int) -> Plan:
    from kwire.audit.live import follow

    require_events(request)
    if request.ledger is None:
        of_logs(request.logs, request.topics)
        return Plan(request, "", "", False, (), (), ())
    folder = Path(request.ledger)
    run = ledger.read_run(folder)
    ledger.check_files(folder, run)
    # The ledger's files first: what they have is in the topic, unless it is lost.
    files = {
        table: tuple(str(path) for path in ledger.files(folder, table))
        for table in (ledger.SENT, ledger.SEEN)
    }
    topics = topics_of(request, run)
    if request.logs:
        found = of_logs(request.logs, topics, optional=() if request.topics else topics)
    else:
        found = of_cluster(request.bootstrap or run.bootstrap, topics)
    if None not in (run.cluster_id, found.cluster_id) and run.cluster_id != found.cluster_id:
        raise ConfigurationError(
            f"{folder} is of cluster {run.cluster_id}, the topics are of {found.cluster_id}"
        )
    named = of_ledger(files[ledger.SENT]) if files[ledger.SENT] else set()
    places = _with_compacted(with_absent(found.places, topics, named), request.compacted)
    return Plan(
        request,
        run.run,
        run.bootstrap,
        run.mode == "transactional",
        files[ledger.SENT],
        (*files[ledger.SEEN], *map(str, follow.read_files(out, run.run))),
        tuple(_parts(places, records_of_a_part)),
    )


def _with_compacted(places: Iterable[Place], topics: Sequence[str]) -> list[Place]:
    """The places; those of these topics are compacted."""
    names = {place.topic for place in places}
    for topic in topics:
        if topic not in names:
            raise ConfigurationError(
                f"--compacted {topic}: the topics are {', '.join(sorted(names))}"
            )
    return [place._replace(compacted=place.compacted or place.topic in topics) for place in places]


def _parts(places: Iterable[Place], most: int) -> Iterable[tuple[Place, ...]]:
    """The partitions in groups of at most so many offsets, but one at least."""
    group: list[Place] = []
    size = 0
    for place in places:
        length = place.log_end - place.log_start
        if group and size + length > most:
            yield tuple(group)
            group, size = [], 0
        group.append(place)
        size += length
    if group:
        yield tuple(group)


def run(
    session: SparkSession, plan: Plan, out: Path, say: Callable[[str], None] = lambda _: None
) -> dict[str, DataFrame]:
    """Do what of a plan is not done. Returns the tables that are in `out` then, `findings` among them.

    `say` is called with the name of each step. ConfigurationError: the topics have records of other runs, and none of
    the ledger's."""
    from kwire.audit.session import tuned

    for key, value in _CONFIG.items():
        session.conf.set(key, value)
    with tuned(session, sum(place.log_end - place.log_start for place in plan.places)):
        return _run(session, plan, out, say)


def _run(
    session: SparkSession, plan: Plan, out: Path, say: Callable[[str], None]
) -> dict[str, DataFrame]:
    made: dict[str, DataFrame] = {}
    if plan.request.ledger is not None:
        made = _topics(session, plan, out, say)
    if plan.request.logs or plan.request.events:
        say("replicas and events")
        made = explained(session, plan, made)
    for name, frame in made.items():
        if not (out / name / "_SUCCESS").exists():
            say(name)
            frame.coalesce(1).write.mode("overwrite").parquet(str(out / name))
    session.catalog.clearCache()
    shutil.rmtree(out / WORK, ignore_errors=True)
    return {name: table(session, out, name) for name in made}


def _topics(
    session: SparkSession, plan: Plan, out: Path, say: Callable[[str], None]
) -> dict[str, DataFrame]:
    """The topic audit's tables; its parts are done first, those that are not."""
    from kwire.audit import sources
    from kwire.audit.jobs import topics, verdicts

    work = out / WORK
    sent = sources.of_ledger(session, plan.sent, ledger.SENT)
    seen = sources.of_ledger(session, plan.seen, ledger.SEEN)
    for number, places in enumerate(plan.parts):
        folder = work / f"part-{number}"
        if not (folder / _DONE).exists():
            say(f"part {number + 1} of {len(plan.parts)}")
            _do_part(session, plan, places, folder, sent, seen)
            (folder / _DONE).touch()
    parts = {
        name: session.read.parquet(
            *(str(work / f"part-{number}" / name) for number in range(len(plan.parts)))
        )
        for name in topics.OF_PARTITIONS
    }
    _check_run(parts, plan)
    bounds = sources.bounds(session, _as_read(plan, work))
    say("findings")
    mine = sources.of_places(sent, plan.places)

    def keep(name: str, frame: DataFrame) -> DataFrame:
        path = work / "whole" / name
        if not (path / "_SUCCESS").exists():
            frame.write.mode("overwrite").parquet(str(path))
        return session.read.parquet(str(path))

    whole = topics.of_all(mine, sources.of_places(seen, plan.places), bounds, parts, keep)
    return {**whole, "latencies": verdicts.latencies(mine)}


def _as_read(plan: Plan, work: Path) -> list[Place]:
    """The places, with the log starts of when they had been read."""
    found = []
    for number, places in enumerate(plan.parts):
        starts = json.loads((work / f"part-{number}" / _STARTS).read_text())
        found += [
            place._replace(log_start=start) for place, start in zip(places, starts, strict=True)
        ]
    return found


def explained(
    session: SparkSession, plan: Plan, made: dict[str, DataFrame]
) -> dict[str, DataFrame]:
    """The tables with those of replicas and events, and findings with their causes."""
    from kwire.audit import causes, replicas, sources, timeline

    request = plan.request
    found = made.get("findings")
    epochs = events = sent = None
    if request.logs:
        topics = tuple({place.topic for place in plan.places}) or request.topics
        compared = replicas.compared(session, request.logs, topics)
        made = {**made, "replicas": compared.replicas}
        epochs = compared.epochs
        found = compared.findings if found is None else found.unionByName(compared.findings)
    if request.events:
        events = sources.events(session, request.events)
        made = {**made, "lags": timeline.lags(events)}
        made["timeline"] = timeline.timeline(events, epochs)
    if request.ledger is not None:
        whole = sources.of_ledger(session, plan.sent, ledger.SENT)
        asked = found.select("producer", "number").distinct() if found is not None else whole
        sent = whole.join(asked, ["producer", "number"], "left_semi")
    assert found is not None
    return {**made, "findings": causes.explain(found, events, epochs, sent)}


def table(session: SparkSession, out: Path, name: str) -> DataFrame:
    """A table that an audit has written."""
    return session.read.schema(ddl(TABLES[name])).parquet(str(out / name))


def _do_part(
    session: SparkSession,
    plan: Plan,
    places: Sequence[Place],
    folder: Path,
    sent: DataFrame,
    seen: DataFrame,
) -> None:
    from pyspark.storagelevel import StorageLevel

    from kwire.audit import sources
    from kwire.audit.jobs import contents, topics

    bootstrap = None if plan.request.logs else plan.request.bootstrap or plan.bootstrap
    records = sources.records(session, places, bootstrap, transactional=plan.transactional)
    if not _is_read_twice(plan):
        records.persist(StorageLevel.MEMORY_AND_DISK)
    bounds = sources.bounds(session, places)
    mine = sources.of_places(sent, places), sources.of_places(seen, places)
    found = _contents(session, plan, places, records, folder / "contents")
    known = contents.comparison(mine[0], found, is_order_known=_is_read_twice(plan))
    needed = _needing_records(plan, places, bounds, known)
    if _is_read_twice(plan):
        if len(needed) > 1:
            records.persist(StorageLevel.MEMORY_AND_DISK)
        elif "residue" in needed:
            narrow = contents.in_doubt(places, known)
            records = sources.records(session, narrow, bootstrap, transactional=False)
    tables = topics.of_partitions(*mine, records, bounds, plan.run, known)
    for name, frame in tables.items():
        if name not in ("residue", "extents") and name not in needed:
            frame = session.createDataFrame([], frame.schema)
        frame.write.mode("overwrite").parquet(str(folder / name))
    records.unpersist()
    starts = [place.log_start for place in begin_now(places, bootstrap)]
    (folder / _STARTS).write_text(json.dumps(starts))


def _needing_records(
    plan: Plan, places: Sequence[Place], bounds: DataFrame, known: Comparison
) -> set[str]:
    """Which of the tables of partitions cannot be told by the contents."""
    from kwire.audit.jobs import partitions

    # Markers are not among the records that a cluster serves: beside them, what is missing is no gap.
    sees_gaps = bool(plan.request.logs) or not plan.transactional
    needs = {
        "residue": not known.agrees,
        "reordered": not known.is_ordered,
        "gaps": sees_gaps and not partitions.are_whole(known.extents, bounds),
        "vanished": bool(plan.seen),
        "newest": any(place.compacted for place in places),
    }
    return {name for name, is_needed in needs.items() if is_needed}


def _is_read_twice(plan: Plan) -> bool:
    """Whether the workers that read the topics say what these have, and records are read, once more, only in doubt.

    Not with transactions, where markers decide what is visible, and not of a cluster, whose records the JVM gets."""
    return bool(plan.request.logs) and not plan.transactional


def _contents(
    session: SparkSession, plan: Plan, places: Sequence[Place], records: DataFrame, path: Path
) -> DataFrame:
    """The CONTENTS of the places, kept at the path."""
    from kwire.audit import sources
    from kwire.audit.jobs import contents

    if _is_read_twice(plan):
        found = sources.contents(session, places, plan.run)
    else:
        found = contents.of_records(records, plan.run)
    found.write.mode("overwrite").parquet(str(path))
    return session.read.schema(found.schema).parquet(str(path))


def _check_run(parts: dict[str, DataFrame], plan: Plan) -> None:
    from pyspark.sql import functions as F

    rows, strangers = parts["extents"].agg(F.sum("rows"), F.sum("strangers")).first()
    if rows and rows == strangers and not plan.transactional:
        raise ConfigurationError(
            f"the topics have {strangers} records, and none of run {plan.run}: is the ledger another's?"
        )
