"""Long work in parts: budgets in units, rotation, failures, cancellation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kwire.protocol.compression_parts import Elsewhere
from kwire.replication.core.clock import Clock
from kwire.replication.core.work import (
    ELSEWHERE_UNITS,
    FIRST_UNITS,
    TURN_UNITS,
    Job,
    Steps,
    WorkQueue,
    at_once,
)


def counting(done: list[str], name: str, steps: int, units: int) -> Steps:
    try:
        for _ in range(steps):
            done.append(name)
            yield units
        done.append(f"{name} is done")
    finally:
        done.append(f"{name} ends")


@pytest.fixture
def queue() -> WorkQueue:
    return WorkQueue(Clock(now_ms=5))


def test_short_work_is_done_at_once_and_leaves_nothing(queue: WorkQueue) -> None:
    done: list[str] = []
    assert queue.start(counting(done, "a", 3, 100)) is None
    assert done == ["a", "a", "a", "a is done", "a ends"]
    assert not queue.jobs


def test_long_work_stops_at_its_first_units_and_goes_on_in_turns(queue: WorkQueue) -> None:
    done: list[str] = []
    job = queue.start(counting(done, "a", 300, 100))
    assert job is not None
    assert len(done) == FIRST_UNITS // 100
    queue.turn()
    assert len(done) == (FIRST_UNITS + TURN_UNITS) // 100
    turns = 0
    while queue.jobs:
        queue.turn()
        turns += 1
    assert done[-2:] == ["a is done", "a ends"]
    assert turns == (300 * 100 - FIRST_UNITS - TURN_UNITS) // TURN_UNITS + 1


def test_jobs_take_turns(queue: WorkQueue) -> None:
    done: list[str] = []
    for name in "abc":
        queue.start(counting(done, name, 300, 100))
    assert set(done) == {"a"}  # the others stand behind it
    queue.turn()
    shares = {name: done.count(name) for name in "abc"}
    assert shares["b"] == shares["c"] == TURN_UNITS // 4 // 100
    assert sum(shares.values()) == (FIRST_UNITS + TURN_UNITS) // 100


def test_a_step_has_one_allowance_for_all_that_it_begins(queue: WorkQueue) -> None:
    """A controller's order may begin fifty jobs: they must not do fifty first parts."""
    done: list[str] = []
    for _ in range(50):
        queue.start(counting(done, "a", 10, 100))
    assert done.count("a") == FIRST_UNITS // 100
    assert len(queue.jobs) == 49  # the second one was cut off at its last step


def test_steps_that_cost_nothing_are_counted_nevertheless(queue: WorkQueue) -> None:
    done: list[str] = []
    assert queue.start(counting(done, "a", 10 * FIRST_UNITS, 0)) is not None
    assert len(done) == FIRST_UNITS


def test_cancelled_work_ends_where_it_is(queue: WorkQueue) -> None:
    done: list[str] = []
    job = queue.start(counting(done, "a", 300, 100))
    other = queue.start(counting(done, "b", 1, 100))
    assert job is not None and other is not None
    job.cancel()
    job.cancel()
    assert done[-1] == "a ends" and "a is done" not in done
    queue.turn()
    assert done[-2:] == ["b is done", "b ends"]
    assert not queue.jobs
    other.cancel()  # it has ended: no-op


def test_work_that_cancels_itself_ends_with_that_part(queue: WorkQueue) -> None:
    done: list[str] = []
    jobs: list[Job] = []

    def suicidal() -> Steps:
        try:
            yield FIRST_UNITS
            jobs[0].cancel()
            done.append("last words")
            yield TURN_UNITS
            done.append("too late")
        finally:
            done.append("ended")

    job = queue.start(suicidal())
    assert job is not None
    jobs.append(job)
    queue.turn()
    assert done == ["last words", "ended"]
    assert not queue.jobs


def test_a_failure_ends_its_job_only(queue: WorkQueue) -> None:
    def failing() -> Steps:
        yield FIRST_UNITS
        raise ValueError("broken")

    done: list[str] = []
    errors: list[Exception] = []
    queue.start(failing(), errors.append)
    queue.start(counting(done, "a", 3, 100))
    with pytest.raises(ValueError, match="broken"):
        queue.turn()
    assert [str(error) for error in errors] == ["broken"]
    queue.turn()
    assert done[-1] == "a ends"
    assert not queue.jobs


def test_a_failure_of_the_first_part_is_the_callers(queue: WorkQueue) -> None:
    def failing() -> Steps:
        raise ValueError("broken")
        yield 1

    with pytest.raises(ValueError, match="broken"):
        queue.start(failing())
    assert not queue.jobs


def test_work_may_begin_work(queue: WorkQueue) -> None:
    done: list[str] = []

    def outer() -> Steps:
        yield FIRST_UNITS
        queue.start(counting(done, "inner", 300, 100))
        done.append("outer goes on")
        yield 1

    queue.start(outer())
    queue.turn()
    assert "outer goes on" in done
    while queue.jobs:
        queue.turn()
    assert done[-1] == "inner ends"


