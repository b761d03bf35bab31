"""The events of groups, reported by their coordinator.

kwire/replication/core/events.py explains the notation.
"""

from __future__ import annotations

from kwire.replication.core.events import INFO, WARNING, EventType


class GroupEvent:
    """The events of groups. Names are never reused for something else."""

    # --- Groups

    GROUP_REBALANCE_STARTED = EventType(
        INFO,
        "group {group}: generation {generation} rebalances: {detail}",
        "members",
        "reason",
    )
    """The coordinator waits for all members to join again. `members`: how many there are; `reason`: `member_joined`,
    `member_rejoined` (its subscription has changed, or it leads and topics have), `member_left`, `member_failed`,
    `static_member_replaced`, `assignment_failed` (it could not be written), `group_max_size`."""
    GROUP_STABLE = EventType(
        INFO,
        "group {group} is stable: generation {generation}, {members} members, assignor {assignor}",
        "leader_id",
    )
    """The end of a rebalance: each member has its partitions. `leader_id`: of the member that has assigned them."""
    GROUP_EMPTY = EventType(INFO, "group {group} is empty after generation {generation}")
    """The last member has left or failed; committed offsets stay."""
    GROUP_MEMBER_FAILED = EventType(
        WARNING,
        "group {group}: member {member_id} of client {client_id} has failed: {detail}",
        "reason",
    )
    """A member is removed without a LeaveGroup: it sent no heartbeat for its `session.timeout.ms` (`session_timeout`),
    or did not join again (`join_timeout`) or take its assignment (`sync_timeout`) within `max.poll.interval.ms`.
    To do: nothing where the test has ended the client; else see whether it is closed, and polls often enough."""
