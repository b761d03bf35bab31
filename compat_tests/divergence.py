"""A follower whose log has left its leader's, and a log start inside a batch: what Kafka makes of it, and kwire.

    python -m compat_tests.divergence kafka|kwire [--seed N] [--count N] [--show]

Two replicas' directories are written while both brokers are down, one partition a case; then the leader is started, the
follower after it. What becomes of each follower is printed, one line a case: "follows" (in the ISR, its log a copy of
the leader's from where it begins) or "failed" (not in the ISR any more, for good). `--seed` draws the cases;
without it they are those of CASES.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import kwire
from compat_tests.kafka_nodes import KafkaNodes
from kwire.client.streams import ask
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record, iter_batches
from kwire.protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from kwire.protocol.schemas.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)

TOPIC = "divergent"
EPOCHS = 6  # drawn cases use epochs below
SETTLE_S = 12.0


class Replica(NamedTuple):
    """`batches`: (base offset, records, epoch); `start`: the log start."""

    batches: tuple[tuple[int, int, int], ...]
    start: int = 0

    @property
    def end(self) -> int:
        return max([self.start, *(base + count for base, count, _ in self.batches)])

    def epochs(self) -> list[tuple[int, int]]:
        """What leader-epoch-checkpoint says after the log start has moved."""
        entries: list[tuple[int, int]] = []
        for base, _, epoch in self.batches:
            if not entries or entries[-1][0] != epoch:
                entries.append((epoch, base))
        below = [entry for entry in entries if entry[1] <= self.start]
        kept = [entry for entry in entries if entry[1] > self.start]
        return ([(below[-1][0], self.start)] if below else []) + kept


class Case(NamedTuple):
    name: str
    leader: Replica
    follower: Replica


def R(*batches: tuple[int, int, int], start: int = 0) -> Replica:
    return Replica(batches, start)


CASES = [
    Case("new follower, log start in the first batch", R((0, 10, 0), (10, 5, 0), start=5), R()),
    Case("new follower, log start in a later batch", R((0, 5, 0), (5, 10, 1), start=8), R()),
    Case(
        "follower ends inside the batch, below the log start",
        R((0, 5, 0), (5, 10, 0), start=8),
        R((0, 5, 0)),
    ),
    Case(
        "same log, divergent tail after the batch",
        R((0, 10, 0), (10, 5, 2), start=5),
        R((0, 10, 0), (10, 3, 0)),
    ),
    Case(
        "same, both have the log start",
        R((0, 10, 0), (10, 5, 2), start=5),
        R((0, 10, 0), (10, 3, 1), start=5),
    ),
    Case(
        "divergent tail, leader's epoch begins at its log start",
        R((0, 5, 0), (5, 10, 1), start=8),
        R((0, 5, 0), (5, 16, 0)),
    ),
    Case(
        "same, a batch ends at the log start",
        R((0, 5, 0), (5, 10, 1), start=8),
        R((0, 5, 0), (5, 3, 0), (8, 5, 0)),
    ),
    Case(
        "same, tail ends at the log start",
        R((0, 5, 0), (5, 10, 1), start=8),
        R((0, 5, 0), (5, 3, 0)),
    ),
    Case(
        "same, tail ends inside the batch, beyond the log start",
        R((0, 5, 0), (5, 10, 1), start=8),
        R((0, 5, 0), (5, 4, 0)),
    ),
    Case(
        "same, follower's log start is the leader's",
        R((0, 5, 0), (5, 10, 1), start=8),
        R((0, 5, 0), (5, 16, 0), start=8),
    ),
    Case(
        "same, follower's log start is lower",
        R((0, 5, 0), (5, 10, 1), start=8),
        R((0, 5, 0), (5, 16, 0), start=6),
    ),
    Case(
        "same, follower's log start is higher",
        R((0, 5, 0), (5, 10, 1), start=8),
        R((0, 5, 0), (5, 16, 0), start=10),
    ),
    Case(
        "follower's whole log divergent, log starts equal",
        R((0, 10, 0), (10, 2, 2), start=5),
        R((0, 10, 1), start=5),
    ),
    Case(
        "follower's whole log divergent, own log start in its batch",
        R((0, 10, 0), (10, 2, 2)),
        R((0, 10, 1), start=5),
    ),
    Case(
        "own log start in a batch, tail cut below it",
        R((0, 4, 0), (4, 10, 2)),
        R((0, 4, 0), (4, 10, 1), start=7),
    ),
    Case(
        "own log start in a common batch, tail cut inside",
        R((0, 10, 0), (10, 4, 3)),
        R((0, 10, 0), (10, 4, 1), start=5),
    ),
    Case(
        "first epoch unknown to the leader",
        R((0, 10, 2), (10, 4, 3), start=5),
        R((0, 10, 0), (10, 4, 1)),
    ),
    Case(
        "first epoch unknown to the leader, own log start above",
        R((0, 10, 2), (10, 4, 3), start=5),
        R((0, 10, 0), (10, 4, 1), start=7),
    ),
]


def drawn(seed: int, count: int) -> list[Case]:
    """Cases as unclean elections and DeleteRecords can leave them: one history up to a point, two after it."""
    random = Random(seed)

    def grow(at: int, epochs: list[int], most: int) -> list[tuple[int, int, int]]:
        batches = []
        for epoch in epochs:
            for _ in range(random.randint(1, most)):
                size = random.choice((1, 3, 5, 10))
                batches.append((at, size, epoch))
                at += size
        return batches

    cases = []
    for number in range(count):
        common = grow(0, sorted(random.sample(range(3), random.randint(0, 2))), 2)
        at = common[-1][0] + common[-1][1] if common else 0
        last = common[-1][2] if common else 0
        later = list(range(last, EPOCHS))
        random.shuffle(later)
        cut = random.randint(0, min(3, len(later)))
        theirs, ours = sorted(later[:cut]), sorted(later[cut : cut + random.randint(0, 2)])
        leader, follower = common + grow(at, theirs, 2), common + grow(at, ours, 2)
        replicas = []
        for batches in (leader, follower):
            end = batches[-1][0] + batches[-1][1] if batches else 0
            start = random.choice((0, random.randint(0, end), random.randint(0, end)))
            replicas.append(Replica(tuple(batches), start))
        cases.append(Case(f"{seed}/{number}", *replicas))
    return cases


def lay(data: Path, side: int, cases: list[Case]) -> None:
    """Makes the logs in a stopped broker's directory those of the cases."""
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    starts, ends = [], []
    for index, case in enumerate(cases):
        replica: Replica = case[1 + side]
        folder = data / f"{TOPIC}-{index}"
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        with (folder / f"{0:020}.log").open("wb") as file:
            for base, count, epoch in replica.batches:
                value = f"{base} {epoch}".encode()
                records = [Record(base + n, 1_700_000_000_000, None, value) for n in range(count)]
                file.write(build_batch(records, base_offset=base, partition_leader_epoch=epoch))
        lines = [f"{epoch} {start}" for epoch, start in replica.epochs()]
        text = "\n".join(["0", str(len(lines)), *lines, ""])
        (folder / "leader-epoch-checkpoint").write_text(text)
        if replica.start:
            starts.append(f"{TOPIC} {index} {replica.start}")
        ends.append(f"{TOPIC} {index} {replica.start if side else replica.end}")
    none = [f"{TOPIC} {index} 0" for index in range(len(cases))]
    for name, lines in (
        ("log-start-offset-checkpoint", starts),
        ("replication-offset-checkpoint", ends),
        ("recovery-point-offset-checkpoint", none),
    ):
        (data / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def held(data: Path, index: int) -> list[tuple[int, int, int]]:
    """(base offset, last offset, epoch) of the batches in a replica's files."""
    found = []
    for path in sorted((data / f"{TOPIC}-{index}").glob("*.log")):
        for batch in iter_batches(path.read_bytes()):
            found.append((batch.base_offset, batch.last_offset, batch.partition_leader_epoch))
    return found


def log_starts(data: Path) -> dict[int, int]:
    lines = (data / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    return {int(index): int(offset) for _, index, offset in map(str.split, lines)}


class KafkaPair:
    """Two brokers of Apache Kafka and their controller."""

    def __init__(self, folder: Path) -> None:
        config = {
            "log.cleaner.enable": "false",
            "log.retention.ms": "-1",
            "replica.lag.time.max.ms": "3000",
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
        }
        self.cluster = KafkaNodes(folder, 2, config)

    def start(self, node_id: int) -> None:
        if self.cluster.controller.process is None:
            self.cluster.controller.start()
        self.cluster.brokers[node_id].start()

    def stop(self, node_id: int) -> None:
        self.cluster.brokers[node_id].stop()

    def kill(self) -> None:
        self.cluster.kill9()

    def address(self, node_id: int) -> tuple[str, int]:
        return "127.0.0.1", self.cluster.brokers[node_id].port

    def data(self, node_id: int) -> Path:
        return self.cluster.brokers[node_id].data

    def said(self, node_id: int, words: str) -> list[str]:
        lines = self.cluster.brokers[node_id].log_tail(100_000).splitlines()
        return [line for line in lines if words in line]


class KwirePair:
    """`kwire.Cluster` of two brokers in this process."""

    def __init__(self, folder: Path) -> None:
        config = {"log.retention.ms": "-1", "replica.lag.time.max.ms": "3000"}
        self.cluster = kwire.Cluster(brokers=2, config=config, data_dir=folder / "kwire")

    def start(self, node_id: int) -> None:
        if not self.cluster.started:
            self.cluster.start()
        elif not self.cluster.broker(node_id).running:
            self.cluster.broker(node_id).start()

    def stop(self, node_id: int) -> None:
        self.cluster.broker(node_id).stop()

    def kill(self) -> None:
        self.cluster.stop()

    def address(self, node_id: int) -> tuple[str, int]:
        host, _, port = self.cluster.broker(node_id).address.rpartition(":")
        return host, int(port)

    def data(self, node_id: int) -> Path:
        return Path(self.cluster.broker(node_id).log_dir)

    def said(self, node_id: int, words: str) -> list[str]:
        return []


def _ask(pair: Any, request: Any) -> Any:
    return asyncio.run(ask(pair.address(1), request))


def _partitions(pair: Any) -> dict[int, Any]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    found = _ask(pair, request).topics[0].partitions
    return {partition.partition_index: partition for partition in found}


def _eventually(what: str, check: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


def run(pair: Any, cases: list[Case], settle_s: float = SETTLE_S) -> list[str]:
    """What becomes of each case's follower: "follows" or "failed", and after its broker's restart."""
    pair.start(1)
    pair.start(2)
    wanted = [
        CreatableReplicaAssignment(partition_index=n, broker_ids=[1, 2]) for n in range(len(cases))
    ]
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=wanted)
    _eventually("two brokers", lambda: len(_ask(pair, MetadataRequest(topics=[])).brokers) == 2)
    made = _ask(pair, CreateTopicsRequest(topics=[topic], timeout_ms=20000))
    assert made.topics[0].error_code == 0, made
    whole = lambda: all(len(p.isr_nodes) == 2 for p in _partitions(pair).values())  # noqa: E731
    _eventually("all in sync", whole)
    highest = max(
        e for case in cases for r in (case.leader, case.follower) for _, _, e in r.batches
    )
    time.sleep(min(2, settle_s))
    while True:
        pair.stop(2)
        pair.stop(1)
        pair.start(1)
        _eventually("leaders", lambda: all(p.leader_id == 1 for p in _partitions(pair).values()))
        lowest = min(p.leader_epoch for p in _partitions(pair).values())
        if lowest > highest:
            break
        pair.start(2)
        _eventually("all in sync", whole)
    pair.stop(1)
    lay(pair.data(1), 0, cases)
    lay(pair.data(2), 1, cases)
    pair.start(1)
    _eventually("leaders", lambda: all(p.leader_id == 1 for p in _partitions(pair).values()))
    assert all(p.isr_nodes == [1] for p in _partitions(pair).values())
    outcomes = []
    for _ in range(2):
        pair.start(2)
        time.sleep(min(2, settle_s))
        deadline = time.monotonic() + settle_s
        while not whole() and time.monotonic() < deadline:
            time.sleep(0.2)
        isr = {index: len(p.isr_nodes) for index, p in _partitions(pair).items()}
        lines = []
        for index in range(len(cases)):
            kept_from = max(cases[index].leader.start, cases[index].follower.start)
            ours = held(pair.data(2), index)
            one, other = (
                [b for b in each if b[1] >= kept_from] for each in (ours, held(pair.data(1), index))
            )
            state = (
                "failed"
                if isr[index] < 2
                else "follows"
                if one == other
                else "in sync, but not a copy!"
            )
            if "--show" in sys.argv:
                batches = " ".join(f"{first}-{last}:{epoch}" for first, last, epoch in ours)
                state += f" [{batches}]"
            lines.append(state)
        outcomes.append(lines)
        pair.stop(2)
        if "--show" in sys.argv:
            starts = log_starts(pair.data(2))
            for index in range(len(cases)):
                path = pair.data(2) / f"{TOPIC}-{index}" / "leader-epoch-checkpoint"
                epochs = ",".join(path.read_text().split("\n")[2:-1])
                lines[index] += f" begins at {starts.get(index, 0)}, epochs {epochs}"
    return [a if a == b else f"{a}; after a restart: {b}" for a, b in zip(*outcomes, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("kafka", "kwire"))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--log", help="where to put the follower's log (Kafka)")
    arguments = parser.parse_args()
    cases = CASES if arguments.seed is None else drawn(arguments.seed, arguments.count)
    folder = Path(tempfile.mkdtemp(prefix="kwire-divergence-"))
    pair = (KafkaPair if arguments.what == "kafka" else KwirePair)(folder)
    try:
        outcomes = run(pair, cases)
        if arguments.log:
            Path(arguments.log).write_text("\n".join(pair.said(2, "")))
    finally:
        pair.kill()
        shutil.rmtree(folder, ignore_errors=True)
    for case, outcome in zip(cases, outcomes, strict=True):
        print(f"{case.name}: {outcome}")


if __name__ == "__main__":
    main()
