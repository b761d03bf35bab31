"""Every request in every state, compared with Kafka's rules: answer, state afterwards, markers, records, and the
state of a coordinator that has loaded these records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from kafka_machine import MAX, Id, Rules, S
from txn_kit import EPOCH, PID, T0, T1, WALL_MS, TxnKit

from kwire.protocol.varint import INT32_MAX
from kwire.transactions.metadata import (
    IDLE,
    PREPARED,
    TV_0,
    TV_2,
    VALID_PREVIOUS_STATES,
    TransactionState,
    TransactionValues,
)

LATER_MS = 50
BEFORE = 6  # the producer id before PID
STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]


def ids() -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """State, the one that it is about to reach, and values."""
    for state, epoch in product(STATES, (0, EPOCH, MAX - 1, MAX)):
        if epoch == MAX and state in ("Empty", "Ongoing"):
            continue  # left for a fence: no client has it
        to_come = [
            s.name
            for s, before in VALID_PREVIOUS_STATES.items()
            if TransactionState[state] in before
        ]
        for pending, last, previous in product(
            (None, *to_come), (-1, max(epoch - 1, -1)), (-1, BEFORE)
        ):
            values = {"producer_epoch": epoch, "last_producer_epoch": last}
            yield state, pending, {**values, "previous_producer_id": previous}


REQUESTS: list[tuple[Any, ...]] = [
    ("init", None),
    *(("init", (pid, of)) for pid in (PID, BEFORE, 99) for of in (0, -1, 1, "last")),
    *(
        (word, (pid, of), partitions, version)
        for word, version in (("add", TV_0), ("add", TV_2), ("verify", TV_0))
        for pid, of in ((PID, 0), (PID, -1), (PID, 1), (99, 0))
        for partitions in ((T0,), (T0, T1))
    ),
    *(
        ("end", (pid, of), commit, version)
        for pid, of in (*((PID, of) for of in (0, -1, 1, -2)), (BEFORE, 0), (BEFORE, "last"))
        for commit in (True, False)
        for version in (TV_0, TV_2)
    ),
]
"""Word, producer id and epoch relative to the id's ("last": the last that a client may have), arguments."""


def producer_of(named: Any, epoch: int) -> Any:
    if named is None:
        return None
    return named[0], MAX - 1 if named[1] == "last" else epoch + named[1]


def expected(rules: Rules, it: Id, word: str, producer: Any, *rest: Any) -> tuple[Any, Any]:
    if word == "init":
        return rules.init(it, producer, 99)
    if word == "add":
        return rules.add(it, producer, *rest)
    if word == "verify":
        return rules.verify(it, producer, rest[0])
    return rules.end(it, producer, *rest)


def ask(kit: TxnKit, word: str, producer: Any, *rest: Any) -> Any:
    if word == "init":
        return kit.init(producer, timeout_ms=99)
    options = {"producer_id": producer[0], "epoch": producer[1]}
    if word == "add":
        return kit.add(*rest[0], version=rest[1], **options)
    if word == "verify":
        return kit.verify(*rest[0], **options)
    return kit.end(rest[0], version=rest[1], **options)


@pytest.mark.parametrize("cluster", [TV_0, TV_2])
def test_every_request_in_every_state(cluster: int) -> None:
    answers: Counter[str] = Counter()
    for (state, pending, values), request in product(ids(), REQUESTS):
        word, named, *rest = request
        if cluster == TV_0 and TV_2 in rest:
            continue  # no client of a TV_0 cluster has it
        kit = TxnKit(cluster)
        kit.markers_wait = True
        before = kit.put(state, pending, **values).values
        kit.advance(LATER_MS)
        rules = Rules(cluster, kit.next_producer_id, kit.clock.wall_ms)
        producer = producer_of(named, before.producer_epoch)
        it = Id(before, None if pending is None else TransactionState[pending])
        answer, after = expected(rules, it, word, producer, *rest)
        case = f"{state} {pending} {values} {word} {producer} {rest}"
        assert ask(kit, word, producer, *rest) == answer, case
        if after is before:
            assert (kit.values, kit.written, kit.sent) == (before, [], []), case
            answers["refused"] += 1
            continue
        assert kit.values == after, case
        assert kit.written == [after.state.name], case
        check_end(kit, rules, after, case)
        answers[word] += 1
    assert min(answers[word] for word in ("init", "add", "end", "refused")) > 20, answers


