"""Attempts that are repeated while leaders and coordinators move, as stock clients do.

A cluster of which no broker answers is an error at once, and so is what a broker refuses for good.
"""

from __future__ import annotations

from time import monotonic

from kwire.client.admin import NoBrokerError, Pause, UnreachedBrokerError
from kwire.client.connection import NoResponseError, NotReachedError
from kwire.protocol.errors import ErrorCode, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from kwire.client.admin import Steps

    T = TypeVar("T")

RETRY_SECONDS = 5.0
"""How long leaders and coordinators may be on the move."""
_PAUSE_SECONDS = 0.02
_TRANSIENT = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.OFFSET_OUT_OF_RANGE,  # the log was truncated or deleted from meanwhile
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


def repeat(
    attempt: Callable[[], Steps[T]], seconds: float = RETRY_SECONDS, *, changes: bool = False
) -> Steps[T]:
    """The result of the first attempt that succeeds; the last error after `seconds`.

    `changes`: the attempt changes something, and is not repeated when a broker may have done it."""
    deadline = monotonic() + seconds
    while True:
        try:
            return (yield from attempt())
        except KafkaError as error:
            if error.code not in _TRANSIENT or monotonic() >= deadline:
                raise
        except UnreachedBrokerError as error:
            if monotonic() >= deadline or (changes and not _was_not_sent(error)):
                raise
        yield Pause(_PAUSE_SECONDS)


def _was_not_sent(error: NoBrokerError) -> bool:
    reasons: list[NoResponseError] = list(error.reasons)
    return all(isinstance(reason, NotReachedError) for reason in reasons)
