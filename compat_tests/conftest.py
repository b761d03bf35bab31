"""Fixtures of the compat tests: the broker (kwire, or Kafka with REAL=1), clients, fresh names."""

import itertools
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # a bare `pytest compat_tests` has not put it there
    sys.path.insert(0, str(ROOT))

from compat_tests import brokers, clients, tooling  # noqa: E402

if TYPE_CHECKING:
    from compat_tests.cluster import Start


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: too slow for `make test`; run by `make test-all`")
    config.addinivalue_line("markers", "kwire_only: about kwire's own process, not run with REAL=1")


@pytest.fixture(scope="session", autouse=True)
def own_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither see nor touch the `kwire up`s of the person that runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KWIRE_RUNTIME_DIR", str(tmp_path_factory.mktemp("running")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("CI"):
        # One hiccup of a foreign client, engine or machine must not cost a change its landing. pytest's summary
        # names what passed only at the second try (RERUN): a bug to look for all the same.
        for item in items:
            if item.path.is_relative_to(ROOT / "compat_tests"):
                item.add_marker(pytest.mark.flaky(reruns=1))
    if os.environ.get("REAL") == "1":
        reason = pytest.mark.skip(reason="about kwire's own process")
        for item in items:
            if item.get_closest_marker("kwire_only"):
                item.add_marker(reason)


def _missing_tools_skip() -> Generator[None, object, object]:
    try:
        return (yield)
    except tooling.ToolMissing as missing:
        if os.environ.get("COMPAT_STRICT") == "1":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(f"tool missing: {missing}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    return (yield from _missing_tools_skip())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from _missing_tools_skip())


def pytest_report_header() -> str:
    return f"broker under test: {brokers.broker_class().name}"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """One broker for the session: tests use topics and groups of their own."""
    process = brokers.broker_class()(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    assert process.alive(), f"the broker died during the tests\n{process.log_tail()}"
    process.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[brokers.Broker]:
    """A broker of the test's own, to kill."""
    process = brokers.broker_class()(tmp_path / "broker")
    process.start()
    yield process
    process.kill9()


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator["Start"]:
    """Starts the test's cluster of processes, with the options of `cluster.running`; the test's end stops it. It is
    locked where the test is one of `locked.scenarios`.

    Leaders stay where the test has put them: Kafka's first look at preferred leaders, 5 s after the controller's start,
    falls into a test on a busy machine."""
    from compat_tests.cluster import running

    locks = getattr(request, "param", {})
    fixed = {"auto_leader_rebalance_enable": "false", **locks}
    with ExitStack() as clusters:
        yield lambda **options: clusters.enter_context(running(tmp_path, **fixed | options))


_numbers = itertools.count()


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Names no other test uses: `fresh("topic")`."""
    return lambda word: f"{word}-{next(_numbers)}"


@pytest.fixture
def start_client(broker: brokers.Broker) -> Iterator[Callable[..., clients.Client]]:
    """Starts client processes by the name of their kind; they end with the test."""
    started: list[clients.Client] = []

    def start(kind: str, bootstrap: str = "") -> clients.Client:
        started.append(clients.KINDS[kind].start(bootstrap or broker.bootstrap_servers))
        return started[-1]

    yield start
    for client in started:
        client.close()


@pytest.fixture(scope="module")
def client_pool(broker: brokers.Broker) -> Iterator[Callable[[str], clients.Client]]:
    """One process a kind, shared by the tests of a module that need no fresh one."""
    pool: dict[str, clients.Client] = {}

    def get(kind: str) -> clients.Client:
        if kind not in pool or not pool[kind].alive():
            pool[kind] = clients.KINDS[kind].start(broker.bootstrap_servers)
        return pool[kind]

    yield get
    for client in pool.values():
        client.close()
