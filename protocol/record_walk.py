"""Walk over the records of a batch as fast as Python can: are they plainly valid?

A first pass for record_validation.py, which judges whatever this one does not vouch for. Nothing is
allocated per record. Records that are laid out alike, as numbered events of one size are, are
compared column by column, which is ten times as fast as one by one.
"""

from __future__ import annotations

from kwire.protocol.records import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    COMPRESSION_MASK,
    COUNT,
    HEADER_SIZE,
    MAX_TIMESTAMP,
)
from kwire.protocol.varint import INT64_MAX, read_rest, read_varint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kwire.protocol.records import Buffer

NOT_PLAIN = -1
"""The position after a record that the exact pass must judge."""
NO_DELTA = -1
"""No record with a timestamp delta of 0 or more yet."""
UNORDERED = 1
"""Flag: some record i has another offset delta than i."""
KEYLESS = 2
"""Flag: some record has no key."""
_NEGATIVE = 4  # flag: some timestamp is before the base timestamp

COPIED_RECORD_BYTES = 4096
"""Records up to this size on average are copied out of the frame: bytes are read twice as fast."""
_ALIKE_MIN = 16  # records for which columns pay
_STRETCH_MAX = 2048  # records one by one before columns are tried again
_COPIED_RECORDS_MAX = 4096
_HEADERS_MAX = 16  # more of them count as work of their own
_BLOCK = 8192  # the two low bytes of offset deltas repeat after so many records
_EVEN = bytes(range(0, 256, 2))
_LAST = bytes(range(128))  # bytes that end a varint
_MORE = bytes(range(128, 256))  # and those that do not
_offset_columns: list[bytes] = []


def is_plain(batch: memoryview, fields: tuple[int, ...]) -> bool:
    """Whether a batch is uncompressed and has no oddity. `fields`: of its header, which is valid.

    Its largest timestamp is the one in the header.
    """
    if fields[ATTRIBUTES] & COMPRESSION_MASK:
        return False
    count, base_timestamp = fields[COUNT], fields[BASE_TIMESTAMP]
    section: Buffer = batch[HEADER_SIZE:]
    if len(section) < min(count, _COPIED_RECORDS_MAX) * COPIED_RECORD_BYTES:
        section = bytes(section)
    position, delta, _ = walk(section, 0, 0, count, NO_DELTA, base_timestamp)
    return (
        position == len(section)
        and delta != NO_DELTA
        and base_timestamp + (delta >> 1) == fields[MAX_TIMESTAMP]
    )


def walk(
    data: Buffer, position: int, index: int, stop: int, max_delta: int, base_timestamp: int
) -> tuple[int, int, int]:
    """Walk over records `index` to `stop`: (position after them, largest delta, flags).

    `data` ends with the last record of the batch. Deltas are timestamp deltas as on the wire,
    twice the number. The position is NOT_PLAIN where a record's fields do not fill its size, or its
    timestamp may be negative.
    """
    flags = 0
    stretch = _ALIKE_MIN
    try:
        while stop - index >= _ALIKE_MIN and not isinstance(data, memoryview):
            count, length, delta, found = _alike(data, position, index, stop, base_timestamp)
            if count:
                index += count
                position += count * length
                max_delta = max(max_delta, delta)
                flags |= found
                continue
            until = min(stop, index + stretch)
            stretch = min(2 * stretch, _STRETCH_MAX)
            position, max_delta, found = _one_by_one(data, position, index, until, max_delta)
            if position < 0:
                return position, max_delta, flags
            index = until
            flags |= found
        position, max_delta, found = _one_by_one(data, position, index, stop, max_delta)
    except (IndexError, ValueError):
        return NOT_PLAIN, max_delta, flags
    flags |= found
    # Deltas below 0 are only seen where they are longer than the largest one above it.
    lowest = (1 << 32) if flags & _NEGATIVE else max_delta
    if base_timestamp <= lowest >> 1 or base_timestamp + (max_delta >> 1) > INT64_MAX:
        return NOT_PLAIN, max_delta, flags
    return position, max_delta, flags


