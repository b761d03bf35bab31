"""`make soak MINUTES=n`: five broker processes under attack, two client libraries that write, nothing may be lost.

Idempotent producers with acks=all (librdkafka by confluent-kafka, and kafka-python 3) write numbered records to
partitions with three replicas and min.insync.replicas=2. Meanwhile, at least once every 3 seconds: a leader is killed
with kill -9 and started again, paused, cut off from the controller, from its followers or from everybody; a partition
is reassigned; a broker is stopped in an orderly way; the controller is killed. Afterwards the faults end, the cluster
must become whole, and then

- every acknowledged record is where its acknowledgement said, and nowhere else;
- no record is there twice, acknowledged or not (but for what librdkafka writes anew of its own accord, see
  `soak_checks.sent_anew`);
- the records of a producer are in the order in which it sent them, in each partition;
- what a consumer saw meanwhile is what is there now: nobody has read what was lost later;
- the copies of a partition are the same, byte for byte, at all its replicas;
- no delivery has failed, and no broker has logged an internal error.

Where Spark is installed, a second judge follows the run and must find the same: `second_judge`, `kwire audit --follow`.

What was done follows from the seed, which the first line tells; when it happens follows from the machine too.
"""

import argparse
import functools
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from compat_tests import second_judge
from compat_tests.cluster import Cluster, running, until
from compat_tests.second_judge import SecondJudge
from compat_tests.soak_checks import Records, Sessions, faults_of, read_back
from compat_tests.soak_clients import PARTITIONS, TOPIC, WRITERS, Reader, Writer, write

BROKERS = 5
REPLICAS = 3
CONFIG = {
    "broker_session_timeout_ms": "1500",  # a paused broker is noticed by its lease only
    "broker_heartbeat_interval_ms": "300",
    "replica_lag_time_max_ms": "1500",
    "controller_quorum_fetch_timeout_ms": "1000",
    "min_insync_replicas": "2",
    "log_segment_bytes": "262144",
    "log_retention_ms": "-1",
    "offsets_topic_replication_factor": "3",
}
DOWN_AT_MOST = 2
_KILL_LEADER = "kill -9 a leader"
_KILL_CONTROLLER, _PAUSE_CONTROLLER = "kill -9 a controller", "pause a controller"
PAUSE_BETWEEN_S = (0.3, 2.0)


Place = tuple[str, int]
"""Topic and partition."""
PLACES: tuple[Place, ...] = tuple((TOPIC, index) for index in range(PARTITIONS))


