"""The pytest plugin: fixtures `kwire`, `kwire_factory`, `kwire_cluster`, `kwire_spark`, the marker `kwire`, the report.

Loaded by pytest through its entry point in every environment that has kwire: nothing here imports more of kwire than
its name until a fixture is used. `-p no:kwire` disables it.

Isolation. Whatever a test leaves open (a consumer in a failing test's traceback, a thread that nobody
stops), the next test does not meet it. In the modes thread and process each test has a new cluster at
other ports, and the ports of clusters that have ended stay reserved (`kwire.server.ports`), so that the
clients left behind connect to nothing; processes are forked from one that has imported everything
(`kwire.forks.forked`). In the other modes, whose clusters take longer to start, tests share the
session's cluster, which is reset before each (`Cluster.reset`).
"""

from __future__ import annotations

import sys

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path
    from types import ModuleType

    from pyspark.sql import SparkSession

    from kwire import Cluster, ClusterFactory
    from kwire.spark import Spark
    from kwire.virtual.world import World

_MARKER = (
    "kwire(brokers=1, config={}, mode=None, topics=(), controllers=1, racks=(), fast=False,"
    " sasl=None, users={}, tls=False, mtls=False, acl=False, super_users=()): the test's"
    " `kwire` is a cluster of its own, with these options"
)
_VIRTUAL_MARKER = (
    "kwire_virtual(seeds=1, weather=None, limit=86400, real=False): the test's `world` is virtual time with these"
    " options; it runs once for each seed"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options; the command line takes precedence over the ini file."""
    group = parser.getgroup("kwire", "kwire, a Kafka-compatible test broker")
    group.addoption(
        "--kwire-mode",
        choices=("thread", "process", "docker", "external"),
        help="where the brokers run: in a thread of the tests' process (default), a process or a container each,"
        " or elsewhere",
    )
    group.addoption(
        "--kwire-bootstrap",
        metavar="HOST:PORT,…",
        help="the cluster of --kwire-mode=external; a real Kafka will do",
    )
    group.addoption(
        "--kwire-external-reset",
        action="store_true",
        default=None,
        help="let --kwire-mode=external delete all topics of a cluster that is not on this machine",
    )
    group.addoption(
        "--kwire-brokers", type=int, metavar="N", help="brokers of the session's cluster (1)"
    )
    group.addoption(
        "--kwire-controllers",
        type=int,
        metavar="N",
        help="controllers of the session's cluster (1); one is active, the others take over from it",
    )
    group.addoption(
        "--kwire-fast", action="store_true", default=None, help="retention and sessions in 0.1 s"
    )
    group.addoption(
        "--kwire-report",
        metavar="DIR",
        help="write an HTML page about each failed test's clusters there: a timeline, replicas, groups",
    )
    _add_virtual_options(group)
    _add_ini_options(parser)


def _add_virtual_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--kwire-seed", type=int, metavar="N", help="virtual time: run this seed of each test only"
    )
    group.addoption(
        "--kwire-seeds", type=int, metavar="N", help="virtual time: run so many seeds of each test"
    )
    group.addoption(
        "--kwire-without",
        metavar="NAMES",
        help='virtual time: leave out weather and hosts, "weather 3,w1"',
    )
    group.addoption(
        "--kwire-shrink",
        action="store_true",
        help="virtual time: leave out of a seed that fails what the failure does not need",
    )
    group.addoption(
        "--kwire-check-determinism",
        action="store_true",
        help="virtual time: run each seed twice, and show the first line that differs",
    )
    group.addoption(
        "--kwire-time",
        choices=("virtual", "real"),
        help="real: run tests of virtual time once, in real time on real sockets",
    )


def _add_ini_options(parser: pytest.Parser) -> None:
    parser.addini("kwire_report", "as --kwire-report")
    parser.addini("kwire_mode", "as --kwire-mode")
    parser.addini("kwire_bootstrap", "as --kwire-bootstrap")
    parser.addini("kwire_external_reset", "as --kwire-external-reset", type="bool", default=False)
    parser.addini("kwire_brokers", "as --kwire-brokers")
    parser.addini("kwire_controllers", "as --kwire-controllers")
    parser.addini("kwire_fast", "as --kwire-fast", type="bool", default=False)
    parser.addini(
        "kwire_config", "configuration keys of all clusters, KEY=VALUE a line", type="linelist"
    )
    parser.addini(
        "kwire_spark_config",
        "configuration of kwire_spark's session, KEY=VALUE a line",
        type="linelist",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, for --strict-markers; check the folder of the reports, if any are wanted."""
    config.addinivalue_line("markers", _MARKER)
    config.addinivalue_line("markers", _VIRTUAL_MARKER)
    if config.getoption("kwire_report") or config.getini("kwire_report"):
        from kwire.pytest_timeline import check_folder

        check_folder(config)


def _virtual(config: pytest.Config) -> ModuleType:
    """The plugin's part for virtual time, with the options of the command line."""
    from kwire import pytest_virtual

    if not config.stash.get(_IS_VIRTUAL, False):
        config.stash[_IS_VIRTUAL] = True
        pytest_virtual.configure(config)
    return pytest_virtual


@pytest.hookimpl(hookwrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Make a test of each seed of a test in virtual time; before pytest-asyncio asks for its loop."""
    if "_kwire_seed" in metafunc.fixturenames:
        try:
            _virtual(metafunc.config).generate_seeds(metafunc)
        except ImportError as error:
            pytest.fail(f"the fixture `world`: {error}", pytrace=False)
    yield


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test in virtual time that no other plugin runs."""
    if "_kwire_seed" not in getattr(pyfuncitem, "fixturenames", ()):
        return None
    return True if _virtual(pyfuncitem.config).run_test(pyfuncitem) else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Warn of the marker on a test without the fixture: its author expects a cluster."""
    if "kwire.virtual" in sys.modules:
        _virtual(item.config)
    running = sys.modules.get("kwire.backends.running")
    if running is not None:
        running.last_words()  # of the last test's clusters, which nobody asked for
        running.last_looks()
        running.claim("")
    if "kwire" in getattr(item, "fixturenames", ()):
        return
    if any(marker.name == "kwire" for marker in item.own_markers):
        item.warn(
            pytest.PytestWarning(
                f"{item.name}: the marker kwire does nothing without the fixture `kwire`"
            )
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """Note which clusters a fixture has started, for the reports of the tests that use it."""
    yield
    running = sys.modules.get("kwire.backends.running")
    if running is not None:
        running.claim(fixturedef.argname)


# --- fixtures


@pytest.fixture(scope="session")
def _kwire_session() -> Iterator[None]:
    """What all clusters of a session share: the event loop's thread, the process that nodes are forked
    from, and the ports that are used up."""
    from kwire.backends import loop_thread
    from kwire.forks import forked
    from kwire.server import ports

    owner = object()
    loop_thread.acquire(owner, lambda: None)  # or it would end and start with each test's cluster
    forked.keep()
    ports.keep_reserved()
    yield
    forked.end()
    ports.release_all()
    loop_thread.release(owner)


@pytest.fixture(scope="session")
def kwire_cluster(pytestconfig: pytest.Config, _kwire_session: None) -> Iterator[Cluster]:
    """The session's cluster, not reset between tests."""
    from kwire import pytest_clusters

    cluster = pytest_clusters.make(pytestconfig, {})
    yield cluster
    pytest_clusters.stop(cluster, pytestconfig.stash.setdefault(_TOLD, set()))


@pytest.fixture
def kwire(request: pytest.FixtureRequest, _kwire_session: None) -> Iterator[Cluster]:
    """An empty cluster: a new one; in the modes docker and external the session's, reset. The marker has options."""
    from kwire import pytest_clusters

    config = request.config
    options = pytest_clusters.marker_options(request.node)
    if options or pytest_clusters.is_cheap(config):
        own = pytest_clusters.make(config, options)
        yield own
        pytest_clusters.stop(own, set())
        return
    pytest_clusters.check_may_be_emptied(config)
    cluster: Cluster = request.getfixturevalue("kwire_cluster")
    with pytest_clusters.one_line():
        cluster.start()  # unless it runs: a test may have stopped it
        cluster.reset()
    yield cluster
    # The session goes on with the cluster; but this is the test during which it has happened.
    failures = cluster.failures() if cluster.started else []
    told = config.stash.setdefault(_TOLD, set())
    new = [text for text in failures if text not in told]
    if new:
        told.update(new)
        pytest.fail(f"kwire has met an internal error; please report it:\n{new[0]}", pytrace=False)


@pytest.fixture
def kwire_factory(pytestconfig: pytest.Config, _kwire_session: None) -> Iterator[ClusterFactory]:
    """`kwire_factory(brokers=3, topics=["orders"])`: a cluster more, started; stopped after the test."""
    from kwire.pytest_clusters import ClusterFactory

    factory = ClusterFactory(pytestconfig)
    yield factory
    factory.stop()


@pytest.fixture(scope="session")
def kwire_session_factory(
    pytestconfig: pytest.Config, _kwire_session: None
) -> Iterator[ClusterFactory]:
    """As kwire_factory, for fixtures of a wider scope: the clusters run until their block or the session ends."""
    from kwire.pytest_clusters import ClusterFactory

    factory = ClusterFactory(pytestconfig)
    yield factory
    factory.stop()


@pytest.fixture
def kwire_from(
    pytestconfig: pytest.Config, _kwire_session: None
) -> Iterator[Callable[..., Cluster]]:
    """`kwire_from(snapshot)`: a cluster more, started with what a snapshot holds (itself, or its directory); stopped
    after the test."""
    from kwire.pytest_clusters import ClusterFactory

    factory = ClusterFactory(pytestconfig)
    yield factory.start_from
    factory.stop()


@pytest.fixture(scope="session")
def kwire_spark_session(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """A SparkSession with Kafka's source and sink for the whole run; one that runs already is used."""
    from kwire.pytest_clusters import lines_of
    from kwire.spark import running_session
    from kwire.spark_session import SparkError

    try:
        with running_session(lines_of(pytestconfig, "kwire_spark_config")) as session:
            yield session
        return
    except SparkError as error:
        said = str(error)
    pytest.fail(said, pytrace=False)  # here, so that it is said once


@pytest.fixture
def _kwire_seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def world(request: pytest.FixtureRequest, _kwire_seed: int) -> Iterator[World]:
    """Virtual time: `world.cluster(brokers=3)`, `world.host(name)`, `world.network`, …; a new one for each seed. The
    marker kwire_virtual has options."""
    virtual = _virtual(request.config)
    yield virtual.world_of(request.node)
    virtual.end_world(request.node)


@pytest.fixture
def kwire_spark(
    kwire: Cluster, kwire_spark_session: SparkSession, tmp_path: Path
) -> Iterator[Spark]:
    """Spark on the test's cluster: `.session`, `.read(topic)`, `.read_stream(topic)`, `.write(frame, topic)`."""
    from kwire.spark import Spark, left_as_found

    with left_as_found(kwire_spark_session):
        yield Spark(kwire_spark_session, kwire, tmp_path)


_IS_VIRTUAL: pytest.StashKey[bool] = pytest.StashKey()  # the options of virtual time were read
_TOLD: pytest.StashKey[set[str]] = pytest.StashKey()  # internal errors that have failed a test


# --- report

_SETUP_SECONDS: pytest.StashKey[float] = pytest.StashKey()  # when the setup of a test began


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, object, None]:
    """Add the state of its clusters to the report of a failed test: leaders, ISR, offsets, groups, requests."""
    if call.when == "setup":
        item.stash[_SETUP_SECONDS] = call.start
    error = None if call.excinfo is None else call.excinfo.value
    if error is None or not {"kwire.aio", "kwire.cluster", "kwire.virtual"} & sys.modules.keys():
        yield  # it has passed, or no test has used kwire so far
        return
    if not item.config.getoption("fulltrace"):
        from kwire.pytest_report import hide_internals

        hide_internals(error)
    outcome = yield
    if call.when == "teardown":
        return
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        from kwire.pytest_report import sections

        report.sections += sections(item, error)
        if "kwire.virtual" in sys.modules:
            _virtual(item.config).add_story(item, error, report)
        if item.config.getoption("kwire_report") or item.config.getini("kwire_report"):
            from kwire.pytest_timeline import add_page

            add_page(item, call, report, item.stash.get(_SETUP_SECONDS, call.start))
