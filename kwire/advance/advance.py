"""One advance of a core's clock: time passes at once, and what is due meanwhile fires in order, each at its time.

Kafka has no counterpart. The driver runs each call as a step of the core. Over several nodes somebody takes care that
all are advanced by the same amounts, up to the next event of any of them, and lets the network settle in between
(`kwire.backends.clock.clock`).

What waits for another node waits in real time (`Timers.schedule_real`). Whether a node is alive cannot be seen from a
time that has not passed: a lease and a follower's lag grow by the advance only if their owner has shown no life since
it began. So an advance begins with a moment of real time in which all who are alive send something.
"""

from __future__ import annotations

from kwire.advance import life
from kwire.advance.checks import checks_of
from kwire.controller_node import ControllerNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

    from kwire.broker import Broker

_TURNS = 100_000
"""Of long work between two events: enough for all there is; a fuse."""


class Advance:
    """An advance that has begun. Times are milliseconds from now on."""

    def __init__(self, core: Broker | ControllerNode) -> None:
        self._core = core
        self._began = core.timers.last_number
        self._began_ms = core.clock.now_ms
        self._looked: set[Hashable] = set()  # checks that ran since something last happened
        self._level = self._state()
        self.life = life.Life(core, self._began, self._began_ms)

    def next_ms(self) -> int | None:
        """In how many milliseconds the next event is due that may concern others; None: in no advance."""
        self._note_changes()
        dues = self._dues()
        return None if not dues else max(0, min(dues.values()) - self._core.clock.now_ms)

    def run(self, delay_ms: int) -> None:
        """Let so much time pass."""
        core, clock = self._core, self._core.clock
        end_ms = clock.now_ms + delay_ms
        while True:
            self._note_changes()
            self._put_off(end_ms)
            due_ms = self._next_due_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self._pass(due_ms - clock.now_ms)
            run = [key for deadline, _, key in core.timers.deadlines() if deadline <= clock.now_ms]
            effects = len(core.outbox.effects)
            core.tick()
            self._end_work()
            if self._note_changes() or len(core.outbox.effects) != effects:
                self._looked.clear()
            else:
                self._looked.update(run)
        self._pass(end_ms - clock.now_ms)
        self.life.note_ends()

    def _next_due_ms(self) -> int | None:
        deferred, timers = self._deferred(), self._core.timers
        return min((ms for ms, _, key in timers.deadlines() if key not in deferred), default=None)

    def _end_work(self) -> None:
        """Long work takes no time: its parts run at once."""
        for _ in range(_TURNS):
            if not self._core.work.jobs:
                break
            self._core.tick()

    def _pass(self, delay_ms: int) -> None:
        if delay_ms > 0:
            self._core.timers.shift(self._deferred(), delay_ms)
            self._core.clock.advance(delay_ms)
            life.let_pass(self._core, delay_ms, self._began_ms)

    def _deferred(self) -> set[Hashable]:
        return self._core.timers.deferred(self._began, life.waits(self._core))

    # --- periodic looks

    def _dues(self) -> dict[Hashable, int]:
        """When each timer is due for the sake of others; looks that find nothing are not."""
        core, deferred = self._core, self._deferred()
        checks = checks_of(core)
        dues: dict[Hashable, int] = {}
        for deadline_ms, _, key in core.timers.deadlines():
            if key in deferred:
                continue
            check = checks.get(key)
            if check is None or (check.times is not None and key not in self._looked):
                dues[key] = deadline_ms
            elif check.times is not None:
                change_ms = check.next_change_ms(core.clock.wall_ms)
                if change_ms is not None:
                    change_ms += core.clock.now_ms - core.clock.wall_ms
                    dues[key] = deadline_ms + _rounds_up(change_ms - deadline_ms, check.interval_ms)
        return dues

    def _put_off(self, end_ms: int) -> None:
        """Leave out the looks before `end_ms` that find nothing: the last of each is run."""
        timers, dues = self._core.timers, self._dues()
        for key, check in checks_of(self._core).items():
            deadline_ms = timers.deadline_ms(key)
            if deadline_ms is None or (key in dues and key not in self._looked):
                continue
            left_ms = max(0, end_ms - deadline_ms)
            last_ms = deadline_ms + left_ms // check.interval_ms * check.interval_ms
            wanted_ms = min(last_ms, dues.get(key, last_ms))
            if wanted_ms > deadline_ms:
                timers.put_off(key, wanted_ms)

    def _note_changes(self) -> bool:
        """Whether something has happened since the last call: then every look may find something."""
        level = self._state()
        if level == self._level:
            return False
        self._level = level
        self._looked.clear()
        return True

    def _state(self) -> tuple[int, int]:
        core = self._core
        if isinstance(core, ControllerNode):
            context = core.controller.context
            epochs = (partition.leader_epoch for _, _, partition in context.partitions())
            return sum(epochs), hash(frozenset(context.eligible))
        partitions = core.services.replica_manager.partitions()
        return sum(each.log.log_end_offset for each in partitions), 0


def _rounds_up(amount: int, unit: int) -> int:
    return max(0, -(-amount // unit) * unit)


def set_offset(core: Broker | ControllerNode, offset_ms: int) -> None:
    """Set the clock; no time passes: what is left of each time-out stays."""
    delay_ms = offset_ms - core.clock.offset_ms
    core.clock.advance(delay_ms)
    core.timers.shift_all(delay_ms)
    if not isinstance(core, ControllerNode):
        for partition in core.services.replica_manager.partitions():
            for replica in partition.remote_replicas.values():
                replica.defer(delay_ms)
