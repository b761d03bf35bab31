"""The steps of a controller: changes one after the other, of which a long one goes on in parts.

Corresponds to kafka.controller.ControllerEventManager: Kafka's controller, too, handles one event at
a time, on a thread of its own. A change is an action, or a generator of the costs of its parts
(core/work.py). Between two parts the node serves everybody, but nothing else changes the controller's
state: other changes wait.

Invariants: each part is a step, which ends with a flush of the journal; what brokers answer during a
change is applied after it; a controller that has resigned goes on with no change.
"""

from __future__ import annotations

from collections import deque
from types import GeneratorType
from typing import Generic, TypeVar

from kwire.replication.controller.state import DeposedError
from kwire.replication.core.work import at_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kwire.replication.controller.context import ControllerContext
    from kwire.replication.core.work import Steps, WorkQueue

_Answer = TypeVar("_Answer")


_ALL = 1 << 62  # units


class _Change(Generic[_Answer]):
    """An action that is done in parts, if it is a generator. `result`: once it `is_over`."""

    __slots__ = ("_action", "_steps", "is_over", "result")

    def __init__(self, action: Callable[[], _Answer | Generator[int, None, _Answer]]) -> None:
        self._action = action
        self._steps: Generator[int, None, _Answer] | None = None
        self.is_over = False
        self.result: _Answer

    def do(self, units: int) -> int:
        """Do a part that is worth these units, or what is left; return what it was worth."""
        if self._steps is None:
            outcome = self._action()
            if not isinstance(outcome, GeneratorType):
                self.is_over, self.result = True, outcome  # type: ignore[assignment]
                return 0
            self._steps = outcome
        spent = 0
        try:
            while spent < units:
                spent += next(self._steps) or 1
        except StopIteration as end:
            self.is_over, self.result = True, end.value
        return spent

    def close(self) -> None:
        """Do no more of it."""
        if self._steps is not None:
            self._steps.close()


class Line:
    """Runs changes. `responses`: what is to be done when this step ends, or the change that it is of."""

    __slots__ = ("_busy", "_context", "_flush", "_steps", "_waiting", "_work", "responses")

    def __init__(
        self, context: ControllerContext, flush: Callable[[], None], work: WorkQueue | None
    ) -> None:
        """`work`: None: all is done at once."""
        self._context = context
        self._flush = flush
        self._work = work
        self._busy = False
        self._waiting: deque[Steps] = deque()
        self._steps: Generator[int, None, None] | None = None
        self.responses: deque[Callable[[], Steps | None]] = deque()

    @property
    def is_in_step(self) -> bool:
        """Whether a step has begun and not ended."""
        return self._busy

    @property
    def is_changing(self) -> bool:
        """Whether a long change has begun and not ended, or others wait."""
        return self._steps is not None

    @property
    def waiting(self) -> tuple[Steps, ...]:
        """The changes that wait for the one that is under way, as generators."""
        return tuple(self._waiting)

    def begin(self, change: Steps) -> None:
        """Do the first part of a change now, if no other is under way."""
        if self.is_changing:
            self.add(change)
            return
        left = 0 if self._work is None else self._work.first_units
        for cost in change:
            left -= cost or 1
            if left <= 0 and self._work is not None:
                self.add(change)
                break

    def add(self, change: Steps) -> None:
        """Go on with a change, or begin it, when those before it have ended."""
        self._waiting.append(change)
        if self._steps is None:
            self._start()

    def step(self, action: Callable[[], _Answer | Generator[int, None, _Answer]]) -> _Answer:
        """Do an action as one step, and before it all that is left of others. Nested calls join the
        step."""
        if self._busy:
            return complete(action())
        if self._steps is not None and not self._steps.gi_running:  # type: ignore[attr-defined]
            at_once(self._steps)
        return self._step(lambda: complete(action()))

    def in_steps(
        self,
        action: Callable[[], _Answer | Generator[int, None, _Answer]],
        *,
        is_late: bool = False,
        is_beside: bool = False,
    ) -> Generator[int, None, _Answer]:
        """Do an action whose parts, if it has several, are a step each.

        `is_late`: it has waited for other changes. `is_beside`: it is no part of the change that is
        under way. DeposedError, KafkaError."""
        units = _ALL if self._work is None else self._work.first_units
        change = _Change(action)
        while True:
            if not self._context.active:
                change.close()
                raise DeposedError
            spent = self._step(
                lambda: change.do(units),
                is_late=is_late,
                goes_on=lambda: is_beside or not change.is_over,
            )
            if change.is_over:
                return change.result
            yield spent

    def _step(
        self,
        action: Callable[[], _Answer],
        *,
        is_late: bool = False,
        goes_on: Callable[[], bool] = lambda: False,
    ) -> _Answer:
        """A step. `goes_on`: whether the change does; then responses wait."""
        self._busy, self._context.is_late = True, is_late
        try:
            result = action()
            while self.responses and not goes_on():
                complete(self.responses.popleft()())
        finally:
            self._busy = self._context.is_late = False
            self._flush()
        return result

    def _start(self) -> None:
        assert self._work is not None
        self._steps = self._work_off(self._waiting.popleft(), self._work.first_units)
        self._work.start(self._steps)

    def _work_off(self, change: Steps, units: int) -> Generator[int, None, None]:
        """Work that begins with the next turn: `begin` has done what belongs to this step."""
        try:
            yield units
            while True:
                yield from change
                if not self._waiting:
                    break
                change = self._waiting.popleft()
                yield 0
        finally:
            self._steps = None
            if self._waiting:  # a change has failed: the others go on
                self._start()


def complete(outcome: _Answer | Generator[int, None, _Answer]) -> _Answer:
    """The result of an action, all parts of which are done now."""
    return at_once(outcome) if isinstance(outcome, GeneratorType) else outcome  # type: ignore[return-value]
