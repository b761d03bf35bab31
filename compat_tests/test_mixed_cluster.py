"""A kwire broker is one of the brokers of a real Apache Kafka 3.9.1 cluster in ZooKeeper mode.

Kafka's controller drives it; it follows Kafka's leaders and leads Kafka's followers while stock clients produce.
It coordinates transactions for Kafka's leaders, and leads partitions whose transactions Kafka coordinates.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests import second_judge
from compat_tests.mixed.cluster import MixedCluster
from compat_tests.mixed.copying import Commotion
from compat_tests.mixed.scenario import Scenario
from compat_tests.mixed.transaction_steps import Steps
from compat_tests.mixed.transactions import CONFIG

pytestmark = pytest.mark.kwire_only

MINUTES = float(os.environ.get("MINUTES", "10"))
SEED = int(os.environ.get("SEED", "1"))


def _running(folder: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    cluster = MixedCluster(folder.mktemp("mixed"), CONFIG)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """For one test after another that leave it whole, each with topics of its own."""
    yield from _running(tmp_path_factory)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    yield from _running(tmp_path_factory)


@pytest.mark.timeout(300)
def test_transactions_have_coordinators_and_leaders_of_both_kinds(shared: MixedCluster) -> None:
    with Steps(shared) as steps:
        steps.each_coordinates_for_the_leaders_of_both()
        steps.leaders_ask_the_other_kind_of_coordinator()
        steps.coordinators_move_in_the_middle_of_transactions()
        steps.leaders_move_in_the_middle_of_transactions()
        steps.offsets_are_committed_in_transactions()
        steps.finish()


@pytest.mark.timeout(300)
def test_kwire_leads_and_follows_in_a_kafka_cluster_and_nothing_is_lost(
    shared: MixedCluster,
) -> None:
    scenario = Scenario(shared)
    scenario.begin()
    for action in scenario.actions():
        scenario.run(action)
    scenario.finish()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_transactions_outlive_crashes_cuts_and_moves_of_replicas(cluster: MixedCluster) -> None:
    with Steps(cluster) as steps:
        steps.each_coordinates_for_the_leaders_of_both()
        steps.replicas_move_in_the_middle_of_transactions()
        steps.the_next_coordinator_aborts_what_takes_too_long()
        steps.decided_transactions_are_ended_by_the_next_coordinator()
        steps.offsets_are_committed_in_transactions()
        steps.kwire_is_killed_in_the_middle_of_transactions()
        steps.kafka_is_killed_in_the_middle_of_transactions()
        steps.kwire_cuts_what_only_it_knew_of_transactions()
        steps.kafka_cuts_what_only_it_knew_of_transactions()
        steps.finish()
        steps.check_with_kafkas_tools()


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 900)
def test_ten_minutes_of_transactions(cluster: MixedCluster) -> None:
    with Steps(cluster) as steps:
        commotion = Commotion(steps, SEED)
        commotion.begin()
        commotion.run_for(MINUTES)
        commotion.finish()


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 600)
def test_ten_minutes_in_a_kafka_cluster(cluster: MixedCluster, tmp_path: Path) -> None:
    """A second judge follows the load, where Spark is installed: `kwire audit --follow`."""
    reason = second_judge.missing()
    if reason is not None:
        print(f"no second judge: {reason}")
    scenario = Scenario(cluster, tmp_path / "second-judge" if reason is None else None)
    try:
        scenario.begin()
        scenario.run_for(MINUTES, SEED)
        scenario.finish()
    finally:
        scenario.end()