class Attack:
    """What is done to the leaders of `places`. A node has one fault at a time; `end` undoes all of them."""

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        say: Callable[[str], None],
        places: Sequence[Place] = PLACES,
    ) -> None:
        self.cluster = cluster
        self.places = places
        self.controllers = list(cluster.supervisor.controllers)
        self.random = random.Random(seed)
        self.say = say
        self.counts: Counter[str] = Counter()
        self._until: dict[int, float] = {}  # node: when its fault ends
        self._cures: dict[int, Callable[[], None]] = {}
        self._paused: set[int] = set()
        self._heals_owed: list[tuple[int, int]] = []
        self._faults: list[tuple[str, int, Callable[[int], Callable[[], None]]]] = [
            (_KILL_LEADER, 5, self._kill),
            ("pause a leader", 3, self._pause),
            ("cut a leader from the controller", 3, self._cut_from_controller),
            ("isolate a leader", 3, self._isolate),
            ("cut a leader's followers from it", 2, self._cut_followers),
            ("cut a broker from another", 2, self._cut_one),
            ("slow links of a broker", 1, self._slow),
            ("stop a leader in order", 2, self._stop),
            ("reassign", 5, self._kill),
            (_KILL_CONTROLLER, 1, self._kill),
            (_PAUSE_CONTROLLER, 1 if len(self.controllers) > 1 else 0, self._pause),
        ]

    def step(self) -> None:
        """One fault; a killed leader before any other, so that the shortest soak has one."""
        names = [name for name, _, _ in self._faults]
        weights = [weight for _, weight, _ in self._faults]
        (name,) = self.random.choices(names, weights)
        if not self.counts[_KILL_LEADER]:
            name = _KILL_LEADER
        place = self.places[self.random.randrange(len(self.places))]
        length_s = self.random.uniform(0.2, 2.5)
        target = self.random.sample(self.cluster.ids, REPLICAS)
        controller_is_hit = any(node in self._until for node in self.controllers)
        brokers_down = sum(node not in self.controllers for node in self._until)
        if name in (_KILL_CONTROLLER, _PAUSE_CONTROLLER):
            victim = self.random.choice(self.controllers)
            spared = controller_is_hit
        else:
            victim = self._leader(place)
            spared = victim < 0 or victim in self._until or brokers_down >= DOWN_AT_MOST
        if name == "reassign" or spared:
            self._reassign(place, target)
            return
        begin = next(work for each, _, work in self._faults if each == name)
        if name == "stop a leader in order" and controller_is_hit:
            name, begin = _KILL_LEADER, self._kill  # nobody could hand its leaderships over
        self.say(f"{name}: node {victim} for {length_s:.1f} s")
        self._cures[victim] = begin(victim)
        self._until[victim] = time.monotonic() + length_s
        self.counts[name] += 1

    def cure(self, now: float) -> None:
        """Ends the faults whose time has come, the controllers' first: brokers cannot start without one."""
        for node in sorted(self._until, reverse=True):
            if self._until[node] > now:
                continue
            if self._is_headless() and node not in self.controllers:
                continue
            self._bring_back(node)
        owed, self._heals_owed = self._heals_owed, []
        for node, other in owed:
            self._heal(node, other)

    def _is_headless(self) -> bool:
        return all(node in self._until for node in self.controllers)

    def _bring_back(self, node: int) -> None:
        del self._until[node]
        self._cures.pop(node)()
        self.say(f"node {node} is back")

    def end(self) -> None:
        while self._until:
            self.cure(float("inf"))
        self.cure(float("inf"))

    def _leader(self, place: Place) -> int:
        for node in self.cluster.running_ids():
            if node not in self._until:
                try:
                    return self.cluster.leader(*place, by=node)
                except (OSError, EOFError, TimeoutError):
                    continue
        return -1

    def _heal(self, node: int, other: int) -> None:
        """Links come back; those of a node that is paused, when it goes on; a node that was restarted has no cuts."""
        if node in self._paused:
            self._heals_owed.append((node, other))
        elif self.cluster.handle(node).running:
            self.cluster.heal(node, other)

    def _cut(self, pairs: list[tuple[int, int]]) -> Callable[[], None]:
        pairs = [
            (node, other)
            for node, other in pairs
            if node not in self._paused and self.cluster.handle(node).running
        ]
        for node, other in pairs:
            self.cluster.cut(node, other)

        def cure() -> None:
            for node, other in pairs:
                self._heal(node, other)

        return cure

    # Faults: each returns its cure.

    def _kill(self, victim: int) -> Callable[[], None]:
        self.cluster.kill9(victim)
        return lambda: self.cluster.start(victim)

    def _stop(self, victim: int) -> Callable[[], None]:
        self.cluster.stop(victim)
        return lambda: self.cluster.start(victim)

    def _pause(self, victim: int) -> Callable[[], None]:
        self.cluster.pause(victim)
        self._paused.add(victim)

        def cure() -> None:
            self.cluster.resume(victim)
            self._paused.discard(victim)

        return cure

    def _cut_from_controller(self, victim: int) -> Callable[[], None]:
        pairs = [(victim, node) for node in self.controllers]
        if self.random.random() < 0.5:
            pairs += [(node, victim) for node in self.controllers]
        return self._cut(pairs)

    def _isolate(self, victim: int) -> Callable[[], None]:
        others = [n for n in (*self.cluster.ids, *self.controllers) if n != victim]
        return self._cut([(victim, n) for n in others] + [(n, victim) for n in others])

    def _cut_followers(self, victim: int) -> Callable[[], None]:
        return self._cut([(n, victim) for n in self.cluster.ids if n != victim])

    def _cut_one(self, victim: int) -> Callable[[], None]:
        return self._cut(
            [(victim, self.random.choice([n for n in self.cluster.ids if n != victim]))]
        )

    def _slow(self, victim: int) -> Callable[[], None]:
        others = [n for n in self.cluster.ids if n != victim]
        for other in others:
            self.cluster.delay(victim, other, self.random.randrange(20, 300))

        def cure() -> None:
            for other in others:
                self._heal(victim, other)

        return cure

    def _reassign(self, place: Place, target: list[int]) -> None:
        name = f"{place[0]}-{place[1]}"
        if self._is_headless():
            self._bring_back(self.controllers[0])  # without one the answer would only be waited for
        try:
            by = [n for n in self.cluster.running_ids() if n not in self._until]
            error = self.cluster.reassign(*place, target, by=by[0])
        except (OSError, EOFError, TimeoutError, IndexError) as failure:
            error = -2
            self.say(f"reassign {name} to {target}: {failure!r}")
        self.counts["reassign" if not error else f"reassign, answered {error}"] += 1
        self.say(f"reassign {name} to {target}: answered {error}")