def _one_by_one(
    data: Buffer, position: int, index: int, stop: int, max_delta: int
) -> tuple[int, int, int]:
    """As `walk`. Varints of one and two bytes are read inline: a call costs as much as a record."""
    flags = 0
    for number in range(index << 1, stop << 1, 2):  # the offset delta on the wire
        size = data[position]
        position += 1
        if size >= 0x80:
            byte = data[position]
            position += 1
            if byte < 0x80:
                size += (byte << 7) - 0x80
            else:
                low = size & 0x7F | (byte & 0x7F) << 7
                size, position = read_rest(data, position, low, 14, 21)
        if size & 1:
            return NOT_PLAIN, max_delta, flags
        end = position + (size >> 1)
        delta = data[position + 1]  # after the attributes, which have no meaning
        position += 2
        if delta >= 0x80:
            byte = data[position]
            position += 1
            if byte < 0x80:
                delta += (byte << 7) - 0x80
            else:
                low = delta & 0x7F | (byte & 0x7F) << 7
                delta, position = read_rest(data, position, low, 14, 42)
        if delta > max_delta:
            if delta & 1:  # negative
                if delta > 0xFFFFFFFF:
                    return NOT_PLAIN, max_delta, flags
                flags |= _NEGATIVE
            else:
                max_delta = delta
        offset = data[position]
        position += 1
        if offset >= 0x80:
            byte = data[position]
            position += 1
            if byte < 0x80:
                offset += (byte << 7) - 0x80
            else:
                low = offset & 0x7F | (byte & 0x7F) << 7
                offset, position = read_rest(data, position, low, 14, 21)
        if offset != number:
            flags |= UNORDERED
        key = data[position]
        position += 1
        if key & 1:
            if key != 1:
                return NOT_PLAIN, max_delta, flags
            flags |= KEYLESS
        elif key < 0x80:
            position += key >> 1
        else:
            key, position = read_varint(data, position - 1)
            if key < 0:
                return NOT_PLAIN, max_delta, flags
            position += key
        # What is left must be the value and no headers. Its length is compared, not read.
        left = end - position
        value = data[position]
        if value < 0x80:
            if value != (left - 2) << 1 and (value != 1 or left != 2):
                left = 0
        else:
            byte = data[position + 1]
            if byte >= 0x80 or value + (byte << 7) != (left - 3 << 1) + 0x80:
                left = 0
        if (not left or data[end - 1]) and not _is_filled(data, position, end):
            return NOT_PLAIN, max_delta, flags
        position = end
    return position, max_delta, flags


def _is_filled(data: Buffer, position: int, end: int) -> bool:
    """Whether a value and headers take the bytes from `position` to `end`."""
    length, position = read_varint(data, position)
    if length > 0:
        position += length
    count, position = read_varint(data, position)
    if not 0 <= count <= _HEADERS_MAX:
        return False
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            return False
        length, position = read_varint(data, position + length)
        if length > 0:
            position += length
    return position == end


# --- records that are laid out alike


