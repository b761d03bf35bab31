"""What clients of four libraries do with each kind of fault, in each way to run a cluster, as docs/faults.md says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.clients import Client
from compat_tests.docker_engine import skip_without_engine
from compat_tests.fault_clients.cases import (
    CASES,
    CLIENTS,
    CONFIG,
    TOPIC,
    attempt,
    documented,
    start,
    words,
)
from compat_tests.tooling import ToolMissing
from kwire import Cluster

pytestmark = pytest.mark.timeout(180)
QUICK = ("kafka-python", "librdkafka")
"""The others meet brokers that are processes in the slow tests."""


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    if request.param == "docker":
        skip_without_engine()
    with Cluster(2, CONFIG, isolation=request.param, topics=[f"{TOPIC}:1:2"]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def process() -> Iterator[Callable[[str], Client]]:
    """The process of a client, started when it is first asked for."""
    started: dict[str, Client] = {}

    def get(name: str) -> Client:
        if name not in started:
            try:
                started[name] = start(name)
            except ToolMissing as missing:
                pytest.skip(str(missing))
        return started[name]

    yield get
    for each in started.values():
        each.close()


def tries() -> Iterator[Any]:
    for launcher in ("thread", "process", "docker"):
        for client in CLIENTS:
            is_slow = launcher == "docker" or (launcher == "process" and client not in QUICK)
            for name in CASES:
                marks = [pytest.mark.slow] if is_slow else []
                given = f"{launcher}-{client}-{name}"
                yield pytest.param(launcher, client, name, marks=marks, id=given)


@pytest.mark.parametrize(("cluster", "client", "name"), list(tries()), indirect=["cluster"])
def test_a_client_does_what_the_page_says(
    cluster: Cluster, process: Callable[[str], Client], client: str, name: str
) -> None:
    case = CASES[name]
    seen = attempt(cluster, process(client), client, name)
    assert words(case, seen) == documented()[name, client], seen
    assert seen.hits is None or seen.hits >= 1
    assert seen.ms >= case.waits_ms


def test_the_page_has_all_rows() -> None:
    assert documented().keys() == {(name, client) for name in CASES for client in CLIENTS}
