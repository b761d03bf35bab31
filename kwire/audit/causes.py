"""Why it happened: each finding is joined to the event that explains it, in the words of somebody who runs Kafka.

What is known of a cluster (`Known`) is small and goes to each worker; findings are explained one by one there.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, NamedTuple

from kwire.audit.evidence.happenings import BROKER_GONE, in_utc
from kwire.audit.evidence.known import SLACK, Known, clock, elected, ids
from kwire.audit.timeline import collected, epoch_rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Any

    from pyspark.sql import DataFrame

    from kwire.audit.evidence.happenings import Happening

    Place = tuple[str, int]

_TIMES = ("time", "sent", "acknowledged")
_JUST_BEFORE = timedelta(microseconds=1)


class Cause(NamedTuple):
    event: int | None
    """The number of the event that explains it."""
    cause: str | None


class Finding(NamedTuple):
    """What of a finding is needed to explain it."""

    kind: str
    topic: str
    partition: int
    offset: int | None
    producer: str | None
    time: datetime | None
    broker: int | None
    sent: datetime | None = None
    acknowledged: datetime | None = None
    own_offset: int | None = None
    """Where its producer was told that it is."""

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


def explain(
    findings: DataFrame,
    events: DataFrame | None,
    epochs: DataFrame | None = None,
    sent: DataFrame | None = None,
) -> DataFrame:
    """Findings (`tables.FINDINGS`) with their columns `event` and `cause`.

    `events`: of `kwire-events`; `epochs`: `replicas.EPOCHS`, which say where a leader's log began in its epoch; `sent`:
    the ledger's, which says when a record was sent and acknowledged."""
    from pyspark.sql import functions as F

    known = Known.of(
        collected(events) if events is not None else [],
        epoch_rows(epochs) if epochs is not None else [],
    )
    columns = findings.columns
    rows = findings.drop("event", "cause")
    if sent is not None:
        own = sent.select(
            "producer", "number", "sent", "acknowledged", F.col("offset").alias("own_offset")
        )
        rows = rows.join(own, ["producer", "number"], "left")
    held = findings.sparkSession.sparkContext.broadcast(known)
    given = [name for name in Finding._fields if name in rows.columns]

    def cause(row: Any) -> Cause:
        values = row.asDict()
        for name in _TIMES:
            if values.get(name) is not None:
                values[name] = in_utc(values[name])
        return cause_of(held.value, Finding(**values))

    joined = F.udf(cause, "event bigint, cause string")(F.struct(*given))
    explained = rows.withColumn("explained", joined)
    return explained.select("*", "explained.event", "explained.cause").select(*columns)


def cause_of(known: Known, finding: Finding) -> Cause:
    """What explains a finding; (None, None) where nothing does."""
    for explanation in _EXPLANATIONS.get(finding.kind, ()):
        found = explanation(known, finding)
        if found is not None:
            return found
    return Cause(None, None)


# --- lost


def _by_election(known: Known, finding: Finding) -> Cause | None:
    """The first election behind the acknowledgement whose leader lacked the record."""
    time = finding.acknowledged or finding.time
    if time is None:
        return None
    culprit, log_end = None, None
    for election in known.elections[finding.place]:
        if election.time + SLACK < time:
            continue
        end = known.log_end_of(election)
        if end is None and election.event != "UNCLEAN_LEADER_ELECTED":
            continue  # it has all that was committed, as far as is known
        if end is not None and finding.offset is not None and end > finding.offset:
            continue
        culprit, log_end = election, end
        break
    if culprit is None:
        return None
    words = [_acknowledged(known, finding, time, culprit), elected(culprit, log_end)]
    words += _truncated(known, finding, culprit)
    return Cause(culprit.number, "; ".join(word for word in words if word))


def _acknowledged(known: Known, finding: Finding, time: datetime, election: Happening) -> str:
    where = f"{finding.name}" + (f" offset {finding.offset}" if finding.offset is not None else "")
    verb = "read" if finding.kind == "vanished" else "acknowledged"
    led = known.span(finding.place, "leader", min(time, election.time - _JUST_BEFORE))
    held = known.span(finding.place, "isr", min(time, election.time - _JUST_BEFORE))
    if led is None:
        return f"{where}: {verb} at {clock(time)}"
    by = "from" if verb == "read" else "by"
    isr = f", ISR {ids(held.isr)}" if held is not None and held.isr else ""
    return f"{where}: {verb} {by} broker {led.broker} (epoch {led.epoch}{isr}) at {clock(time)}"


def _truncated(known: Known, finding: Finding, election: Happening) -> list[str]:
    """Which brokers dropped the record afterwards, or have not come so far yet."""
    words, seen = [], set()
    for each in known.truncations[finding.place]:
        start, end = each.fields["log_end_offset"], each.fields["previous_log_end_offset"]
        is_of_it = finding.offset is None or start <= finding.offset < end
        if each.time + SLACK >= election.time and is_of_it and each.node not in seen:
            seen.add(each.node)
            words.append(f"broker {each.node} truncated to {start}")
    return words


def _by_recovery(known: Known, finding: Finding) -> Cause | None:
    time = finding.acknowledged or finding.time
    for each in known.others[finding.place]:
        if each.event == "SEGMENTS_DELETED" or (time is not None and each.time < time):
            continue
        end = each.fields.get("log_end_offset")
        if finding.offset is None or end is None or end <= finding.offset:
            words = (
                f"broker {each.node} cut its log at {end} when it started, at {clock(each.time)}"
            )
            return Cause(each.number, f"{_place(finding)}: {words}: {each.fields.get('detail')}")
    return None