def _alike(
    data: bytes | bytearray, position: int, index: int, stop: int, base_timestamp: int
) -> tuple[int, int, int, int]:
    """How many records from `index` on are laid out as the first: (count, length, largest delta, flags).

    They have the same sizes, lengths of keys and values and no headers, and are in order. The count
    is 0 where there are too few to pay.
    """
    layout = _layout(data, position, index)
    if layout is None:
        return 0, 0, 0, 0
    length, timestamp_at, offset_at, constants, flags = layout
    count = min(stop - index, (len(data) - position) // length, _same_width(index))
    if count < _ALIKE_MIN:
        return 0, 0, 0, 0
    # The size first: where it differs nothing else needs a look, and a few records tell.
    size = data[position]
    if data[position : position + _ALIKE_MIN * length : length].count(size) < _ALIKE_MIN:
        return 0, 0, 0, 0
    for at in constants:
        column = data[at : position + count * length : length]
        if column.count(column[0]) != count:
            count -= len(column.lstrip(column[:1]))
    columns = [
        data[at : position + count * length : length] for at in range(timestamp_at, offset_at)
    ]
    count, delta = _largest_delta(columns, count)
    if count < _ALIKE_MIN or delta is None or base_timestamp <= 1 << 35:
        return 0, 0, 0, 0
    expected = _expected_offsets(index, count)
    for at, want in enumerate(expected, offset_at):
        if data[at : position + count * length : length] != want:
            return 0, 0, 0, 0
    return count, length, delta, flags


def _layout(data: Buffer, position: int, index: int) -> tuple[int, int, int, list[int], int] | None:
    """Where a record has its fields: (length, timestamp, offset, constant bytes, flags), or None.

    The constant bytes are those of the lengths and of the number of headers, which is 0.
    """
    size, body = read_varint(data, position)
    end = body + size
    if size <= 0 or body - position > 3:
        return None
    offset_at = body + 2
    while data[offset_at - 1] >= 0x80:
        offset_at += 1
    key_at = offset_at + (1 if index < 64 else 2 if index < _BLOCK else 3)
    key, value_at = read_varint(data, key_at)
    lengths = [*range(position, body), *range(key_at, value_at)]
    value_at += max(key, 0)
    value, rest = read_varint(data, value_at)
    if offset_at - body > 5 or key < -1 or value < -1 or rest + max(value, 0) != end - 1:
        return None
    if data[end - 1] or rest - value_at > 4:
        return None
    constants = [*lengths, *range(value_at, rest), end - 1]
    return end - position, body + 1, offset_at, constants, KEYLESS if key < 0 else 0


def _same_width(index: int) -> int:
    """How many records from `index` on have offset deltas as wide, with the same third byte."""
    if index < 64:
        return 64 - index
    return _BLOCK - index % _BLOCK if index < 1 << 20 else 0


def _expected_offsets(index: int, count: int) -> list[bytes]:
    """The columns of `count` offset deltas from `index` on, the low byte first."""
    if not _offset_columns:
        numbers = range(0, 2 * _BLOCK, 2)
        _offset_columns.append(bytes(number & 0x7F for number in numbers))
        _offset_columns.append(bytes(number & 0x7F | 0x80 for number in numbers))
        _offset_columns.append(bytes(number >> 7 for number in numbers))
        _offset_columns.append(bytes(number >> 7 | 0x80 for number in numbers))
    last, low, high, middle = _offset_columns
    if index < 64:
        return [last[index : index + count]]
    block, index = divmod(index, _BLOCK)
    part = slice(index, index + count)
    return [low[part], middle[part], bytes([block]) * count] if block else [low[part], high[part]]


def _largest_delta(columns: Sequence[bytes | bytearray], count: int) -> tuple[int, int | None]:
    """How many of `count` deltas are as wide as the first, and the largest of them.

    None: hard to say, or all are negative. `columns`: the low byte first.
    """
    for column in columns[:-1]:
        count = min(count, len(column) - len(column.lstrip(_MORE)))
    count = min(count, len(columns[-1]) - len(columns[-1].lstrip(_LAST)))
    if columns[0][:count].translate(None, _EVEN):
        even = [low for low in zip(*reversed(columns), strict=True) if not low[-1] & 1]
        parts = max(even[:count], default=None)
        if parts is None:
            return count, None
        return count, sum((byte & 0x7F) << 7 * at for at, byte in enumerate(reversed(parts)))
    first, last, delta = 0, count, 0
    for column in reversed(columns):
        column = column[first:last]
        top = max(column, default=0)
        delta = delta << 7 | top & 0x7F
        first, last = first + column.find(top), first + column.rfind(top) + 1
        if column.count(top) != last - first:
            return count, None
    return count, delta
