"""What two replicas hold: their logs byte by byte, their leader epochs line by line."""

import struct
from itertools import zip_longest
from pathlib import Path

from kwire.protocol.records import iter_batches

_ENTRY = struct.Struct(">hqqqq")  # of a transaction index, after its version


def log_bytes(data: Path, topic: str, partition: int) -> bytes:
    """What a replica holds, from its first segment to its last."""
    segments = sorted((data / f"{topic}-{partition}").glob("*.log"))
    assert segments, f"no log of {topic}-{partition} in {data}"
    return b"".join(segment.read_bytes() for segment in segments)


def aborted(data: Path, topic: str, partition: int) -> list[tuple[int, int, int, int]]:
    """The transaction index of a replica: producer id, first and last offset, last stable offset of each entry."""
    found = sorted((data / f"{topic}-{partition}").glob("*.txnindex"))
    entries = b"".join(index.read_bytes() for index in found)
    return [each[1:] for each in _ENTRY.iter_unpack(entries)]


def aborted_difference(
    kwire: list[tuple[int, int, int, int]], kafka: list[tuple[int, int, int, int]]
) -> str:
    """Where two transaction indexes part.

    The last stable offset after an abort may be higher in Kafka's: a follower that fetches several batches at once
    enters what they begin before it enters what they end, and so takes a later transaction for an open one."""
    for number, (one, other) in enumerate(zip_longest(kwire, kafka)):
        if one is None or other is None or one[:3] != other[:3] or one[3] > other[3]:
            return f"entry {number} of the transaction index: {one} and {other}"
    return ""


def leader_epochs(data: Path, topic: str, partition: int) -> list[str]:
    """Lines "epoch start" of leader-epoch-checkpoint, of the epochs in which something was written.

    A leader notes its epoch before its first record, a follower with it."""
    lines = (data / f"{topic}-{partition}" / "leader-epoch-checkpoint").read_text().splitlines()
    written = {b.partition_leader_epoch for b in iter_batches(log_bytes(data, topic, partition))}
    return [line for line in lines[2:] if int(line.split()[0]) in written]


def difference(one: bytes, other: bytes) -> str:
    """Where two logs part."""
    if one == other:
        return ""
    common = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    where = "one is the start of the other" if common is None else f"first at byte {common}"
    return f"{len(one)} and {len(other)} bytes, {where}"
