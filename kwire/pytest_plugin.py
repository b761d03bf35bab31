"""The pytest plugin: fixtures `kwire`, `kwire_factory`, `kwire_cluster`, `kwire_spark`, the marker `kwire`, the report.

Loaded by pytest through its entry point in every environment that has kwire: nothing here imports more of kwire than
its name until a fixture is used. `-p no:kwire` disables it.

Isolation. Whatever a test leaves open (a consumer in a failing test's traceback, a thread that nobody
stops), the next test does not meet it. In mode thread each test has a new cluster at other ports, and
the ports of clusters that have ended stay reserved (`kwire.server.ports`), so that the clients left
behind connect to nothing. In the other modes, whose clusters take longer to start, tests share the
session's cluster, which is reset before each (`Cluster.reset`).
"""

from __future__ import annotations

from contextlib import contextmanager

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path
    from typing import NoReturn

    from pyspark.sql import SparkSession

    from kwire import Cluster
    from kwire.spark import Spark

_FIXTURES = ("kwire", "kwire_cluster")
_MODES = ("thread", "process", "docker", "external")
_MARKER_OPTIONS = ("brokers", "config", "controllers", "fast", "mode", "racks", "topics")
_ONCE = {"listeners", "advertised.listeners", "log.dir", "log.dirs"}
_MARKER = (
    "kwire(brokers=1, config={}, mode=None, topics=(), controllers=1, racks=(), fast=False): the test's"
    " `kwire` is a cluster of its own, with these options"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options; the command line takes precedence over the ini file."""
    group = parser.getgroup("kwire", "kwire, a Kafka-compatible test broker")
    group.addoption(
        "--kwire-mode",
        choices=_MODES,
        help="where the brokers run: in a thread of the tests' process (default), a process or a container each,"
        " or elsewhere",
    )
    group.addoption(
        "--kwire-bootstrap",
        metavar="HOST:PORT,…",
        help="the cluster of --kwire-mode=external; a real Kafka will do",
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
    parser.addini("kwire_mode", "as --kwire-mode")
    parser.addini("kwire_bootstrap", "as --kwire-bootstrap")
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
    """Register the marker, for --strict-markers."""
    config.addinivalue_line("markers", _MARKER)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Warn of the marker on a test without the fixture: its author expects a cluster."""
    if "kwire" in getattr(item, "fixturenames", ()):
        return
    if any(marker.name == "kwire" for marker in item.own_markers):
        item.warn(
            pytest.PytestWarning(
                f"{item.name}: the marker kwire does nothing without the fixture `kwire`"
            )
        )


# --- fixtures


@pytest.fixture(scope="session")
def _kwire_session() -> Iterator[None]:
    """What all clusters of a session share: the event loop's thread, and the ports that are used up."""
    from kwire.backends import loop_thread
    from kwire.server import ports

    owner = object()
    loop_thread.acquire(owner, lambda: None)  # or it would end and start with each test's cluster
    ports.keep_reserved()
    yield
    ports.release_all()
    loop_thread.release(owner)


@pytest.fixture(scope="session")
def kwire_cluster(pytestconfig: pytest.Config, _kwire_session: None) -> Iterator[Cluster]:
    """The session's cluster, not reset between tests."""
    cluster = _make(pytestconfig, {})
    yield cluster
    _stop(cluster, pytestconfig.stash.setdefault(_TOLD, set()))


@pytest.fixture
def kwire(request: pytest.FixtureRequest, _kwire_session: None) -> Iterator[Cluster]:
    """An empty cluster: a new one, in other modes than thread the session's, reset. The marker `kwire` has options."""
    options = _marker_options(request.node)
    if options or (_mode(request.config, {}) == "thread" and not _is_unique(request.config)):
        own = _make(request.config, options)
        yield own
        _stop(own, set())
        return
    cluster: Cluster = request.getfixturevalue("kwire_cluster")
    with _one_line():
        cluster.start()  # unless it runs: a test may have stopped it
        cluster.reset()
    yield cluster
    # The session goes on with the cluster; but this is the test during which it has happened.
    failures = cluster.failures() if cluster.started else []
    told = request.config.stash.setdefault(_TOLD, set())
    new = [text for text in failures if text not in told]
    if new:
        told.update(new)
        pytest.fail(f"kwire has met an internal error; please report it:\n{new[0]}", pytrace=False)


@pytest.fixture(scope="session")
def kwire_spark_session(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """A SparkSession with Kafka's source and sink for the whole run; one that runs already is used."""
    from kwire.spark import SparkError, running_session

    try:
        with running_session(_lines(pytestconfig, "kwire_spark_config")) as session:
            yield session
        return
    except SparkError as error:
        said = str(error)
    pytest.fail(said, pytrace=False)  # here, so that it is said once


@pytest.fixture
def kwire_spark(
    kwire: Cluster, kwire_spark_session: SparkSession, tmp_path: Path
) -> Iterator[Spark]:
    """Spark on the test's cluster: `.session`, `.read(topic)`, `.read_stream(topic)`, `.write(frame, topic)`."""
    from kwire.spark import Spark, left_as_found

    with left_as_found(kwire_spark_session):
        yield Spark(kwire_spark_session, kwire, tmp_path)


_TOLD: pytest.StashKey[set[str]] = pytest.StashKey()  # internal errors that have failed a test


def _stop(cluster: Cluster, told: set[str]) -> None:
    """Stop it; an error that was not reported yet fails the test, without this module's traceback."""
    from kwire.errors import InternalError, KwireError

    try:
        cluster.stop()
    except InternalError as error:
        if set(error.failures) - told:
            _refuse(str(error))
    except KwireError as error:
        _refuse(f"{type(error).__name__}: {error}")


def _make(config: pytest.Config, options: dict[str, object]) -> Cluster:
    """Start a cluster with the options of the session and of the marker."""
    from kwire import Cluster

    mode = _mode(config, options)
    if mode == "external":
        bootstrap = _option(config, "bootstrap")
        if not bootstrap:
            _refuse("--kwire-mode=external needs --kwire-bootstrap=HOST:PORT")
        if options.keys() - {"mode"}:
            pytest.skip(
                "the marker kwire asks for a cluster of its own; --kwire-mode=external has none"
            )
        with _one_line():
            return Cluster.connect(bootstrap)
    if mode not in _MODES:
        _refuse(f"kwire mode: expected one of {', '.join(_MODES)}, not {mode!r}")
    brokers = _count(config, options, "brokers")
    controllers = _count(config, options, "controllers")
    values: dict[str, object] = {**_lines(config, "kwire_config")}
    given = options.get("config") or {}
    if not isinstance(given, dict):
        _refuse(f"marker kwire: config: expected keys and values, not {given!r}")
    values.update(given)
    with _one_line():
        cluster = Cluster(
            brokers,  # type: ignore[arg-type]  # whatever it is, Cluster says what it expects
            values,
            isolation=str(mode),
            topics=options.get("topics") or (),  # type: ignore[arg-type]
            recent_requests=True,
            controllers=controllers,  # type: ignore[arg-type]
            racks=options.get("racks") or (),  # type: ignore[arg-type]
            fast=_flag(config, options, "fast"),  # type: ignore[arg-type]
        )
        cluster.start()
    return cluster


def _mode(config: pytest.Config, options: dict[str, object]) -> object:
    return options.get("mode") or _option(config, "mode") or "thread"


def _is_unique(config: pytest.Config) -> bool:
    """Whether the session's keys give ports or directories, which two clusters at a time cannot have."""
    return not _ONCE.isdisjoint(_lines(config, "kwire_config"))


def _count(config: pytest.Config, options: dict[str, object], name: str) -> object:
    """A count of the marker, or else of the session."""
    given = options.get(name)
    if given is not None:
        return given
    text = _option(config, name) or "1"
    if not text.isdecimal():
        _refuse(f"kwire_{name}: expected a number, not {text!r}")
    return int(text)


def _flag(config: pytest.Config, options: dict[str, object], name: str) -> object:
    """A flag of the marker, or else of the session."""
    given = options.get(name)
    if given is None:
        given = config.getoption(f"kwire_{name}")
    return config.getini(f"kwire_{name}") if given is None else given


def _refuse(text: str) -> NoReturn:
    """Fail the test with one line for its author, without a traceback of this module."""
    raise pytest.fail.Exception(text, pytrace=False) from None


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn kwire's errors into failures of one line (`_refuse`)."""
    from kwire.errors import KwireError

    try:
        yield
    except KwireError as error:
        _refuse(f"{type(error).__name__}: {error}")


def _lines(config: pytest.Config, name: str) -> dict[str, str]:
    """An option of the ini file with one KEY=VALUE per line."""
    values: dict[str, str] = {}
    for line in config.getini(name):
        key, equals, value = line.partition("=")
        if not equals:
            _refuse(f"{name}: expected KEY=VALUE, not {line!r}")
        values[key.strip()] = value.strip()
    return values


def _option(config: pytest.Config, name: str) -> str:
    """An option of the command line, or else of the ini file; "" when neither has it."""
    given = config.getoption(f"kwire_{name}")
    return str(config.getini(f"kwire_{name}") if given is None else given)


def _marker_options(item: pytest.Item) -> dict[str, object]:
    """The arguments of the closest marker; a mistake in it fails the test."""
    marker = item.get_closest_marker("kwire")
    if marker is None:
        return {}
    unknown = sorted(marker.kwargs.keys() - set(_MARKER_OPTIONS))
    if marker.args or unknown:
        what = f"{unknown[0]!r}" if unknown else f"{marker.args[0]!r}, which has no name"
        _refuse(f"marker kwire: expected {', '.join(_MARKER_OPTIONS)}, not {what}")
    return {"brokers": None, **marker.kwargs}


# --- report


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, object, None]:
    """Add the cluster's state to the report of a failed test: leaders, ISR, offsets, requests."""
    outcome = yield
    if call.when != "call" or call.excinfo is None:
        return
    funcargs = getattr(item, "funcargs", {})
    name = next((name for name in _FIXTURES if name in funcargs), None)
    if name is None:
        return
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        from kwire.cluster import Cluster
        from kwire.errors import KwireError

        cluster = funcargs[name]
        if not isinstance(cluster, Cluster):  # somebody's own fixture of that name
            return
        try:
            text = cluster.describe()
        except KwireError as error:
            text = f"cannot be told: {error}"
        report.sections.append(("kwire", text + _hint(item, call.excinfo.value)))


def _hint(item: pytest.Item, error: BaseException) -> str:
    """A hint for a test that needs more brokers than its cluster has."""
    from kwire.errors import ClusterStateError

    if not isinstance(error, ClusterStateError) or not str(error).startswith("there is no broker"):
        return ""
    if item.get_closest_marker("kwire") is not None:
        return ""
    return "\n\nMore brokers for a test: @pytest.mark.kwire(brokers=3); for all: --kwire-brokers=3"
