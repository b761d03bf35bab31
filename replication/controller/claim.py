"""Controller election on a shared directory: generations of the journal, and the active one's
lease.

Answers to KafkaZkClient.registerControllerAndIncrementControllerEpoch: ZooKeeper's /controller
node, its session, and the condition on every write of a Kafka controller. Here the store is a
directory.

The right to write is a generation: a journal file with its number in the name, which exactly one
controller can create (`LogStore.claim_file`). The creator copies the previous generation's journal
and appends to the copy. A commit is valid if no later generation exists after it was written: the
writer checks that after each commit, and so learns that it was deposed. There is no lock, so no
paused process can hold one; a process that resumes after hours does no harm: nobody reads its file
any more.

    kwire-controller-0000000003.journal    the journal of the controller of generation 3
    kwire-controller.lease                 the active controller and its heartbeat counter

The lease only tells standbys when a take-over is worth trying. Invariants: a commit that was not
refused is in the journal of every later generation; an older generation's file is deleted when the
newer one is complete.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.controller.journal import JOURNAL_FILE, StoreJournal
from kwire.replication.controller.state import DeposedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.replication.controller.state import Record
    from kwire.replication.core.log_store import LogStore
    from kwire.replication.core.outbox import Hold, HoldingOutbox

LEASE_FILE = "kwire-controller.lease"
_PREFIX, _SUFFIX = "kwire-controller-", ".journal"
_DIGITS = 10


def generation_file(generation: int) -> str:
    """Return the file name of a generation's journal."""
    return f"{_PREFIX}{generation:0{_DIGITS}}{_SUFFIX}"


def generations(store: LogStore) -> list[int]:
    """List the generations whose files exist, in ascending order."""
    found = []
    for name in store.list_dir():
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
            number = name[len(_PREFIX) : -len(_SUFFIX)]
            if len(number) == _DIGITS and number.isascii() and number.isdigit():
                found.append(int(number))
    return sorted(found)


class ClaimedJournal(StoreJournal):
    """The journal of one generation. Call `claim` first; `generation` is 0 until then."""

    __slots__ = ("_hold", "_outbox", "generation", "on_refused")

    def __init__(self, store: LogStore, outbox: HoldingOutbox | None = None) -> None:
        """`outbox`: flush in the background; what follows from the records is held there meanwhile."""
        super().__init__(store, deferred=outbox is not None)
        self.generation = 0
        self._outbox = outbox
        self._hold: Hold | None = None  # of the records that no flush was begun for
        self.on_refused: Callable[[KafkaError], None] = _raise
        """Called in a later step: the records whose effects are held are no commit."""

    def claim(self) -> None:
        """Begin the next generation with a copy of the last one's journal.

        DeposedError: another controller was faster. OSError."""
        store = self._store
        before = generations(store)
        own = before[-1] + 1 if before else 1
        if not store.claim_file(generation_file(own)) or generations(store)[-1] != own:
            raise DeposedError
        # From here on no commit of another controller is valid; all valid ones are in the files
        # read now.
        self._name = generation_file(own)
        self.generation = own
        store.write_file(self._name, self._read_inherited(before))

    def _read_inherited(self, before: list[int]) -> bytes:
        store = self._store
        for generation in reversed(before):
            try:
                data = store.read_file(generation_file(generation))
            except FileNotFoundError:
                raise DeposedError from None  # only a later generation than this one deletes it
            if data:
                return data  # an empty file was claimed, but not yet written
        return store.read_file(JOURNAL_FILE) if store.exists(JOURNAL_FILE) else b""

    def check(self) -> None:
        """Raise DeposedError unless this is the latest generation.

        KafkaError(KAFKA_STORAGE_ERROR): its file is gone."""
        found = generations(self._store)
        if self.generation not in found:
            if found and found[-1] > self.generation:
                raise DeposedError
            message = "the controller's journal is gone"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        if found[-1] != self.generation:
            raise DeposedError

    def append(self, records: list[Record]) -> None:
        self.check()
        super().append(records)
        if self._outbox is not None and self._hold is None:
            self._hold = self._outbox.hold()

    def flush(self) -> None:
        """Flush; appended records are committed unless this raises, or calls `on_refused` later."""
        if self._outbox is not None:
            self._start_flush(self._outbox)
        elif self._unflushed:
            super().flush()
            self.check()

    def _start_flush(self, outbox: HoldingOutbox) -> None:
        hold, self._hold = self._hold, None
        if hold is None:
            return

        def flushed() -> None:
            try:
                self.check()
            except KafkaError as error:
                self.on_refused(error)
            else:
                outbox.release(hold)

        try:
            self._open().start_flush(flushed)
        except OSError as error:
            outbox.release(hold)  # of refusals: nothing was sent to brokers that will leave
            message = f"the controller's journal cannot be flushed: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
        self._unflushed = False

    def close(self) -> None:
        super().close()
        if self._outbox is not None:
            self._outbox.release_all()

    def when_flushed(self, callback: Callable[[], None]) -> None:
        """At once: an answer is an effect, too, and held with the others."""
        callback()

    def delete_older(self) -> None:
        """Delete earlier generations' files, oldest first, so that the remaining ones have no
        gap."""
        self._store.delete(JOURNAL_FILE)
        for generation in generations(self._store):
            if generation < self.generation:
                self._store.delete(generation_file(generation))


class Lease:
    """The content of the lease file.

    `beat`: a counter that the active controller increments. `released`: it has stopped cleanly."""

    __slots__ = ("beat", "generation", "node_id", "released")

    def __init__(self, generation: int, node_id: int, beat: int, released: bool = False) -> None:
        self.generation = generation
        self.node_id = node_id
        self.beat = beat
        self.released = released

    @property
    def liveness(self) -> tuple[int, int, int]:
        """A value that differs after each renewal."""
        return self.generation, self.node_id, self.beat

    def write(self, store: LogStore) -> None:
        """Replace the lease file. OSError."""
        state = "released" if self.released else "active"
        text = f"{self.generation} {self.node_id} {self.beat} {state}\n"
        store.write_file(LEASE_FILE, text.encode(), flush=False)


def read_lease(store: LogStore) -> Lease | None:
    """Read the lease file; None when it is missing or malformed."""
    try:
        words = store.read_file(LEASE_FILE).decode().split()
        generation, node_id, beat = map(int, words[:3])
    except (FileNotFoundError, ValueError):
        return None
    return Lease(generation, node_id, beat, words[3:] == ["released"])


def _raise(error: KafkaError) -> None:
    raise error
