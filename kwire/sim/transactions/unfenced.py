"""A producer that nobody has fenced, and whose transaction has not timed out, is not refused for its epoch (I52).

Of each transactional id the last epoch is known that a client was given while no other InitProducerId for the id was
on its way. It counts until another one is sent, a coordinator says that a transaction of the producer timed out, or
the coordinator moves: one that does not know that yet has older epochs, in Kafka, too. With version 2 the answer to
EndTxn gives the next one.
"""

from __future__ import annotations

from kwire.protocol.errors import ErrorCode
from kwire.protocol.records import iter_batches
from kwire.replication.core.metadata import TRANSACTION_STATE_TOPIC
from kwire.sim.schedule import MS
from kwire.transactions.events import TransactionEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.replication.core.outbox import Log
    from kwire.sim.answers.checker import Answer
    from kwire.sim.ghost import GhostPartition
    from kwire.sim.invariants import Invariants

    Producer = tuple[int, int]
    """Id and epoch."""

_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class _Epoch:
    """The producer that has a transactional id. `ghost`, `leader_epoch`: the coordinator's; `is_alone`: no other broker
    took itself for the coordinator; `is_ending`: an EndTxn is sent, whose markers may raise the epoch."""

    __slots__ = (
        "ghost",
        "is_alone",
        "is_ending",
        "leader_epoch",
        "producer",
        "since_us",
        "timeout_ms",
    )

    def __init__(
        self,
        producer: Producer,
        ghost: GhostPartition,
        leader_epoch: int,
        since_us: int,
        timeout_ms: int,
    ) -> None:
        self.producer = producer
        self.ghost = ghost
        self.leader_epoch = leader_epoch
        self.since_us = since_us
        self.timeout_ms = timeout_ms
        self.is_alone = True
        self.is_ending = False


class Unfenced:
    """The producers of one run that are not fenced."""

    def __init__(self, checker: Invariants) -> None:
        self._checker = checker
        self._on_their_way: dict[str, set[int]] = {}
        self._epochs: dict[str, _Epoch] = {}
        self.clocks_jump = False
        self.skew_ms = 0  # by which the clocks of two brokers may differ

    # --- what may fence

    def asked(self, transactional_id: str, request: object) -> None:
        """A client sends InitProducerId."""
        self._epochs.pop(transactional_id, None)
        self._on_their_way.setdefault(transactional_id, set()).add(id(request))

    def on_event(self, effect: Log) -> None:
        """A coordinator may abort a transaction for its time-out, and fence its producer: not too soon."""
        if effect.event is not TransactionEvent.TRANSACTION_TIMED_OUT:
            return
        name = str(effect.fields["transactional_id"])
        known = self._epochs.get(name)
        producer = effect.fields["producer_id"], effect.fields["producer_epoch"]
        if known is None or producer[0] != known.producer[0] or producer < known.producer:
            return  # of an earlier epoch: a coordinator that does not know yet that it is deposed
        del self._epochs[name]
        open_us = self._checker.schedule.now_us - known.since_us
        truth = known.ghost.truth
        if truth is None or truth.leader_epoch != known.leader_epoch:
            open_us += self.skew_ms * MS  # the next coordinator goes by its own clock, as in Kafka
        if open_us < known.timeout_ms * MS and not self.clocks_jump:
            self._checker.violated(
                "I52",
                f"the transaction of {name} has timed out after {open_us // MS} ms at most, its time-out is "
                f"{known.timeout_ms} ms",
            )

    # --- epochs

    def initialized(self, answer: Answer) -> None:
        """A coordinator answers InitProducerId with an epoch."""
        request, response = answer.request, answer.response
        name = request.transactional_id
        waiting = self._on_their_way.get(name, set())
        waiting.discard(id(request))
        if waiting or response.error_code:
            return
        ghost = self._coordinating(answer.broker, name)
        if ghost is None or ghost.truth is None or ghost.truth.leader != answer.node_id:
            return
        producer = response.producer_id, response.producer_epoch
        now_us, timeout_ms = self._checker.schedule.now_us, request.transaction_timeout_ms
        known = _Epoch(producer, ghost, ghost.truth.leader_epoch, now_us, timeout_ms)
        known.is_alone = self._is_alone(ghost)
        self._epochs[name] = known

    def ending(self, transactional_id: str) -> None:
        """A client sends EndTxn."""
        known = self._epochs.get(transactional_id)
        if known is not None:
            known.is_ending = True

    def ended(self, answer: Answer) -> None:
        """A coordinator answers EndTxn, with the next epoch if each transaction has its own."""
        known = self._epochs.get(answer.request.transactional_id)
        request, response = answer.request, answer.response
        if known is None or known.producer != (request.producer_id, request.producer_epoch):
            return
        if response.error_code:
            self.refused(answer, request.transactional_id, known.producer, response.error_code)
            return
        known.is_ending = False
        if response.producer_id >= 0:
            known.producer = response.producer_id, response.producer_epoch

    # --- answers

    def refused(
        self, answer: Answer, transactional_id: str, producer: Producer, error: int
    ) -> None:
        """I52 of an answer of a coordinator."""
        known = self._epochs.get(transactional_id)
        if known is None or known.producer != producer:
            return
        self._checker.counts["answers to unfenced producers"] += 1
        if error in _FENCED and self._counts(known, answer, transactional_id, answer.node_id):
            self._refuse(answer, transactional_id, known, error)

    def refused_batch(
        self, answer: Answer, ghost: GhostPartition | None, error: int, records: bytes | None
    ) -> None:
        """I52 of an answer to Produce: the leader has asked the coordinator, or knows a marker."""
        name = answer.request.transactional_id
        known = self._epochs.get(name) if name is not None else None
        if known is None or records is None or error not in _FENCED or known.is_ending:
            return
        header = next(iter(iter_batches(records)), None)
        if header is None or (header.producer_id, header.producer_epoch) != known.producer:
            return
        excepts = self._checker.transactions.excepts
        if ghost is None or excepts(ghost) or not known.is_alone:
            return
        if self._counts(known, answer, name, None):
            self._refuse(answer, name, known, error)

    def _refuse(self, answer: Answer, name: str, known: _Epoch, error: int) -> None:
        self._checker.violated(
            "I52",
            f"{answer.node_id} answers {type(answer.request).__name__} of {name}, producer {known.producer}, "
            f"which nobody has fenced, with {ErrorCode(error).name}",
        )

    def _counts(self, known: _Epoch, answer: Answer, name: str, node_id: int | None) -> bool:
        """Whether the coordinator is the one that gave the epoch, and nothing of its log was lost."""
        ghost = self._coordinating(answer.broker, name)
        return (
            ghost is not None
            and ghost.truth is not None
            and ghost.truth.leader_epoch == known.leader_epoch
            and node_id in (None, ghost.truth.leader)
            and not self._checker.transactions.excepts(ghost)
        )

    def _coordinating(self, broker: Broker, name: str) -> GhostPartition | None:
        """The partition that keeps a transactional id, as a broker sees it."""
        index = broker.services.transactions.partition_for(name)
        for ghost in self._checker.partitions.values():
            if ghost.name == f"{TRANSACTION_STATE_TOPIC}-{index}" and not ghost.leaving:
                return ghost
        return None

    def _is_alone(self, ghost: GhostPartition) -> bool:
        index = ghost.key[1]
        for node_id, broker in self._checker.brokers.items():
            coordinator = broker.services.transactions_if_used
            if coordinator is None or ghost.truth is None or node_id == ghost.truth.leader:
                continue
            if index in coordinator.runtime.contexts:
                return False
        return True