def await_whole(cluster: Cluster, places: Sequence[Place] = PLACES) -> dict[Place, list[int]]:
    """Every partition has all its replicas in sync and no reassignment is left. Returns the replicas."""
    replicas: dict[Place, list[int]] = {}
    for place in places:

        def whole(place: Place = place) -> bool:
            found = [cluster.partition(*place, by=node) for node in cluster.ids]
            if any(
                len(p.replica_nodes) != REPLICAS
                or sorted(p.isr_nodes) != sorted(p.replica_nodes)
                or p.leader_id < 0
                for p in found
            ):
                return False
            replicas[place] = list(found[0].replica_nodes)
            return all(p.leader_epoch == found[0].leader_epoch for p in found)

        until(whole, 30.0, f"{place[0]}-{place[1]} is whole")
    return replicas


def equal_logs(cluster: Cluster, replicas: dict[Place, list[int]]) -> dict[Place, bytes]:
    """Waits until all copies of each partition are equal; their bytes. AssertionError: they stay unequal."""
    return {
        (topic, index): cluster.await_equal_logs(topic, *nodes, index=index)
        for (topic, index), nodes in replicas.items()
    }


def soak(
    seconds: float,
    seed: int,
    folder: Path,
    *,
    verbose: bool = False,
    pace: float = 1.0,
    controllers: int = 2,
    judged_twice: bool = False,
) -> tuple[list[str], str]:
    """Runs it, faults coming `pace` times as fast. Returns what is wrong, a line each, and a summary."""
    begin = time.monotonic()
    history: list[str] = []

    def say(line: str) -> None:
        history.append(f"{time.monotonic() - begin:7.2f} {line}")
        if verbose:
            print(history[-1], flush=True)

    writers = [Writer(name) for name in WRITERS]
    stop = threading.Event()
    wrong: list[str] = []
    chance = random.Random(seed)
    with (
        ExitStack() as ends,
        running(folder, BROKERS, controllers=controllers, **CONFIG) as cluster,
    ):
        ids = cluster.ids
        cluster.create(
            TOPIC, [[ids[(i + k) % BROKERS] for k in range(3)] for i in range(PARTITIONS)]
        )
        reader, reading_ends = Reader(), threading.Event()
        judge = None
        if judged_twice:
            judge = SecondJudge(folder / "second-judge", cluster.bootstrap, [TOPIC])
            ends.callback(judge.end)
            say(f"a second judge follows: {judge.page}")
            for writer in writers:
                writer.noted = judge.ledger.producer(writer.name)
            reader.noted = judge.ledger.reader("meanwhile")
        threads = [
            threading.Thread(target=write, args=(w, cluster.bootstrap, stop), daemon=True)
            for w in writers
        ]
        reading = threading.Thread(
            target=reader.read, args=(cluster.bootstrap, reading_ends), daemon=True
        )
        for thread in (*threads, reading):
            thread.start()
        attack = Attack(cluster, seed, say)
        end = time.monotonic() + seconds
        next_fault = time.monotonic() + 1
        while (now := time.monotonic()) < end:
            attack.cure(now)
            if now >= next_fault:
                attack.step()
                next_fault = time.monotonic() + chance.uniform(*PAUSE_BETWEEN_S) / pace
            time.sleep(0.05)
        say("the faults end")
        attack.end()
        stop.set()
        for thread in threads:
            thread.join(90)
            if thread.is_alive():
                wrong.append("a producer does not come to an end")
        say("the producers are done")
        replicas = await_whole(cluster)
        say("the cluster is whole")
        logs = equal_logs(cluster, replicas)
        sessions = {index: Sessions.of(log) for (_, index), log in logs.items()}
        size_bytes = sum(map(len, logs.values()))
        found = read_back(cluster.bootstrap)
        reading_ends.set()
        reading.join(30)
        wrong += faults_of(writers, found, sessions) + reader.faults(found)
        if judge is not None:
            wrong += judge.verdict(functools.partial(was_sent_anew, writers))
            say(f"the second judge: {judge.summary}")
        say(f"a consumer has seen {len(reader.seen)} records meanwhile")
    say("checked")
    for writer in writers:
        for end, length_s in writer.silences:
            say(f"{writer.name} got no answer for {length_s:.1f} s until {end - begin:.2f}")
    (folder / "history.txt").write_text("\n".join([*history, *wrong]) + "\n")
    return wrong, summary(seed, attack.counts, writers, found, size_bytes, time.monotonic() - begin)


