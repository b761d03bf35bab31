"""A few brokers in memory that replicate for real: partitions, logs, fetchers, handlers, and frames between them.

Time is virtual and stands still unless a test moves it. Messages are bytes; what a step received is overwritten after
it, so that a view kept too long shows. `talk` notes what followers asked and got, as one line each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from types import SimpleNamespace
from typing import Any

from event_recorder import Recorder
from log_harness import check_invariants

from kwire.apis import served_ranges
from kwire.protocol import api
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record, iter_batches, iter_records
from kwire.protocol.schemas.control_plane import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kwire.replication.config.broker_config import BrokerConfig
from kwire.replication.core.clock import Clock, Timers
from kwire.replication.core.log_store import LogStore
from kwire.replication.core.memory_log_store import MemoryLogStore
from kwire.replication.core.metadata import MetadataCache
from kwire.replication.core.outbox import Close, HangUp, Outbox, Reply, Send
from kwire.replication.core.peers import Peers
from kwire.replication.fetcher.manager import ReplicaFetcherManager
from kwire.replication.log.log import AppendOrigin, Log
from kwire.replication.log_dirs.manager import LogDirStore, LogManager
from kwire.replication.replica.fetch_session import FetchSessionCache
from kwire.replication.replica.manager import ReplicaManager
from kwire.session import Sessions


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\x01")


class Node:
    """One broker: the real parts, without a controller."""

    def __init__(
        self,
        rig: Rig,
        node_id: int,
        store: MemoryLogStore | None = None,
        fetch_version: int = 17,
        dirs: dict[str, LogStore | None] | None = None,
    ) -> None:
        """`dirs`: several log directories by path; None for one that cannot be opened."""
        self.rig = rig
        self.id = node_id
        self.fetch_version = fetch_version
        self.store = store or MemoryLogStore(lambda: rig.clock.wall_ms)
        self.timers = Timers()
        self.outbox = Outbox()
        self.config = BrokerConfig({"node.id": str(node_id), **rig.settings})
        self.metadata = MetadataCache()
        self.halted: list[str] = []
        ids = Random(node_id)
        opened = [LogDirStore(path, store) for path, store in (dirs or {}).items()]
        self.logged = Recorder()
        self.log_manager = LogManager(
            opened or self.store,
            rig.clock,
            self.timers,
            self.config,
            cluster_id="c",
            node_id=node_id,
            new_uuid=lambda: ids.randbytes(16),
            log_event=self.logged,
            on_all_failed=self.halted.append,
        )
        self.log_manager.load()
        self.manager = ReplicaManager(
            node_id=node_id,
            clock=rig.clock,
            timers=self.timers,
            config=self.config,
            log_manager=self.log_manager,
            metadata=self.metadata,
        )
        rig.broker_epochs += 1
        self.manager.broker_epoch = rig.broker_epochs
        self.peers = Peers(self.outbox, f"broker-{node_id}")
        self.cut_logs: list[tuple[str, int]] = []
        self.fetchers = ReplicaFetcherManager(
            self.manager,
            self.peers,
            rig.clock,
            self.timers,
            self.config,
            log_truncated=lambda log, offset: self.cut_logs.append((log.name, offset)),
            fetch_version=fetch_version,
        )
        self.manager.fetchers = self.fetchers
        services: Any = SimpleNamespace(
            node_id=node_id,
            clock=rig.clock,
            timers=self.timers,
            config=self.config,
            metadata=self.metadata,
            replica_manager=self.manager,
            log_manager=self.log_manager,
            fetch_sessions=FetchSessionCache(rig.clock, Random(node_id), 100),
            quotas=None,
            authority=None,
        )
        self.services = services
        self.sessions = Sessions(services, self.outbox, served_ranges())

    def log(self, topic: str = "t", index: int = 0) -> Log:
        """The log, made when there is none: tests write history before roles are given."""
        found = self.log_manager.get(topic, index)
        if found is None:
            config = self.config.log_config()
            found = self.log_manager.get_or_create(topic, index, topic_id(topic), config)
        return found

    def write(
        self, *history: tuple[int, int], hw: int | None = None, topic: str = "t", index: int = 0
    ) -> Log:
        """Appends one batch for each (epoch, number of records); `hw` None: everything is committed."""
        log = self.log(topic, index)
        for epoch, count in history:
            if count:
                log.append_as_leader(self.rig.batch(count), epoch)
            else:
                log.leader_epochs.assign(epoch, log.log_end_offset)
        log.update_high_watermark(log.log_end_offset if hw is None else hw)
        return log

    def produce(self, count: int = 1, topic: str = "t", index: int = 0, acks: int = 1) -> Any:
        """Appends as a client does; delivers nothing."""
        result = self.manager.append_to_leader(
            topic, index, self.rig.batch(count), acks, AppendOrigin.CLIENT
        )
        self.manager.complete_waiting((topic, index))
        return result

    def partition(self, topic: str = "t", index: int = 0) -> Any:
        return self.manager.by_key[topic, index]

    def state(self, topic: str = "t", index: int = 0) -> Any:
        return self.fetchers.state((topic, index))

    def epochs(self, topic: str = "t", index: int = 0) -> list[tuple[int, int]]:
        return [tuple(entry) for entry in self.log(topic, index).leader_epochs.entries]

    def ends(self, topic: str = "t", index: int = 0) -> tuple[int, int, int]:
        """(log start, high watermark, log end)."""
        log = self.log(topic, index)
        return log.log_start_offset, log.high_watermark, log.log_end_offset

    def content(self, topic: str = "t", index: int = 0) -> list[tuple[int, int, bytes | None]]:
        """(offset, epoch, value) of every record."""
        log = self.log(topic, index)
        offset, found = log.log_start_offset, []
        while offset < log.log_end_offset:
            fetched = log.read(offset, 1 << 20, log.log_end_offset)
            if not len(fetched.records):
                break
            for header in iter_batches(fetched.records):
                for record in iter_records(fetched.records, header):
                    found.append((record.offset, header.partition_leader_epoch, record.value))
            offset = fetched.next_offset
        return found

    def order(self, request: LeaderAndIsrRequest) -> list[int]:
        """LeaderAndIsr as a broker obeys it; the errors of its partitions."""
        response = self.manager.become_leader_or_follower(request)
        return [e.error_code for topic in response.topics for e in topic.partition_errors]

    def stop(self, topic: str = "t", index: int = 0, *, delete: bool = True) -> int:
        state = StopReplicaPartitionState(
            partition_index=index, leader_epoch=-2, delete_partition=delete
        )
        named = StopReplicaTopicState(topic_name=topic, partition_states=[state])
        response = self.manager.stop_replicas(StopReplicaRequest(topic_states=[named]))
        return response.partition_errors[0].error_code


class Wire:
    """One connection between a fetcher and a leader; frames in both directions."""

    def __init__(self, source: int, target: int, channel: str, connection: int) -> None:
        self.source = source
        self.target = target
        self.channel = channel
        self.connection = connection
        self.requests: deque[tuple[int, bytes]] = deque()
        self.owed: deque[tuple[int, api.RequestHeader, Any]] = deque()
        self.answers: deque[bytes] = deque()


class Rig:
    """Brokers 1, 2 … and the network. Orders go to the leader first, then to the others, and are carried out at once.

    `hold`: answers stay on their way until it is False again. `tamper(header, response)` may change an answer.
    """

    def __init__(
        self, nodes: int = 2, fetch_version: int = 17, settings: dict[str, str] | None = None
    ) -> None:
        self.clock = Clock(10_000_000, 1_700_000_000_000)
        self.settings = settings or {}
        self.broker_epochs = 0
        self.wires: dict[tuple[int, int, str], Wire] = {}
        self.cut: set[int] = set()
        self.hold = False
        self.tamper: Callable[[api.RequestHeader, Any], None] | None = None
        self.talk: list[str] = []
        self.sent: list[tuple[int, api.RequestHeader, Any]] = []
        self.connections = 0
        self.written = 0
        self.partition_epoch = 0
        self.nodes = {i: Node(self, i, None, fetch_version) for i in range(1, nodes + 1)}

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def batch(self, count: int) -> bytes:
        """Records with values that nobody else has."""
        self.written += 1
        values = [f"{self.written}.{number}".encode() for number in range(count)]
        return build_batch([Record(-1, self.clock.wall_ms, None, value) for value in values])

    def history(self, nodes: Iterable[int], *history: tuple[int, int], topic: str = "t") -> None:
        """Writes the same batches, (epoch, number of records) each, to several brokers and commits them."""
        for epoch, count in history:
            data = self.batch(count)
            for node_id in nodes:
                log = self.nodes[node_id].log(topic)
                log.append_as_leader(data, epoch)
                log.update_high_watermark(log.log_end_offset)

    # The controller's part

    def lead(
        self,
        leader: int,
        epoch: int,
        *,
        topic: str = "t",
        partitions: Iterable[int] = (0,),
        replicas: Iterable[int] | None = None,
        isr: Iterable[int] | None = None,
        to: Iterable[int] | None = None,
        id_: bytes | None = None,
        is_new: bool = False,
    ) -> None:
        """`leader` leads in `epoch`; told to the brokers in `to`, or all, who must not object."""
        self.partition_epoch += 1
        members = list(self.nodes if replicas is None else replicas)
        self.metadata(leader, epoch, topic, partitions, members, id_)
        states = [
            LeaderAndIsrPartitionState(
                partition_index=index,
                leader=leader,
                leader_epoch=epoch,
                partition_epoch=self.partition_epoch,
                replicas=members,
                isr=list(members if isr is None else isr),
                is_new=is_new,
            )
            for index in partitions
        ]
        named = LeaderAndIsrTopicState(
            topic_name=topic,
            topic_id=topic_id(topic) if id_ is None else id_,
            partition_states=states,
        )
        told = set(members if to is None else to)
        for node_id in sorted(told, key=lambda i: (i != leader, i)):
            errors = self.nodes[node_id].order(LeaderAndIsrRequest(topic_states=[named]))
            assert errors == [0] * len(states), (node_id, errors)

    def metadata(
        self,
        leader: int = -1,
        epoch: int = -1,
        topic: str | None = None,
        partitions: Iterable[int] = (0,),
        replicas: list[int] | None = None,
        id_: bytes | None = None,
    ) -> None:
        """UpdateMetadata to all: who lives, and one topic's leaders."""
        topics = []
        if topic is not None:
            states = [
                UpdateMetadataPartitionState(
                    partition_index=i, leader=leader, leader_epoch=epoch, replicas=replicas or []
                )
                for i in partitions
            ]
            known = topic_id(topic) if id_ is None else id_
            topics.append(
                UpdateMetadataTopicState(topic_name=topic, topic_id=known, partition_states=states)
            )
        endpoint = UpdateMetadataEndpoint(port=9, host="h", listener="PLAINTEXT")
        brokers = [UpdateMetadataBroker(id=i, endpoints=[endpoint]) for i in self.nodes]
        request = UpdateMetadataRequest(topic_states=topics, live_brokers=brokers)
        for node in self.nodes.values():
            node.manager.update_metadata(request)

    def restart(self, node_id: int, *, clean: bool = True) -> Node:
        """Stops a broker and starts it again with its store; its connections end. It has no roles then."""
        old = self.nodes[node_id]
        old.fetchers.shut_down()
        old.outbox.drain()
        if clean:
            old.log_manager.close()
        for wire in list(self.wires.values()):
            if node_id in (wire.source, wire.target):
                self._drop(wire)
        node = self.nodes[node_id] = Node(self, node_id, old.store, old.fetch_version)
        self.metadata()
        return node

    # The network

    def run(self) -> None:
        """Delivers until nothing is on its way that may be delivered now."""
        for _ in range(10_000):
            self._collect()
            if not self._deliver_one():
                return
        raise AssertionError(f"the brokers never come to rest: {self.talk[-6:]}")

    def wait(self, ms: int) -> None:
        """Lets time pass, timer by timer, and delivers what comes of it."""
        end_ms = self.clock.now_ms + ms
        self.run()
        while True:
            deadlines = [node.timers.next_deadline_ms() for node in self.nodes.values()]
            due = min((d for d in deadlines if d is not None), default=end_ms + 1)
            if due > end_ms:
                break
            self._set_time(max(due, self.clock.now_ms))
            for node in self.nodes.values():
                node.timers.fire(self.clock.now_ms)
                self.run()
        self._set_time(end_ms)

    def _set_time(self, now_ms: int) -> None:
        self.clock.wall_ms += now_ms - self.clock.now_ms
        self.clock.now_ms = now_ms

    def answer_one(self) -> None:
        """Delivers requests until leaders have nothing to say, and then exactly one answer."""
        self.hold = True
        self.run()
        self.hold = False
        for wire in list(self.wires.values()):
            if wire.answers:
                self._deliver_answer(wire)
                return
        raise AssertionError("nobody answers")

    def cut_off(self, node_id: int) -> None:
        """Nothing gets to or from this broker; its connections end."""
        self.cut.add(node_id)
        for wire in list(self.wires.values()):
            if node_id in (wire.source, wire.target):
                self._drop(wire)

    def heal(self) -> None:
        self.cut.clear()

    def requests(self, api_key: int = 1, source: int = 2) -> list[Any]:
        """The requests that a follower sent."""
        return [r for node, h, r in self.sent if h.api_key == api_key and node == source]

    def _collect(self) -> None:
        for node in self.nodes.values():
            for effect in node.outbox.drain():
                if isinstance(effect, Send):
                    wire = self._wire(node.id, effect.node, effect.channel)
                    wire.requests.append((effect.correlation, b"".join(effect.parts)))
                elif isinstance(effect, HangUp):
                    hung = self.wires.pop((node.id, effect.node, effect.channel), None)
                    if hung is not None and hung.target in self.nodes:
                        self.nodes[hung.target].sessions.connection_closed(hung.connection)
                elif isinstance(effect, Reply):
                    for wire in self.wires.values():
                        if wire.connection == effect.connection:
                            wire.answers.append(b"".join(effect.parts))
                else:
                    assert isinstance(effect, Close)
                    raise AssertionError(f"broker {node.id} closed: {effect.reason}")

    def _wire(self, source: int, target: int, channel: str) -> Wire:
        wire = self.wires.get((source, target, channel))
        if wire is None:
            self.connections += 1
            wire = Wire(source, target, channel, self.connections)
            self.wires[source, target, channel] = wire
            if target in self.nodes:
                self.nodes[target].sessions.open(wire.connection, "PLAINTEXT", "peer")
        return wire

    def _drop(self, wire: Wire) -> None:
        """The connection ends: the leader hears it, and the follower that its requests are lost."""
        self.wires.pop((wire.source, wire.target, wire.channel), None)
        if wire.target in self.nodes:
            self.nodes[wire.target].sessions.connection_closed(wire.connection)
        for correlation in [*(c for c, _, _ in wire.owed), *(c for c, _ in wire.requests)]:
            self.nodes[wire.source].peers.respond(correlation, None)

    def _deliver_one(self) -> bool:
        for wire in list(self.wires.values()):
            if wire.requests:
                if self.cut & {wire.source, wire.target} or wire.target not in self.nodes:
                    self._drop(wire)
                else:
                    self._deliver_request(wire)
                return True
            if wire.answers and not self.hold:
                self._deliver_answer(wire)
                return True
        return False

    def _deliver_request(self, wire: Wire) -> None:
        correlation, data = wire.requests.popleft()
        frame = bytearray(data[4:])
        header = api.parse_request_header(data[4:])
        message = api.request_class(header.api_key).decode(
            data[4 + header.body_position :], header.api_version
        )
        wire.owed.append((correlation, header, message))
        self.sent.append((wire.source, header, message))
        self.nodes[wire.target].sessions.receive_frame(wire.connection, memoryview(frame))
        frame[:] = b"\xee" * len(frame)

    def _deliver_answer(self, wire: Wire) -> None:
        data = wire.answers.popleft()
        correlation, header, request = wire.owed.popleft()
        _, response = api.parse_response(header.api_key, header.api_version, data[4:])
        if self.tamper is not None:
            self.tamper(header, response)
            key, version = header.api_key, header.api_version
            data = b"".join(api.encode_response(key, version, correlation, response))
        self.talk += _lines(header.api_key, request, response)
        frame = bytearray(data[4:])
        reason = self.nodes[wire.source].peers.respond(correlation, memoryview(frame))
        assert reason is None, reason
        frame[:] = b"\xee" * len(frame)


