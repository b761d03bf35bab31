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

What is one call of a library and takes milliseconds (100 MB to decompress) is no step that could be
cut. Such a function of bytes alone is yielded before it runs (`Elsewhere`, in
protocol/compression_parts.py): a driver with threads runs it on one of them, and the job has its
next turn when it has ended; without (`WorkQueue.elsewhere` is None: tests, the simulator) it runs
where it stands. So what a job does is the same in both, but for what others do meanwhile.

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
valid until its reply. Work that is cancelled, as that of a Fetch whose connection closes, ends at
its yield (GeneratorExit).

Invariants: an exception ends its job only; a job that has ended or was cancelled runs no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.protocol.compression_parts import Elsewhere
    from kwire.replication.core.clock import Clock

Steps = Generator[int, None, Any]
"""A generator of the costs of its steps."""

_Outcome = TypeVar("_Outcome")

FIRST_UNITS: Final = 2_000
"""Units that work may take in the step that begins it."""
TURN_UNITS: Final = 6_000
"""Units of all jobs together between two looks at the sockets."""
ELSEWHERE_UNITS: Final = 4_000
"""What takes longer in one piece runs on a thread, if there is one, which costs 200 units."""
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

    __slots__ = (
        "_away",
        "_clock",
        "_left",
        "_left_at_ms",
        "elsewhere",
        "first_units",
        "jobs",
        "turn_units",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = 0  # units that this step may still take
        self._left_at_ms = -1
        self._away = 0  # jobs whose function runs elsewhere
        self.jobs: deque[Job] = deque()
        self.elsewhere: Callable[[Callable[[], None], Callable[[], None]], None] | None = None
        """The driver's: runs the first function on a thread, then, in a step, the second one."""
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
        outcome: bool | Elsewhere[Any] = False
        if self._left > 0 and not self.jobs:
            outcome = self._run(steps, self._left)
            if outcome is True:
                return None
        job = Job(steps, on_error)
        self._put_off(job, outcome)
        return job

    @property
    def unfinished(self) -> int:
        """How many jobs there are."""
        return len(self.jobs) + self._away

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
                outcome = self._run(steps, min(share, self._left))
            except Exception as error:
                job.steps = None
                if job.on_error is not None:
                    job.on_error(error)
                raise
            finally:
                job.running = False
            if outcome is True:
                job.steps = None
            elif job.steps is None:
                steps.close()
            else:
                self._put_off(job, outcome)

    def _put_off(self, job: Job, outcome: bool | Elsewhere[Any]) -> None:
        """Let a job have its next turn: after the others, or when what runs elsewhere has ended."""
        if outcome is False or self.elsewhere is None:
            self.jobs.append(job)
            return
        assert outcome is not True

        def ended() -> None:
            self._away -= 1
            if job.steps is not None:
                self.jobs.append(job)

        self._away += 1
        self.elsewhere(outcome.run, ended)

    def send_away(self, cost: int | None, ended: Callable[[], None]) -> bool:
        """Run an `Elsewhere` on a thread for steps that are no job, then `ended` in a step of the node.

        False: it is none, it is short, or there are no threads; whoever takes its result runs it."""
        if cost is None or type(cost) is int or cost <= ELSEWHERE_UNITS or self.elsewhere is None:
            return False
        self.elsewhere(cost.run, ended)  # type: ignore[attr-defined]  # an Elsewhere
        return True

    def _run(self, steps: Steps, units: int) -> bool | Elsewhere[Any]:
        """Run steps worth this many units. True: the work is done; else what is to run elsewhere
        before it can go on, or False."""
        spent = 0
        try:
            while spent < units:
                cost = next(steps)
                if type(cost) is not int and cost > ELSEWHERE_UNITS and self.elsewhere is not None:
                    return cost  # type: ignore[return-value]  # an Elsewhere
                spent += cost or 1
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
