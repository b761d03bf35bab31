"""Runs the shards of a coordinator on the log: load, append, respond once committed, timers, unload.

Answers to org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime and Kafka's
CoordinatorLoaderImpl. A shard lives while this broker leads its partition of the coordinator's
topic. Requests for a shard get COORDINATOR_LOAD_IN_PROGRESS until it is loaded (context.py).

Invariants: records are replayed in the order of their offsets, directly after their append and
before any response; a response is sent when the records it depends on are below the high watermark;
responses are sent after the operation that gave them, so a client's next request never sees a state
half changed.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from kwire.protocol.errors import ErrorCode, KafkaError
from kwire.replication.core.events import ignore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.replication.core.clock import Clock, Timers
    from kwire.replication.core.events import LogEvent
    from kwire.replication.core.outbox import Buffer
    from kwire.replication.core.work import WorkQueue
    from kwire.replication.replica.manager import ReplicaManager
    from kwire.replication.replica.partition import Partition
    from kwire.shards.context import ShardContext
    from kwire.shards.kind import Shard, ShardKind
    from kwire.shards.result import Deferred, Result

ShardT = TypeVar("ShardT", bound="Shard")
T = TypeVar("T")


class CoordinatorRuntime(Generic[ShardT]):
    """The shards of the partitions that this broker leads, by partition index."""

    __slots__ = (
        "_answers",
        "_depth",
        "clock",
        "contexts",
        "kind",
        "log_event",
        "replica_manager",
        "timers",
        "work",
    )

    def __init__(
        self,
        kind: ShardKind[ShardT],
        clock: Clock,
        timers: Timers,
        replica_manager: ReplicaManager,
        work: WorkQueue,
        log_event: LogEvent = ignore,
    ) -> None:
        self.work = work
        self.log_event = log_event
        self.kind = kind
        self.clock = clock
        self.timers = timers
        self.replica_manager = replica_manager
        self.contexts: dict[int, ShardContext[ShardT]] = {}
        self._depth = 0
        self._answers: list[Callable[[], None]] = []

    def role_changed(self, partition: Partition, leads: bool) -> None:
        """Load the shard of `partition` if this broker leads it now, else unload it."""
        context = self.contexts.get(partition.index)
        if leads and context is not None and context.partition is partition:
            return  # a new epoch of the same leader: the state matches the log already
        if context is not None:
            del self.contexts[partition.index]
            self.work.start(context.unload())
        if leads:
            # Start-up time: most brokers start without shards, so the import waits for the first.
            from kwire.shards.context import ShardContext

            context = ShardContext(self, partition)
            self.contexts[partition.index] = context
            try:
                context.loading = self.work.start(
                    context.load(), lambda error: self._loading_failed(context)
                )
            except Exception:
                self._loading_failed(context)
                raise

    def _loading_failed(self, context: ShardContext[ShardT]) -> None:
        """As in Kafka, this broker is not the coordinator of what it could not load."""
        if self.contexts.get(context.partition.index) is context:
            del self.contexts[context.partition.index]

    def _context(self, index: int) -> ShardContext[ShardT]:
        context = self.contexts.get(index)
        if context is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if context.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return context

    def read(self, index: int, operation: Callable[[ShardT], T]) -> T:
        """Run a read-only operation.

        KafkaError: NOT_COORDINATOR if another broker leads, COORDINATOR_LOAD_IN_PROGRESS."""
        context = self._context(index)
        context.shard.advance(context.partition.settled_offset())
        return operation(context.shard)

    def write(
        self,
        index: int,
        operation: Callable[[ShardT], Result[T]],
        respond: Callable[[T], None],
        fail: Callable[[ErrorCode], None],
    ) -> None:
        """Run `operation`; then call `respond` once its records are committed, or `fail`."""

        def run() -> None:
            try:
                context = self._context(index)
                result = operation(context.shard)
            except KafkaError as error:
                refusal = error.code
                self.defer(lambda: fail(refusal))
                return

            def done(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    self.defer(lambda: respond(result.response))
                else:
                    self.defer(lambda: fail(error))

            context.append(result, done)

        self.run(run)

    def complete_transaction(
        self,
        index: int,
        producer_id: int,
        is_commit: bool,
        marker: Buffer,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Append a transaction's marker to a shard, which ends it; `done` once it is committed."""

        def run() -> None:
            try:
                context = self._context(index)
            except KafkaError as error:
                refusal = error.code
                self.defer(lambda: done(refusal))
                return
            context.complete_transaction(
                producer_id, is_commit, marker, lambda error: self.defer(lambda: done(error))
            )

        self.run(run)

    def write_all(self, operation: Callable[[ShardT], Result[None]]) -> None:
        """Run `operation` on every shard, now or once it is loaded; failed appends are ignored."""

        def run() -> None:
            for context in list(self.contexts.values()):
                if context.is_loading:
                    context.deferred.append(operation)
                else:
                    context.append(operation(context.shard), _ignore)

        self.run(run)

    def deferred(self, deliver: Callable[[T], None]) -> Deferred[T]:
        """A response that a shard may complete in an operation; delivered when that has ended."""
        from kwire.shards.result import Deferred

        return Deferred(lambda value: self.defer(lambda: deliver(value)))

    def defer(self, answer: Callable[[], None]) -> None:
        self._answers.append(answer)

    def run(self, operation: Callable[[], None]) -> None:
        """Run an operation on shards, then send its responses in order."""
        self._depth += 1
        try:
            operation()
        finally:
            self._depth -= 1
        if self._depth:
            return
        while self._answers:
            answers, self._answers = self._answers, []
            for answer in answers:
                answer()


def _ignore(error: ErrorCode) -> None:
    """Ignore the outcome of an append."""