def test_work_waits_behind_what_began_before_also_in_a_later_step() -> None:
    clock = Clock(now_ms=5)
    queue, done = WorkQueue(clock), []
    assert queue.start(counting(done, "a", 300, 100)) is not None
    clock.now_ms += 1
    assert queue.start(counting(done, "b", 1, 100)) is not None
    assert "b" not in done


def test_a_millisecond_later_there_are_units_again() -> None:
    clock = Clock(now_ms=5)
    queue, done = WorkQueue(clock), []
    assert queue.start(counting(done, "a", FIRST_UNITS // 100 - 1, 100)) is None
    clock.now_ms += 1
    assert queue.start(counting(done, "b", 5, 100)) is None
    assert done[-2:] == ["b is done", "b ends"]


def test_a_job_that_has_failed_is_not_in_the_queue_any_more(queue: WorkQueue) -> None:
    def fail() -> Steps:
        yield FIRST_UNITS
        raise ValueError

    job = queue.start(fail(), lambda error: None)
    assert job is not None
    with pytest.raises(ValueError):
        queue.turn()
    assert job.steps is None and not queue.jobs


def test_long_lists_are_emptied_in_parts_and_short_ones_are_left_alone(queue: WorkQueue) -> None:
    long, short = [object()] * 20_000, [object()] * 10
    queue.free(long, None, short)
    assert 0 < len(long) < 20_000
    while queue.jobs:
        queue.turn()
    assert (len(long), len(short)) == (0, 10)


# --- functions that may run elsewhere


class Threads:
    """Stands for a driver with threads: `run` lets the next function run, and its end take effect."""

    def __init__(self, queue: WorkQueue) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []
        queue.elsewhere = lambda task, ended: self.waiting.append((task, ended))

    def run(self) -> None:
        task, ended = self.waiting.pop(0)
        task()
        ended()


def computing(done: list[str], units: int, function: Callable[[], str]) -> Steps:
    work = Elsewhere(units, function)
    yield work
    done.append(work.result())
    yield 1
    done.append("end")


def test_a_function_that_may_run_elsewhere_runs_in_its_turn_where_there_are_no_threads(
    queue: WorkQueue,
) -> None:
    done: list[str] = []
    assert queue.start(computing(done, FIRST_UNITS, lambda: "result")) is not None
    assert done == []  # its cost was more than the first part may have
    queue.turn()
    assert done == ["result", "end"]
    assert at_once(computing(done, 10**9, lambda: "again")) is None
    assert done[2:] == ["again", "end"]


def test_a_job_goes_on_when_its_function_has_ended_on_a_thread(queue: WorkQueue) -> None:
    threads, done = Threads(queue), list[str]()
    job = queue.start(computing(done, ELSEWHERE_UNITS + 1, lambda: "result"))
    assert job is not None and not queue.jobs  # no tick is due meanwhile
    assert queue.unfinished == 1
    assert queue.start(counting(done, "other", 1, 100)) is None
    threads.run()
    assert done[-1] == "other ends" and list(queue.jobs) == [job]
    assert queue.unfinished == 1
    queue.turn()
    assert done[-2:] == ["result", "end"] and not queue.jobs
    assert queue.unfinished == 0


def test_a_function_in_a_later_part_goes_elsewhere_too(queue: WorkQueue) -> None:
    threads, done = Threads(queue), list[str]()

    def steps() -> Steps:
        yield FIRST_UNITS
        yield from computing(done, ELSEWHERE_UNITS + 1, lambda: "result")

    queue.start(steps())
    queue.turn()
    assert len(threads.waiting) == 1 and not queue.jobs
    threads.run()
    queue.turn()
    assert done == ["result", "end"]


def test_a_short_function_is_not_worth_a_thread(queue: WorkQueue) -> None:
    threads, done = Threads(queue), list[str]()
    queue.start(computing(done, ELSEWHERE_UNITS, lambda: "result"))
    while queue.jobs:
        queue.turn()
    assert done == ["result", "end"] and not threads.waiting


def test_what_a_function_raises_elsewhere_is_raised_in_the_job(queue: WorkQueue) -> None:
    def broken() -> str:
        raise ValueError("broken")

    threads, done, errors = Threads(queue), list[str](), list[Exception]()
    queue.start(computing(done, ELSEWHERE_UNITS + 1, broken), errors.append)
    threads.run()
    with pytest.raises(ValueError, match="broken"):
        queue.turn()
    assert [str(error) for error in errors] == ["broken"] and not done and not queue.jobs


def test_a_job_that_was_cancelled_while_its_function_ran_is_over(queue: WorkQueue) -> None:
    threads, done = Threads(queue), list[str]()
    job = queue.start(computing(done, ELSEWHERE_UNITS + 1, lambda: "result"))
    assert job is not None
    job.cancel()
    threads.run()
    assert not queue.jobs and not done
