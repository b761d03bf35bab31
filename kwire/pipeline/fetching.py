"""Pieces of a replica's log by Fetch: whole batches as they stand on the broker's disk, up to its high watermark."""

from __future__ import annotations

import logging
from time import monotonic, sleep

import numpy as np

from kwire.client.admin import DEBUGGING_CONSUMER, EARLIEST, NoBrokerError
from kwire.client.blocking import Client
from kwire.client.offsets import offsets
from kwire.errors import BrokerNotAvailableError
from kwire.pipeline import batches
from kwire.pipeline.batches import PADDING, Damage
from kwire.pipeline.remote import ANSWER_SECONDS, CLIENT_ID, fetch_request
from kwire.pipeline.schema import RECORDS
from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kwire.pipeline.batches import Piece
    from kwire.pipeline.remote import Reach

FETCH_BYTES = 8 << 20
_WAIT_MS = 500
_PATIENCE_SECONDS = 30.0
"""How long a broker may be away, or not have what it had when the range was planned."""
_PAUSE_SECONDS = 0.1
_UNREADABLE = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR)
"""What Kafka answers when it cannot step over its own batches."""


def pieces(reach: Reach, damage: list[Damage]) -> Iterator[Piece]:
    """Fetch a range; what cannot be read is added to `damage`, its positions counted from the range's begin.

    What was deleted or truncated since the range was planned is not there. BrokerNotAvailableError."""
    client = Client(lambda: [reach.address], ANSWER_SECONDS, CLIENT_ID)
    try:
        yield from _Fetching(client, reach, damage).pieces()
    finally:
        client.close()


class _Fetching:
    def __init__(self, client: Client, reach: Reach, damage: list[Damage]) -> None:
        self._client = client
        self._reach = reach
        self._key = reach.where.topic, reach.where.partition
        self._damage = damage
        self._offset = reach.first_offset
        self._bytes = 0

    def pieces(self) -> Iterator[Piece]:
        reach = self._reach
        give_up = monotonic() + _PATIENCE_SECONDS
        while self._offset < reach.end_offset:
            found = self._ask(self._offset, give_up)
            if found.error_code in _UNREADABLE:
                self._step_over(ErrorCode(found.error_code).name)
            elif found.error_code:
                if not self._may_pass(found.error_code, give_up):
                    return
            elif found.records:
                before = self._offset
                yield from self._pieces_of(found.records)
                if self._offset == before:  # no batch of it can be read
                    self._step_over("no whole batch")
                give_up = monotonic() + _PATIENCE_SECONDS
            elif found.high_watermark > self._offset:
                # Behind a gap of compaction there is a batch, the last one is never cleaned away.
                self._step_over("the broker finds no batch")
            elif monotonic() >= give_up:
                self._warn(f"ends at {found.high_watermark}, not at {reach.end_offset}")
                return

    def _ask(self, offset: int, give_up: float, wait_ms: int = _WAIT_MS) -> Any:
        """A partition's data at an offset. BrokerNotAvailableError when no answer came in time."""
        request = fetch_request({self._key: offset}, wait_ms, FETCH_BYTES)
        while True:
            try:
                response = self._client.run(
                    self._client.ask_at(self._reach.address, request, _WAIT_MS / 1000)
                )
            except (NoBrokerError, KafkaError) as error:
                if isinstance(error, KafkaError) or monotonic() >= give_up:
                    raise BrokerNotAvailableError(f"{self._name()}: {error}") from None
                sleep(_PAUSE_SECONDS)
                continue
            return response.responses[0].partitions[0]

    def _may_pass(self, code: int, give_up: float) -> bool:
        """Wait before the next try after an error; False: there is nothing more to read."""
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = self._start()
            if start <= self._offset:
                self._warn(f"is truncated to before offset {self._offset}")
                return False
            self._offset = start  # deleted meanwhile
            return True
        if monotonic() >= give_up:
            try:
                name = ErrorCode(code).name
            except ValueError:
                name = f"error {code}"
            raise BrokerNotAvailableError(f"{self._name()} at offset {self._offset}: {name}")
        sleep(_PAUSE_SECONDS)
        return True

    def _start(self) -> int:
        steps = offsets(
            self._client,
            {self._key: self._reach.address},
            EARLIEST,
            replica_id=DEBUGGING_CONSUMER,
        )
        try:
            return self._client.run(steps)[self._key]
        except (NoBrokerError, KafkaError) as error:
            raise BrokerNotAvailableError(f"{self._name()}: {error}") from None

    def _pieces_of(self, records: bytes | memoryview) -> Iterator[Piece]:
        """The whole batches of a response, whose last one may be cut off."""
        data = bytearray(records)
        length = len(data)
        data += bytes(PADDING)
        rows, wrong, _ = batches.walk(data, length)
        if wrong is not None:
            at = sum(rows[-1][: batches.SIZE + 1 : batches.SIZE]) if rows else 0
            kind, detail = wrong
            self._damage.append(Damage(self._bytes + at, length - at, None, kind, detail))
        if not rows:
            return
        heads = np.array(rows, np.int64)
        last = heads[-1]
        self._offset = int(last[batches.BASE] + last[batches.LAST_DELTA]) + 1
        yield from batches.by_format(data, self._bytes, heads)
        self._bytes += int(last[batches.POSITION] + last[batches.SIZE])

    def _step_over(self, reason: str) -> None:
        """Go on at the first later offset at which the broker has a batch again, sought in growing steps and halves."""
        first = bad = self._offset
        good, step = self._reach.end_offset, 1
        while bad + step < good:
            if self._has_batch(bad + step):
                good = bad + step
                break
            bad, step = bad + step, step * 2
        while good - bad > 1:
            middle = (good + bad) // 2
            if self._has_batch(middle):
                good = middle
            else:
                bad = middle
        self._offset = good
        detail = f"offsets {first} to {good - 1} cannot be fetched: {reason}"
        self._damage.append(Damage(self._bytes, 0, first, RECORDS, detail))

    def _has_batch(self, offset: int) -> bool:
        found = self._ask(offset, monotonic() + _PATIENCE_SECONDS, wait_ms=0)
        data = bytearray(found.records or b"")
        return not found.error_code and bool(batches.walk(data, len(data))[0])

    def _name(self) -> str:
        where, (host, port) = self._reach.where, self._reach.address
        return (
            f"kwire-log: {where.topic}-{where.partition} of broker {where.broker} at {host}:{port}"
        )

    def _warn(self, text: str) -> None:
        logging.getLogger(__name__).warning("%s %s", self._name(), text)