def was_sent_anew(writers: list[Writer], finding: dict[str, Any]) -> bool:
    """Whether a finding is of a record that its client itself has written twice, which the first judge counts."""
    return finding["kind"] in ("doubled", "reordered") and any(
        writer.name == finding["producer"] and writer.sent_anew for writer in writers
    )


def summary(
    seed: int,
    counts: Counter[str],
    writers: list[Writer],
    found: Records,
    size_bytes: int,
    seconds: float,
) -> str:
    lines = [f"seed {seed}, {seconds:.0f} s, {sum(counts.values())} faults:"]
    lines += [f"  {count:4d}  {name}" for name, count in counts.most_common()]
    for writer in writers:
        lines.append(
            f"  {writer.name}: {writer.sent} sent, {len(writer.acked)} acknowledged, "
            f"longest silence {writer.longest_silence_s:.1f} s"
            + f", {writer.sent_anew} sent anew under a later producer epoch"
            * bool(writer.sent_anew)
        )
    total = sum(len(records) for records in found.values())
    lines.append(f"  {total} records read back; {REPLICAS} equal copies of {size_bytes} bytes")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--pace", type=float, default=1.0, help="2: faults twice as often")
    parser.add_argument("--controllers", type=int, default=2, help="one is active")
    parser.add_argument("--folder", type=Path, default=None, help="kept; else a temporary one")
    parser.add_argument("--one-judge", action="store_true", help="no audit by Spark beside it")
    parser.add_argument("--quiet", action="store_true", help="only the summary")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="kwire-soak-"))
    print(f"soak: seed {seed}, {options.minutes:g} minutes, {folder}", flush=True)
    reason = second_judge.missing()
    if reason is not None and not options.one_judge:
        print(f"soak: no second judge: {reason}", flush=True)
    try:
        wrong, text = soak(
            options.minutes * 60,
            seed,
            folder,
            verbose=not options.quiet,
            pace=options.pace,
            controllers=options.controllers,
            judged_twice=reason is None and not options.one_judge,
        )
    except AssertionError as error:
        print(f"soak: FAILED (seed {seed}; everything is in {folder}): {error}")
        return 1
    print(text)
    for line in wrong[:50]:
        print(f"WRONG: {line}")
    if wrong:
        print(f"soak: FAILED, {len(wrong)} faults (seed {seed}; everything is in {folder})")
        return 1
    print("soak: nothing lost, nothing twice, everything in order")
    if options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
