"""The records every client writes and every client must read back."""

import random
import time

from compat_tests.clients import Record

# Timestamps are given, so that seeking by time has known answers; they are recent, or retention takes the records.
START_MS = int(time.time()) * 1000 - 3_600_000


def varied_records(mark: str, headers: bool = True) -> list[Record]:
    """Keys and none, empty and null values, headers with an empty value and a repeated name, bytes that are no text."""
    some = (("trace", b"\x00\xff\x10"), ("trace", b"again"), ("empty", b"")) if headers else ()
    records = [
        Record(f"{mark} plain".encode()),
        Record(f"{mark} keyed".encode(), key=b"key-1"),
        Record(f"{mark} header".encode(), key=b"key-2", headers=some),
        Record(b"", key=b"empty value"),
        Record(None, key=b"tombstone"),
        Record(bytes(range(256)), key=bytes(range(255, -1, -1))),
        Record("Grüße, 世界".encode(), key="schlüssel".encode(), headers=some[:1]),
        Record(b"compressible " * 500, key=b"long"),
    ]
    return [Record(r.value, r.key, r.headers, 0, START_MS + i) for i, r in enumerate(records)]


def large_record(size: int = 900_000) -> Record:
    """Random bytes: no codec makes it small."""
    return Record(random.Random(size).randbytes(size), key=b"large", timestamp=START_MS)


def numbered_records(first: int, last: int, partitions: int) -> list[Record]:
    """One record a number in [first, last), dealt to the partitions in turn."""
    return [Record(f"{n}".encode(), key=b"n", partition=n % partitions) for n in range(first, last)]
