"""What happens to a mixed cluster under load, action by action; after each the cluster is whole again.

Two topics are under load all the time: "orders" with replicas on Kafka and on kwire, and "moved" with one replica that
goes from one to the other. "risky" may elect uncleanly, and only what is meant to be lost there is lost.
"""

import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from compat_tests.mixed.cluster import KWIRE, PEER, MixedCluster, Partition
from compat_tests.mixed.load import Load, produce_all, read_messages
from compat_tests.mixed.logs import difference, leader_epochs, log_bytes
from compat_tests.second_judge import SecondJudge
from compat_tests.test_dump_log import dump

ORDERS: list[Partition] = [("orders", index) for index in range(4)]
MOVED: list[Partition] = [("moved", index) for index in range(2)]
RISKY: list[Partition] = [("risky", 0)]
BOTH = (KWIRE, PEER)
_DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


class Scenario:
    """A cluster, its topics and their load."""

    def __init__(self, cluster: MixedCluster, judged_in: Path | None = None) -> None:
        """`judged_in`: a folder for a second judge, who follows the load."""
        self.cluster = cluster
        self._judged_in = judged_in
        self._judge: SecondJudge | None = None
        self.risky: list[bytes] = []  # what must stand in the log of "risky"
        self.loads: list[Load] = []
        self.done: list[str] = []
        self._started = time.monotonic()

    def begin(self) -> None:
        cluster = self.cluster
        cluster.create("orders", "3:2,2:3,3:2,2:3")
        cluster.create("moved", "3,3")
        cluster.create("risky", "3:2", unclean_leader_election_enable="true")
        self.await_whole()
        if self._judged_in is not None:
            topics = ["orders", "moved"]
            self._judge = SecondJudge(self._judged_in, cluster.bootstrap_servers, topics)
        for topic, partitions in (("orders", ORDERS), ("moved", MOVED)):
            noted = self._judge.ledger.producer(topic) if self._judge else None
            load = Load(cluster.bootstrap_servers, topic, len(partitions), noted)
            load.start()
            self.loads.append(load)
        self.await_progress()

    def run(self, action: Callable[[], None]) -> None:
        """One action, and the cluster is whole again and the load goes on."""
        name = action.__name__.replace("_", " ")
        try:
            action()
            self.await_whole()
            self.await_progress()
        except BaseException:
            print(f"failed after {self.done}: {name}", file=sys.stderr)
            raise
        self.done.append(name)
        elapsed = time.monotonic() - self._started
        print(f"{elapsed:6.1f} s  {name}; {sum(load.count for load in self.loads)} acknowledged")

    def await_whole(self) -> None:
        self.cluster.await_isr(BOTH, ORDERS + RISKY)

    def await_progress(self) -> None:
        """Every load gets further answers: a hundred, so that all partitions have their share."""
        wanted = [(load, load.count + 100) for load in self.loads]
        self.cluster.eventually(
            "load", lambda: all(load.count >= count or load.failures for load, count in wanted)
        )
        failures = [failure for load in self.loads for failure in load.failures]
        assert failures == [], failures[:5]

    # -- actions -------------------------------------------------------------------------------------------------

    def leadership_moves_back_and_forth(self) -> None:
        for broker_id in (KWIRE, PEER, KWIRE, PEER):
            self.cluster.lead(broker_id, ORDERS)
        self.cluster.lead(KWIRE, ORDERS[:2])

    def partitions_move_to_the_other_broker(self) -> None:
        """From Kafka to kwire, or back; the replica that is left is deleted."""
        cluster = self.cluster
        for _ in range(2):
            target = PEER if cluster.registry.replicas(*MOVED[0]) == [KWIRE] else KWIRE
            left = cluster.peer if target == KWIRE else cluster.kwire
            cluster.reassign(MOVED, [target])
            cluster.await_replicas(MOVED, [target])
            cluster.await_leader(target, MOVED)
            folders = [left.data / f"{topic}-{index}" for topic, index in MOVED]
            cluster.eventually(f"deleted: {folders}", functools.partial(_all_gone, folders))
            self.await_progress()

    def kwire_shuts_down_in_a_controlled_way(self) -> None:
        cluster = self.cluster
        cluster.lead(KWIRE, ORDERS)
        assert cluster.kwire.stop() == 0, cluster.kwire.log_tail()
        cluster.await_leader(PEER, ORDERS)  # it is still registered: nobody has been declared dead
        cluster.await_isr([PEER], ORDERS)
        cluster.kwire.sign_off()
        cluster.kwire.start()

    def kafka_shuts_down_in_a_controlled_way(self) -> None:
        cluster = self.cluster
        cluster.lead(PEER, ORDERS)
        cluster.peer.stop()
        cluster.await_leader(KWIRE, ORDERS)
        cluster.await_isr([KWIRE], ORDERS)
        cluster.peer.start()

    def kwire_is_killed(self) -> None:
        cluster = self.cluster
        cluster.lead(KWIRE, ORDERS[:2])
        cluster.kwire.kill9()
        cluster.await_leader(PEER, ORDERS)
        cluster.kwire.start()

    def the_controller_is_deposed(self) -> None:
        self.cluster.depose_controller()

    def kafka_falls_behind_and_kwire_is_overruled(self) -> None:
        """kwire shrinks the ISR to itself and dies; Kafka is elected uncleanly; kwire has to cut its log."""
        cluster, kwire, peer = self.cluster, self.cluster.kwire, self.cluster.peer
        cluster.lead(KWIRE, RISKY)
        self._produce("known to both", keep=True)
        peer.pause()
        await_end_of_long_polls()
        self._produce("known to kwire only", keep=False)
        cluster.await_isr([KWIRE], RISKY)
        kwire.kill9()
        cluster.await_leader(PEER, RISKY)
        peer.resume()
        self._produce("written by Kafka", keep=True)
        kwire.start()
        self._check_risky()

    def kwire_falls_behind_and_kafka_is_overruled(self) -> None:
        """Kafka shrinks the ISR to itself and dies; kwire is elected uncleanly; Kafka has to cut its log."""
        cluster, kwire, peer = self.cluster, self.cluster.kwire, self.cluster.peer
        cluster.lead(PEER, RISKY)
        self._produce("known to both", keep=True)
        kwire.pause()
        await_end_of_long_polls()
        self._produce("known to Kafka only", keep=False)
        cluster.await_isr([PEER], RISKY)
        peer.kill9()
        cluster.registry.declare_dead(PEER)
        cluster.await_leader(KWIRE, RISKY)
        kwire.resume()
        self._produce("written by kwire", keep=True)
        peer.start()
        self._check_risky()

    def _produce(self, what: str, keep: bool) -> None:
        start = len(self.risky)
        values = [f"{what} {start + number}".encode() for number in range(10)]
        produce_all(self.cluster.bootstrap_servers, "risky", 0, values)
        if keep:
            self.risky += values

    def _check_risky(self) -> None:
        self.cluster.await_isr(BOTH, RISKY)
        self.check_identical(RISKY)
        found = read_messages(self.cluster.bootstrap_servers, "risky", 0)
        assert [message.value() for message in found] == self.risky

    # -- the end -------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """The load ends; nothing acknowledged is lost, the replicas hold the same bytes, and Kafka's DumpLogSegments
        finds no fault with kwire's files."""
        for load in self.loads:
            load.finish()
        self.await_whole()
        self.check_identical(ORDERS + RISKY)
        for load in self.loads:
            load.check(self.cluster.bootstrap_servers, functools.partial(self._log_of, load.topic))
        if self._judge is not None:
            assert self._judge.verdict(self._was_sent_twice) == []
            print(f"the second judge: {self._judge.summary}")
        kwire = self.cluster.kwire
        log = kwire.log_tail(1_000_000)
        assert "Traceback" not in log, log
        kwire.stop()
        folders = [kwire.data / f"{topic}-{index}" for topic, index in ORDERS + RISKY]
        files = [f for folder in folders for f in folder.iterdir() if f.suffix in _DUMPED]
        for first in range(0, len(files), 300):  # an argument has its limit
            dump(files[first : first + 300])

    def end(self) -> None:
        """Whatever has happened: nobody is left who follows the load."""
        if self._judge is not None:
            self._judge.end()

    def _was_sent_twice(self, finding: dict[str, Any]) -> bool:
        """librdkafka itself has done that, see `Load.check`."""
        return finding["kind"] in ("doubled", "reordered") and any(
            load.topic == finding["topic"] and load.sent_twice for load in self.loads
        )

    def _log_of(self, topic: str, index: int) -> bytes:
        replicas = self.cluster.registry.replicas(topic, index)
        broker = self.cluster.kwire if KWIRE in replicas else self.cluster.peer
        return log_bytes(broker.data, topic, index)

    def check_identical(self, partitions: list[Partition]) -> None:
        """All is acknowledged, so all is below the high watermark once the follower has caught up."""
        cluster = self.cluster
        for topic, index in partitions:

            def same(topic: str = topic, index: int = index) -> str:
                return difference(
                    log_bytes(cluster.kwire.data, topic, index),
                    log_bytes(cluster.peer.data, topic, index),
                )

            def same_epochs(topic: str = topic, index: int = index) -> bool:
                kwire = leader_epochs(cluster.kwire.data, topic, index)
                return kwire == leader_epochs(cluster.peer.data, topic, index)

            cluster.eventually(f"{topic}-{index}: the same leader epochs", same_epochs, 10)
            try:
                cluster.eventually(f"{topic}-{index}: the same bytes", lambda: not same(), 10)
            except AssertionError as error:
                raise AssertionError(f"{topic}-{index}: {same()}\n{error}") from None

    def actions(self) -> list[Callable[[], None]]:
        return [
            self.leadership_moves_back_and_forth,
            self.partitions_move_to_the_other_broker,
            self.kwire_shuts_down_in_a_controlled_way,
            self.kafka_falls_behind_and_kwire_is_overruled,
            self.kwire_falls_behind_and_kafka_is_overruled,
            self.kafka_shuts_down_in_a_controlled_way,
            self.the_controller_is_deposed,
            self.kwire_is_killed,
        ]

    def run_for(self, minutes: float, seed: int) -> None:
        """Actions by chance, each as often as any other, until the time is over."""
        random = Random(seed)
        deadline = time.monotonic() + 60 * minutes
        while time.monotonic() < deadline:
            actions = self.actions()
            random.shuffle(actions)
            for action in actions:
                self.run(action)
                if time.monotonic() > deadline:
                    return


def _all_gone(folders: list[Path]) -> bool:
    return not any(folder.exists() for folder in folders)


def await_end_of_long_polls() -> None:
    """A fetch that is under way is answered with what comes next: who has been paused would get that later."""
    time.sleep(0.5 + 0.25)  # replica.fetch.wait.max.ms
