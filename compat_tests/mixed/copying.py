"""Consume–transform–produce loops in a mixed cluster under load, and the proof that each input has one output.

Inputs are produced all the time. A loop reads, writes and sends its offsets in one transaction; every third is aborted.
What fails is done again from the group's committed offsets, by a new producer with the same transactional id if need
be. Meanwhile leaders and coordinators move between the brokers, which are killed and stand still.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from threading import Event, Thread
from typing import ClassVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from compat_tests.clients import ClientError
from compat_tests.mixed.cluster import KWIRE, PEER, Partition
from compat_tests.mixed.processes import KafkaOnZooKeeper, Member
from compat_tests.mixed.transactions import BOTH, OFFSETS, STATE, Transactions, Writer, name_in
from compat_tests.record_dialogue import SocketClient
from compat_tests.test_transactions_cluster import (
    A_TRANSACTION,
    PARTITIONS,
    Copier,
    outputs_of_librdkafka,
)
from kwire.coordinator.group_coordinator import partition_for
from kwire.protocol.api import ApiKey
from kwire.protocol.schemas.groups import FindCoordinatorRequest

_PAUSE_S = 0.005
_AT_ONCE = A_TRANSACTION
"""Records of a transaction."""


class Feeder:
    """Produces numbered records to all partitions of a topic until `finish`."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, wanted: Callable[[], int]
    ) -> None:
        """`wanted`: no more than so many records by now.

        What librdkafka gives up, because a broker that has just started calls the topic unknown, is made up for: a
        loop that waits for it would stand still."""
        self.topic = topic
        self.partitions = partitions
        self.wanted = wanted
        self.count = 0
        self.given_up = 0
        self._stop = Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "retry.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            self._producer.poll(0)
            if self.count - self.given_up >= self.wanted():
                continue
            try:
                self._producer.produce(
                    self.topic,
                    b"%d" % self.count,
                    partition=self.count % self.partitions,
                    on_delivery=self._delivered,
                )
                self.count += 1
            except (BufferError, KafkaException):  # a broker that starts may call the topic unknown
                pass

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        self.given_up += error is not None

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(120) == 0


class _Copier(Copier):
    """With topics of its own, and the patience for brokers that start."""

    # librdkafka 2.16 waits in send_offsets_to_transaction, longer than its time-out, for a group coordinator that
    # metadata has no more, until the connection of another broker changes (its issues 5511 and 5456). All leaders are
    # on one broker then: only a connection that is closed because it is idle changes.
    settings: ClassVar[dict[str, int]] = {"connections.max.idle.ms": 5_000}

    def __init__(self, bootstrap: str, transactional_id: str, group: str) -> None:
        self.source, self.target = f"in-{transactional_id}", f"out-{transactional_id}"
        super().__init__(bootstrap, 10**9, transactional_id, group)

    def recover(self, error: KafkaException) -> None:
        while True:
            try:
                super().recover(error)
                return
            except KafkaException as another:
                self.errors.append(str(another))
                error = another


