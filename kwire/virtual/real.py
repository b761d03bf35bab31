"""The same test in real time, on real sockets: what is tested in virtual time is the application, not the trick."""

from __future__ import annotations

import asyncio
import contextlib
import time
import unittest
from datetime import UTC, datetime

from kwire import aio
from kwire.backends.options import parse_topics
from kwire.errors import UnknownTopicOrPartitionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import TracebackType
    from typing import Any

    from kwire.virtual.options import Options


class _OnlyVirtual:
    def __getattr__(self, name: str) -> Any:
        raise unittest.SkipTest(f"world.network.{name} needs virtual time")


class RealWorld:
    """What a World is in virtual time, as far as real time has it; the rest skips the test."""

    virtual = False
    seed = 0

    def __init__(self, options: Options) -> None:
        self._options = options
        self._began = time.monotonic()
        self.network = _OnlyVirtual()
        self.trace: list[Any] = []

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def date(self) -> datetime:
        """The date, in UTC."""
        return datetime.now(UTC)

    def cluster(self, brokers: int = 1, *, name: str = "", **options: Any) -> Any:
        """A cluster of kwire's, or what --kwire-bootstrap names with new topics."""
        if self._options.bootstrap is not None:
            return _Elsewhere(self._options.bootstrap, options.get("topics", ()))
        return aio.Cluster(brokers, isolation=self._options.isolation, **options)

    @contextlib.contextmanager
    def host(self, name: str) -> Iterator[str]:
        """No host of its own: all run on this machine."""
        yield name

    def freeze(self, host: str) -> None:
        raise unittest.SkipTest("world.freeze needs virtual time")

    def crash(self, host: str) -> None:
        raise unittest.SkipTest("world.crash needs virtual time")

    thaw = freeze

    async def calm(self) -> None:
        """No-op: there is no weather."""


class _Elsewhere:
    """A cluster that runs elsewhere, with topics as the test wants them."""

    def __init__(self, bootstrap: str, topics: Any) -> None:
        self._bootstrap, self._topics = bootstrap, parse_topics(topics)

    async def __aenter__(self) -> aio.Cluster:
        cluster = await aio.Cluster.connect(self._bootstrap)
        there = await cluster.topics()
        for name, partitions, _ in self._topics:  # as many replicas as the cluster gives by itself
            if name in there:
                with contextlib.suppress(UnknownTopicOrPartitionError):
                    await cluster.delete_topic(name)
            await cluster.create_topic(name, partitions)
        return cluster

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """No-op: it goes on running."""


def run_real(main: Callable[[Any], Coroutine[Any, Any, None]], options: Options) -> None:
    """Run a test once in real time. unittest.SkipTest when it does what only virtual time can."""
    asyncio.run(main(RealWorld(options)))
