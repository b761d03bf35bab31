"""The default partitioner of Kafka's producers: murmur2 of the key (BuiltInPartitioner, Utils)."""

from __future__ import annotations

_UINT32 = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Hash a key as Kafka does; unsigned (Utils.murmur2)."""
    size = len(data)
    value = 0x9747B28C ^ size
    whole = size & ~3
    for start in range(0, whole, 4):
        part = int.from_bytes(data[start : start + 4], "little") * 0x5BD1E995 & _UINT32
        part = (part ^ part >> 24) * 0x5BD1E995 & _UINT32
        value = (value * 0x5BD1E995 & _UINT32) ^ part
    if whole < size:
        value ^= int.from_bytes(data[whole:], "little")
        value = value * 0x5BD1E995 & _UINT32
    value = (value ^ value >> 13) * 0x5BD1E995 & _UINT32
    return value ^ value >> 15


def partition_of(key: bytes, count: int) -> int:
    """The partition that Kafka's default partitioner chooses for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % count
