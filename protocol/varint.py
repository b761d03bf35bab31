"""Variable-length integers as records use them: zigzag, then 7 bits a byte, low bits first.

Answers to ByteUtils.readVarint / readVarlong of kafka-clients: an int takes at most 5 bytes, a long
at most 10, and bits beyond 32 or 64 fall off as they do in Java. Readers raise IndexError past the
end of the data and ValueError for a number that does not end; callers turn both into their own
errors.
"""

from __future__ import annotations

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1


def read_varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """A signed 32-bit number and the position after it."""
    value = data[position]
    if value < 0x80:  # one and two bytes are the common case: no loop
        return value >> 1 ^ -(value & 1), position + 1
    byte = data[position + 1]
    if byte < 0x80:
        value = value & 0x7F | byte << 7
        return value >> 1 ^ -(value & 1), position + 2
    value, position = read_rest(data, position, 0, 0, 28)
    value &= 0xFFFFFFFF
    return value >> 1 ^ -(value & 1), position


def read_varlong(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """A signed 64-bit number and the position after it."""
    value = data[position]
    if value < 0x80:
        return value >> 1 ^ -(value & 1), position + 1
    value, position = read_rest(data, position, 0, 0, 63)
    value &= 0xFFFFFFFFFFFFFFFF
    return value >> 1 ^ -(value & 1), position


def read_rest(
    data: bytes | bytearray | memoryview, position: int, value: int, shift: int, last_shift: int
) -> tuple[int, int]:
    """The raw number whose lower `shift` bits are `value`, and the position after it.

    ValueError where its last byte would be above `last_shift`."""
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > last_shift:
            raise ValueError("a variable-length integer that does not end")


def append_varint(out: bytearray, value: int) -> None:
    """Append a signed number of up to 64 bits to `out`."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
