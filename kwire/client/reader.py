"""Reads a topic as it grows: positions in its partitions, fetched from their leaders.

Answers to a KafkaConsumer without a group. Generators of requests (`admin.py`). `read_records` of
`records.py` reads what a topic holds at one moment, all at once.
"""

from __future__ import annotations

from kwire.client.admin import CONSUMER, EARLIEST, LATEST
from kwire.client.connection import check
from kwire.client.offsets import offsets, partitions
from kwire.client.records import read_batches
from kwire.client.retries import repeat
from kwire.client.views import Record
from kwire.protocol.errors import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kwire.client.admin import Admin, Steps
    from kwire.client.connection import Address
    from kwire.client.offsets import Key

_PARTITION_BYTES = 1 << 20
_RESPONSE_BYTES = 16 << 20


class Reader:
    """The partitions of a topic, or one of them, and what to read of each next."""

    def __init__(self, admin: Admin, topic: str, partition: int | None = None) -> None:
        self._admin = admin
        self._topic = topic
        self._partition = partition
        self._led: dict[Key, Address] = {}
        self.positions: dict[Key, int] = {}
        self.ends: dict[Key, int] = {}
        """The high watermarks at the time of `seek`."""

    def seek(self, start: int | None) -> Steps[None]:
        """Go to an offset in each partition, within its log; a negative one counts from the end.

        None: to the end. KafkaError: no such topic or partition."""
        self.positions = yield from repeat(lambda: self._seek(start))

    def _seek(self, start: int | None) -> Steps[dict[Key, int]]:
        yield from self._find_leaders()
        firsts = yield from offsets(self._admin, self._led, EARLIEST)
        self.ends = yield from offsets(self._admin, self._led, LATEST)
        found = {}
        for key, end in self.ends.items():
            wanted = end if start is None else start if start >= 0 else end + start
            found[key] = min(max(wanted, firsts[key]), end)
        return found

    def _find_leaders(self) -> Steps[None]:
        self._led = yield from partitions(self._admin, self._topic, self._partition)

    def fetch(self, keys: Iterable[Key], wait_ms: int = 0) -> Steps[list[Record]]:
        """The next records of partitions, by partition; [] when `wait_ms` have brought none."""
        wanted = list(keys)
        return (yield from repeat(lambda: self._fetch(wanted, wait_ms)))

    def _fetch(self, keys: list[Key], wait_ms: int) -> Steps[list[Record]]:
        if not self._led:  # an attempt before this one has failed
            yield from self._find_leaders()
        led, self._led = self._led, {}
        found: list[Record] = []
        reached: dict[Key, int] = {}
        addresses = dict.fromkeys(led[key] for key in keys)
        for address in addresses:
            some = [key for key in keys if led[key] == address]
            response = yield from self._ask(address, some, wait_ms // len(addresses))
            for each in response.responses[0].partitions if response.responses else ():
                key = (self._topic, each.partition_index)
                reached[key] = yield from self._collect(key, each, found)
        self._led = led
        self.positions.update(reached)
        return found

    def _ask(self, address: Address, keys: list[Key], wait_ms: int) -> Steps[Any]:
        from kwire.protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic

        wanted = [
            FetchPartition(
                partition=key[1],
                fetch_offset=self.positions[key],
                partition_max_bytes=_PARTITION_BYTES,
            )
            for key in keys
        ]
        request = FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_RESPONSE_BYTES,
            topics=[FetchTopic(topic=self._topic, partitions=wanted)],
        )
        response = yield from self._admin.ask_at(address, request, wait_ms / 1000)
        check(response.error_code, f"fetch of {self._topic}")
        return response

    def _collect(self, key: Key, data: Any, found: list[Record]) -> Steps[int]:
        """Add the records of a partition of a response; return the offset after them."""
        position = self.positions[key]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # deleted or truncated meanwhile
            where = yield from partitions(self._admin, *key)
            first = yield from offsets(self._admin, where, EARLIEST)
            end = yield from offsets(self._admin, where, LATEST)
            return min(max(position, first[key]), end[key])
        check(data.error_code, f"fetch of {key[0]}-{key[1]} at offset {position}")
        reached = position
        for epoch, next_offset, inner in read_batches(data.records or b""):
            found += [
                Record(
                    *key,
                    each.offset,
                    each.timestamp,
                    each.key,
                    each.value,
                    list(each.headers),
                    epoch,
                )
                for each in inner
                if each.offset >= position
            ]
            reached = max(reached, next_offset)
        return reached