def _by_deletion(known: Known, finding: Finding) -> Cause | None:
    time = finding.acknowledged or finding.time
    for each in known.deleted[finding.topic]:
        if time is None or each.time >= time:
            return Cause(each.number, f"topic {finding.topic} was deleted at {clock(each.time)}")
    return None


def _by_epoch(known: Known, finding: Finding) -> Cause | None:
    """Without events: the first leader epoch behind the acknowledgement that begins at or before the record."""
    time = finding.acknowledged or finding.time
    if time is None or finding.offset is None:
        return None
    for epoch, (start, begin) in sorted(known.begins[finding.place].items()):
        if begin is not None and begin + SLACK >= time and start <= finding.offset:
            words = f"epoch {epoch} begins at offset {start}, with a record of {clock(begin)}"
            return Cause(None, f"{_place(finding)}: {words}: its leader did not have this one")
    return None


# --- doubled, reordered


def _by_retry(known: Known, finding: Finding) -> Cause | None:
    """What kept the answer from the producer between the send and the acknowledgement."""
    begin = finding.sent or finding.time
    end = finding.acknowledged or begin
    if begin is None or end is None:
        return None
    offsets = [each for each in (finding.own_offset, finding.offset) if each is not None]
    epochs = [known.epoch_at(finding.place, offset) for offset in offsets]
    what = f"{_place(finding)}: its producer sent it again"
    if len(set(offsets)) == 2:
        places = [
            f"{offset}" + (f" (epoch {epoch})" if epoch is not None else "")
            for offset, epoch in sorted(zip(offsets, epochs, strict=True))
        ]
        what = f"{finding.name} offsets {' and '.join(places)}: its producer sent it again"
    led = known.span(finding.place, "leader", begin)
    reason = known.disturbance(finding.place, led.broker if led else None, begin, end)
    if reason is None:
        return None
    return Cause(reason[0], f"{what}: {reason[1]}")


def _unanswered(known: Known, finding: Finding) -> Cause | None:
    if finding.sent is None:
        return None
    led = known.span(finding.place, "leader", finding.sent)
    reason = known.disturbance(
        finding.place,
        led.broker if led else None,
        finding.sent,
        finding.sent + timedelta(seconds=30),
    )
    return reason and Cause(reason[0], f"{_place(finding)}: its answer was lost: {reason[1]}")


# --- transactions, retention, replicas


def _by_transaction(known: Known, finding: Finding) -> Cause | None:
    if finding.producer is None:
        return None
    time = finding.sent or finding.time
    for each in known.transactions:
        of_it = each.fields["transactional_id"]
        mine = of_it == finding.producer or of_it.endswith(f"-{finding.producer}")
        if mine and (time is None or each.time + SLACK >= time):
            return Cause(each.number, f"{_place(finding)}: {each.message}, at {clock(each.time)}")
    return None


def _by_retention(known: Known, finding: Finding) -> Cause | None:
    for each in known.others[finding.place]:
        start = each.fields.get("log_start_offset")
        if each.event != "SEGMENTS_DELETED" or start is None:
            continue
        if finding.offset is None or start > finding.offset:
            words = (
                f"broker {each.node} deleted segments before offset {start} at {clock(each.time)}"
            )
            return Cause(each.number, f"{finding.name}: {words}: {each.fields.get('detail')}")
    return None


def _by_divergence(known: Known, finding: Finding) -> Cause | None:
    """The election whose leader did not have what this replica still has; None: it should have been truncated."""
    if finding.offset is None:
        return None
    for election in reversed(known.elections[finding.place]):
        end = known.log_end_of(election)
        if end is None or end > finding.offset or election.fields["leader"] == finding.broker:
            continue
        words = f"{_place(finding)}: {elected(election, end)}"
        gone = [each for each in known.gone[finding.broker or 0] if each.event != "BROKER_FENCED"]
        if gone and not any(back.time > gone[-1].time for back in known.back[finding.broker or 0]):
            said = BROKER_GONE[gone[-1].event]
            return Cause(
                election.number,
                f"{words}; broker {finding.broker} {said} at {clock(gone[-1].time)} and has not truncated yet",
            )
        return Cause(election.number, f"{words}; broker {finding.broker} has not truncated to it")
    return None


def _place(finding: Finding) -> str:
    return finding.name + (f" offset {finding.offset}" if finding.offset is not None else "")


_EXPLANATIONS: Final[dict[str, tuple[Callable[[Known, Finding], Cause | None], ...]]] = {
    "lost": (_by_election, _by_recovery, _by_deletion, _by_transaction, _by_epoch),
    "vanished": (_by_election, _by_recovery, _by_deletion, _by_transaction, _by_epoch),
    "partly_visible": (_by_transaction, _by_election),
    "aborted_visible": (_by_transaction, _by_election),
    "doubled": (_by_retry,),
    "reordered": (_by_retry,),
    "unacknowledged": (_by_transaction, _unanswered),
    "expired": (_by_retention,),
    "replica_differs": (_by_divergence,),
}
"""By kind of findings, the likeliest first."""