def same_logs(rig: Rig, *nodes: int, topic: str = "t", index: int = 0) -> int:
    """Logs and epoch caches of all (or some) brokers are equal; returns the log end."""
    first, *others = [rig[i] for i in nodes or rig.nodes]
    for other in others:
        assert other.content(topic, index) == first.content(topic, index)
        # A leader knows its epoch before it has a record of it (I7).
        end = other.log(topic, index).log_end_offset
        assert other.epochs(topic, index) == [
            entry for entry in first.epochs(topic, index) if entry[1] < end
        ]
        check_invariants(other.log(topic, index))
    return first.log(topic, index).log_end_offset


def _lines(api_key: int, request: Any, response: Any) -> list[str]:
    """What was asked about each partition that was answered: "fetch(6,4) div(2,3)"."""
    lines = []
    if api_key == 1:
        if response.error_code:
            lines.append(f"fetch error {response.error_code}")
        asked = {
            (topic.topic, topic.topic_id, p.partition): p
            for topic in request.topics
            for p in topic.partitions
        }
        for topic in response.responses:
            for data in topic.partitions:
                p = asked.get((topic.topic, topic.topic_id, data.partition_index))
                what = "fetch" if p is None else f"fetch({p.fetch_offset},{p.last_fetched_epoch})"
                lines.append(f"{what} {_outcome(data)}")
    elif api_key == 2:
        times = [p.timestamp for topic in request.topics for p in topic.partitions]
        for topic in response.topics:
            for data, timestamp in zip(topic.partitions, times, strict=True):
                said = f"error {data.error_code}" if data.error_code else str(data.offset)
                lines.append(f"offset({timestamp}) {said}")
    elif api_key == 23:
        epochs = [p.leader_epoch for topic in request.topics for p in topic.partitions]
        answers = [data for topic in response.topics for data in topic.partitions]
        for data, epoch in zip(answers, epochs, strict=True):
            said = f"({data.leader_epoch},{data.end_offset})"
            lines.append(
                f"epoch({epoch}) {f'error {data.error_code}' if data.error_code else said}"
            )
    return lines


def _outcome(data: Any) -> str:
    if data.error_code:
        return f"error {data.error_code}"
    if data.diverging_epoch.epoch >= 0:
        return f"div({data.diverging_epoch.epoch},{data.diverging_epoch.end_offset})"
    records = sum(h.count for h in iter_batches(data.records)) if data.records else 0
    return f"{records} records, hw {data.high_watermark}"
