"""The clients as processes: who they are, what they say, how they are killed, and that successors fence them.

A process goes on until its stdin ends. Lines on its stdout:

    ready            it has its transactional id: all before it are fenced
    middle N         transaction N has its records, all acknowledged, and is open
    committed N      the commit is acknowledged
    aborted N        the abort is
    error TEXT       something went wrong that the client gets over
    wrong TEXT       what it has read cannot be
    fenced TEXT      its last word: a successor has taken over
    failed TEXT      its last word: an error after which the client must be closed
    stuck TEXT       its last word: it sleeps for good, as is known of its library
    lost TEXT        its last word: its library does not try again when it cannot connect
    ended            its last word after the end of stdin

A fifth of all transactions is aborted on purpose.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compat_tests import tooling
from compat_tests.transaction_soak import bank
from compat_tests.transaction_soak.copies import Transaction
from compat_tests.transaction_soak.driven import KNOWN

ROOT = tooling.HERE.parent
SOURCE = "soak"
TARGETS = 4
"""Partitions of each topic of copies."""
READY_S = 60.0
MIDDLE_S = 60.0
ENDED_S = 60.0


@dataclass(frozen=True)
class Role:
    """A transactional id and the program that uses it, one process after another."""

    id: str
    program: list[str]
    arguments: tuple[
        str, ...
    ]  # of a copier, after bootstrap, transactional id and number of the process

    @property
    def is_owner(self) -> bool:
        return not self.arguments


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", f"compat_tests.transaction_soak.{module}"]


def _librdkafka(_: int) -> list[str]:
    return _python("copy_loop")


def _java(number: int) -> list[str]:
    """Clients of both versions of transactions in one group."""
    version = (tooling.KAFKA_BROKER, tooling.KAFKA_BROKER_4)[number % 2]
    return tooling.java_program_argv(tooling.HERE / "java" / "CopyLoop.java", version)


def _franz(_: int) -> list[str]:
    return [tooling.go_program(tooling.HERE / "go", "./copy", "copy")]


COPIERS: dict[str, Callable[[int], list[str]]] = {
    "librdkafka": _librdkafka,
    "java": _java,
    "franz": _franz,
}


def copiers(kind: str) -> list[Role]:
    """Two members of a group, the first of them static. ToolMissing: the kind cannot be had here."""
    return [
        Role(
            f"{kind}-{number}",
            COPIERS[kind](number),
            (
                f"copy-{kind}",
                f"{kind}-static" if not number else "-",
                SOURCE,
                f"copies-{kind}",
                str(TARGETS),
            ),
        )
        for number in range(2)
    ]


def owners(libraries: Sequence[str] = (bank.LIBRDKAFKA,)) -> list[Role]:
    """Each process of an owner uses the next library. ToolMissing: one cannot be had here."""
    for library in libraries:
        if library != bank.LIBRDKAFKA:
            KNOWN[library].command()
    program = [*_python("bank_owner"), ",".join(libraries)]
    return [Role(name, program, ()) for name in bank.OWNERS]


class Worker:
    """A process of a role."""

    def __init__(self, role: Role, bootstrap: str, incarnation: int, folder: Path) -> None:
        self.role = role
        self.incarnation = incarnation
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.errors: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.last = ""  # word and text
        self.last_commit = time.monotonic()
        self.longest_silence_s = 0.0
        self.ready = threading.Event()
        self.middle = threading.Event()
        self.is_killed = False
        self._log = (folder / f"{role.id}.{incarnation}.log").open("w")
        self._errors = (folder / f"{role.id}.{incarnation}.err").open("wb")
        self.process = subprocess.Popen(
            [*role.program, bootstrap, role.id, str(incarnation), *role.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __str__(self) -> str:
        return f"{self.role.id}/{self.incarnation}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._hear(line.decode(errors="replace").rstrip("\n"))
        self._log.close()

    def _hear(self, line: str) -> None:
        self._log.write(f"{time.time():.3f} {line}\n")
        self._log.flush()
        word, _, text = line.partition(" ")
        if word == "ready":
            self.last_commit = time.monotonic()
            self.ready.set()
        elif word == "middle":
            self.middle.set()
        elif word == "committed":
            now = time.monotonic()
            self.longest_silence_s = max(self.longest_silence_s, now - self.last_commit)
            self.last_commit = now
            self.committed.append(int(text))
        elif word == "aborted":
            self.aborted.append(int(text))
        elif word == "error":
            self.errors[_general(text)] += 1
        elif word == "wrong":
            self.wrong.append(f"{self}: {text}")
        elif word in ("fenced", "failed", "stuck", "lost", "ended"):
            self.last = line

    def transactions(self, numbers: list[int]) -> list[Transaction]:
        return [(self.role.id, self.incarnation, number) for number in numbers]

    def has_ended(self) -> bool:
        """Its process is gone, and all it said is known."""
        if self.process.poll() is None:
            return False
        self._reading.join(5)
        return True

    def send_signal(self, number: int) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)

    def kill9(self) -> None:
        self.is_killed = True
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Says that it shall end."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()

    def wait(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return self.has_ended()


_INSTANCE_FENCED = re.compile("FENCED_INSTANCE_ID|FencedInstanceId|group.instance.id")


def _general(text: str) -> str:
    """An error without what is different each time."""
    return re.sub(r"\d+", "#", text)[:160]


def _knows(last_word: str) -> bool:
    """Whether an owner with a successor knows that, or could not ask."""
    return last_word.startswith(("fenced", "lost"))


KILL, KILL_MIDDLE, PAUSE, ABANDON = (
    "kill -9 a client",
    "kill -9 a client amid a transaction",
    "pause a client until it has a successor",
    "abandon a transaction",
)
_FAULTS = {KILL_MIDDLE: 4, KILL: 2, PAUSE: 3, ABANDON: 1}


class Crew:
    """All client processes of a soak, and what is done to them."""

    def __init__(
        self, roles: list[Role], bootstrap: str, seed: int, folder: Path, say: Callable[[str], None]
    ) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.random = random.Random(f"crew {seed}")
        self.say = say
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.all: list[Worker] = []
        self.now: dict[str, Worker] = {}  # by transactional id
        self.abandoned = 0
        folder.mkdir(parents=True, exist_ok=True)
        for role in roles:
            self.replace(role)

    def replace(self, role: Role) -> Worker:
        before = self.now.get(role.id)
        number = 1 if before is None else before.incarnation + 1
        worker = Worker(role, self.bootstrap, number, self.folder)
        self.all.append(worker)
        self.now[role.id] = worker
        return worker

    def run(self, stop: threading.Event, pace: float) -> None:
        """The thread that attacks clients: each kind of fault has its turn first, then chance decides."""
        first = [KILL_MIDDLE, PAUSE]
        for worker in self.now.values():
            self._await_ready(worker)
        while not stop.is_set() or first:
            (fault,) = self.random.choices([*_FAULTS], [*_FAULTS.values()])
            role = self.random.choice([worker.role for worker in self.now.values()])
            self.step(first.pop() if first else fault, role)
            stop.wait(self.random.uniform(1.0, 4.0) / pace)
            self.tend()

    def step(self, fault: str, role: Role) -> None:
        worker = self.now[role.id]
        self.counts[fault] += 1
        if fault == ABANDON:
            self.say(f"{fault} of {ABANDON_S} s")
            self.abandoned += 1
            abandon(self.bootstrap, self.abandoned)
            return
        self.say(f"{fault}: {worker}")
        if fault != KILL:
            # One that is paused before it has its transactional id would fence its successor afterwards.
            worker.middle.clear()
            if not self._await_middle(worker):
                return
        if fault == PAUSE:
            worker.send_signal(signal.SIGSTOP)
            self._await_ready(self.replace(role))
            worker.send_signal(signal.SIGCONT)
            self.say(f"{worker} goes on")
        else:
            worker.kill9()
            self.replace(role)

    def _await_middle(self, worker: Worker) -> bool:
        """False: it has ended. No transaction for a long time is wrong."""
        deadline = time.monotonic() + MIDDLE_S
        while not worker.middle.wait(0.1):
            if worker.has_ended():
                return False
            if time.monotonic() > deadline:
                self.wrong.append(f"{worker} has begun no transaction for {MIDDLE_S:.0f} s")
                return False
        return True

    def _await_ready(self, worker: Worker) -> None:
        deadline = time.monotonic() + READY_S
        while not worker.ready.wait(0.1) and not worker.has_ended():
            if time.monotonic() > deadline:
                self.wrong.append(f"{worker} is not ready after {READY_S:.0f} s")
                return

    def tend(self) -> None:
        """Give those that have ended a successor."""
        for worker in list(self.now.values()):
            if worker.has_ended():
                self.say(f"{worker}: {worker.last or 'its process is gone'}")
                self.counts[f"{worker.role.id} ended: {_general(worker.last)}"] += 1
                self.wrong += self._early(worker)
                self.replace(worker.role)

    def _early(self, worker: Worker) -> list[str]:
        if worker.last.startswith(("stuck", "lost")):  # see the top of this module
            return []
        if _INSTANCE_FENCED.search(worker.last):
            # A member id that the coordinator gave while it could not write is unknown to the next coordinator,
            # which has the one before under this instance id: so it is in Kafka, too.
            return []
        return [f"{worker} has no successor, and yet it ended: {worker.last!r}"]

    def end(self) -> None:
        """Ask all to end; whoever does not is wrong, but for those with a successor that have had nothing to do."""
        for worker in self.all:
            worker.close()
        deadline = time.monotonic() + ENDED_S
        for worker in self.all:
            if worker.is_killed:
                continue
            is_current = self.now[worker.role.id] is worker
            if not worker.wait(max(deadline - time.monotonic(), 0.1)):
                self.wrong.append(f"{worker} does not end; its last words have its stacks")
                worker.send_signal(signal.SIGQUIT)
                worker.wait(2)
                worker.kill9()
            elif is_current and worker.last != "ended":
                self.wrong += self._early(worker)
            elif worker.role.is_owner and not (is_current or _knows(worker.last)):
                self.wrong.append(f"{worker} was not fenced, it said {worker.last!r}")

    def kill(self) -> None:
        """Leave no process."""
        for worker in self.all:
            if worker.process.poll() is None:
                worker.kill9()

    def committed(self) -> list[Transaction]:
        return [each for w in self.all for each in w.transactions(w.committed)]

    def aborted(self) -> list[Transaction]:
        return [each for w in self.all for each in w.transactions(w.aborted)]

    def newest_transfers(self) -> dict[str, int]:
        """By owner, the newest transfer whose commit was acknowledged."""
        return {
            name: max((n for w in self.all if w.role.id == name for n in w.committed), default=0)
            for name in bank.OWNERS
        }

    def faults(self) -> list[str]:
        return [*self.wrong, *(line for worker in self.all for line in worker.wrong)]


ABANDON_S = 3.0


def abandon(bootstrap: str, number: int) -> None:
    """Begin a transaction that only the coordinator can end."""
    from confluent_kafka import KafkaException, Producer

    from compat_tests.transaction_soak.librdkafka import settings

    producer = Producer(
        {
            **settings(bootstrap),
            "transactional.id": f"abandoned-{number}",
            "transaction.timeout.ms": int(ABANDON_S * 1000),
            "socket.timeout.ms": int(ABANDON_S * 1000),
        }
    )
    try:
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(
            bank.TOPIC, bank.ABANDONED + b" %d" % number, partition=bank.PARTITIONS - 1
        )
        producer.flush(ABANDON_S)
    except KafkaException:
        pass  # there is nothing to abandon
