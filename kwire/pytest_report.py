"""What the pytest plugin adds to the report of a failed test: the state of the clusters that it used.

Imported when a test has failed that used kwire.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kwire.errors import ClusterStateError, KwireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    import pytest

    from kwire import aio
    from kwire.cluster import Cluster

_HERE = str(Path(__file__).parent) + os.sep
_FIXTURES = ("kwire", "kwire_cluster")
_FOREIGN = ("asyncio", "concurrent/futures", "uvloop")  # folders of frames below those of kwire


def hide_internals(error: BaseException) -> None:
    """End the traceback of an error of kwire's where the test, or its client, has called kwire.

    What was expected and what was found is in the error's text; kwire's frames say nothing more."""
    if not isinstance(error, KwireError):
        return
    last: TracebackType | None = None
    entry = error.__traceback__
    while entry is not None:
        if not _is_internal(entry.tb_frame.f_code.co_filename):
            last = entry
        entry = entry.tb_next
    if last is not None:
        last.tb_next = None


def _is_internal(path: str) -> bool:
    return path.startswith(_HERE) or any(
        f"/{folder}/" in path.replace(os.sep, "/") for folder in _FOREIGN
    )


def clusters_of(item: pytest.Item) -> list[object]:
    """The clusters that a test has used and that run: its own first."""
    from kwire.backends import running

    arguments = getattr(item, "funcargs", {})
    own = [arguments[name] for name in _FIXTURES if name in arguments]
    others = running.clusters_of(getattr(item, "fixturenames", ()))
    return list({id(cluster): cluster for cluster in (*own, *others)}.values())


def sections(item: pytest.Item, error: BaseException) -> list[tuple[str, str]]:
    """Titles and texts: of the test's own cluster first, then of others that run, then of those that
    the failure itself has stopped on its way through a `with` block."""
    from kwire.backends import running

    names = {id(value): name for name, value in getattr(item, "funcargs", {}).items()}
    found: list[tuple[str, str]] = []
    for cluster in clusters_of(item):
        text = _describe(cluster)
        if text is None:  # somebody's own fixture of that name; an event loop that is busy or gone
            continue
        name = names.get(id(cluster)) or running.fixture_of(cluster) or repr(cluster)
        is_first = name in _FIXTURES and not found
        found.append(("kwire" if is_first else f"kwire: {name}", text))
    found += [(f"kwire: {name}, when its block ended", text) for name, text in running.last_words()]
    if found:
        title, text = found[0]
        found[0] = title, text + _hint(item, error)
    return found


def _describe(cluster: object) -> str | None:
    from kwire import aio
    from kwire.cluster import Cluster

    if not isinstance(cluster, Cluster | aio.Cluster):
        return None
    try:
        if isinstance(cluster, Cluster):
            return "\n".join([*_leftovers(cluster), cluster.describe()])
        return _describe_on_loop(cluster)
    except KwireError as error:
        return f"cannot be told: {error}"


def _leftovers(cluster: Cluster) -> list[str]:
    with suppress(KwireError):
        return cluster.leftovers()
    return []


def _describe_on_loop(cluster: aio.Cluster) -> str | None:
    """Describe a cluster of somebody's event loop, which rests between a test and its fixtures' end."""
    from kwire.backends import running

    loop = running.loop_of(cluster)
    if loop is None or loop.is_running() or loop.is_closed():
        return None
    return loop.run_until_complete(cluster.describe())


def _hint(item: pytest.Item, error: BaseException) -> str:
    """A hint for a test that needs more brokers than its cluster has."""
    if not isinstance(error, ClusterStateError) or not str(error).startswith("there is no broker"):
        return ""
    if item.get_closest_marker("kwire") is not None:
        return ""
    return "\n\nMore brokers for a test: @pytest.mark.kwire(brokers=3); for all: --kwire-brokers=3"