class Loop:
    """One loop of librdkafka's, from its start to `check`."""

    def __init__(self, told: Transactions, transactional_id: str, group: str) -> None:
        self.told = told
        self.name = transactional_id
        self.bootstrap = told.cluster.bootstrap_servers
        self.group = group
        self.failure = ""
        self._prepare()
        topic = f"in-{self.name}"
        self.feeder = Feeder(self.bootstrap, topic, self.partitions, self._wanted_inputs)
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    partitions = PARTITIONS

    def _wanted_inputs(self) -> int:
        """Enough for the next transactions; of three one is aborted."""
        return _AT_ONCE * (self.transactions * 2 // 3 + 5)

    def _prepare(self) -> None:
        self.copier = _Copier(self.bootstrap, self.name, self.group)

    def _run(self) -> None:
        try:
            self._copy()
        except Exception as error:
            self.failure = f"{self.name} has ended: {error!r}"
            raise

    def _copy(self) -> None:
        self.copier.copy()

    @property
    def transactions(self) -> int:
        return self.copier.transactions

    @property
    def errors(self) -> list[str]:
        return self.copier.errors

    def where(self) -> list[str]:
        """What its thread does now."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return traceback.format_stack(frame) if frame is not None else ["it has ended"]

    def inputs(self) -> Counter[str]:
        return Counter(
            value
            for index in range(self.partitions)
            for value in self.told.read((f"in-{self.name}", index))
        )

    def outputs(self) -> Counter[str]:
        found = outputs_of_librdkafka(self.bootstrap, topic=f"out-{self.name}")
        return Counter({value.decode(): count for value, count in found.items()})

    def finish(self) -> None:
        """No more inputs; returns when all are copied."""
        self.feeder.finish()
        self._stop_after(self.inputs().total())
        self._thread.join(300)
        assert not self._thread.is_alive(), (
            f"{self.name} hangs after {self.transactions} transactions: {Counter(self.errors)}"
        )

    def _stop_after(self, inputs: int) -> None:
        self.copier.inputs = inputs

    def check(self) -> None:
        assert not self.failure, self.failure
        inputs, outputs = self.inputs(), self.outputs()
        assert outputs == inputs, f"{self.name}: {outputs - inputs} more, {inputs - outputs} less"


class JavaLoop(Loop):
    """The same with Kafka's own clients; each output is the input and "!"."""

    partitions = 1

    def _wanted_inputs(self) -> int:
        """A transaction takes all that a poll gives, which may be more than were asked for."""
        return self.copied + 5 * _AT_ONCE

    def _prepare(self) -> None:
        self.done = self.copied = 0
        self.wanted = 10**9
        self.failed: list[str] = []

    @property
    def errors(self) -> list[str]:
        return self.failed

    @property
    def transactions(self) -> int:
        return self.done

    def _new_writer(self) -> Writer:
        while True:
            try:
                return self.told.writer(self.name, 10_000)
            except ClientError as error:
                self.failed.append(str(error))

    def _copy(self) -> None:
        writer = self._new_writer()
        source = (f"in-{self.name}", 0)
        while (at := self._committed(source)) < self.wanted:
            self.copied = at
            commit = self.done % 3 != 2
            count = min(_AT_ONCE, self.wanted - at)
            try:
                writer.transform(self.group, source[0], f"out-{self.name}", count, commit)
                self.done += 1
            except ClientError as error:
                self.failed.append(str(error))
                writer.client.close()
                writer = self._new_writer()

    def _committed(self, source: Partition) -> int:
        while True:
            try:
                return max(self.told.committed(self.group, source), 0)
            except KafkaException as error:  # it cannot be known while the coordinator moves
                self.failed.append(str(error))

    def _stop_after(self, inputs: int) -> None:
        self.wanted = inputs

    def outputs(self) -> Counter[str]:
        found = self.told.read((f"out-{self.name}", 0))
        return Counter({value.removesuffix("!"): count for value, count in Counter(found).items()})


class Commotion:
    """Three loops, and what happens to the cluster meanwhile."""

    def __init__(self, told: Transactions, seed: int) -> None:
        self.told = told
        self.cluster = told.cluster
        self.random = Random(seed)
        self.moved: list[Partition] = [*STATE, *OFFSETS]
        self.loops: list[Loop] = []

    def begin(self) -> None:
        for kind, tid_at, group_at in (
            (Loop, 0, 1),
            (Loop, 1, 0),
            (JavaLoop, 0, 0),
            (JavaLoop, 1, 1),
        ):
            name = name_in(tid_at, "loop")
            for topic in (f"in-{name}", f"out-{name}"):
                replicas = [[KWIRE, PEER], [PEER, KWIRE], [KWIRE, PEER]][: kind.partitions]
                self.told.create(topic, *replicas)
                self.moved += [(topic, index) for index in range(kind.partitions)]
            self.cluster.await_isr(BOTH, self.moved)
            self.loops.append(kind(self.told, name, name_in(group_at, "group")))

    def run_for(self, minutes: float) -> None:
        deadline = time.monotonic() + 60 * minutes
        started = time.monotonic()
        while time.monotonic() < deadline:
            act = self.random.choice(
                [self.leaders_move] * 4
                + [self.kwire_stands_still, self.kafka_stands_still]
                + [self.kwire_is_killed, self.kafka_is_killed, self.kwire_shuts_down]
                + [self.cluster.depose_controller]
            )
            self._say(started, act.__name__)
            act()
            self._say(started, "  done")
            self.cluster.await_isr(BOTH, self.moved)
            self._say(started, "  in sync")
            self.await_progress()

    def _say(self, started: float, word: str) -> None:
        counts = [loop.transactions for loop in self.loops]
        now = datetime.now(UTC).strftime("%H:%M:%S.%f")[:-3]
        print(
            f"{now} {time.monotonic() - started:6.1f} s {word}; transactions: {counts}", flush=True
        )

    def await_progress(self) -> None:
        before = [loop.transactions for loop in self.loops]
        for loop, count in zip(self.loops, before, strict=True):
            try:
                self.cluster.eventually(
                    f"further transactions of {loop.name} after {count}",
                    lambda loop=loop, count=count: (
                        loop.transactions > count + 2 or bool(loop.failure)
                    ),
                    120,
                )
            except AssertionError as error:
                raise AssertionError(f"{self.coordinators(loop)}\n{error}") from None
        failures = [loop.failure for loop in self.loops if loop.failure]
        assert failures == [], failures

    def coordinators(self, loop: Loop) -> str:
        """Who coordinates the loop's id and group, by ZooKeeper and by the word of each broker."""
        lines = [f"{loop.name}: {Counter(loop.errors)}", *loop.where()]
        for key_type, name, topic in (
            (0, loop.group, OFFSETS[0][0]),
            (1, loop.name, STATE[0][0]),
        ):
            index = partition_for(name, 2)
            lines.append(f"{name} in {topic}-{index}: {self.cluster.registry.state(topic, index)}")
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
            for broker in (self.cluster.controller, self.cluster.kwire, self.cluster.peer):
                answer = SocketClient(broker.port).ask(ApiKey.FIND_COORDINATOR, 4, request)
                lines.append(f"  {broker.id}: {answer}")
        return "\n".join(lines)

    def leaders_move(self) -> None:
        some = [each for each in self.moved if self.random.random() < 0.4]
        self.told.swap(some)

    def kwire_stands_still(self) -> None:
        self._stands_still(self.cluster.kwire)

    def kafka_stands_still(self) -> None:
        self._stands_still(self.cluster.peer)

    def _stands_still(self, broker: Member | KafkaOnZooKeeper) -> None:
        """For so long that it leaves the ISR, or not."""
        broker.pause()
        time.sleep(self.random.choice((0.3, 3)))
        broker.resume()

    def kwire_is_killed(self) -> None:
        self.cluster.kwire.kill9()
        time.sleep(self.random.choice((0, 1)))
        self.cluster.kwire.start()

    def kafka_is_killed(self) -> None:
        self.cluster.peer.kill9()
        self.cluster.registry.declare_dead(PEER)
        self.cluster.peer.start()

    def kwire_shuts_down(self) -> None:
        assert self.cluster.kwire.stop() == 0
        self.cluster.kwire.sign_off()
        self.cluster.kwire.start()

    def finish(self) -> None:
        for loop in self.loops:
            loop.finish()
        for loop in self.loops:
            loop.check()
        self.told.check_identical(self.moved)
        print(*(f"{loop.name}: {Counter(loop.errors)}" for loop in self.loops), sep="\n")
