"""Offsets in transactions: each commits a stretch of what was read, and they must join (I46).

The metadata of a committed offset names its transaction, as values of records do, and the stretch.
"""

from __future__ import annotations

from typing import Final

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.sim.ghost import Entry
    from kwire.sim.invariants import Invariants
    from kwire.sim.transactions.fates import Transaction

    Place = tuple[str, str, int]
    """Group, topic, partition."""

_FIRST: Final = b"txn#"
_FIELDS: Final = 7


def stretch(name: str, transaction: int, place: Place, start: int, until: int) -> str:
    """The metadata of an offset: the transaction of client `name` that has read [start, until)."""
    group, topic, index = place
    return f"txn#{name}#{transaction}#{group}#{topic}#{index}#{start}#{until}#"


def named_by(metadata: bytes) -> tuple[Transaction, Place, int, int] | None:
    """What the metadata of an offset, or a batch with it, says; None: not an offset of `stretch`."""
    fields = metadata.partition(_FIRST)[2].split(b"#", _FIELDS)
    if len(fields) <= _FIELDS:
        return None
    name, number, group, topic, index, start, until, _ = fields
    place = group.decode(), topic.decode(), int(index)
    return (name, int(number)), place, int(start), int(until)


def verify_stretches(checker: Invariants, ended: list[Entry]) -> None:
    """I46. `ended`: the batches of committed transactions in a partition of `__consumer_offsets`, in the order
    of their markers."""
    last: dict[Place, tuple[int, Transaction]] = {}
    for entry in ended:
        named = named_by(entry.body)
        if named is None or named[1][1] in checker.gone_names:
            continue
        transaction, place, start, until = named
        before, earlier = last.get(place, (0, None))
        if transaction == earlier:
            continue  # the request was repeated
        if start != before:
            checker.violated(
                "I46",
                f"{place}: {transaction} has read from {start} on, {earlier} before it up to {before}",
            )
        last[place] = until, transaction
        checker.counts["stretches joined"] += 1
