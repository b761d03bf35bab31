"""Offsets that are committed within transactions: the part of the group coordinator for them.

Answers to commitTransactionalOffsets and completeTransaction of GroupCoordinatorService. Imported when
the first transaction touches a group.
"""

from __future__ import annotations

from kwire.protocol.record_builder import end_transaction_marker
from kwire.protocol.records import CONTROL_ABORT, CONTROL_COMMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.coordinator.group_coordinator import GroupCoordinator
    from kwire.protocol.errors import ErrorCode


class TransactionalOffsets:
    """The offsets of open transactions in the groups of one broker."""

    __slots__ = ("_groups",)

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def complete_transaction(
        self,
        index: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        reply: Callable[[ErrorCode], None],
    ) -> None:
        """End a transaction with its marker in partition `index` of `__consumer_offsets`.

        Its offsets take effect or are dropped. NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; errors
        of the append."""
        runtime = self._groups.runtime
        marker = end_transaction_marker(
            CONTROL_COMMIT if is_commit else CONTROL_ABORT,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=runtime.clock.wall_ms,
        )
        runtime.complete_transaction(index, producer_id, is_commit, marker, reply)
