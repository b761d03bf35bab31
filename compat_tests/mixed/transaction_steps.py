"""What is done to transactions in a mixed cluster, step by step; after each the cluster is whole again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from compat_tests import tooling
from compat_tests.clients import ClientError
from compat_tests.mixed.cluster import KWIRE, PEER, MixedCluster, Partition
from compat_tests.mixed.load import produce_all
from compat_tests.mixed.processes import KafkaOnZooKeeper, Member
from compat_tests.mixed.scenario import await_end_of_long_polls
from compat_tests.mixed.transactions import (
    ALL,
    BOTH,
    MONEY,
    OFFSETS,
    STATE,
    Transactions,
    name_in,
)
from compat_tests.record_dialogue import SocketClient
from compat_tests.test_dump_log import dump
from compat_tests.test_transaction_tools import run
from kwire.coordinator.group_coordinator import partition_for
from kwire.protocol.api import ApiKey
from kwire.protocol.errors import ErrorCode
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from kwire.protocol.schemas.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from kwire.protocol.schemas.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.protocol.schemas.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)

ASIDE = 4
"""A second broker of kwire's, which leads what nobody else has."""


class Steps(Transactions):
    """A cluster's topics are made at the start of the `with`; `finish` after all other steps."""

    def __init__(self, cluster: MixedCluster) -> None:
        super().__init__(cluster)
        self.aside: Member | None = None

    def begin(self) -> None:
        """One of the writers is of Kafka 4: it would bump its epoch with each transaction, if a broker offered that."""
        super().begin()
        versions = (tooling.KAFKA_BROKER_4, tooling.KAFKA_BROKER)
        self.pair = [
            self.writer(name_in(index, "pair"), version=versions[index]) for index in (0, 1)
        ]

    def __enter__(self) -> Steps:
        self.begin()
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        super().close()
        if self.aside is not None:
            self.aside.kill9()

    # -- coordinators and leaders --------------------------------------------------------------------------------

    def each_coordinates_for_the_leaders_of_both(self) -> None:
        for index, writer in enumerate(self.pair):
            self.transact(writer, f"committed {index}")
            self.transact(writer, f"aborted {index}", commit=False)
            self.transact(writer, f"committed again {index}")
        self.check()

    def leaders_ask_the_other_kind_of_coordinator(self) -> None:
        """A batch whose partition was not added to the transaction is refused, wherever its coordinator is."""
        for index in (0, 1):
            self._write_without_adding(index)

    def _write_without_adding(self, index: int) -> None:
        name = name_in(index, "raw")
        coordinator = self.broker_of(STATE[index])
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        given = eventually_answered(coordinator, ApiKey.INIT_PRODUCER_ID, 4, init)
        who = (given.producer_id, given.producer_epoch)
        added, other = MONEY[index], MONEY[1 - index]
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=added[0], partitions=[added[1]])],
        )
        coordinator.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, adding)
        errors = [self._produce(name, who, partition) for partition in (added, other)]
        assert errors == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE], errors
        end = EndTxnRequest(
            transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=False
        )
        assert coordinator.ask(ApiKey.END_TXN, 3, end).error_code == 0
        self.check()

    def _produce(self, name: str, who: tuple[int, int], partition: Partition) -> int:
        batch = build_batch(
            [Record(0, int(time.time() * 1000), None, b"never")],
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=0,
            is_transactional=True,
        )
        data = [PartitionProduceData(index=partition[1], records=batch)]
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=partition[0], partition_data=data)],
        )
        answer = self.broker_of(partition).ask(ApiKey.PRODUCE, 9, request)
        return int(answer.responses[0].partition_responses[0].error_code)

    def broker_of(self, partition: Partition) -> SocketClient:
        leader = self.cluster.registry.state(*partition)["leader"]
        return SocketClient((self.cluster.kwire if leader == KWIRE else self.cluster.peer).port)

    def coordinators_move_in_the_middle_of_transactions(self) -> None:
        """Each goes to the other kind, which knows the open transactions from the log, and back."""
        self._end_after_a_swap(STATE, "coordinators moved")
        self.check()
        self.check_identical(STATE)

    def leaders_move_in_the_middle_of_transactions(self) -> None:
        self._end_after_a_swap(MONEY, "leaders moved")
        self.check_both()

    def _end_after_a_swap(self, moved: list[Partition], word: str) -> None:
        for commit in (True, False):
            words = [f"{word} {index} {commit}" for index in (0, 1)]
            for writer, each in zip(self.pair, words, strict=True):
                writer.send(MONEY[0], f"{each} 0")
            self.swap(moved)
            for writer, each in zip(self.pair, words, strict=True):
                writer.send(MONEY[1], f"{each} 1")
                self.end(writer, each, commit)

    def replicas_move_in_the_middle_of_transactions(self) -> None:
        """The only replica of a partition goes from kwire to Kafka and back, with what is open in it."""
        away = ("away", 0)
        self.create("away", [KWIRE])
        writers = [self.writer(name_in(index, "away")) for index in (0, 1)]
        for turn, (target, commit) in enumerate(((PEER, True), (KWIRE, False), (PEER, True))):
            for number, writer in enumerate(writers):
                writer.send(away, f"before {turn} {number}")
            self.cluster.reassign([away], [target])
            self.cluster.await_replicas([away], [target])
            self.cluster.await_leader(target, [away])
            for number, writer in enumerate(writers):
                writer.send(away, f"after {turn} {number}")
                writer.end(commit)
            if commit:
                self.expected[away] += [
                    f"{when} {turn} {number}" for when in ("before", "after") for number in (0, 1)
                ]
            self.check(away)

    # -- ends that nobody asked for ------------------------------------------------------------------------------

    def the_next_coordinator_aborts_what_takes_too_long(self) -> None:
        """The transaction's age is in the log. A successor's predecessor is aborted likewise."""
        late = [self.writer(name_in(index, "late"), 2_000) for index in (0, 1)]
        names = [name_in(index, "fenced") for index in (0, 1)]
        old = [self.writer(name) for name in names]
        for writer in (*late, *old):
            for partition in MONEY:
                writer.send(partition, "never")
        self.swap(STATE)
        new = [self.writer(name) for name in names]
        for index, writer in enumerate(new):
            self.transact(writer, f"successor {index}")
        self.check()
        for writer in (*late, *old):
            is_refused(writer.end)
        self.check_both()

    def decided_transactions_are_ended_by_the_next_coordinator(self) -> None:
        """The marker of "aside" cannot be written before the coordinator has moved: its broker stands still."""
        aside = ("aside", 0)
        kafka = self.cluster.controller
        self.aside = Member(self.cluster.folder / "kwire-4", ASIDE, self.cluster.registry, kafka)
        self.aside.start()
        self.create("aside", [ASIDE])
        for index in (0, 1):
            writer = self.writer(name_in(index, "decided"))
            for commit in (True, False):
                word = f"decided {index} {commit}"
                writer.send(aside, word)
                for partition in MONEY:
                    writer.send(partition, f"{word} {partition[1]}")
                self.aside.pause()
                self.end(writer, word, commit)
                self.swap([STATE[index]])
                self.check()
                self.aside.resume()
                if commit:
                    self.expected[aside].append(word)
                self.check(aside)
        self.check_both()

    # -- offsets -------------------------------------------------------------------------------------------------

    def offsets_are_committed_in_transactions(self) -> None:
        """Groups and ids kept by brokers of either kind; the group's coordinator moves before the end."""
        for tid_at, group_at in ((0, 0), (0, 1), (1, 0), (1, 1)):
            self._offsets(self.librdkafka(name_in(tid_at, "offsets")), name_in(group_at, "group"))
        self.check_identical(OFFSETS)

    def librdkafka(self, transactional_id: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "transactional.id": transactional_id,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        producer.init_transactions(30)
        return producer

    def _offsets(self, producer: Producer, group: str) -> None:
        where = MONEY[0]
        kept = OFFSETS[partition_for(group, 2)]
        before = -1001
        for offset, commit in ((1, True), (2, False), (3, True)):
            producer.begin_transaction()
            member = Consumer(
                {"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": group}
            )
            position = [TopicPartition(*where, offset)]
            producer.send_offsets_to_transaction(position, member.consumer_group_metadata(), 30)
            member.close()
            if offset != 1:
                self.swap([kept])
            assert self._stable_error(group, kept) == ErrorCode.UNSTABLE_OFFSET_COMMIT
            if commit:
                producer.commit_transaction(30)
                before = offset
            else:
                producer.abort_transaction(30)
            assert self.committed(group, where) == before

    def _stable_error(self, group: str, kept: Partition) -> int:
        """The error for who asks for the group's offsets and wants no pending ones."""
        topics = [OffsetFetchRequestTopic(name=MONEY[0][0], partition_indexes=[MONEY[0][1]])]
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=True)
        answer = eventually_answered(self.broker_of(kept), ApiKey.OFFSET_FETCH, 7, request)
        return int(answer.topics[0].partitions[0].error_code)

    # -- crashes -------------------------------------------------------------------------------------------------

    def kwire_is_killed_in_the_middle_of_transactions(self) -> None:
        self._killed(KWIRE, PEER)

    def kafka_is_killed_in_the_middle_of_transactions(self) -> None:
        self._killed(PEER, KWIRE)

    def _killed(self, dead: int, other: int) -> None:
        """The other broker takes over; who comes back knows from its log what was open, and what has ended since."""
        cluster = self.cluster
        cluster.lead(dead, ALL)
        writers = [self.writer(name_in(index, "killed")) for index in (0, 1)]
        for index, writer in enumerate(writers):
            writer.send(MONEY[0], f"{dead} killed {index} 0")
        self._kill(dead)
        cluster.await_leader(other, ALL)
        for index, writer in enumerate(writers):
            writer.send(MONEY[1], f"{dead} killed {index} 1")
            self.end(writer, f"{dead} killed {index}", commit=index == 0)
        for index, writer in enumerate(writers):
            writer.send(MONEY[0], f"{dead} back {index} 0")
        self._broker(dead).start()
        cluster.await_isr(BOTH, ALL)
        cluster.lead(dead, ALL)
        for index, writer in enumerate(writers):
            writer.send(MONEY[1], f"{dead} back {index} 1")
            self.end(writer, f"{dead} back {index}", commit=index == 1)
        self.check_both()
        self.swap([OFFSETS[1 if dead == KWIRE else 0], STATE[1 if dead == KWIRE else 0]])

    def _broker(self, broker_id: int) -> Member | KafkaOnZooKeeper:
        return self.cluster.kwire if broker_id == KWIRE else self.cluster.peer

    def _kill(self, broker_id: int) -> None:
        self._broker(broker_id).kill9()
        if broker_id == PEER:
            self.cluster.registry.declare_dead(PEER)

    def kwire_cuts_what_only_it_knew_of_transactions(self) -> None:
        self._cut(KWIRE, PEER)

    def kafka_cuts_what_only_it_knew_of_transactions(self) -> None:
        self._cut(PEER, KWIRE)

    def _cut(self, cut: int, other: int) -> None:
        """Records, markers and an aborted transaction of a leader's log, which the next leader never had."""
        cluster, state = self.cluster, STATE[0 if cut == KWIRE else 1]
        risky = (f"risky-{cut}", 0)
        self.create(risky[0], [cut, other], unclean_leader_election_enable="true")
        cluster.await_isr(BOTH, [risky])
        cluster.lead(cut, [state])  # the other broker stands still in between
        open_before, ended, open_after = (
            self.writer(name_in(state[1], f"cut-{cut}")) for _ in range(3)
        )
        open_before.send(risky, "known to both")
        self._broker(other).pause()
        await_end_of_long_polls()
        ended.send(risky, "aborted, known to one only")
        ended.end(commit=False)
        open_before.send(risky, "known to one only")
        open_after.send(risky, "open, known to one only")
        cluster.await_isr([cut], [risky, state])
        self._kill(cut)
        cluster.await_leader(other, [risky])
        self._broker(other).resume()
        produce_all(cluster.bootstrap_servers, *risky, [b"written by the other"])
        self._broker(cut).start()
        cluster.await_isr(BOTH, [risky, *ALL])
        open_after.end(commit=True)  # nothing of it is left
        open_before.end(commit=True)
        self.expected[risky] = ["known to both", "written by the other"]
        self.check_both(risky)
        self.check()

    # -- the end -------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """What is read from one broker is read from the other; the replicas hold the same bytes."""
        self.check_both()
        self.check_identical(ALL)
        log = self.cluster.kwire.log_tail(1_000_000)
        assert "Traceback" not in log, log

    def check_with_kafkas_tools(self) -> None:
        """DumpLogSegments finds no fault with kwire's files, and no transaction hangs."""
        data = self.cluster.kwire.data
        for partitions, decoder in (
            (MONEY, []),
            (STATE, ["--transaction-log-decoder"]),
            (OFFSETS, ["--offsets-decoder"]),
        ):
            folders = [data / f"{topic}-{index}" for topic, index in partitions]
            logs = [log for folder in folders for log in folder.glob("*.log")]
            dump([log for log in logs if log.stat().st_size], *decoder)
        tool = "org.apache.kafka.tools.TransactionsCommand"
        argv = [tool, "--bootstrap-server", self.cluster.bootstrap_servers]
        listed = run(*argv, "list")
        names = {line.split()[0]: line for line in listed.splitlines()[1:] if line.strip()}
        assert any(name.startswith("pair-") for name in names), listed
        assert all("Complete" in line or "Empty" in line for line in names.values()), listed
        for broker_id in BOTH:
            hanging = run(*argv, "find-hanging", "--broker-id", str(broker_id))
            assert "money" not in hanging, hanging


def is_refused(end: Callable[[], None]) -> None:
    try:
        end()
    except ClientError:
        return
    raise AssertionError("a fenced producer has committed")


def eventually_answered(broker: SocketClient, key: int, version: int, request: Any) -> Any:
    """The answer of a coordinator that has loaded its partition."""
    while True:
        answer = broker.ask(key, version, request)
        if answer.error_code not in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ):
            return answer
