"""`wait_for`, and the text of its time-out: the predicate's source, the partitions it read last."""

from __future__ import annotations

import ast
import asyncio
import inspect
import time

from kwire.client.admin import REQUEST_SECONDS
from kwire.errors import (
    BrokerNotAvailableError,
    ClusterStateError,
    ConfigurationError,
    KwireError,
    WaitTimeoutError,
)
from kwire.replication.core.types import NO_LEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from kwire.backends.base import Backend
    from kwire.backends.views import Partition
    from kwire.client.views import Group, Transaction

_POLL_SECONDS = 0.002
_MAX_CHARACTERS = 300
_OF_GROUP, _OF_TRANSACTION = -1, -2  # in place of a partition
_ASYNC_PREDICATE = (
    "wait_for: the function returns a coroutine; kwire.aio.Cluster awaits those, this one does not"
)
_SYNC_PREDICATE = (
    "wait_for: the function uses a coroutine as its result; kwire.aio.Cluster's methods are awaited:"
    " async def led(c): return (await c.partition(…)).leader > 0"
)


class Observations:
    """The partitions and groups read by, and the error of, the last call of a predicate."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, int], Partition | Group | Transaction] = {}
        self._error: BaseException | None = None

    def check(self, cluster: Any, predicate: object, seconds: object) -> None:
        """Check the arguments of `wait_for`. ConfigurationError, ClusterStateError."""
        if not callable(predicate):
            raise ConfigurationError(f"wait_for: expected a function, not {predicate!r}")
        check_seconds("timeout", seconds)
        if not cluster.started:
            raise ClusterStateError("the cluster does not run: start it, or use it as a context")

    def begin(self) -> None:
        """Reset before a call of the predicate."""
        self._read.clear()
        self._error = None

    def record_partition(self, partition: Partition) -> None:
        """Record a partition that the predicate has read."""
        self._read[partition.topic, partition.partition] = partition

    def record_group(self, group: Group) -> None:
        """Record a group that the predicate has read."""
        self._read[group.id, _OF_GROUP] = group

    def record_transaction(self, transaction: Transaction) -> None:
        """Record a transactional id that the predicate has read."""
        self._read[transaction.id, _OF_TRANSACTION] = transaction

    def record_error(self, error: BaseException) -> None:
        """Record an error of the predicate that counts as false."""
        self._error = error

    def timeout_error(
        self, predicate: Callable[..., object], value: object, seconds: float
    ) -> WaitTimeoutError:
        """The exception to raise after the last call, which returned `value`."""
        if self._error is not None:
            last = f"it failed: {self._error}"
        else:
            last = f"it was {str(value)[:_MAX_CHARACTERS]!s}"
        text = f"waited {seconds:g} s for: {source_of(predicate)}\nthe last time {last}"
        for each in self._read.values():
            text += f"\n{each}"
        return WaitTimeoutError(text)


def check_seconds(what: str, seconds: object) -> None:
    """ConfigurationError unless it is a number of seconds from 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ConfigurationError(f"{what}: expected seconds, from 0, not {seconds!r}")


async def first_true(
    cluster: Any, predicate: Callable[..., Any], timeout: float, observations: Observations
) -> Any:
    """The first true value of `predicate(cluster)`; see `kwire.aio.Cluster.wait_for`."""
    __tracebackhide__ = True
    observations.check(cluster, predicate, timeout)
    deadline = asyncio.get_running_loop().time() + timeout
    while True:
        observations.begin()
        value: Any = None
        try:
            value = _called(predicate, cluster)
            if inspect.isawaitable(value):
                value = await value
        except ConfigurationError:
            raise
        except KwireError as error:
            observations.record_error(error)
        if value:
            return value
        if asyncio.get_running_loop().time() >= deadline:
            raise observations.timeout_error(predicate, value, timeout)
        await asyncio.sleep(_POLL_SECONDS)


def _called(predicate: Callable[..., Any], cluster: Any) -> Any:
    """`predicate(cluster)`. ConfigurationError if it uses a coroutine as if it were the result."""
    __tracebackhide__ = True
    try:
        return predicate(cluster)
    except (AttributeError, TypeError) as error:
        if "'coroutine'" not in str(error):
            raise
        unawaited = error.obj if isinstance(error, AttributeError) else None
        if inspect.iscoroutine(unawaited):
            unawaited.close()  # or Python would warn of it, too
        raise ConfigurationError(f"{_SYNC_PREDICATE} ({error})") from None


def first_true_blocking(
    cluster: Any, predicate: Callable[..., Any], timeout: float, observations: Observations
) -> Any:
    """The first true value of `predicate(cluster)`; see `kwire.Cluster.wait_for`."""
    __tracebackhide__ = True
    observations.check(cluster, predicate, timeout)
    deadline = time.monotonic() + timeout
    while True:
        observations.begin()
        value: Any = None
        try:
            value = predicate(cluster)
            if inspect.iscoroutine(value):
                value.close()
                raise ConfigurationError(_ASYNC_PREDICATE)
        except ConfigurationError:
            raise
        except KwireError as error:
            observations.record_error(error)
        if value:
            return value
        if time.monotonic() >= deadline:
            raise observations.timeout_error(predicate, value, timeout)
        time.sleep(_POLL_SECONDS)


def source_of(predicate: Callable[..., object]) -> str:
    """A lambda's source text, a function's name with its docstring's first line, or its repr."""
    name = getattr(predicate, "__name__", None)
    if name != "<lambda>":
        text = inspect.getdoc(predicate) if inspect.isroutine(predicate) else None
        return str(name or predicate) + (f" ({text.splitlines()[0]})" if text else "")
    try:
        source = inspect.getsource(predicate)
    except (OSError, TypeError):
        return "a lambda"
    if "lambda" not in source:  # from Python 3.13 on, `python -c` is the source of all "<string>"
        return "a lambda"
    source = " ".join(source[source.find("lambda") :].split())
    for end in range(len(source), 0, -1):
        try:
            parsed = ast.parse(source[:end], mode="eval")
        except SyntaxError:
            continue
        if isinstance(parsed.body, ast.Lambda):
            return source[:end].partition(":")[2].strip()[:_MAX_CHARACTERS]
    return source[:_MAX_CHARACTERS]


async def refuse_paused(cluster: Any, topic: str, partition: int, leader: int | None) -> None:
    """BrokerNotAvailableError when a broker that is paused would be elected: `leader`, or with None
    the preferred one."""
    handles = {} if cluster.external else cluster.inside.handles
    paused = {broker for broker, handle in handles.items() if handle.paused}
    if paused and leader is None:
        leader = (await cluster.partition(topic, partition)).replicas[0]
    if leader in paused:
        raise BrokerNotAvailableError(f"broker {leader} is paused: resume it")


async def until_led(
    cluster: Any, backend: Backend, topic: str, partition: int, leader: int | None
) -> None:
    """Wait after an election until a broker, `leader` unless it is None, knows that it leads.

    WaitTimeoutError."""
    deadline = asyncio.get_running_loop().time() + REQUEST_SECONDS
    while True:
        now = await cluster.partition(topic, partition)
        there = now.leader != NO_LEADER and leader in (None, now.leader)
        if there and await backend.is_led(now):
            return
        if asyncio.get_running_loop().time() > deadline:
            wanted = "a leader" if leader is None else f"broker {leader} to lead"
            raise WaitTimeoutError(f"waited {REQUEST_SECONDS:g} s for {wanted}; now {now}")
        await asyncio.sleep(_POLL_SECONDS)


async def done(work: Awaitable[None] | None) -> None:
    """Wait for what a backend does; None: it is done already."""
    if work is not None:
        await work
