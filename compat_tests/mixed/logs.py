"""The logs of two replicas, byte by byte."""

from pathlib import Path


def log_bytes(data: Path, topic: str, partition: int) -> bytes:
    """What a replica holds, from its first segment to its last."""
    segments = sorted((data / f"{topic}-{partition}").glob("*.log"))
    assert segments, f"no log of {topic}-{partition} in {data}"
    return b"".join(segment.read_bytes() for segment in segments)


def difference(one: bytes, other: bytes) -> str:
    """Where two logs part."""
    if one == other:
        return ""
    common = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    where = "one is the start of the other" if common is None else f"first at byte {common}"
    return f"{len(one)} and {len(other)} bytes, {where}"
