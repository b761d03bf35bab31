"""Check responses to clients at the broker, in the step that sends them.

Here: I23 (in time, each once), I18 and I31 for what reaches applications. `CHECKS` has the checks of
each kind of answer, each a function of a module beside this one; a new kind is a row there.
"""

from __future__ import annotations

from typing import Any

from kwire.protocol import api
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.records import iter_batches
from kwire.sim.answers import (
    commits,
    deleted,
    fetched,
    lookups,
    offsets,
    produced,
    transactions,
)
from kwire.sim.schedule import MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.broker import Broker
    from kwire.replication.core.types import TopicPartition
    from kwire.sim.answers.lookups import Bounds
    from kwire.sim.clients.base import Client
    from kwire.sim.invariants import Invariants
    from kwire.sim.plan import Plan

_GRACE_US = 2 * MS


class Answer:
    """A response that a broker is about to send, with its request."""

    __slots__ = ("bounds", "broker", "client", "early", "event", "node_id", "request", "response")

    def __init__(
        self,
        node_id: int,
        broker: Broker,
        client: Client,
        request: Any,
        response: Any,
        event: int,
        bounds: Bounds,
    ) -> None:
        """`event`: the number of the request's arrival (`Answers.events`); `bounds`: what could be read then."""
        self.node_id = node_id
        self.broker = broker
        self.client = client
        self.request = request
        self.response = response
        self.event = event
        self.bounds = bounds
        self.early = False  # it comes before the time-out that the request gives


class Answers:
    """The checker of responses to clients. `acked`, `delivered`: batches. `errors`: of answers."""

    def __init__(self, invariants: Invariants, plan: Plan) -> None:
        self.invariants = invariants
        self.racks = {b: plan.rack_of(b) for b in range(1, plan.brokers + 1)}
        self.sessions: dict[tuple[str, int], fetched.Session] = {}
        self.broken_batches: set[bytes] = set()  # that clients send on purpose
        self.delivered = 0
        self.acked = 0
        self.reached: set[str] = set()
        self.commits = commits.Commits()
        self.offsets = offsets.Offsets()
        self.events = 0  # requests that have arrived, and answers
        self._arrived: dict[tuple[int, int], tuple[int, int, Bounds]] = {}
        self._free_us: dict[int, int] = {}  # by connection: the time of its last answer

    def on_request(self, connection: int, frame: bytes, broker: Broker) -> None:
        """Record the arrival of a client's request at a broker."""
        correlation = int.from_bytes(frame[4:8], "big")
        self.events += 1
        bounds = lookups.bounds_of(broker) if frame[1] == ApiKey.LIST_OFFSETS else {}
        now_us = self.invariants.schedule.now_us
        self._arrived[connection, correlation] = now_us, self.events, bounds
        if frame[1] == ApiKey.OFFSET_COMMIT:
            self.commits.arrive(frame, self.events, broker)

    def on_response(
        self,
        node_id: int,
        broker: Broker,
        connection: int,
        client: Client,
        frame: bytes,
        paused_us: int,
    ) -> None:
        """Check a response that a broker is about to send to a client."""
        correlation = int.from_bytes(frame[:4], "big")
        self.events += 1
        arrived_us, event, bounds = self._arrived.pop((connection, correlation), (-1, -1, {}))
        if event < 0:
            self.invariants.violated(
                "I23", f"request {correlation} of {client.name} answered twice"
            )
        now_us = self.invariants.schedule.now_us
        free_us, self._free_us[connection] = self._free_us.get(connection, 0), now_us
        sent = client.sent.get(correlation)
        if sent is None:
            return
        key, version, request = sent
        check = CHECKS.get(key)
        if check is None:
            return
        _, response = api.parse_response(key, version, frame)
        answer = Answer(node_id, broker, client, request, response, event, bounds)
        # A connection's requests are served one after the other.
        waited_us = now_us - max(arrived_us, paused_us, free_us)
        limit_ms = WAITS[key](request) if key in WAITS else None
        answer.early = limit_ms is not None and now_us < arrived_us + limit_ms * MS - _GRACE_US
        check(self, answer)
        if limit_ms is not None and waited_us > limit_ms * MS + _GRACE_US:
            self.invariants.violated(
                "I23",
                f"{ApiKey(key).name} of {client.name} was answered by {node_id} after "
                f"{waited_us // MS} ms, its time-out is {limit_ms} ms",
            )

    def hosted(self, answer: Answer, topic_id: bytes, index: int) -> Any:
        """The broker's partition by topic id, or None."""
        for partition in answer.broker.services.replica_manager.partitions():
            if partition.topic_id == topic_id and partition.index == index:
                return partition
        return None

    def reach(self, kind: str, error: int) -> None:
        """Count an answer's error among the states reached."""
        self.reached.add(f"answer {kind} {ErrorCode(error).name}")

    # --- records delivered to applications

    def check_delivered(
        self, topic_id: bytes, key: TopicPartition, position: int, records: bytes
    ) -> None:
        """I31: records begin at the position, or at a later log start, and have no gaps."""
        ghost = self.invariants.partitions.get((topic_id, key[1]))
        if ghost is None:
            return
        for header in iter_batches(records):
            if header.base_offset > position and ghost.compacted is None:
                self.invariants.violated(
                    "I31", f"{ghost.name}: a reader at {position} was given {header.base_offset}"
                )
            position = header.next_offset
            self.delivered += 1

    def check_reset(self, topic_id: bytes, key: TopicPartition) -> None:
        """I18: a consumer's position is reset only after a possible loss or a deletion."""
        ghost = self.invariants.partitions.get((topic_id, key[1]))
        if ghost is None or ghost.leaving or ghost.compacted or ghost.reset_epoch >= 0:
            return
        if not any(log.start for log in ghost.logs.values()):
            self.invariants.violated("I18", f"{ghost.name}: a reader was sent back")


CHECKS: dict[int, Callable[[Answers, Answer], None]] = {
    ApiKey.PRODUCE: produced.check,
    ApiKey.FETCH: fetched.check,
    ApiKey.LIST_OFFSETS: lookups.check,
    ApiKey.DELETE_RECORDS: deleted.check,
    ApiKey.JOIN_GROUP: commits.check_join,
    ApiKey.SYNC_GROUP: commits.check_sync,
    ApiKey.OFFSET_COMMIT: commits.check_commit,
    ApiKey.OFFSET_FETCH: commits.check_fetch,
    ApiKey.INIT_PRODUCER_ID: transactions.check_init,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.check_add,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.check_add_offsets,
    ApiKey.TXN_OFFSET_COMMIT: commits.check_transactional,
    ApiKey.END_TXN: transactions.check_end,
}
"""The check of each kind of answer."""

WAITS: dict[int, Callable[[Any], int | None]] = {
    # The time-out begins after a transaction's verification, as in Kafka.
    ApiKey.PRODUCE: lambda request: None if request.transactional_id else request.timeout_ms,
    ApiKey.FETCH: lambda request: request.max_wait_ms,
    ApiKey.DELETE_RECORDS: lambda request: request.timeout_ms,
}
"""How long a request may wait, in ms, of those that say it; None: nobody knows."""
