"""The controller's journal on disk: one append-only file of record batches beside the logs.

A batch (Kafka's format v2) is one commit of the controller, its records' keys UTF-8 and values JSON. The controller
flushes what a step has appended before anybody hears of it; a power cut in between loses what nobody knows. At the
start a torn or corrupt tail is cut off and said so; what stands before it counts.

The file is versioned by its size: who finds it longer than left behind has been deposed, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import Record as BatchRecord
from kwire.protocol.records import build_batch, check_crc, iter_batches, iter_records
from kwire.replication.controller.state import DeposedError, JournalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.controller.state import Record
    from kwire.replication.core.log_store import LogFile, LogStore

JOURNAL_FILE = "kwire-controller.journal"
_READ_BYTES = 4 << 20


class StoreJournal:
    """A journal in a file of a log store. `cut_bytes`: how much of a damaged tail `replay` had to drop."""

    __slots__ = ("_end", "_file", "_name", "_next_offset", "_store", "_unflushed", "cut_bytes")

    def __init__(self, store: LogStore) -> None:
        """Nothing is opened before `replay` or `append`."""
        self._store = store
        self._name = JOURNAL_FILE
        self._unflushed = False
        self._end = -1  # the file's size as this journal knows it
        self._file: LogFile | None = None
        self._next_offset = 0
        self.cut_bytes = 0

    def append(self, records: list[Record]) -> None:
        batch = _encode(records, self._next_offset)
        try:
            file = self._open()
            if self._end < 0:
                self._end = file.size
            elif self._store.size(self._name) != self._end:
                raise DeposedError
            file.append([batch])
            self._end = file.size
            self._unflushed = True
        except OSError as error:
            message = f"the controller's journal cannot be written: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        self._next_offset += len(records)

    def flush(self) -> None:
        if not self._unflushed:
            return
        try:
            self._open().flush()
        except OSError as error:
            message = f"the controller's journal cannot be flushed: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        self._unflushed = False

    def replay(self) -> Iterator[Record]:
        from json import loads

        file = self._open()
        position = 0
        while position < file.size:
            data = self._whole_batches(file, position)
            if not data:
                break
            for header in iter_batches(data):
                if not check_crc(data, header):
                    self._cut(file, position + header.position)
                    self._end = file.size
                    return
                for record in iter_records(data, header):
                    try:
                        key = bytes(record.key or b"").decode()
                        value = None if record.value is None else loads(bytes(record.value))
                    except ValueError as error:
                        message = f"unreadable record {record.offset} in {self._name}: {error}"
                        raise JournalError(message) from error
                    yield key, value
                self._next_offset = header.next_offset
            position += len(data)
        if position < file.size:
            self._cut(file, position)
        self._end = file.size

    def _whole_batches(self, file: LogFile, position: int) -> bytes:
        """Whole batches from `position`, empty when there is none."""
        length = _READ_BYTES
        while True:
            data = file.read(position, length)
            end = 0
            try:
                for header in iter_batches(data):
                    end = header.position + header.size
            except KafkaError:  # no batch begins here: what follows is not ours
                return data[:end]
            if end or len(data) < length:
                return data[:end]
            length *= 2  # a batch larger than that

    def _cut(self, file: LogFile, size: int) -> None:
        self.cut_bytes = file.size - size
        file.truncate(size)

    def rewrite(self, records: list[Record]) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        data = _encode(records, 0)
        self._store.write_file(self._name, data)
        self._next_offset = len(records)
        self._end = len(data)

    def close(self) -> None:
        """Flushes and closes; an append opens it again."""
        if self._file is not None:
            self._file.flush()
            self._file.close()
            self._file = None

    def _open(self) -> LogFile:
        if self._file is None:
            self._file = self._store.open(self._name, create=True)
        return self._file


def _encode(records: list[Record], base_offset: int) -> bytes:
    from json import dumps

    rows = [
        BatchRecord(
            -1,
            0,
            key.encode(),
            None if value is None else dumps(value, separators=(",", ":")).encode(),
        )
        for key, value in records
    ]
    return build_batch(rows, base_offset=base_offset)
