"""What a time-out of `wait_for` tells: the predicate's source, and what it looked at last."""

from __future__ import annotations

import ast
import inspect

from kwire.errors import ClusterStateError, ConfigurationError, WaitTimeoutError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kwire.backends.views import Partition

_MAX_CHARACTERS = 300


class Observations:
    """What one call of a predicate has seen."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._error: BaseException | None = None

    def check(self, cluster: Any, predicate: object, seconds: object) -> None:
        """What cannot come true is not waited for. ConfigurationError, ClusterStateError."""
        if not callable(predicate):
            raise ConfigurationError(f"wait_for: expected a function, not {predicate!r}")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise ConfigurationError(f"timeout: expected seconds, from 0, not {seconds!r}")
        if not cluster.started:
            raise ClusterStateError("the cluster does not run: start it, or use it as a context")

    def begin(self) -> None:
        """The predicate is called again."""
        self._partitions.clear()
        self._error = None

    def saw(self, partition: Partition) -> None:
        """A partition was asked for."""
        self._partitions[partition.topic, partition.partition] = partition

    def failed(self, error: BaseException) -> None:
        """The predicate raised what counts as false."""
        self._error = error

    def in_vain(
        self, predicate: Callable[..., object], value: object, seconds: float
    ) -> WaitTimeoutError:
        """The exception after the last call, which has returned `value`."""
        if self._error is not None:
            last = f"it failed: {self._error}"
        else:
            last = f"it was {str(value)[:_MAX_CHARACTERS]!s}"
        text = f"waited {seconds:g} s for: {source_of(predicate)}\nthe last time {last}"
        for partition in self._partitions.values():
            text += f"\n{partition}"
        return WaitTimeoutError(text)


def source_of(predicate: Callable[..., object]) -> str:
    """A lambda's own text, a function's name, or whatever describes it."""
    name = getattr(predicate, "__name__", None)
    if name != "<lambda>":
        text = inspect.getdoc(predicate) if inspect.isroutine(predicate) else None
        return str(name or predicate) + (f" ({text.splitlines()[0]})" if text else "")
    try:
        source = inspect.getsource(predicate)
    except (OSError, TypeError):
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
