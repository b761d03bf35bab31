"""The clusters of the pytest plugin's fixtures: options of command line, ini file and marker, start, stop.

Imported by the first fixture that is used; and without pytest, by `from kwire import *`.
"""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike
    from typing import Any, NoReturn

    import pytest

    from kwire import Cluster
    from kwire.snapshots.saved import Snapshot

MODES = ("thread", "process", "docker", "external")
_LOCKS = ("acl", "mtls", "sasl", "super_users", "tls", "users")
OPTIONS = sorted((*_LOCKS, "brokers", "config", "controllers", "fast", "mode", "racks", "topics"))
_ONCE = {"listeners", "advertised.listeners", "log.dir", "log.dirs"}
_LOOPBACK = {"localhost", "::1"}


class ClusterFactory:
    """Starts clusters with the options of the session, unless others are given; stops them at its scope's end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._made: list[Cluster] = []

    def __call__(self, brokers: int | None = None, **options: Any) -> Cluster:
        """A new cluster, started. `options`: as the marker `kwire` takes them (config, controllers, mode, topics, …).

        As a context manager it is stopped at the end of the block, else with the others."""
        unknown = sorted(options.keys() - set(OPTIONS))
        if unknown:
            refuse(f"kwire factory: expected {', '.join(OPTIONS)}, not {unknown[0]!r}")
        cluster = make(self._config, {"brokers": brokers, **options})
        self._made.append(cluster)
        return cluster

    def start_from(self, snapshot: Snapshot | str | PathLike[str], **options: Any) -> Cluster:
        """A new cluster, started with what a snapshot holds and with as many brokers. `options`: as of the factory."""
        shape = {"brokers", "controllers", "topics"}
        unknown = sorted(options.keys() - set(OPTIONS) | options.keys() & shape)
        if unknown:
            names = ", ".join(each for each in OPTIONS if each not in shape)
            refuse(f"kwire_from: expected {names}, not {unknown[0]!r}")
        cluster = make(self._config, options, snapshot)
        self._made.append(cluster)
        return cluster

    def stop(self) -> None:
        """Stop them all, the last one first; then the first error fails the test."""
        import pytest

        failed: list[BaseException] = []
        while self._made:
            try:
                stop(self._made.pop(), set())
            except pytest.fail.Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]


def stop(cluster: Cluster, told: set[str]) -> None:
    """Stop it; an error that was not reported yet fails the test, without this module's traceback."""
    from kwire.errors import InternalError, KwireError

    try:
        cluster.stop()
    except InternalError as error:
        if set(error.failures) - told:
            refuse(str(error))
    except KwireError as error:
        refuse(f"{type(error).__name__}: {error}")


def make(
    config: pytest.Config,
    options: dict[str, object],
    snapshot: Snapshot | str | PathLike[str] | None = None,
) -> Cluster:
    """Start a cluster with the options of the session and of the marker, and with a snapshot."""
    from kwire import Cluster

    mode = mode_of(config, options)
    if mode == "external":
        bootstrap = _option(config, "bootstrap")
        if not bootstrap:
            refuse("--kwire-mode=external needs --kwire-bootstrap=HOST:PORT")
        if options.keys() - {"mode"}:
            import pytest

            pytest.skip(
                "a cluster of its own is asked for (marker kwire, kwire_factory); --kwire-mode=external has none"
            )
        with one_line():
            return Cluster.connect(bootstrap)
    if mode not in MODES:
        refuse(f"kwire mode: expected one of {', '.join(MODES)}, not {mode!r}")
    brokers = _count(config, options, "brokers")
    controllers = _count(config, options, "controllers")
    values: dict[str, object] = {**lines_of(config, "kwire_config")}
    given = options.get("config") or {}
    if not isinstance(given, dict):
        refuse(f"marker kwire: config: expected keys and values, not {given!r}")
    more = {"isolation": str(mode), **_passed_on(config, options)}
    with one_line():
        if snapshot is not None:
            cluster = Cluster.from_snapshot(snapshot, {**values, **given}, **more)
        else:
            more |= {"topics": options.get("topics") or (), "controllers": controllers}
            # Whatever it is, Cluster says what it expects.
            cluster = Cluster(brokers, {**values, **given}, **more)  # type: ignore[arg-type]
        cluster.start()
    return cluster


