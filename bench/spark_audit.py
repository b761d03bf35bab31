"""`kwire audit` of a large load: brokers' logs and the ledger are made, then the command runs as a user runs it.

    spark_it/.build/venv-4.0.0/bin/python bench/spark_audit.py --records 1000000
    … --data DIR        keeps logs and ledger, and uses those that are there; ten million records take 6 GB
    … --lost 3          so many records are in the ledger and not in the logs

Records have 180 bytes and keys, 500 in a batch, of two producers by turns, in three partitions with three replicas.
What
it prints: time by the clock, and CPU time of Spark's JVM, of its Python workers and of the driver, which other load of
the machine changes little.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from struct import Struct

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kwire.load.ledger import Ledger
from kwire.protocol.record_builder import build_batch
from kwire.protocol.records import Record
from spark_it.support import use_fetched_jars

ROOT = Path(__file__).resolve().parent.parent
TOPIC, PARTITIONS, BROKERS, PRODUCERS = "orders", 3, (1, 2, 3), 2
SIZE, KEYS, BATCH = 180, 100, 500
"""Bytes of a value; different keys; records of a batch."""
INDEX_BYTES = 4096
_ENTRY = Struct(">ii")
_TICK_S = 0.1
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"


class Partition:
    """A log that is written, and its index."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.end = 0
        self._log = (folder / f"{0:020}.log").open("wb")
        self._index = (folder / f"{0:020}.index").open("wb")
        self._indexed = 0

    def append(self, records: list[Record]) -> None:
        stored = build_batch(records, base_offset=records[0].offset, partition_leader_epoch=0)
        position = self._log.tell()
        if position - self._indexed > INDEX_BYTES:
            self._index.write(_ENTRY.pack(records[-1].offset, position))
            self._indexed = position
        self._log.write(stored)

    def close(self) -> None:
        self._log.close()
        self._index.close()
        (self.folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def fill(data: Path, records: int, lost: int) -> None:
    """The logs of three brokers, and the ledger of what was sent to them."""
    first = data / "logs" / f"broker-{BROKERS[0]}"
    partitions = [Partition(first / f"{TOPIC}-{number}") for number in range(PARTITIONS)]
    chosen = set(random.Random(records).sample(range(records), lost))
    with Ledger(data / "ledger", bootstrap="127.0.0.1:1", topics=[TOPIC]) as ledger:
        producers = [ledger.producer(f"p-{number + 1}") for number in range(PRODUCERS)]
        for begin in range(0, records, BATCH):
            number = begin // BATCH
            index = number % PARTITIONS
            log, producer = partitions[index], producers[number // PARTITIONS % PRODUCERS]
            batch = []
            now = time.time_ns() // 1_000_000
            for each in range(begin, min(begin + BATCH, records)):
                sent = producer.record(TOPIC, key=b"key-%d" % (each % KEYS), size=SIZE)
                sent.acknowledged(index, log.end)
                if each not in chosen:
                    batch.append(Record(log.end, now, sent.key, sent.value))
                    log.end += 1
            if batch:
                log.append(batch)
    for log in partitions:
        log.close()
    ends = "".join(f"{TOPIC} {number} {log.end}\n" for number, log in enumerate(partitions))
    (first / "replication-offset-checkpoint").write_text(f"0\n{PARTITIONS}\n{ends}")
    for broker in BROKERS:
        folder = first.with_name(f"broker-{broker}")
        if folder != first:
            shutil.copytree(first, folder)
        (folder / "meta.properties").write_text(
            f"version=1\nnode.id={broker}\ncluster.id={_CLUSTER}\n"
        )


class Watched:
    """The descendants of a process, by what they are: CPU time, and the largest resident set of one."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ticks: dict[int, tuple[str, int]] = {}
        self.largest_mb: dict[str, int] = {}

    def look(self) -> None:
        parents, found = {}, {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(path.parent.name)] = int(fields[1])
            found[int(path.parent.name)] = int(fields[11]) + int(fields[12]), int(fields[21])
        for pid, (ticks, pages) in found.items():
            ancestor = pid
            while ancestor not in (0, self._pid):
                ancestor = parents.get(ancestor, 0)
            if ancestor:
                kind = self._kind(pid)
                self._ticks[pid] = kind, ticks
                self.largest_mb[kind] = max(self.largest_mb.get(kind, 0), pages * 4096 >> 20)

    def _kind(self, pid: int) -> str:
        if pid == self._pid:
            return "driver's Python"
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            command = b""
        if not command:  # it has ended
            return self._ticks.get(pid, ("other", 0))[0]
        return "JVM" if b"java" in command.split(b"\0")[0] else "workers"

    def seconds(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for kind, ticks in self._ticks.values():
            found[kind] = found.get(kind, 0) + ticks / os.sysconf("SC_CLK_TCK")
        return found


def audit(data: Path, out: Path, given: argparse.Namespace) -> int:
    use_fetched_jars()
    command = ["-m", "kwire", "audit", str(data / "ledger"), "--logs", str(data / "logs" / "*")]
    command += ["--out", str(out), "--master", given.master]
    command += ["--conf", "spark.driver.memory=2g"]
    for pair in given.conf:
        command += ["--conf", pair]
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *command], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    watched = Watched(process.pid)
    while process.poll() is None:
        watched.look()
        time.sleep(_TICK_S)
    took, cpu = time.perf_counter() - begun, watched.seconds()
    parts = ", ".join(
        f"{kind} {seconds:.0f} s ({watched.largest_mb[kind]} MB)" for kind, seconds in cpu.items()
    )
    print(f"{took:.1f} s, CPU {sum(cpu.values()):.1f} s: {parts}; load {os.getloadavg()[0]:.1f}")
    return process.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--lost", type=int, default=0)
    parser.add_argument("--data", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keeps the audit's results")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    if not 0 <= given.lost <= given.records:
        parser.error(f"--lost {given.lost} of --records {given.records}")
    with tempfile.TemporaryDirectory(prefix="kwire-audit-") as folder:
        data = given.data or Path(folder)
        if not (data / "logs").exists():
            begun = time.perf_counter()
            fill(data, given.records, given.lost)
            print(f"# {given.records:,} records made in {time.perf_counter() - begun:.1f} s")
        return audit(data, given.out or Path(folder) / "out", given)


if __name__ == "__main__":
    sys.exit(main())
