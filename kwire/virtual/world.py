"""One world: an application and its clusters on hosts of their own, in virtual time, by a seed.

All chance of a world comes from its seed, from sources of their own: latencies, weather, each node, `random`,
`os.urandom`. What one of them draws changes nothing for the others.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import contextmanager

from kwire.virtual import aiokafka_order, surroundings
from kwire.virtual.disks import Disks
from kwire.virtual.errors import RefusedError, VirtualTimeError
from kwire.virtual.hosts import APPLICATION, HOST
from kwire.virtual.loop import START, VirtualLoop
from kwire.virtual.network.links import Links
from kwire.virtual.network.network import VirtualNetwork
from kwire.virtual.network.requests import Line, Requests
from kwire.virtual.story import Story
from kwire.virtual.weather.weather import Weather, Weathering

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from typing import Any

    from kwire.virtual.cluster import VirtualCluster

DAY_SECONDS = 86_400.0


class World:
    """What a test in virtual time has: clusters, hosts, the network between them, the time, the trace."""

    virtual = True
    """Whether time is virtual; False in the same test on real sockets."""

    def __init__(
        self,
        seed: int = 0,
        *,
        weather: Weather | bool | str | None = None,
        limit: float = DAY_SECONDS,
        without: Iterable[str] = (),
    ) -> None:
        """`limit`: of virtual seconds. `without`: names of weather ("weather 3") and hosts that are left out."""
        self.seed = seed
        self.loop = VirtualLoop(limit)
        self.requests = Requests(self.loop, START)
        self.links = self.loop.network = VirtualNetwork(self.loop, str(seed), self.requests)
        self.network = Links(self)
        """`cut`, `heal`, `delay`, `reset`: of links between hosts."""
        self.disks = Disks(self._written)
        self.story = Story(self)
        self.loop.on_error = self.story.add
        self.without = frozenset(without)
        self.hosts: dict[str, bool] = {APPLICATION: False}
        """All hosts so far; True: a node of a cluster."""
        self.clusters: list[VirtualCluster] = []
        self.crashed: list[str] = []
        self._draws: dict[str, int] = {}
        self._surroundings = surroundings.Surroundings(self.loop, str(seed))
        self.loop.on_start, self.loop.on_end = self._enter, self._leave
        self.weather = Weathering(self, Weather.of(weather))
        self._had_gc = True

    # --- the time

    @property
    def now(self) -> float:
        """Virtual seconds since the start of the world."""
        return self.loop.now - START

    @property
    def date(self) -> datetime:
        """What `datetime.now(UTC)` says in the world."""
        from datetime import UTC, datetime, timedelta

        start = datetime.fromtimestamp(surroundings.EPOCH_SECONDS, UTC)
        return start + timedelta(seconds=self.now)

    @property
    def trace(self) -> list[Line]:
        """The requests that have arrived at brokers and controllers, the first 200,000."""
        return self.requests.lines

    @property
    def digest(self) -> str:
        """A checksum of all requests: two runs of a seed have the same."""
        return f"{self.requests.digest:08x}-{self.requests.count}"

    # --- what is in it

    def cluster(self, brokers: int = 1, *, name: str = "", **options: Any) -> VirtualCluster:
        """A `kwire.aio.Cluster` in this world, to be started; `options` as of that. ConfigurationError.

        `name`: of the second cluster of a world, to tell their hosts apart ("west-broker-1")."""
        from kwire.virtual.cluster import VirtualCluster

        if any(each._name == name for each in self.clusters if each.started):
            raise VirtualTimeError(f"there is a cluster {name!r} already: give the second a name=")
        cluster = VirtualCluster(self, brokers, name, options)
        self.clusters.append(cluster)
        return cluster

    @contextmanager
    def host(self, name: str) -> Iterator[str]:
        """A machine: what is started in the block, and by what is started there, is on it."""
        if not isinstance(name, str) or not name:
            raise VirtualTimeError(f"host: expected a name, not {name!r}")
        if self.hosts.get(name):
            raise VirtualTimeError(f"host {name!r}: is a node of a cluster")
        self.know(name)
        token = HOST.set(name)
        try:
            yield name
        finally:
            HOST.reset(token)

    def freeze(self, host: str) -> None:
        """Let a host stand still, as SIGSTOP does: nothing on it runs, its sockets stay open. Broker 1: "broker-1"."""
        self.check_host(host)
        self.story.add(f"{host} is frozen")
        self.loop.freeze(host)

    def thaw(self, host: str) -> None:
        """Undo `freeze`: what has become due meanwhile runs."""
        self.check_host(host)
        self.story.add(f"{host} goes on")
        self.loop.thaw(host)

    def crash(self, host: str) -> None:
        """End a host of the application as a power cut does: nothing on it runs any more, its connections are reset."""
        self.check_host(host)
        if self.hosts[host]:
            raise VirtualTimeError(f"{host!r} is a node: cluster.broker(id).kill() ends it")
        self.story.add(f"{host} has crashed")
        self.crashed.append(host)
        self.loop.freeze(host)
        for other in self.hosts:
            if other != host:
                self.links.reset(frozenset((host, other)))

    def calm_now(self) -> None:
        """End the weather, heal all links, thaw all hosts that have not crashed."""
        self.weather.stop()
        self.links.heal()
        self.links.end_delays()
        self.loop.thaw_all(but=self.crashed)

    async def calm(self) -> None:
        """End the weather, heal all links, thaw all hosts, and start the brokers that are down: then check the end."""
        self.calm_now()
        self.story.add("calm from here on")
        await self.weather.repair()

    # --- for its own

    def know(self, host: str, *, is_node: bool = False) -> None:
        """Note a host; one that the run goes without never runs."""
        if host not in self.hosts:
            self.hosts[host] = is_node
            if host in self.without:
                self.loop.freeze(host)

    def check_host(self, host: object) -> None:
        """VirtualTimeError unless there is such a host."""
        if host not in self.hosts:
            raise VirtualTimeError(
                f"there is no host {host!r}; the hosts are {', '.join(self.hosts)}"
            )

    def draw_seed(self, host: str) -> str:
        """The seed of the next run of a node."""
        count = self._draws[host] = self._draws.get(host, 0) + 1
        return f"{self.seed} {host} {count}"

    def _written(self, path: str) -> None:
        self.weather.written(path)

    def began(self, cluster: VirtualCluster) -> None:
        """A cluster has started."""
        self.story.add(f"{cluster!r} is up")
        self.weather.start()

    async def ends(self, cluster: VirtualCluster) -> None:
        """A cluster is about to be stopped: no weather kills brokers meanwhile."""
        if sum(each.started for each in self.clusters) == 1:
            self.weather.stop()
        await self.weather.let_go()

    async def remember(self, cluster: VirtualCluster) -> None:
        """Keep what a cluster has to tell, before it ends."""
        await self.story.take(cluster)

    def _enter(self) -> None:
        if self.requests.count == 0:
            aiokafka_order.mend(surroundings.inside)
            aiokafka_order.begin()
        self._surroundings.enter()
        self._had_gc = gc.isenabled()
        gc.disable()  # finalizers would run at another place in each run

    def _leave(self) -> None:
        if self._had_gc:
            gc.enable()
        self._surroundings.leave()

    # --- a whole run

    def run(self, main: Any) -> Any:
        """Run a coroutine function of the world, or a coroutine, to its end, and end all that it has left."""
        loop = self.loop
        if asyncio._get_running_loop() is not None:
            loop.close()
            raise RefusedError(
                "a loop runs already in this thread: a world runs in one of its own, from a function"
            )
        asyncio.set_event_loop(loop)
        try:
            coroutine = main(self) if callable(main) else main
            return loop.run_until_complete(coroutine)
        finally:
            try:
                self.close()
            finally:
                asyncio.set_event_loop(None)

    def close(self) -> None:
        """End what the run has left: tasks are cancelled, clusters are gone with the loop."""
        loop = self.loop
        if loop.is_closed():
            return
        self.weather.stop()
        loop.failure = None
        loop.limit = loop.now + 3600.0
        loop.thaw_all()
        try:
            _cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        except VirtualTimeError:
            pass  # a task that does not end: the loop does
        finally:
            self.links.close()
            loop.close()


def _cancel_all(loop: VirtualLoop) -> None:
    tasks = sorted(asyncio.all_tasks(loop), key=hash)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
