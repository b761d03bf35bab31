from __future__ import annotations

import pytest

from kwire.replication.core.clock import Clock, Timers
from kwire.replication.replica.purgatory import DelayedOperation, Purgatory


class Waiting(DelayedOperation):
    def __init__(self, log):
        super().__init__()
        self.satisfied = False
        self.log = log

    def is_satisfied(self):
        return self.satisfied

    def on_expiration(self):
        self.log.append("expired")

    def on_complete(self):
        self.log.append("completed")


class World:
    def __init__(self):
        self.clock = Clock(1000)
        self.timers = Timers()
        self.purgatory = Purgatory(self.clock, self.timers)
        self.log = []

    def advance(self, ms):
        self.clock.now_ms += ms
        self.timers.fire(self.clock.now_ms)

    def is_empty(self):
        return len(self.purgatory) + len(self.purgatory.watchers) + len(self.timers) == 0


@pytest.fixture
def world():
    return World()


def test_a_satisfied_operation_never_waits(world):
    operation = Waiting(world.log)
    operation.satisfied = True
    assert world.purgatory.try_complete_else_watch(operation, ["a"], 100)
    assert world.log == ["completed"] and world.is_empty()


def test_an_event_completes_what_it_satisfies_exactly_once(world):
    operation = Waiting(world.log)
    assert not world.purgatory.try_complete_else_watch(operation, ["a", "b", "a"], 100)
    assert world.purgatory.check_and_complete("a") == 0
    assert world.purgatory.check_and_complete("unknown") == 0
    operation.satisfied = True
    assert "b" in world.purgatory.watchers and world.purgatory.check_and_complete("b") == 1
    assert world.purgatory.check_and_complete("a") == 0
    assert not operation.force_complete() and not operation.try_complete()
    world.advance(1000)
    assert world.log == ["completed"] and world.is_empty()


def test_time_runs_out_once(world):
    operation = Waiting(world.log)
    world.purgatory.watch(operation, ["a"], 100)
    world.advance(99)
    assert world.log == [] and len(world.purgatory) == 1
    world.advance(1)
    assert world.log == ["expired", "completed"] and world.is_empty()
    operation.satisfied = True
    assert not operation.try_complete()


def test_no_time_at_all_expires_in_the_next_tick_not_at_once(world):
    world.purgatory.watch(Waiting(world.log), ["a"], -5)
    assert world.log == []
    world.advance(0)
    assert world.log == ["expired", "completed"]


def test_a_cancelled_operation_says_nothing(world):
    operation = Waiting(world.log)
    world.purgatory.watch(operation, ["a"], 100)
    operation.cancel()
    operation.cancel()
    world.advance(1000)
    assert world.log == [] and world.is_empty()


def test_operations_complete_in_the_order_in_which_they_came(world):
    order = []

    class Named(Waiting):
        def on_complete(self):
            order.append(self.name)

    for name in "cab":
        operation = Named(world.log)
        operation.name = name
        world.purgatory.watch(operation, ["k"], 100)
        operation.satisfied = True
    assert world.purgatory.check_and_complete("k") == 3
    assert order == ["c", "a", "b"]


def test_a_completion_may_complete_and_add_others(world):
    class Chained(Waiting):
        def on_complete(self):
            super().on_complete()
            world.purgatory.watch(Waiting(world.log), ["k"], 100)
            world.purgatory.check_and_complete("k")

    for _ in range(2):
        operation = Chained(world.log)
        operation.satisfied = False
        world.purgatory.watch(operation, ["k"], 100)
        operation.satisfied = True
    assert world.purgatory.check_and_complete("k") == 1
    assert world.log == ["completed", "completed"] and len(world.purgatory) == 2


def test_everything_can_be_dropped_at_a_stop(world):
    for key in "ab":
        world.purgatory.watch(Waiting(world.log), [key, "c"], 100)
    assert world.purgatory.cancel_all() == 2
    assert world.log == [] and world.is_empty()


def test_an_operation_may_be_told_to_wait_less_but_never_longer(world):
    short, long = Waiting(world.log), Waiting(world.log)
    world.purgatory.watch(short, ["a"], 3)
    world.purgatory.watch(long, ["a"], 100)
    world.purgatory.expire_within(short, 5)
    world.purgatory.expire_within(long, 5)
    world.advance(3)
    assert world.log == ["expired", "completed"] and len(world.purgatory) == 1
    world.advance(2)
    assert world.log == ["expired", "completed"] * 2 and world.is_empty()
