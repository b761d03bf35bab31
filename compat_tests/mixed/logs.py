"""What two replicas hold: their logs byte by byte, their leader epochs line by line."""

from pathlib import Path

from kwire.protocol.records import iter_batches


def log_bytes(data: Path, topic: str, partition: int) -> bytes:
    """What a replica holds, from its first segment to its last."""
    segments = sorted((data / f"{topic}-{partition}").glob("*.log"))
    assert segments, f"no log of {topic}-{partition} in {data}"
    return b"".join(segment.read_bytes() for segment in segments)


def index_bytes(data: Path, topic: str, partition: int, suffix: str) -> bytes:
    """What stands in the index files of a replica, those that grow with their entries: ".txnindex"."""
    found = sorted((data / f"{topic}-{partition}").glob(f"*{suffix}"))
    return b"".join(index.read_bytes() for index in found)


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
