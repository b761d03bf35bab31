"""The transaction coordinator: maps a transactional id to its partition and passes requests to the shard.

Answers to org.apache.kafka.coordinator.transaction.TransactionCoordinator. Its epoch is the leader
epoch of the partition of `__transaction_state`. Each `reply` callback is called once, in the same step
or a later one.
"""

from __future__ import annotations

from typing import TypeVar

from kwire.coordinator.group_coordinator import partition_for
from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.metadata import TRANSACTION_STATE_TOPIC
from kwire.shards.runtime import CoordinatorRuntime
from kwire.transactions.changes import error_answer
from kwire.transactions.events import TransactionEvent
from kwire.transactions.metadata import TV_2
from kwire.transactions.records import decode_record
from kwire.transactions.shard import TransactionShard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Protocol

    from kwire.replication.config.broker_config import BrokerConfig
    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.metadata import MetadataCache
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.core.work import WorkQueue
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition
    from kwire.shards.result import CoordinatorTimer, Result
    from kwire.transactions.changes import Answer
    from kwire.transactions.metadata import TransactionMetadata
    from kwire.transactions.records import TransactionRecord

    class Markers(Protocol):
        """Writes markers into partitions of all brokers; see MarkerSender."""

        def send(
            self,
            shard_partition: int,
            coordinator_epoch: int,
            producer_id: int,
            producer_epoch: int,
            commit: bool,
            partitions: Iterable[TopicPartition],
            done: Callable[[ErrorCode], None],
            transaction_version: int = 1,
        ) -> Collection[TopicPartition]: ...

        def cancel(self, shard_partition: int) -> None: ...


T = TypeVar("T")

_BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionShards:
    """The kind of shard that keeps transactional ids (a ShardKind), and what surrounds each."""

    timer_prefix = "transaction-coordinator"
    compression = "none"

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        replica_manager: ReplicaManager,
        markers: Markers,
        new_producer_id: Callable[[], int],
        transaction_version: int,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log_event = replica_manager.log_event
        self._markers = markers
        self.new_producer_id = new_producer_id
        self.transaction_version = transaction_version
        self.unreadable = TransactionEvent.TRANSACTIONS_UNREADABLE
        self.runtime: CoordinatorRuntime[TransactionShard] | None = None

    @property
    def append_timeout_ms(self) -> int:
        return self._config.request_timeout_ms

    @property
    def abort_interval_ms(self) -> int:
        return self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms

    @property
    def expire_interval_ms(self) -> int:
        return self._config.transaction_remove_expired_transaction_cleanup_interval_ms

    @property
    def expiration_ms(self) -> int:
        return self._config.transactional_id_expiration_ms

    def make(self, timer: CoordinatorTimer, partition: Partition) -> TransactionShard:
        return TransactionShard(partition.index, self, self._clock, timer, self._log_event)

    def decode(
        self, key: bytes | memoryview, value: bytes | memoryview | None
    ) -> TransactionRecord | None:
        return decode_record(key, value)

    # --- what a shard asks for

    def append(self, index: int, result: Result[None]) -> None:
        assert self.runtime is not None
        self.runtime.write(index, lambda _: result, _ignore, _ignore)

    def is_replicated(self, index: int) -> bool:
        assert self.runtime is not None
        return len(self.runtime.contexts[index].partition.isr) > 1

    def send_markers(
        self, index: int, metadata: TransactionMetadata, done: Callable[[ErrorCode], None]
    ) -> Collection[TopicPartition]:
        """Write the markers of a decided transaction; `done` may be called before this returns.

        The result has the partitions that lack their marker, now and later."""
        assert self.runtime is not None
        values = metadata.values
        if not values.partitions:
            done(ErrorCode.NONE)
            return ()
        return self._markers.send(
            index,
            self.runtime.contexts[index].partition.leader_epoch,
            values.producer_id,
            values.producer_epoch,
            values.state.name == "PrepareCommit",
            values.partitions,
            done,
            values.client_version,
        )

    def cancel_markers(self, index: int) -> None:
        self._markers.cancel(index)


