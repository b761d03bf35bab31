"""Events of a cluster as the jobs that explain take them: in the order of time, their fields at hand. No Spark here.

Events are few beside records: those that say something of partitions, brokers or transactions are collected.
"""

from __future__ import annotations

import json
from datetime import UTC
from typing import Final, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from typing import Any, Protocol

    class EventRow(Protocol):
        """A row of `kwire-events`; its line's `number`, if it has one."""

        event: str | None
        time: datetime | None
        node: int | None
        message: str | None
        topic: str | None
        partition: int | None
        broker: int | None
        reason: str | None
        fields: str | None


CHANGES: Final = frozenset(
    (
        *("LEADER_ELECTED", "UNCLEAN_LEADER_ELECTED", "PARTITION_OFFLINE", "PARTITION_WAITING"),
        *("ISR_SHRUNK", "ISR_EXPANDED", "PARTITION_CHANGED"),
        *("REASSIGNMENT_STARTED", "REASSIGNMENT_COMPLETED", "REASSIGNMENT_CANCELLED"),
    )
)
"""What the controller says of a partition: it has the whole state before and after."""
TRUNCATIONS: Final = frozenset(("LOG_TRUNCATED", "LOG_TRUNCATED_BELOW_HIGH_WATERMARK"))
BROKER_GONE: Final = {
    "KILL_REQUESTED": "was killed",
    "NODE_DIED": "died",
    "NODE_STOPPED": "stopped",
    "PAUSE_REQUESTED": "was paused",
    "BROKER_HALTED": "halted",
    "BROKER_FENCED": "was fenced",
}
"""With what is said of the broker."""
BROKER_BACK: Final = frozenset(("BROKER_REGISTERED", "RESUME_REQUESTED"))
_OTHERS: Final = (
    *("TOPIC_CREATED", "TOPIC_DELETED", "RESET_REQUESTED", "ROLES_CHANGED", "ROLES_ASSIGNED"),
    *("ISR_SHRINK_PROPOSED", "ISR_EXPAND_PROPOSED", "NODE_STATUS"),
    *("CUT_REQUESTED", "DELAY_REQUESTED", "HEAL_REQUESTED"),
    *("SEGMENTS_DELETED", "RECOVERY_TRUNCATED", "RECOVERY_EMPTIED_LOG"),
    *("TRANSACTION_TIMED_OUT", "PRODUCER_FENCED", "TRANSACTION_GIVEN_UP"),
)
WANTED: Final = frozenset((*CHANGES, *TRUNCATIONS, *BROKER_GONE, *BROKER_BACK, *_OTHERS))


class Happening(NamedTuple):
    number: int
    time: datetime
    event: str
    node: int | None
    message: str
    topic: str | None
    partition: int | None
    broker: int | None
    """The broker that it is about, where it is one."""
    fields: Mapping[str, Any]

    @property
    def place(self) -> tuple[str, int] | None:
        """Topic and partition."""
        if self.topic is None or self.partition is None:
            return None
        return self.topic, self.partition


def in_utc(time: datetime) -> datetime:
    """A time of PySpark, which is local and does not say so, or any other, in UTC."""
    return time.astimezone(UTC)


def happenings(rows: Iterable[EventRow]) -> list[Happening]:
    """The wanted ones of the rows of `kwire-events`, in the order of time, then of lines. Rows without `number` are
    numbered from 1."""
    found = []
    for number, row in enumerate(rows, 1):
        if row.event not in WANTED or row.time is None:
            continue
        fields = json.loads(row.fields or "{}")
        about = row.broker
        if about is None and row.event in BROKER_GONE and fields.get("role") != "controller":
            about = fields.get("node_id", row.node)
        line = getattr(row, "number", number)
        found.append(
            Happening(
                line,
                in_utc(row.time),
                row.event,
                row.node,
                row.message or "",
                row.topic,
                row.partition,
                about,
                fields,
            )
        )
    found.sort(key=lambda each: (each.time, each.number))
    return found
