"""A shard of transactional ids without a log: records go to a list, markers wait until a test writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from event_recorder import Recorder
from virtual_time import advance

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.clock import Clock, Timers
from kwire.shards.result import Result
from kwire.transactions.metadata import (
    TV_2,
    TransactionMetadata,
    TransactionState,
    TransactionValues,
)
from kwire.transactions.records import TransactionRecord, decode_record, values_of
from kwire.transactions.shard import TransactionShard

ID = "id"
PID = 7
EPOCH = 5
T0 = ("t", 0)
T1 = ("t", 1)
WALL_MS = 1_700_000_000_000


class TxnKit:
    """One shard under a virtual clock, and what surrounds it. `hold`: records are not committed yet;
    `markers_wait`: markers are not written until `write_markers`."""

    abort_interval_ms = 10_000
    expire_interval_ms = 3_600_000
    expiration_ms = 7 * 24 * 3_600_000

    def __init__(self, transaction_version: int = TV_2) -> None:
        self.transaction_version = transaction_version
        self.clock = Clock(now_ms=1_000, wall_ms=WALL_MS)
        self.timers = Timers()
        self.recorder = Recorder()
        self.shard = TransactionShard(3, self, self.clock, self, self.recorder)
        self.log: list[TransactionRecord] = []
        self.timeouts: list[int | None] = []  # of the appends, one for each record
        self.hold = False
        self.fail_with: ErrorCode | None = None
        self._held: list[Callable[[ErrorCode], None]] = []
        self.replicated = False
        self.markers_wait = False
        self.markers: list[tuple[TransactionMetadata, Callable[[ErrorCode], None]]] = []
        self.sent: list[tuple[int, int, str, list[tuple[str, int]], int]] = []
        self.cancelled = 0
        self.next_producer_id = 100
        self.no_producer_id: ErrorCode | None = None

    # --- the shard's surroundings

    def new_producer_id(self) -> int:
        if self.no_producer_id is not None:
            raise KafkaError(self.no_producer_id)
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def append(self, index: int, result: Result[None]) -> None:
        assert index == 3
        self.run(result)

    def is_replicated(self, index: int) -> bool:
        assert index == 3
        return self.replicated

    def send_markers(
        self, index: int, metadata: TransactionMetadata, done: Callable[[ErrorCode], None]
    ) -> None:
        values = metadata.values
        assert index == 3
        self.sent.append(
            (
                values.producer_id,
                values.producer_epoch,
                values.state.name,
                list(values.partitions),
                values.client_version,
            )
        )
        if self.markers_wait:
            self.markers.append((metadata, done))
        else:
            done(ErrorCode.NONE)

    def cancel_markers(self, index: int) -> None:
        self.cancelled += 1
        self.markers = []

    def write_markers(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.markers_wait = False
        markers, self.markers = self.markers, []
        for _, done in markers:
            done(error)

    def schedule(
        self, key: tuple[str, ...], delay_ms: int, operation: Callable[[], Result[None]]
    ) -> None:
        self.timers.schedule(key, self.clock.now_ms + delay_ms, lambda: self.run(operation()))

    def cancel(self, key: tuple[str, ...]) -> None:
        self.timers.cancel(key)

    def advance(self, delay_ms: int) -> None:
        """Advance the clock, firing each due timer in order."""
        advance(self.clock, self.timers, delay_ms)

    # --- the log

    def run(self, result: Result[Any], answers: list[Any] | None = None) -> None:
        """Append the result's records; the answer follows the commit."""

        def finish(error: ErrorCode) -> None:
            if result.records and result.on_append is not None:
                result.on_append(error)
            if answers is not None:
                answers.append(result.response if error is ErrorCode.NONE else error)

        assert not result.records or not result.replay
        if result.records and self.fail_with is not None:
            finish(self.fail_with)
            return
        self.log += result.records  # type: ignore[arg-type]
        self.timeouts += [result.timeout_ms] * len(result.records)
        if result.records and self.hold:
            self._held.append(finish)
        else:
            finish(ErrorCode.NONE)

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Commit the records that were held, or fail them."""
        self.hold = False
        held, self._held = self._held, []
        for finish in held:
            finish(error)

    def restart(self) -> TxnKit:
        """Another coordinator that has loaded the encoded log."""
        kit = TxnKit(self.transaction_version)
        kit.clock, kit.next_producer_id = self.clock, self.next_producer_id
        kit.shard = TransactionShard(3, kit, kit.clock, kit, kit.recorder)
        for offset, record in enumerate(self.log):
            decoded = decode_record(*record.encode())
            assert decoded is not None
            kit.shard.replay(offset, -1, decoded)
            kit.log.append(decoded)
        for result in kit.shard.on_loaded():
            kit.run(result)
        return kit

    # --- requests

    def ask(self, operation: Callable[[], Result[Any]]) -> Any:
        """The answer; an error code if the request is refused; None while its record is held."""
        answers: list[Any] = []
        try:
            self.run(operation(), answers)
        except KafkaError as error:
            return error.code
        assert len(answers) <= 1
        return answers[0] if answers else None

    def init(
        self,
        expected: tuple[int, int] | None = None,
        *,
        transactional_id: str = ID,
        timeout_ms: int = 60_000,
    ) -> Any:
        return self.ask(lambda: self.shard.init_producer_id(transactional_id, timeout_ms, expected))

    def add(
        self,
        *partitions: tuple[str, int],
        producer_id: int = PID,
        epoch: int = EPOCH,
        version: int = 0,
        transactional_id: str = ID,
    ) -> Any:
        return self.ask(
            lambda: self.shard.add_partitions(
                transactional_id, producer_id, epoch, partitions or (T0,), version
            )
        )

    def verify(
        self, *partitions: tuple[str, int], producer_id: int = PID, epoch: int = EPOCH
    ) -> Any:
        try:
            return self.shard.verify_partitions(ID, producer_id, epoch, partitions or (T0,))
        except KafkaError as error:
            return error.code

    def end(
        self,
        commit: bool = True,
        *,
        producer_id: int = PID,
        epoch: int = EPOCH,
        version: int = 0,
        transactional_id: str = ID,
    ) -> Any:
        return self.ask(
            lambda: self.shard.end_transaction(
                transactional_id, producer_id, epoch, commit, version
            )
        )

    # --- state

    def put(self, state: str, pending: str | None = None, **values: Any) -> TransactionMetadata:
        """Put the id into a state, as if its record had been loaded."""
        there = {
            "producer_id": PID,
            "producer_epoch": EPOCH,
            "timeout_ms": 60_000,
            "state": TransactionState[state],
            "last_update_ms": WALL_MS,
            "start_ms": -1 if state == "Empty" else WALL_MS,
            "partitions": {T0: None}
            if state in ("Ongoing", "PrepareCommit", "PrepareAbort")
            else {},
        }
        metadata = self.shard._put(ID, TransactionValues(**(there | values)))
        metadata.pending_state = None if pending is None else TransactionState[pending]
        self.shard._note_open(metadata)
        return metadata

    @property
    def metadata(self) -> TransactionMetadata:
        return self.shard.transactions[ID]

    @property
    def values(self) -> TransactionValues:
        return self.metadata.values

    @property
    def written(self) -> list[str]:
        """The states in the log, "-" for a tombstone."""
        return [
            "-" if record.value is None else values_of(record.value).state.name
            for record in self.log
        ]
