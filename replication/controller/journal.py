"""The controller's journal on disk: one append-only file of record batches beside the logs.

A batch (Kafka's format v2) is one commit of the controller, its records' keys UTF-8 and values
JSON. The controller flushes a step's records before its effects leave (a dedicated one begins the flush,
and its outbox holds the effects: claim.py); a power cut before the flush
loses only records without effects. A broker with its own controller (`deferred`) only begins to
flush them, as everything else of the broker would wait: responses wait for the end of the flush
(`when_flushed`), the broker acts before that. At start a torn or corrupt tail is truncated and reported; the
batches before it are valid.

The file's size is its version: a controller that finds it longer than after its own last append has
been deposed, and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record as BatchRecord
from kwire.protocol.records import check_crc, iter_batches, iter_records
from kwire.replication.controller.state import DeposedError, JournalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.controller.state import Record
    from kwire.replication.core.log_store import LogFile, LogStore

JOURNAL_FILE = "kwire-controller.journal"
_READ_BYTES = 4 << 20


class StoreJournal:
    """A journal in a file of a log store.

    `truncated_bytes`: size of the damaged tail at `replay`, which is kept in another file."""

    __slots__ = (
        "_deferred",
        "_end",
        "_file",
        "_name",
        "_next_offset",
        "_store",
        "_unflushed",
        "truncated_bytes",
    )

    def __init__(self, store: LogStore, *, deferred: bool = False) -> None:
        """Create the journal; `replay` or `append` opens the file. `deferred`: flush in the background."""
        self._deferred = deferred
        self._store = store
        self._name = JOURNAL_FILE
        self._unflushed = False
        self._end = -1  # the file's size after this journal's last append; -1: not known yet
        self._file: LogFile | None = None
        self._next_offset = 0
        self.truncated_bytes = 0

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
            if self._deferred:
                self._open().start_flush(_ignore)  # responses wait for it: not behind other flushes
            else:
                self._open().flush()
        except OSError as error:
            message = f"the controller's journal cannot be flushed: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        self._unflushed = False

    def when_flushed(self, callback: Callable[[], None]) -> None:
        if self._deferred and self._file is not None:
            self._file.start_flush(callback)
        else:
            callback()

    def replay(self) -> Iterator[Record]:
        file = self._open()
        if not file.size:
            return
        from json import loads

        position = 0
        while position < file.size:
            data = self._whole_batches(file, position)
            if not data:
                break
            for header in iter_batches(data):
                if not check_crc(data, header):
                    self._truncate(file, position + header.position)
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
            self._truncate(file, position)
        self._end = file.size

    def _whole_batches(self, file: LogFile, position: int) -> bytes:
        """Read whole batches from `position`; empty when no whole batch follows."""
        length = _READ_BYTES
        while True:
            data = file.read(position, length)
            end = 0
            try:
                for header in iter_batches(data):
                    end = header.position + header.size
            except KafkaError:  # not a batch header: the rest is garbage
                return data[:end]
            if end or len(data) < length:
                return data[:end]
            length *= 2  # a batch larger than that

    @property
    def truncation(self) -> dict[str, object]:
        """The fields of JOURNAL_TRUNCATED. `file` has what was cut off: a damaged record hides all that follow it."""
        return {"size_bytes": self.truncated_bytes, "file": f"{self._name}.bad"}

    def _truncate(self, file: LogFile, size: int) -> None:
        self.truncated_bytes = file.size - size
        self._store.write_file(f"{self._name}.bad", file.read(size, self.truncated_bytes))
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
        """Flush and close the file; an append opens it again."""
        if self._file is not None:
            self._file.flush()
            self._file.close()
            self._file = None

    def _open(self) -> LogFile:
        if self._file is None:
            self._file = self._store.open(self._name, create=True)
        return self._file


def _ignore() -> None:
    """What a flush that nobody waits for yet calls back; with it, the flush gets the thread for those."""


def _encode(records: list[Record], base_offset: int) -> bytes:
    rows = [
        BatchRecord(-1, 0, key.encode(), None if value is None else to_json(value).encode())
        for key, value in records
    ]
    return build_batch(rows, base_offset=base_offset)


def to_json(value: object) -> str:
    """A value as compact JSON. The records of a start, whose values are epochs, do without the module
    json, which takes a millisecond to import."""
    if type(value) is dict and all(
        type(key) is str and key.isascii() and key.isidentifier() and type(each) is int
        for key, each in value.items()
    ):
        items = [f'"{key}":{each}' for key, each in value.items()]
        return f"{{{','.join(items)}}}"
    from json import dumps

    return dumps(value, separators=(",", ":"))
