"""Guards for transactional appends: what must be verified is, before the append.

Answers to maybeStartTransactionVerificationForPartitions of ReplicaManager, and to its translation of the
coordinator's errors for producers (KIP-890). Partitions where the transaction is open already are not
verified again.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.protocol.records import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_FLAG,
)
from kwire.replication.log.verification import NOT_VERIFIED, start_verification

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kwire.replication.core.outbox import Buffer
    from kwire.replication.core.types import TopicPartition
    from kwire.replication.log.verification import VerificationGuard
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.transactions.verification import Verifier

    Guard = VerificationGuard | KafkaError
    """The guard of an append, or why it is refused."""

# The client's producer is in order, and repeats the request. Older ones know of these only NOT_ENOUGH_REPLICAS,
# which does not make them look for another leader; those of version 2 know CONCURRENT_TRANSACTIONS.
_RETRIED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Guards:
    """Gets guards for one transaction's appends. `adds`: its partitions are added to it (version 2).

    `knows_abortable`: the client understands TRANSACTION_ABORTABLE."""

    __slots__ = ("_adds", "_knows_abortable", "_replicas", "_transactional_id", "_verifier")

    def __init__(
        self,
        verifier: Verifier,
        replicas: ReplicaManager,
        transactional_id: str,
        *,
        adds: bool,
        knows_abortable: bool,
    ) -> None:
        self._verifier = verifier
        self._replicas = replicas
        self._transactional_id = transactional_id
        self._adds = adds
        self._knows_abortable = knows_abortable

    def get(
        self,
        producer_id: int,
        producer_epoch: int,
        sequences: Mapping[TopicPartition, int],
        done: Callable[[dict[TopicPartition, VerificationGuard | ErrorCode]], None],
    ) -> None:
        """Get guards for partitions of this broker; `sequences`: the first of each batch.

        `done`, now or later, with a guard or an error for each: the partition's or the
        coordinator's."""
        found: dict[TopicPartition, VerificationGuard | ErrorCode] = {}

        def start() -> list[TopicPartition]:
            unverified = []
            for key, sequence in sequences.items():
                try:
                    guard = self._start(key, producer_id, producer_epoch, sequence)
                except KafkaError as error:
                    found[key] = error.code
                    continue
                found[key] = guard or NOT_VERIFIED
                if guard is not None:
                    unverified.append(key)
            return unverified

        self._verifier.verify(
            self._transactional_id,
            producer_id,
            producer_epoch,
            start,
            self._adds,
            lambda errors: done({**found, **errors}),
            knows_abortable=self._knows_abortable,
        )

    def _start(
        self, key: TopicPartition, producer_id: int, producer_epoch: int, sequence: int
    ) -> VerificationGuard | None:
        partition = self._replicas.partition(*key)
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        producers, now_ms = partition.log.producer_state, self._replicas.clock.wall_ms
        return start_verification(
            producers, producer_id, producer_epoch, sequence, now_ms, self._adds
        )

    def of_batches(
        self,
        batches: Iterable[tuple[TopicPartition, Buffer]],
        done: Callable[[dict[TopicPartition, Guard]], None],
    ) -> None:
        """Get guards for a producer's batches; `done` as of `get`, with errors as producers know them.

        Batches that are not transactional, or damaged, get none."""
        producers: set[tuple[int, int]] = set()
        sequences: dict[TopicPartition, int] = {}
        for key, records in batches:
            if len(records) < HEADER_SIZE:
                continue
            fields = HEADER.unpack_from(records)
            is_transactional = fields[MAGIC] == 2 and fields[ATTRIBUTES] & TRANSACTIONAL_FLAG
            if is_transactional and fields[PRODUCER_ID] >= 0:
                producers.add((fields[PRODUCER_ID], fields[PRODUCER_EPOCH]))
                sequences.setdefault(key, fields[BASE_SEQUENCE])
        if len(producers) > 1:
            refusal = KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "Transactional records contained more than one producer ID",
            )
            done(dict.fromkeys(sequences, refusal))
            return
        if not producers:
            done({})
            return
        [(producer_id, producer_epoch)] = producers
        self.get(
            producer_id,
            producer_epoch,
            sequences,
            lambda found: done({key: self._for_producers(guard) for key, guard in found.items()}),
        )

    def _for_producers(self, guard: VerificationGuard | ErrorCode) -> Guard:
        if not isinstance(guard, ErrorCode):
            return guard
        if guard is ErrorCode.INVALID_TXN_STATE:
            return KafkaError(guard, "Partition was not added to the transaction")
        is_known = self._adds and guard is ErrorCode.CONCURRENT_TRANSACTIONS
        if guard in _RETRIED and not is_known:
            return KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "Unable to verify the partition has been added to the transaction."
                f" Underlying error: {guard.name}",
            )
        return KafkaError(guard)
