"""Tiny ledgers and topics for the tests of the audit's jobs: every case has a topic and a producer of its own name."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

from kwire.pipeline.ledger import SEEN, SENT, ddl, value_prefix

RUN = "0a1b2c3d"
START = datetime(2026, 11, 23, 12, 0, 0, tzinfo=UTC)
RECORDS = (
    "topic string, partition int, offset bigint, run string, producer string, number bigint,"
    " hash bigint, key_hash bigint, timestamp timestamp, visible boolean, control boolean"
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def hash_of(producer: str, number: int) -> int:
    return zlib.crc32(value_prefix(RUN, producer) + b"%d " % number)


class Case:
    """A case in words: what was sent with which outcome, what lies where, who has seen what."""

    def __init__(
        self,
        name: str,
        *,
        start: int = 0,
        end: int | None = None,
        compacted: bool = False,
        start_as_read: int | None = None,
    ) -> None:
        """`start_as_read`: where the log began when it had been read, if retention ran meanwhile."""
        self.name = name
        self.start, self.compacted = start, compacted
        self._start_as_read = start if start_as_read is None else start_as_read
        self._end = end
        self.sent_rows: list[tuple[Any, ...]] = []
        self.lying: list[tuple[Any, ...]] = []
        self.seen_rows: list[tuple[Any, ...]] = []
        self.expected: list[tuple[str, int | None]] = []

    def sent(
        self,
        number: int,
        offset: int | None,
        outcome: str = "acknowledged",
        *,
        partition: int | None = 0,
        transaction: int | None = None,
        key: bytes | None = None,
    ) -> Case:
        acknowledged = at(number + 0.5) if outcome in ("acknowledged", "committed") else None
        error = "timed out" if outcome == "unknown" else None
        self.sent_rows.append(
            (
                *(RUN, self.name, number, self.name, partition, offset, key),
                *(hash_of(self.name, number), 20, transaction, outcome, None),
                *(at(number), acknowledged, error),
            )
        )
        return self

    def lies(
        self,
        number: int | None,
        offset: int,
        *,
        partition: int = 0,
        visible: bool = True,
        control: bool = False,
        damaged: bool = False,
        key_hash: int | None = None,
    ) -> Case:
        mine = number is not None
        self.lying.append(
            (
                *(self.name, partition, offset),
                *((RUN, self.name, number) if mine else (None, None, None)),
                hash_of(self.name, number or 0) + damaged,
                *(key_hash, at(offset), visible, control),
            )
        )
        return self

    def both(self, *numbers: int, shift: int = 0) -> Case:
        """Acknowledged at the offset of the number, and there."""
        for number in numbers:
            self.sent(number, number + shift).lies(number, number + shift)
        return self

    def seen(
        self,
        number: int,
        offset: int,
        *,
        reader: str = "reader-1",
        isolation: str = "read_uncommitted",
        key: bytes | None = None,
    ) -> Case:
        self.seen_rows.append(
            (
                *(RUN, reader, isolation, self.name, 0, offset, key),
                *(hash_of(self.name, number), self.name, number, at(offset + 1)),
            )
        )
        return self

    def finds(self, *expected: tuple[str, int | None]) -> Case:
        """Kinds, with the offset."""
        self.expected = sorted(expected, key=str)
        return self

    @property
    def bounds_as_read(self) -> list[tuple[Any, ...]]:
        starts = {0: self._start_as_read}
        return [(*row[:2], starts.get(row[1], row[2]), *row[3:]) for row in self.bounds]

    @property
    def bounds(self) -> list[tuple[Any, ...]]:
        ends: dict[int, int] = {0: self.start}
        for _, partition, offset, *_ in self.lying:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        if self._end is not None:
            ends[0] = self._end
        return [
            (self.name, partition, self.start if partition == 0 else 0, end, self.compacted)
            for partition, end in ends.items()
        ]


def frames(spark: Any, cases: list[Case]) -> dict[str, Any]:
    """`sent`, `seen`, `records`, `bounds` of all cases, and `bounds_as_read`."""
    from kwire.audit.jobs.partitions import BOUNDS

    def frame(rows: list[tuple[Any, ...]], schema: str) -> Any:
        return spark.createDataFrame(rows, schema).coalesce(1).cache()

    return {
        "sent": frame([row for case in cases for row in case.sent_rows], ddl(SENT)),
        "seen": frame([row for case in cases for row in case.seen_rows], ddl(SEEN)),
        "records": frame([row for case in cases for row in case.lying], RECORDS),
        "bounds": frame([row for case in cases for row in case.bounds], BOUNDS),
        "bounds_as_read": frame([row for case in cases for row in case.bounds_as_read], BOUNDS),
    }