class TransactionCoordinator:
    """The transaction coordinator of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        metadata: MetadataCache,
        replica_manager: ReplicaManager,
        work: WorkQueue,
        markers: Markers,
        new_producer_id: Callable[[], int],
        transaction_version: int,
    ) -> None:
        """`transaction_version`: TV_0 or TV_2, of the cluster: of the log, and of aborts that the
        coordinator itself decides on."""
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self.transaction_version = transaction_version
        kind = TransactionShards(
            config, clock, replica_manager, markers, new_producer_id, transaction_version
        )
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            kind, clock, timers, replica_manager, work, replica_manager.log_event
        )
        kind.runtime = self.runtime

    def role_changed(self, partition: Partition, leads: bool) -> None:
        """This broker leads a partition of `__transaction_state`, or does not any more."""
        self.runtime.role_changed(partition, leads)

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that keeps the id."""
        count = self._metadata.partition_count(TRANSACTION_STATE_TOPIC)
        return partition_for(
            transactional_id, count or self._config.transaction_state_log_num_partitions
        )

    # --- requests

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        reply: Callable[[Answer], None],
    ) -> None:
        """InitProducerId with a transactional id. `expected`: the producer's id and epoch (KIP-360)."""
        if not transactional_id:
            reply(error_answer(ErrorCode.INVALID_REQUEST))
        elif not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            reply(error_answer(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        else:
            self.runtime.write(
                self.partition_for(transactional_id),
                lambda shard: shard.init_producer_id(transactional_id, timeout_ms, expected),
                reply,
                lambda error: reply(error_answer(error)),
            )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        version: int,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Add partitions to the producer's transaction. `version`: TV_0 or TV_2, of the client.

        While its last one is being ended, or another change is written, the request waits (waiting.py)."""
        if not transactional_id:
            done(ErrorCode.INVALID_REQUEST)
            return
        index, clock = self.partition_for(transactional_id), self._clock
        deadline_ms = clock.now_ms + self._wait_ms(version)

        def ask() -> None:
            waits = False

            def add(shard: TransactionShard) -> Result[None]:
                nonlocal waits
                try:
                    return shard.add_partitions(
                        transactional_id, producer_id, producer_epoch, partitions, version
                    )
                except KafkaError as error:
                    waits = error.code is _BUSY and clock.now_ms < deadline_ms
                    if waits:
                        shard.waiting.put(transactional_id, ask, deadline_ms)
                    raise

            def refused(error: ErrorCode) -> None:
                if not waits:
                    done(error)

            self.runtime.write(index, add, lambda _: done(ErrorCode.NONE), refused)

        ask()

    def _wait_ms(self, version: int) -> int:
        if version < TV_2:  # the client's own request: no other transactions wait behind it
            return self._config.add_partitions_to_txn_retry_backoff_max_ms
        return self._config.add_partitions_to_txn_retry_backoff_ms

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether the partitions belong to the producer's open transaction; an error for each."""
        wanted = list(partitions)
        if not transactional_id:
            return dict.fromkeys(wanted, ErrorCode.INVALID_REQUEST)
        try:
            return self.runtime.read(
                self.partition_for(transactional_id),
                lambda shard: shard.verify_partitions(
                    transactional_id, producer_id, producer_epoch, wanted
                ),
            )
        except KafkaError as error:
            return dict.fromkeys(wanted, error.code)

    def end_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        version: int,
        reply: Callable[[Answer], None],
    ) -> None:
        """Commit or abort. `version`: TV_0 or TV_2, of the client."""
        if not transactional_id:
            reply(error_answer(ErrorCode.INVALID_REQUEST))
            return
        self.runtime.write(
            self.partition_for(transactional_id),
            lambda shard: shard.end_transaction(
                transactional_id, producer_id, producer_epoch, commit, version
            ),
            reply,
            lambda error: reply(error_answer(error)),
        )

    # --- descriptions

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """A transactional id as it is committed.

        KafkaError: INVALID_REQUEST, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
        TRANSACTIONAL_ID_NOT_FOUND."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        metadata = self.runtime.read(
            self.partition_for(transactional_id),
            lambda shard: shard.transactions.get(transactional_id),
        )
        if metadata is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return metadata

    def all_transactions(self) -> Iterator[list[TransactionMetadata]]:
        """The ids that this broker coordinates, by partition. KafkaError(COORDINATOR_LOAD_IN_PROGRESS)."""
        for index in sorted(self.runtime.contexts):
            if index in self.runtime.contexts:
                yield self.runtime.read(index, lambda shard: list(shard.transactions.values()))


def _ignore(_: object) -> None:
    """Nobody waits for the outcome."""
