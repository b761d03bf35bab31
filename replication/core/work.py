"""Long work in parts: what would hold up other clients is a generator that runs a little at a time.

Everything of a node runs on one thread, so one long step would keep all others waiting (Kafka has
threads for that). Work whose size a request or a log decides is therefore written as a generator of
steps. It yields the cost of what it has just done, in units:

    def _convert(ctx, messages):
        for message in messages:
            convert(message)
            yield 3
        ctx.reply(response)

    ctx.run_in_parts(_convert(ctx, messages))  # a handler; elsewhere WorkQueue.start

A unit is about a microsecond of Python: reading a record 1, a partition of a response 5, a KiB to
compress 20. Costs are counted, never measured, so that a run can be repeated; that they are right
within a factor of three is enough. Yield at least every 500 units.

The first part runs at once, up to FIRST_UNITS: work that ends with it never waits, and costs one
generator. The rest goes into a queue; each `Core.tick` gives it one turn of TURN_UNITS, jobs in
rotation, and until the queue is empty the next tick is due immediately: between two turns every
socket and every timer has its own. A connection whose request is worked on starts no other request,
as with one that is parked; connections beside it go on.

Between two parts everything may have changed: partitions lost, topics deleted. Look up again after
a yield what must still hold, and change state at the end, in one part. The frame of a request stays
valid until its reply. When its connection closes, its work is cancelled (GeneratorExit at the
yield).

Invariants: an exception ends its job only; a job that has ended or was cancelled runs no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.replication.core.clock import Clock

Steps = Generator[int, None, Any]
"""A generator of the costs of its steps."""

_Outcome = TypeVar("_Outcome")

FIRST_UNITS: Final = 2_000
"""Units that work may take in the step that begins it."""
TURN_UNITS: Final = 6_000
"""Units of all jobs together between two looks at the sockets."""
_FREED_AT_ONCE: Final = 4_000
_FREED_A_STEP: Final = 500
_UNITS_A_FREED_STEP: Final = 200
_SHARE: Final = 4
"""A job gets this part of a turn before the next one's part."""


class Job:
    """Work that goes on after its first part."""

    __slots__ = ("on_error", "running", "steps")

    def __init__(self, steps: Steps, on_error: Callable[[Exception], None] | None) -> None:
        self.steps: Steps | None = steps
        self.on_error = on_error
        self.running = False

    def cancel(self) -> None:
        """Do no more of it. No-op if it has ended; called by its own steps, it ends with this part."""
        steps, self.steps = self.steps, None
        if steps is not None and not self.running:
            steps.close()


class WorkQueue:
    """The jobs of a node. `jobs`: in the order of their turns; empty costs nothing."""

    __slots__ = ("_clock", "_left", "_left_at_ms", "first_units", "jobs", "turn_units")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = 0  # units that this step may still take
        self._left_at_ms = -1
        self.jobs: deque[Job] = deque()
        self.first_units = FIRST_UNITS
        self.turn_units = TURN_UNITS

    def start(
        self, steps: Steps, on_error: Callable[[Exception], None] | None = None
    ) -> Job | None:
        """Do the first part now. Returns the job if there is more to do, else None.

        Behind other jobs, and after much work in the same millisecond, all of it waits.
        `on_error`: called with the exception of a later part, which then is the failure of that
        step; one of the first part propagates from here."""
        now_ms = self._clock.now_ms
        if self._left_at_ms != now_ms:
            self._left, self._left_at_ms = self.first_units, now_ms
        if self._left > 0 and not self.jobs and self._run(steps, self._left):
            return None
        job = Job(steps, on_error)
        self.jobs.append(job)
        return job

    def turn(self) -> None:
        """Do the next part. Raises what a job raised; the others stay queued."""
        jobs = self.jobs
        self._left, self._left_at_ms = self.turn_units, self._clock.now_ms
        share = max(1, self.turn_units // _SHARE)
        while jobs and self._left > 0:
            job = jobs.popleft()
            steps = job.steps
            if steps is None:
                continue
            job.running = True
            try:
                done = self._run(steps, min(share, self._left))
            except Exception as error:
                job.steps = None
                if job.on_error is not None:
                    job.on_error(error)
                raise
            finally:
                job.running = False
            if done:
                job.steps = None
            elif job.steps is None:
                steps.close()
            else:
                jobs.append(job)

    def _run(self, steps: Steps, units: int) -> bool:
        """Run steps worth this many units; True if the work is done."""
        spent = 0
        try:
            while spent < units:
                spent += next(steps) or 1
        except StopIteration:
            return True
        finally:
            self._left -= spent
        return False

    def free(self, *lists: list[Any] | None) -> None:
        """Empty lists that nobody needs any more. To free a million objects at once takes 0.1 s."""
        for items in lists:
            if items is not None and len(items) > _FREED_AT_ONCE:
                self.start(_free(items))


def at_once(steps: Generator[int, None, _Outcome]) -> _Outcome:
    """Take all steps now."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result: _Outcome = done.value
        return result


def _free(items: list[Any]) -> Steps:
    while items:
        del items[-_FREED_A_STEP:]
        yield _UNITS_A_FREED_STEP