def _passed_on(config: pytest.Config, options: dict[str, object]) -> dict[str, Any]:
    """Arguments of `Cluster` that a snapshot does not decide."""
    return {
        "recent_requests": True,
        "racks": options.get("racks") or (),
        "fast": _flag(config, options, "fast"),
        **{key: options[key] for key in _LOCKS if options.get(key) is not None},
    }


def mode_of(config: pytest.Config, options: dict[str, object]) -> object:
    return options.get("mode") or _option(config, "mode") or "thread"


def check_may_be_emptied(config: pytest.Config) -> None:
    """Refuse to delete all topics of a cluster elsewhere on another machine, unless that is said to be meant."""
    bootstrap = _option(config, "bootstrap")
    if mode_of(config, {}) != "external" or _flag(config, {}, "external_reset"):
        return
    hosts = {address.strip().rpartition(":")[0].strip("[]") for address in bootstrap.split(",")}
    far = sorted(host for host in hosts if host not in _LOOPBACK and not host.startswith("127."))
    if bootstrap and far:
        refuse(
            f"--kwire-mode=external: the fixture `kwire` deletes ALL topics and groups at {bootstrap} before each"
            f" test, and {far[0]} is not this machine. If that is meant, give --kwire-external-reset"
        )


def is_cheap(config: pytest.Config) -> bool:
    """Whether each test gets a new cluster without being asked: one that starts in milliseconds, and
    whose keys do not give ports or directories, which two clusters at a time cannot have."""
    return mode_of(config, {}) in ("thread", "process") and _ONCE.isdisjoint(
        lines_of(config, "kwire_config")
    )


def _count(config: pytest.Config, options: dict[str, object], name: str) -> object:
    """A count of the marker, or else of the session."""
    given = options.get(name)
    if given is not None:
        return given
    text = _option(config, name) or "1"
    if not text.isdecimal():
        refuse(f"kwire_{name}: expected a number, not {text!r}")
    return int(text)


def _flag(config: pytest.Config, options: dict[str, object], name: str) -> object:
    """A flag of the marker, or else of the session."""
    given = options.get(name)
    if given is None:
        given = config.getoption(f"kwire_{name}")
    return config.getini(f"kwire_{name}") if given is None else given


def refuse(text: str) -> NoReturn:
    """Fail the test with one line for its author, without a traceback of this module."""
    import pytest

    raise pytest.fail.Exception(text, pytrace=False) from None


@contextmanager
def one_line() -> Iterator[None]:
    """Turn kwire's errors into failures of one line (`refuse`)."""
    from kwire.errors import KwireError

    try:
        yield
    except KwireError as error:
        refuse(f"{type(error).__name__}: {error}")


def lines_of(config: pytest.Config, name: str) -> dict[str, str]:
    """An option of the ini file with one KEY=VALUE per line."""
    values: dict[str, str] = {}
    for line in config.getini(name):
        key, equals, value = line.partition("=")
        if not equals:
            refuse(f"{name}: expected KEY=VALUE, not {line!r}")
        values[key.strip()] = value.strip()
    return values


def _option(config: pytest.Config, name: str) -> str:
    """An option of the command line, or else of the ini file; "" when neither has it."""
    given = config.getoption(f"kwire_{name}")
    return str(config.getini(f"kwire_{name}") if given is None else given)


def marker_options(item: pytest.Item) -> dict[str, object]:
    """The arguments of the test's markers, merged; {} without a marker. A mistake in one fails the test.

    The nearest marker that gives an argument decides: the parameter set's, the function's, the class's,
    the module's. `config` is merged key by key."""
    parameters = getattr(item, "callspec", None)  # pytest lists their markers after the function's
    markers = [mark for mark in getattr(parameters, "marks", ()) if mark.name == "kwire"]
    markers += item.iter_markers("kwire")
    if not markers:
        return {}
    merged: dict[str, object] = {}
    values: dict[object, object] = {}
    for marker in reversed(markers):
        _check_marker(marker)
        values.update(marker.kwargs.get("config") or {})
        merged.update(marker.kwargs)
    return {"brokers": None, **merged, "config": values}


def _check_marker(marker: pytest.Mark) -> None:
    unknown = sorted(marker.kwargs.keys() - set(OPTIONS))
    if marker.args or unknown:
        what = f"{unknown[0]!r}" if unknown else f"{marker.args[0]!r}, which has no name"
        refuse(f"marker kwire: expected {', '.join(OPTIONS)}, not {what}")
    config = marker.kwargs.get("config") or {}
    if not isinstance(config, dict):
        refuse(f"marker kwire: config: expected keys and values, not {config!r}")
