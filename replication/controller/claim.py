"""Several controllers and one store: who may write the journal, and how the others see that somebody does.

Answers to KafkaZkClient.registerControllerAndIncrementControllerEpoch: ZooKeeper's /controller node, its session, and
the condition that every write of a Kafka controller carries. Here the store is a directory.

The right to write is a generation: a journal file of its own number, which exactly one controller can have made
(`LogStore.claim_file`). Who has made it copies what the generation before had written and goes on there. A commit
counts if no later generation exists after it was written; its writer looks, and finds out by that that it has been
deposed. Nobody needs a lock, so nobody who stands still with one can be in the way, and who wakes up after hours
cannot spoil anything: its file is no longer read.

    kwire-controller-0000000003.journal    what the controller of generation 3 knows and has decided
    kwire-controller.lease                 who is active, and a number that it counts up while it lives

The lease says only when it is worth trying: it decides nothing. Invariants: a commit that was not refused is in the
journal of every later generation; an older generation's file goes when the newer one's is complete.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.controller.journal import JOURNAL_FILE, StoreJournal
from kwire.replication.controller.state import DeposedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.controller.state import Record
    from kwire.replication.core.log_store import LogStore

LEASE_FILE = "kwire-controller.lease"
_PREFIX, _SUFFIX = "kwire-controller-", ".journal"
_DIGITS = 10


def generation_file(generation: int) -> str:
    """The name of a generation's journal."""
    return f"{_PREFIX}{generation:0{_DIGITS}}{_SUFFIX}"


def generations(store: LogStore) -> list[int]:
    """Those whose files are there, in order."""
    found = []
    for name in store.list_dir():
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
            number = name[len(_PREFIX) : -len(_SUFFIX)]
            if len(number) == _DIGITS and number.isascii() and number.isdigit():
                found.append(int(number))
    return sorted(found)


class ClaimedJournal(StoreJournal):
    """The journal of one generation. `claim` before anything else. `generation`: 0 before that."""

    __slots__ = ("generation",)

    def __init__(self, store: LogStore) -> None:
        super().__init__(store)
        self.generation = 0

    def claim(self) -> None:
        """Begins the next generation with what the last one had. DeposedError: another was faster. OSError."""
        store = self._store
        before = generations(store)
        own = before[-1] + 1 if before else 1
        if not store.claim_file(generation_file(own)) or generations(store)[-1] != own:
            raise DeposedError
        # From here on nobody else's commit counts; what counted before stands in the files to be read now.
        self._name = generation_file(own)
        self.generation = own
        store.write_file(self._name, self._inherited(before))

    def _inherited(self, before: list[int]) -> bytes:
        store = self._store
        for generation in reversed(before):
            try:
                data = store.read_file(generation_file(generation))
            except FileNotFoundError:
                raise DeposedError from None  # only a later one than this deletes it
            if data:
                return data  # an empty one's owner has claimed, but not yet begun
        return store.read_file(JOURNAL_FILE) if store.exists(JOURNAL_FILE) else b""

    def check(self) -> None:
        """DeposedError unless this is the latest generation. KafkaError(KAFKA_STORAGE_ERROR): its file is gone."""
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

    def flush(self) -> None:
        """What was appended counts, unless this raises."""
        if self._unflushed:
            super().flush()
            self.check()

    def delete_older(self) -> None:
        """Earlier generations' files, the oldest first: between two that are left none is ever missing."""
        self._store.delete(JOURNAL_FILE)
        for generation in generations(self._store):
            if generation < self.generation:
                self._store.delete(generation_file(generation))


class Lease:
    """What the lease file says. `beat` changes as long as its writer lives; `released`: it has stopped in order."""

    __slots__ = ("beat", "generation", "node_id", "released")

    def __init__(self, generation: int, node_id: int, beat: int, released: bool = False) -> None:
        self.generation = generation
        self.node_id = node_id
        self.beat = beat
        self.released = released

    @property
    def sign(self) -> tuple[int, int, int]:
        """What is another one after each sign of life."""
        return self.generation, self.node_id, self.beat

    def write(self, store: LogStore) -> None:
        """Replaces the file. OSError."""
        state = "released" if self.released else "active"
        text = f"{self.generation} {self.node_id} {self.beat} {state}\n"
        store.write_file(LEASE_FILE, text.encode(), flush=False)


def read_lease(store: LogStore) -> Lease | None:
    """None when there is none, or none that can be read."""
    try:
        words = store.read_file(LEASE_FILE).decode().split()
        generation, node_id, beat = map(int, words[:3])
    except (FileNotFoundError, ValueError):
        return None
    return Lease(generation, node_id, beat, words[3:] == ["released"])
