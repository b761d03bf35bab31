"""Kafka Streams with exactly_once_v2: its processes and three brokers are killed, and each line is counted once.

On kwire, or with REAL=1 on Apache Kafka."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from compat_tests import cluster, leader_loss, tooling
from compat_tests.brokers import Broker, KwireBroker, RealKafka, RealKafka4
from compat_tests.streams import (
    Topics,
    WordCount,
    check_counts,
    recipe,
    some_lines,
    wait_for_all,
    wait_until,
)
from kwire import Cluster

pytestmark = pytest.mark.timeout(600)
Launch = Callable[..., WordCount]

IS_REAL = os.environ.get("REAL") == "1"
# A real Kafka's broker takes its time to come back; so many must have been killed in the end.
KILL_EVERY_S, KILLS = (20.0, 2) if IS_REAL else (2.5, 8)
# A process that is killed leaves its group after this time, not after Kafka's least of 6 s.
GROUPS = {"group.min.session.timeout.ms": "500"}
SETTINGS: dict[str, Any] = {
    **recipe(),
    "repartition.purge.interval.ms": 300,  # DeleteRecords of what is counted
    "num.stream.threads": 1,
}


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts a process of the word count; all end with the test."""
    started: list[WordCount] = []

    def start(topics: Topics, **more: Any) -> WordCount:
        config = {**SETTINGS, **more.pop("config", {})}
        started.append(WordCount(topics, tmp_path, config=config, **more))
        return started[-1]

    yield start
    for each in started:
        each.kill9()


@pytest.fixture(
    params=[tooling.KAFKA_BROKER, pytest.param(tooling.KAFKA_BROKER_4, marks=pytest.mark.slow)]
)
def version(request: pytest.FixtureRequest) -> str:
    """Of Kafka Streams, and of the real Kafka: with 4 each transaction has an epoch of its own (KIP-890)."""
    return str(request.param)


@pytest.fixture
def broker(tmp_path: Path, version: str) -> Iterator[Broker]:
    real = RealKafka if version == tooling.KAFKA_BROKER else RealKafka4
    process = (real if IS_REAL else KwireBroker)(tmp_path / "broker", GROUPS)
    process.start()
    yield process
    process.kill9()


def stop_in_a_transaction(app: WordCount, topics: Topics) -> None:
    """kill -9 after its first commit, as soon as the next transaction has records."""

    def writing() -> bool:
        app.check()
        committed = topics.end("seen")
        return 0 < committed < topics.end("seen", "read_uncommitted")

    wait_until(writing, "an open transaction after a committed one")
    app.kill9()


def test_a_word_count_is_killed_and_closed_and_each_line_counts_once(
    broker: Broker, version: str, launch: Launch
) -> None:
    topics = Topics(broker.bootstrap_servers, "app")
    lines = some_lines(900)
    topics.fill(lines)
    slow: dict[str, Any] = {"micros_a_line": 1000, "version": version}
    app = launch(topics, config={"commit.interval.ms": 300}, **slow)
    stop_in_a_transaction(app, topics)

    app = launch(topics, **slow)
    before = topics.end("seen")
    wait_until(lambda: app.check() or topics.end("seen") > before + 150, "more lines are committed")
    app.close()
    assert topics.end("seen") == topics.end("seen", "read_uncommitted")

    app = launch(topics, version=version)
    wait_for_all(topics, lines, app, seconds=180)
    with Cluster.connect(broker.bootstrap_servers) as outside:
        outside.wait_for(lambda c: c.group("app").lag == 0)
    app.close()
    check_counts(topics, lines)
    assert len(topics.read("seen", "read_uncommitted")) > len(lines), "no transaction was aborted"


# --- three brokers ---


class Brokers:
    """Three brokers, each a process, by their ids 1 to 3."""

    def __init__(self, bootstrap: str, kill9: Callable[[int], None], start: Callable[[int], None]):
        self.bootstrap, self.kill9, self.start = bootstrap, kill9, start


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Brokers]:
    safe = {
        **GROUPS,
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    folder = tmp_path / "brokers"
    if IS_REAL:
        quick = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
        kafka = leader_loss.Kafka(folder, {**safe, **quick})
        try:
            yield Brokers(kafka.bootstrap_servers, kafka.kill, kafka.start)
        finally:
            kafka.close()
    else:
        config = {key.replace(".", "_"): value for key, value in safe.items()}
        with cluster.running(folder, **config) as kwire:
            yield Brokers(kwire.bootstrap, kwire.kill9, kwire.start)


def test_a_word_count_goes_on_while_brokers_are_killed(three: Brokers, launch: Launch) -> None:
    topics = Topics(three.bootstrap, "app", replicas=3)
    lines = some_lines(900)
    topics.fill(lines)
    app = launch(topics, micros_a_line=1000, config={"replication.factor": 3})
    for number in (1, 2, 3):
        goal = number * 150
        wait_until(
            lambda goal=goal: app.check() or topics.end("seen") > goal, "lines are committed"
        )
        three.kill9(number)
        three.start(number)
    wait_for_all(topics, lines, app, seconds=180)
    app.close()
    check_counts(topics, lines)


@pytest.mark.slow
@pytest.mark.parametrize("version", [tooling.KAFKA_BROKER, tooling.KAFKA_BROKER_4])
def test_two_word_counts_and_three_brokers_are_killed_for_a_minute(
    version: str, three: Brokers, launch: Launch
) -> None:
    topics = Topics(three.bootstrap, "app", replicas=3)
    config = {"replication.factor": 3, "num.standby.replicas": 1, "num.stream.threads": 2}
    options: dict[str, Any] = {"micros_a_line": 1000, "version": version, "config": config}
    apps = {name: launch(topics, name=name, **options) for name in "ab"}
    lines: list[str] = []
    stop = Event()
    killed: list[int] = []

    def kill_brokers() -> None:
        for number in itertools.cycle((1, 2, 3)):
            if stop.wait(KILL_EVERY_S):
                return
            killed.append(number)
            three.kill9(number)
            stop.wait(1)
            three.start(number)

    killer = Thread(target=kill_brokers, daemon=True)
    killer.start()
    try:
        for turn in range(12):
            more = [f"{turn}-{line}" for line in some_lines(500, seed=turn)]
            topics.fill(more)
            lines += more
            name = "ab"[turn % 2]
            goal = topics.end("seen") + 200
            wait_until(lambda goal=goal: topics.end("seen") > goal, f"progress in turn {turn}", 150)
            apps[name].check()
            apps[name].close() if turn % 4 == 3 else apps[name].kill9()
            apps[name] = launch(topics, name=name, **options)
    finally:
        stop.set()
        killer.join(90)
    wait_for_all(topics, lines, *apps.values(), seconds=180)
    for app in apps.values():
        app.close()
    print("brokers killed:", killed)
    assert len(killed) >= KILLS
    check_counts(topics, lines)