def check_end(kit: TxnKit, rules: Rules, decided: TransactionValues, case: str) -> None:
    """The markers of a decision, its end, and what is loaded."""
    if decided.state not in PREPARED:
        assert kit.sent == [], case
    else:
        epoch = decided.producer_epoch
        partitions = list(decided.partitions)
        of = decided.producer_id, epoch, decided.state.name, partitions, decided.client_version
        assert kit.sent == [of], case
        kit.write_markers()
        assert kit.values == rules.complete(decided), case
    loaded = kit.restart().values
    assert loaded == logged(kit.values, rules.cluster), case


def logged(values: TransactionValues, cluster: int) -> TransactionValues:
    """What the log keeps of the values."""
    values = replace(values, last_producer_epoch=-1)
    if cluster < TV_2:
        start_ms = -1 if values.state is S.Empty else values.start_ms
        values = replace(
            values,
            start_ms=start_ms,
            client_version=TV_0,
            previous_producer_id=-1,
            next_producer_id=-1,
        )
    return values


@pytest.mark.parametrize("cluster", [TV_0, TV_2])
def test_what_happens_without_a_request_in_every_state(cluster: int) -> None:
    """Time-out, expiry, and the loading of a decision."""
    for state, pending, values in ids():
        kit = TxnKit(cluster)
        kit.markers_wait = True
        before = kit.put(state, pending, timeout_ms=1, **values).values
        case = f"{state} {pending} {values}"
        kit.advance(LATER_MS)
        kit.run(kit.shard.abort_timed_out())
        if state == "Ongoing" and pending is None:
            after = Rules(cluster, 100, kit.clock.wall_ms).fence(before)
            assert (kit.values, kit.written) == (after, ["PrepareAbort"]), case
        else:
            assert (kit.values, kit.written) == (before, []), case
            kit.clock.wall_ms += kit.expiration_ms
            kit.run(kit.shard.expire())
            goes = TransactionState[state] in IDLE and pending is None
            assert kit.written == (["-"] if goes else []), case
            assert bool(kit.shard.transactions) is not goes, case
        if pending is None:
            kit = TxnKit(cluster)
            metadata = kit.put(state, **values)
            kit.log = [kit.shard._record(metadata, metadata.values)]
            other = kit.restart()
            decided = TransactionState[state] in PREPARED
            assert other.written == [state] + (
                [state.replace("Prepare", "Complete")] if decided else []
            ), case
            assert [sent[2] for sent in other.sent] == ([state] if decided else []), case
            assert list(other.shard.open) == (["id"] if state == "Ongoing" else []), case


def test_a_prepared_transaction_of_two_phases_stays_as_it_was_loaded() -> None:
    """KIP-939: the id and epoch that its client has meanwhile, and no time-out."""
    kit = TxnKit()
    kept = {"next_producer_id": 8, "next_producer_epoch": 3, "client_version": TV_2}
    metadata = kit.put("Ongoing", timeout_ms=INT32_MAX, **kept)
    kit.log = [kit.shard._record(metadata, metadata.values)]
    other = kit.restart()
    assert other.values == metadata.values
    other.advance(100_000)
    assert other.values == metadata.values and other.written == ["Ongoing"]
    assert other.add(T1, version=TV_2) is None
    assert (other.values.next_producer_id, other.values.next_producer_epoch) == (8, 3)
    assert other.clock.wall_ms > WALL_MS
