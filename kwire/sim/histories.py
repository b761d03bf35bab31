"""Check responses to clients at the broker, in the step that sends them.

I17 (nothing above the high watermark), I18 (what is read is committed), I23 (in time, acks=all only when committed),
I24's set of acknowledged batches, I31 (reads without gaps, of what was written).
"""

from __future__ import annotations

from typing import Any

from kwire.protocol import api
from kwire.protocol.records import iter_batches
from kwire.sim.clients import FETCH, PRODUCE
from kwire.sim.ghost import Acked, Entry
from kwire.sim.schedule import MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.protocol.schemas.fetch import FetchRequest, FetchResponse
    from kwire.protocol.schemas.produce import ProduceRequest, ProduceResponse
    from kwire.replication.core.types import TopicPartition
    from kwire.sim.clients import Client
    from kwire.sim.invariants import Invariants

_GRACE_US = 2 * MS


class Histories:
    """The checker of responses to clients."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._arrived: dict[tuple[int, int], int] = {}
        self.delivered = 0
        self.acked = 0

    def on_request(self, connection: int, frame: bytes) -> None:
        """Record the arrival of a client's request at a broker."""
        correlation = int.from_bytes(frame[4:8], "big")
        self._arrived[connection, correlation] = self._invariants.schedule.now_us

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
        arrived_us = self._arrived.pop((connection, correlation), None)
        if arrived_us is None:
            self._invariants.violated(
                "I23", f"request {correlation} of {client.name} answered twice"
            )
        sent = client.sent.get(correlation)
        if sent is None:
            return
        key, version, request = sent
        if key not in (PRODUCE, FETCH):
            return
        _, response = api.parse_response(key, version, frame)
        now_us = self._invariants.schedule.now_us
        since_us = max(arrived_us, paused_us)
        if key == PRODUCE:
            limit_ms = request.timeout_ms  # type: ignore[attr-defined]
            self._check_produced(node_id, broker, request, response)  # type: ignore[arg-type]
        else:
            limit_ms = request.max_wait_ms  # type: ignore[attr-defined]
            self._check_fetched(node_id, broker, request, response)  # type: ignore[arg-type]
        if now_us - since_us > limit_ms * MS + _GRACE_US:
            self._invariants.violated(
                "I23",
                f"{api.ApiKey(key).name} of {client.name} was answered by {node_id} after "
                f"{(now_us - since_us) // MS} ms, its time-out is {limit_ms} ms",
            )

    def _check_produced(
        self, node_id: int, broker: Broker, request: ProduceRequest, response: ProduceResponse
    ) -> None:
        topic, answer = request.topic_data[0], response.responses[0].partition_responses[0]
        if answer.error_code or answer.base_offset < 0:
            return
        invariants, index = self._invariants, answer.index
        partition = broker.services.replica_manager.hosted((topic.name, index))
        if partition is None:
            return
        ghost = invariants.ghost(topic.name, partition.topic_id, index)
        if ghost.leaving:
            return
        if ghost.compacted is not None:
            end = answer.base_offset + _records_in(topic.partition_data[0].records)
            if request.acks == -1 and partition.log.high_watermark < end:
                invariants.violated(
                    "I23", f"{ghost.name}: {node_id} acknowledges up to {end} too early"
                )
            return
        log = ghost.logs[node_id]
        entry = log.covering(answer.base_offset)
        if entry is None:
            if answer.base_offset >= log.start:
                invariants.violated(
                    "I31",
                    f"{ghost.name}: {node_id} says that it wrote {answer.base_offset}, its log ends at {log.end}",
                )
            return
        records = topic.partition_data[0].records
        assert records is not None
        if entry.base != answer.base_offset or entry.body != bytes(records[21:]):
            invariants.violated(
                "I31",
                f"{ghost.name}: {node_id} says {answer.base_offset} is what was sent; it is {entry}",
            )
        if request.acks != -1:
            return
        if partition.log.high_watermark < entry.next:
            invariants.violated(
                "I23",
                f"{ghost.name}: {node_id} acknowledges {entry} to acks=all, its high watermark is "
                f"{partition.log.high_watermark}",
            )
        if partition.leader_epoch >= ghost.reset_epoch:
            self.acked += 1
            ghost.acked.append(
                Acked(entry, partition.effective_min_isr(), invariants.schedule.now_us)
            )

    def _check_fetched(
        self, node_id: int, broker: Broker, request: FetchRequest, response: FetchResponse
    ) -> None:
        if not response.responses:
            return
        topic_id, data = response.responses[0].topic_id, response.responses[0].partitions[0]
        if not data.records:
            return
        invariants = self._invariants
        for partition in broker.services.replica_manager.partitions():
            if partition.topic_id == topic_id and partition.index == data.partition_index:
                break
        else:
            return
        ghost = invariants.ghost(partition.topic, topic_id, partition.index)
        if ghost.leaving:
            return
        high_watermark = partition.log.high_watermark
        if ghost.compacted is not None:
            for header in iter_batches(data.records):
                if header.next_offset > high_watermark:
                    invariants.violated(
                        "I17", f"{ghost.name}: {node_id} serves {header.last_offset}"
                    )
            return
        for header in iter_batches(data.records):
            place = header.partition_leader_epoch, header.base_offset
            known = ghost.written.get(place)
            if known is None:
                invariants.violated("I31", f"{ghost.name}: {node_id} serves {place}, never written")
            entry: Entry = known[0]
            if entry.next > high_watermark:
                invariants.violated(
                    "I17",
                    f"{ghost.name}: {node_id} serves {entry}, high watermark {high_watermark}",
                )
            if (
                partition.leader_epoch >= ghost.reset_epoch
                and partition.leader_epoch >= 0
                and not ghost.committed.holds(entry)
            ):
                invariants.violated("I18", f"{ghost.name}: {node_id} serves {entry}, not committed")

    # --- records delivered to applications

    def check_delivered(
        self, topic_id: bytes, key: TopicPartition, position: int, records: bytes
    ) -> None:
        """I31: records begin at the position, or at a later log start, and have no gaps."""
        ghost = self._invariants.partitions.get((topic_id, key[1]))
        if ghost is None:
            return
        for header in iter_batches(records):
            if header.base_offset > position and ghost.compacted is None:
                self._invariants.violated(
                    "I31", f"{ghost.name}: a reader at {position} was given {header.base_offset}"
                )
            position = header.next_offset
            self.delivered += 1

    def check_reset(self, topic_id: bytes, key: TopicPartition) -> None:
        """I18: a consumer's position is reset only after a possible loss or a deletion."""
        ghost = self._invariants.partitions.get((topic_id, key[1]))
        if ghost is None or ghost.leaving or ghost.compacted or ghost.reset_epoch >= 0:
            return
        if not any(log.start for log in ghost.logs.values()):
            self._invariants.violated("I18", f"{ghost.name}: a reader was sent back")


def _records_in(records: Any) -> int:
    return sum(header.count for header in iter_batches(records))
