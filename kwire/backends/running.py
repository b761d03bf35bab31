"""The clusters that run in this process, and those that a failure has just stopped: for reports.

Under pytest a `with` block that an exception leaves describes its cluster before it stops it; the
plugin reads that when it reports the test, and forgets it at the next.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from weakref import WeakKeyDictionary

from kwire.backends import loop_thread
from kwire.errors import KwireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kwire import aio

_KEPT = 5
_ANY = ""
_on_loops: WeakKeyDictionary[aio.Cluster, asyncio.AbstractEventLoop] = WeakKeyDictionary()
_fixtures: WeakKeyDictionary[object, str] = WeakKeyDictionary()
"""By cluster: the pytest fixture in which it was started; "": none, before this test."""
_last_words: list[tuple[str, str]] = []
_last_looks: list[dict[str, Any]] = []


def add(cluster: aio.Cluster) -> None:
    """Add a cluster that has been started on this loop, until it is gone or `remove`."""
    loop = asyncio.get_running_loop()
    if not loop_thread.is_own(loop):
        _on_loops[cluster] = loop


def remove(cluster: aio.Cluster) -> None:
    """Remove a cluster that is stopped."""
    _on_loops.pop(cluster, None)


def clusters() -> list[object]:
    """The clusters that run: those of `kwire.Cluster` first, then those on loops of their users."""
    return [*loop_thread.owners(), *_on_loops]


def claim(fixture: str) -> None:
    """Note that clusters of which no fixture is known yet were started in this one."""
    for cluster in clusters():
        _fixtures.setdefault(cluster, fixture)


def fixture_of(cluster: object) -> str:
    """The fixture in which a cluster was started; "": none."""
    return _fixtures.get(cluster, "")


def clusters_of(fixtures: Iterable[str]) -> list[object]:
    """The clusters that run, but those of other fixtures than these."""
    return [each for each in clusters() if (_fixtures.get(each) or _ANY) in {*fixtures, _ANY}]


def loop_of(cluster: aio.Cluster) -> asyncio.AbstractEventLoop | None:
    """The loop that a cluster was started on; None if it is not a user's."""
    return _on_loops.get(cluster)


def wants_last_words(error: BaseException | None) -> bool:
    """Whether a cluster that is stopped because of this error should be described before."""
    return (
        error is not None
        and "PYTEST_CURRENT_TEST" in os.environ
        and not isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)
    )


async def keep_last_words(cluster: aio.Cluster) -> None:
    """Keep the description of a cluster that is about to be stopped, also for a report's page."""
    from kwire.report.model import gather

    with suppress(KwireError):
        _last_words.append((repr(cluster), await cluster.describe()))
        _last_looks.append(await gather(cluster))
        del _last_words[:-_KEPT], _last_looks[:-_KEPT]


def last_words() -> list[tuple[str, str]]:
    """Names and descriptions that were kept; they are forgotten."""
    found = _last_words[:]
    _last_words.clear()
    return found


def last_looks() -> list[dict[str, Any]]:
    """What was gathered of them for a page (`kwire.report.model.finish`); it is forgotten."""
    found = _last_looks[:]
    _last_looks.clear()
    return found
