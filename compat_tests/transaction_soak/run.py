"""One soak of transactions: four brokers under attack, three client libraries, a bank, and what must be true."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from compat_tests import tooling
from compat_tests.cluster import Cluster, running, until
from compat_tests.soak import (
    CONFIG,
    PLACES,
    REPLICAS,
    Attack,
    Place,
    await_whole,
    equal_logs,
)
from compat_tests.soak_clients import PARTITIONS
from compat_tests.soak_clients import Writer as Feeder
from compat_tests.soak_clients import write_confluent as feed
from compat_tests.transaction_soak import bank
from compat_tests.transaction_soak.copies import (
    contradicted,
    copies_of,
    not_exactly_once,
    torn,
    written_late,
)
from compat_tests.transaction_soak.librdkafka import settings
from compat_tests.transaction_soak.reading import (
    COMMITTED,
    UNCOMMITTED,
    SnapshotReader,
    read_all,
)
from compat_tests.transaction_soak.workers import (
    KILL_MIDDLE,
    PAUSE,
    SOURCE,
    TARGETS,
    Crew,
    copiers,
    owners,
)

BROKERS = 4
INTERNAL = ("__transaction_state", "__consumer_offsets")
INTERNAL_PARTITIONS = 4
INPUTS_PER_SECOND = 100.0
HANGS_S = 60.0
"""Without any progress."""
ATTACKING_S = 150.0
"""For the last fault of a client: its successor may be waited for."""
TRANSACTIONS_CONFIG = {
    **CONFIG,
    "log_segment_bytes": "65536",
    "transaction_state_log_replication_factor": "3",
    "transaction_state_log_min_isr": "2",
    "transaction_state_log_num_partitions": str(INTERNAL_PARTITIONS),
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "500",
    "offsets_topic_num_partitions": str(INTERNAL_PARTITIONS),
    "group_min_session_timeout_ms": "1000",
    "group_initial_rebalance_delay_ms": "0",
}
KILL_LEADER = "kill -9 a leader"
WORST = (KILL_LEADER, KILL_MIDDLE, PAUSE)
"""What every soak contains, however short."""


class Auditor:
    """Reads the bank read_committed, snapshot after snapshot, while everything goes on."""

    def __init__(self, bootstrap: str) -> None:
        self.bank = bank.Bank()
        self.wrong: list[str] = []
        self.stop = threading.Event()
        self._ends: dict[int, tuple[int, int]] = {}  # with the epoch of the leader that said so
        self._bootstrap = bootstrap
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            reader = SnapshotReader(self._bootstrap, bank.TOPIC, bank.PARTITIONS)
            while not self.stop.wait(0.2):
                self._look(reader)
            self._look(reader)
            reader.close()
        except Exception as error:
            self.wrong.append(f"the auditor: {error!r}")

    def _look(self, reader: SnapshotReader) -> None:
        ends = reader.stable_offsets()
        for index, end in ends.items():
            before, epoch = self._ends.get(index, (0, -1))
            if end < before and reader.epochs[index] >= epoch:
                self.wrong.append(
                    f"{bank.TOPIC}-{index}: its last stable offset went back from {before} to {end}"
                )
            elif end >= before:
                self._ends[index] = (end, reader.epochs[index])
        for index, _, value in reader.read_to(ends):
            self.bank.read(index, value)
        self.bank.snapshot(reader.epochs)

    def end(self, committed: dict[str, int]) -> list[str]:
        """The last snapshot, and all that is wrong."""
        self.stop.set()
        self._thread.join(90)
        if self._thread.is_alive():
            self.wrong.append("the auditor does not come to an end")
        return [*self.wrong, *self.bank.end(committed)]


def places_of(kinds: Iterable[str]) -> list[Place]:
    """All partitions that matter."""
    topics = {bank.TOPIC: bank.PARTITIONS, **{f"copies-{kind}": TARGETS for kind in kinds}}
    topics |= dict.fromkeys(INTERNAL, INTERNAL_PARTITIONS)
    return [*PLACES, *((topic, index) for topic, count in topics.items() for index in range(count))]


def drained(bootstrap: str, kinds: Iterable[str], ends: dict[int, int]) -> list[str]:
    """Waits until each group has committed all inputs; those that do not go on."""
    asked = [TopicPartition(SOURCE, index) for index in ends]
    wrong = []
    for kind in kinds:
        group = {**settings(bootstrap), "group.id": f"copy-{kind}"}
        consumer = Consumer({**group, "isolation.level": "read_committed"})
        found: dict[int, int] = {}
        missing, deadline = ends, time.monotonic() + HANGS_S
        while missing and time.monotonic() < deadline:
            before = found
            try:
                found = {each.partition: each.offset for each in consumer.committed(asked, 5)}
                missing = {i: found[i] for i, end in ends.items() if found[i] < end}
            except KafkaException:
                pass
            if found != before:
                deadline = time.monotonic() + HANGS_S
            time.sleep(0.1)
        consumer.close()
        if missing:
            wrong.append(f"HANGS: copy-{kind} has committed {missing}, the inputs end at {ends}")
    return wrong


def still_open(cluster: Cluster, places: list[Place]) -> list[str]:
    """Transactions that have not ended, and partitions whose last stable offset is not their end."""

    def find() -> list[str]:
        found = [
            f"OPEN: {each}"
            for each in cluster.transactions()
            if each.state in ("Ongoing", "PrepareCommit", "PrepareAbort")
        ]
        for topic in dict.fromkeys(topic for topic, _ in places):
            count = sum(topic == each for each, _ in places)
            both = []
            for isolation in (COMMITTED, UNCOMMITTED):
                reader = SnapshotReader(cluster.bootstrap, topic, count, isolation)
                both.append(reader.stable_offsets())
                reader.close()
            found += [
                f"HELD: {topic}-{index} is stable up to {both[0][index]} of {both[1][index]}"
                for index in both[0]
                if both[0][index] != both[1][index]
            ]
        return found

    try:
        until(lambda: not find(), 20.0)
    except AssertionError:
        return find()
    return []


def hanging(cluster: Cluster) -> list[str]:
    """What `kafka-transactions find-hanging` prints of each broker. ToolMissing: there is no Java."""
    wrong = []
    for node in cluster.ids:
        main = "org.apache.kafka.tools.TransactionsCommand"
        words = ["--bootstrap-server", cluster.bootstrap, "find-hanging", "--broker-id", str(node)]
        argv = tooling.java_argv(tooling.KAFKA_BROKER, main, *words)
        done = subprocess.run(
            [*argv, "--max-transaction-timeout", "0"], capture_output=True, text=True, timeout=120
        )
        lines = done.stdout.splitlines()
        if done.returncode or len(lines) > 1:
            wrong.append(f"HANGING at broker {node}: {done.stdout} {done.stderr[-2000:]}")
    return wrong


def topics(cluster: Cluster, kinds: Iterable[str]) -> None:
    ids = cluster.ids
    counts = {SOURCE: PARTITIONS, bank.TOPIC: bank.PARTITIONS}
    counts |= {f"copies-{kind}": TARGETS for kind in kinds}
    for topic, count in counts.items():
        cluster.create(
            topic, [[ids[(i + k) % len(ids)] for k in range(REPLICAS)] for i in range(count)]
        )


def attack_until(
    end: float, attack: Attack, crew: Crew, pace: float, chance: Callable[[float, float], float]
) -> None:
    """Faults of brokers in this thread and of clients in another; at least one of each of the worst."""
    stop = threading.Event()
    attacking = threading.Thread(target=crew.run, args=(stop, pace), daemon=True)
    attacking.start()
    next_fault = time.monotonic() + 1
    while (now := time.monotonic()) < end or (now < end + 30 and not attack.counts[KILL_LEADER]):
        attack.cure(now)
        if now >= next_fault:
            attack.step()
            next_fault = time.monotonic() + chance(0.5, 3.0) / pace
        time.sleep(0.05)
    attack.end()
    stop.set()
    attacking.join(ATTACKING_S)
    crew.tend()


def check(cluster: Cluster, kinds: list[str], crew: Crew) -> tuple[list[str], Counter[str]]:
    """What is wrong with all that was written, and how much there is."""
    wrong: list[str] = []
    found: Counter[str] = Counter()
    inputs = read_all(cluster.bootstrap, SOURCE, PARTITIONS, UNCOMMITTED)
    places = [(index, offset) for index, records in inputs.items() for offset, _ in records]
    found["inputs"] = len(places)
    committed, aborted = crew.committed(), crew.aborted()
    for kind in kinds:
        topic = f"copies-{kind}"
        copies = copies_of(read_all(cluster.bootstrap, topic, TARGETS, COMMITTED))
        everything = read_all(cluster.bootstrap, topic, TARGETS, UNCOMMITTED)
        own = [each for each in committed if each[0].startswith(f"{kind}-")]
        not_own = [each for each in aborted if each[0].startswith(f"{kind}-")]
        wrong += not_exactly_once(places, copies) + torn(copies)
        wrong += contradicted(copies, own, not_own) + written_late(topic, everything)
        found[f"{topic}, visible"] = len(copies)
        found[f"{topic}, in aborted transactions"] = sum(map(len, everything.values())) - len(
            copies
        )
    ledger = read_all(cluster.bootstrap, bank.TOPIC, bank.PARTITIONS, UNCOMMITTED)
    kept = {
        index: [(at, value) for at, value in records if not value.startswith(bank.ABANDONED)]
        for index, records in ledger.items()
    }
    wrong += written_late(bank.TOPIC, kept)
    return wrong, found


def soak(
    seconds: float,
    seed: int,
    folder: Path,
    *,
    verbose: bool = False,
    pace: float = 1.0,
    kinds: Iterable[str] = ("librdkafka", "java", "franz"),
    has_tools: bool = True,
    as_version: str | None = None,
    libraries: Sequence[str] = (bank.LIBRDKAFKA,),
) -> tuple[list[str], str]:
    """Runs it, faults coming `pace` times as fast. Returns what is wrong, a line each, and a summary.

    `kinds`: of clients that copy; ToolMissing: one cannot be had. `has_tools`: kafka-transactions is asked, too.
    `as_version`: with 3.9 there are transactions of version 1 only. `libraries`: of the bank's owners."""
    begin = time.monotonic()
    history: list[str] = []

    def say(line: str) -> None:
        history.append(f"{time.monotonic() - begin:7.2f} {line}")
        if verbose:
            print(history[-1], flush=True)

    kinds = list(kinds)
    roles = [role for kind in kinds for role in copiers(kind)]
    roles += owners(libraries)
    feeder, stop_feeding = Feeder("confluent-1"), threading.Event()
    places = places_of(kinds)
    with running(
        folder, BROKERS, controllers=2, as_version=as_version, **TRANSACTIONS_CONFIG
    ) as cluster:
        topics(cluster, kinds)
        feeding = threading.Thread(
            target=lambda: feed(
                feeder, cluster.bootstrap, stop_feeding, in_flight=1, per_second=INPUTS_PER_SECOND
            ),
            daemon=True,
        )
        feeding.start()
        crew = Crew(roles, cluster.bootstrap, seed, folder / "clients", say)
        try:
            auditor = Auditor(cluster.bootstrap)
            attack = Attack(cluster, seed, say, places)
            end = time.monotonic() + seconds
            attack_until(end, attack, crew, pace, random.Random(seed).uniform)
            say("the faults end")
            stop_feeding.set()
            feeding.join(90)
            reader = SnapshotReader(cluster.bootstrap, SOURCE, PARTITIONS, UNCOMMITTED)
            wrong = drained(cluster.bootstrap, kinds, reader.stable_offsets())
            reader.close()
            crew.tend()
            say("all inputs are copied" if not wrong else wrong[0])
            crew.end()
            say("the clients have ended")
        finally:
            crew.kill()
        wrong += auditor.end(crew.newest_transfers()) + crew.faults()
        wrong += [f"the feeder: {error}" for error in feeder.errors]
        wrong += still_open(cluster, places)
        replicas = await_whole(cluster, places)
        equal_logs(cluster, replicas)
        say("the cluster is whole")
        more, found = check(cluster, kinds, crew)
        wrong += more
        if has_tools:
            wrong += hanging(cluster)
    say("checked")
    (folder / "history.txt").write_text("\n".join([*history, *wrong]) + "\n")
    taken_s = time.monotonic() - begin
    return wrong, summary(seed, taken_s, attack.counts, crew, auditor.bank, found)


def summary(
    seed: int,
    seconds: float,
    counts: Counter[str],
    crew: Crew,
    accounts: bank.Bank,
    found: Counter[str],
) -> str:
    faults = counts + crew.counts
    lines = [f"seed {seed}, {seconds:.0f} s, {sum(faults.values())} faults:"]
    lines += [f"  {count:4d}  {name}" for name, count in faults.most_common()]
    for name, worker in crew.now.items():
        workers = [each for each in crew.all if each.role.id == name]
        lines.append(
            f"  {name}: {worker.incarnation} processes, "
            f"{sum(len(each.committed) for each in workers)} commits, "
            f"{sum(len(each.aborted) for each in workers)} aborts, "
            f"longest silence {max(each.longest_silence_s for each in workers):.1f} s"
        )
    errors = sum((worker.errors for worker in crew.all), Counter())
    lines += [f"  {count:4d}  {text}" for text, count in errors.most_common(25)]
    lines += [f"  {count} {name}" for name, count in found.items()]
    moved = sum(accounts.whole.values())
    lines.append(
        f"  {moved} transfers between accounts, right at each of {accounts.snapshots} snapshots"
    )
    return "\n".join(lines)
