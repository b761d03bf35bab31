"""A kwire broker is one of the brokers of a real Apache Kafka 3.9.1 cluster in ZooKeeper mode.

Kafka's controller drives it; it follows Kafka's leaders and leads Kafka's followers while stock clients produce.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.mixed.cluster import MixedCluster
from compat_tests.mixed.scenario import Scenario

pytestmark = pytest.mark.kwire_only

MINUTES = float(os.environ.get("MINUTES", "10"))


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    cluster = MixedCluster(tmp_path)
    try:
        cluster.start()
        yield Scenario(cluster)
    finally:
        cluster.close()


@pytest.mark.timeout(300)
def test_kwire_leads_and_follows_in_a_kafka_cluster_and_nothing_is_lost(scenario: Scenario) -> None:
    scenario.begin()
    for action in scenario.actions():
        scenario.run(action)
    scenario.finish()


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 600)
def test_ten_minutes_in_a_kafka_cluster(scenario: Scenario) -> None:
    scenario.begin()
    scenario.run_for(MINUTES, seed=1)
    scenario.finish()
