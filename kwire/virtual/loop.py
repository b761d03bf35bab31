"""The event loop in virtual time: when nothing is ready its clock jumps to the next timer.

asyncio's own loop (BaseEventLoop) without a selector: there is nothing real to wait for. Its scheduler is replaced
(`_run_once`, the same private method from Python 3.4 on), for three rules that asyncio's does not have:

- A turn costs a microsecond. Code that waits until a deadline and then asks `now > deadline` (aiokafka's autocommit
  does) would run at one instant for ever: a real clock has always moved on.
- A frozen host stands still, as after SIGSTOP: its callbacks are kept until it is thawed.
- A blocking call (`time.sleep`) stops only the host that made it. The other hosts run meanwhile, in turns that are
  nested in the call.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from asyncio import tasks as _tasks
from collections import deque

from kwire.virtual import refusals, waiting
from kwire.virtual.errors import DeadlockError, RefusedError, SpinError, TimeLimitError
from kwire.virtual.hosts import APPLICATION, HOST, context_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextvars
    from collections.abc import Callable, Coroutine, Generator, Iterable
    from typing import Any, TypeVar

    from kwire.virtual.network.network import VirtualNetwork

    T = TypeVar("T")

TURN_SECONDS = 1e-6
START = 1000.0
"""What `time.monotonic()` says when a world begins."""
_TURNS_WITHOUT_TIME = 200_000
_CANCELLED_AT_MOST = 100  # timers kept though cancelled, as in asyncio

_serials = itertools.count(1)


class VirtualFuture(asyncio.Future["Any"]):
    """A future whose place in a set is the same in each run: `asyncio.wait` takes and returns sets."""

    _serial = 0

    def __hash__(self) -> int:
        if not self._serial:  # most futures are never asked
            self._serial = next(_serials)
        return self._serial


class VirtualTask(asyncio.Task["Any"]):
    """A task whose place in a set, and whose name, is the same in each run."""

    def __init__(self, coroutine: Any, **options: Any) -> None:
        self._serial = next(_serials)
        options["name"] = options.get("name") or f"Task-{self._serial}"  # else of the whole process
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._serial


class VirtualLoop(refusals.RefusingLoop):
    """One world's loop. `now` is its clock, in seconds, as `time.monotonic()`."""

    network: VirtualNetwork

    def __init__(self, limit_seconds: float) -> None:
        global _serials
        _serials = itertools.count(1)
        self.now = START
        super().__init__()
        self.limit = START + limit_seconds
        self._frozen: dict[str, deque[asyncio.Handle]] = {}
        self._freezes: dict[str, int] = {}
        self._turns_without_time = 0
        self.failure: BaseException | None = None
        """What a thread has met: raised in the next turn."""
        self.ahead = 0.0
        """How far a function of an executor is ahead of the loop, by its calls of `time.sleep`."""
        self._in_executor = False
        self._blocked = 0  # blocking calls that wait for their ends
        self.handles_run = 0
        self.on_start: Callable[[], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_error: Callable[[str], None] | None = None

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[Any]:
        return VirtualFuture(loop=self)

    def create_task(  # type: ignore[override]  # the keywords differ from one Python to the next
        self, coroutine: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        self._check_closed()  # type: ignore[attr-defined]
        if self.get_task_factory() is not None:
            return super().create_task(coroutine, **options)
        return VirtualTask(coroutine, loop=self, **options)

    def run_forever(self) -> None:
        """As asyncio's. Time is virtual for the whole process while it runs, and only then."""
        if self.on_start is not None:
            self.on_start()
        try:
            super().run_forever()
        finally:
            if self.on_end is not None:
                self.on_end()

    # --- the scheduler

    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        self.now += TURN_SECONDS
        self._turns_without_time += 1
        scheduled = self._drop_cancelled()
        if not ready and (not self._stopping or self._blocked):  # type: ignore[attr-defined]
            self._jump(scheduled)
        elif self._turns_without_time > _TURNS_WITHOUT_TIME:
            raise SpinError(waiting.spin_text(self, ready))
        now = self.now
        while scheduled and scheduled[0]._when <= now:  # type: ignore[attr-defined]
            timer = heapq.heappop(scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        frozen = self._frozen
        for _ in range(len(ready)):
            if not ready:  # a blocking call has run them
                break
            handle = ready.popleft()
            if handle._cancelled:
                continue
            if frozen and (held := frozen.get(_host_of(handle))) is not None:
                held.append(handle)
                continue
            self.handles_run += 1
            handle._run()

    def _drop_cancelled(self) -> list[asyncio.TimerHandle]:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[has-type]
        count: int = self._timer_cancelled_count  # type: ignore[has-type]
        if count > _CANCELLED_AT_MOST and count * 2 > len(scheduled):
            alive = []
            for timer in scheduled:
                if timer._cancelled:
                    timer._scheduled = False  # type: ignore[attr-defined]
                else:
                    alive.append(timer)
            heapq.heapify(alive)
            self._scheduled = scheduled = alive
            self._timer_cancelled_count = 0
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined]
        return scheduled

    def _jump(self, scheduled: list[asyncio.TimerHandle]) -> None:
        """Let the clock go to the next timer. DeadlockError without one; TimeLimitError."""
        if not scheduled:
            raise DeadlockError(waiting.deadlock_text(self))
        when: float = scheduled[0]._when  # type: ignore[attr-defined]
        if when > self.limit:
            raise TimeLimitError(waiting.limit_text(self, self.limit - START))
        self._turns_without_time = 0
        self.now = max(self.now, when)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """As asyncio's; what nobody has caught is part of the story, too."""
        if self.on_error is not None:
            self.on_error(f"{context.get('message')}: {context.get('exception')!r}")
        super().call_exception_handler(context)

    # --- hosts that stand still

    @property
    def frozen_hosts(self) -> list[str]:
        """The hosts that stand still."""
        return list(self._frozen)

    def freeze(self, host: str) -> None:
        """Run no callback of a host, until it is thawed as often as it was frozen."""
        self._freezes[host] = self._freezes.get(host, 0) + 1
        self._frozen.setdefault(host, deque())

    def thaw(self, host: str) -> None:
        """Undo `freeze`: what has become due meanwhile runs, in order."""
        count = self._freezes.get(host, 0)
        if count > 1:
            self._freezes[host] = count - 1
        elif count == 1:
            del self._freezes[host]
            self._ready.extend(self._frozen.pop(host))  # type: ignore[attr-defined]

    def thaw_all(self, but: Iterable[str] = ()) -> None:
        """Thaw every host, however often it was frozen, except some."""
        for host in [each for each in self._frozen if each not in but]:
            self._freezes[host] = 1
            self.thaw(host)

    # --- what blocks

    def block(self, seconds: float) -> None:
        """What `time.sleep` does: the host stands still, the others go on."""
        if self._in_executor:  # a thread of its own, as far as the application knows
            self.ahead += seconds
            return
        over: list[bool] = []
        host = HOST.get()
        task = asyncio.current_task(self)
        self.freeze(host)
        self.call_later(seconds, over.append, True, context=context_of(f"the clock of {host}"))
        if task is not None:
            _tasks._leave_task(self, task)
        self._blocked += 1
        try:
            while not over:  # also when the run has ended meanwhile
                self._run_once()
        finally:
            self._blocked -= 1
            if task is not None:
                _tasks._enter_task(self, task)
            self.thaw(host)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        """Run the function where it stands, so that its result comes at the same time in each run.

        What it sleeps, by `time.sleep`, its result comes later; the loop does not wait."""
        self._check_closed()  # type: ignore[attr-defined]
        future: asyncio.Future[T] = self.create_future()
        outer, self._in_executor = (self._in_executor, self.ahead), True
        try:
            result = function(*arguments)
        except Exception as error:
            settle: Callable[[Any], None] = future.set_exception
            outcome: Any = error
        else:
            settle, outcome = future.set_result, result
        finally:
            slept, (self._in_executor, self.ahead) = self.ahead - outer[1], outer
        self.call_later(max(slept, TURN_SECONDS), _settle, future, settle, outcome)
        return future

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *arguments: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if self._thread_id not in (None, threading.get_ident()):  # type: ignore[attr-defined]
            self.failure = RefusedError(
                f"thread {threading.current_thread().name!r} calls into the loop: in virtual time all runs on one"
                " thread (asyncio.to_thread and run_in_executor work)"
            )
            raise self.failure
        return self.call_soon(callback, *arguments, context=context)

    # --- the network

    async def create_server(  # type: ignore[override]
        self, factory: Callable[[], Any], host: Any = None, port: Any = None, **options: Any
    ) -> asyncio.AbstractServer:
        refusals.refuse_options("create_server", options, {"sock", "ssl"})
        sock = options.get("sock")
        number = refusals.port_of(sock) if sock is not None else port
        return self.network.listen(factory, number or 0)

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], Any], host: Any = None, port: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        refusals.refuse_options("create_connection", options, {"sock", "ssl", "local_addr"})
        return await self.network.connect(factory, str(host), int(port))


def _settle(future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not future.done():
        settle(outcome)


def _host_of(handle: asyncio.Handle) -> str:
    return handle._context.get(HOST, APPLICATION)  # type: ignore[attr-defined,no-any-return]
