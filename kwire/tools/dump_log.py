"""`kwire dump-log`: prints batches and records of log segments or directories, like kafka.tools.DumpLogSegments.

`dump_index` prints the other files of a log. Files are read in pieces. A damaged batch ends the
listing of its file with a line that says where and why, and makes the exit status 1.
"""

from __future__ import annotations

import os
import sys

from kwire.protocol import records
from kwire.protocol.errors import KafkaError
from kwire.protocol.records import LOG_OVERHEAD

_BATCH_MAX = 1 << 30
_NAME_DIGITS = 20  # of a segment's base offset


def dump_path(path: str, with_records: bool) -> int:
    """Print one file of a log, or the segments in a directory and all below it, a partition after the
    other; return 1 when something is damaged or not of a log. OSError when it cannot be read."""
    if not os.path.isdir(path):
        return _dump_file(path, with_records)
    failures: list[OSError] = []
    segments = _segments(path, failures)
    status = max([_dump_file(segment, with_records) for segment in segments], default=1)
    complaints = [f"{error.filename}: {error.strerror}" for error in failures]
    if not segments and not failures:
        complaints.append(f"no log segments in {path}")
    sys.stdout.flush()
    for complaint in complaints:
        print(f"kwire dump-log: {complaint}", file=sys.stderr)  # noqa: T201
    return 1 if complaints else status


def _segments(directory: str, failures: list[OSError]) -> list[str]:
    """The segments in a directory and below: by topic, partition and offset, broker by broker.

    `failures` gets an error for each directory that cannot be read."""
    found = []
    for folder, folders, names in os.walk(directory, onerror=failures.append):
        folders.sort(key=_partition_order)
        found += [os.path.join(folder, name) for name in sorted(names) if _is_segment(name)]
    return found


def _partition_order(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return (topic, int(number)) if number.isascii() and number.isdigit() else (name, -1)


def _is_segment(name: str) -> bool:
    stem, _, kind = name.partition(".")
    return kind == "log" and len(stem) == _NAME_DIGITS and stem.isascii() and stem.isdigit()


def _dump_file(path: str, with_records: bool) -> int:
    name = os.path.basename(path)
    for suffix in (".deleted", ".cleaned", ".swap"):
        name = name.removesuffix(suffix)
    if name.endswith(".log"):
        print(f"{path}:")  # noqa: T201
        return _dump_segment(path, with_records)
    from kwire.tools.dump_index import dumper

    dump = dumper(name)
    if dump is None:
        os.stat(path)
        sys.stdout.flush()
        print(f"kwire dump-log: not a file of a log: {path}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{path}:")  # noqa: T201
    return dump(path)


def _dump_segment(path: str, with_records: bool) -> int:
    position = 0
    with open(path, "rb") as file:
        while prefix := file.read(LOG_OVERHEAD + 5):
            if not any(prefix):
                print(f"{position}: zeros from here on (preallocated)")  # noqa: T201
                return 0
            size = int.from_bytes(prefix[8:12], "big", signed=True) + LOG_OVERHEAD
            if len(prefix) < 17 or not 17 <= size <= _BATCH_MAX:
                return _damaged(position, "not the start of a batch")
            data = prefix + file.read(size - len(prefix))
            if len(data) < size:
                return _damaged(position, f"{len(data)} bytes of a batch of {size}: cut off")
            if data[16] < 2:
                print(f"{position}: message set of magic {data[16]}, {size} bytes")  # noqa: T201
            elif not _dump_batch(position, data, with_records):
                return 1
            position += size
    if position == 0:
        print("empty")  # noqa: T201
    return 0


def _dump_batch(position: int, data: bytes, with_records: bool) -> bool:
    try:
        header = records.parse_header(data)
        flags = [
            word
            for word, is_set in (
                ("transactional", header.is_transactional),
                ("control", header.is_control),
                ("delete-horizon", header.has_delete_horizon),
            )
            if is_set
        ]
        producer = ""
        if header.producer_id >= 0:
            producer = f" producer={header.producer_id}/{header.producer_epoch} sequence={header.base_sequence}"
        right = records.check_crc(data, header)
        print(  # noqa: T201
            f"{position}: offsets {header.base_offset}-{header.last_offset} count={header.count} size={header.size}"
            f" epoch={header.partition_leader_epoch} {header.timestamp_type}={header.max_timestamp}"
            f" codec={header.compression}{producer} {' '.join(flags)}{'' if right else ' CRC WRONG'}".rstrip()
        )
        if with_records and right:
            for record in records.iter_records(data, header):
                _dump_record(record, header.is_control)
    except KafkaError as error:
        _damaged(position, str(error))
        return False
    return right


def _dump_record(record: records.Record, is_control: bool) -> None:
    if is_control:
        marker = records.parse_control_record(record)
        name = {0: "ABORT", 1: "COMMIT"}.get(marker.type, str(marker.type))
        print(f"  {record.offset} end of transaction: {name}")  # noqa: T201
        return
    headers = "".join(f" {key}={_text(value)}" for key, value in record.headers)
    print(  # noqa: T201
        f"  {record.offset} at={record.timestamp} key={_text(record.key)} value={_text(record.value)}"
        + (f" headers:{headers}" if headers else "")
    )


def _text(data: bytes | None) -> str:
    """Decode UTF-8, else format as a Python bytes literal."""
    if data is None:
        return "null"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return repr(data)
    return text if text.isprintable() else repr(data)


def _damaged(position: int, reason: str) -> int:
    print(f"{position}: DAMAGED: {reason}")  # noqa: T201
    return 1
