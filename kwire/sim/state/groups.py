"""Rules on the groups of a coordinator, after every step (I50).

A broker that leads a partition of a coordinator's topic has its shard. Each phase of a rebalance has its timer,
each member outside of a parked request its session; a rebalance for which everybody is there is over; the leader
is a member; the generation rises by one with every rebalance; a sync is parked in the sync phase only.
"""

from __future__ import annotations

from kwire.coordinator import classic_group as states
from kwire.replication.core.metadata import GROUP_METADATA_TOPIC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.broker import Broker
    from kwire.coordinator.classic_group import ClassicGroup
    from kwire.coordinator.group_shard import GroupShard
    from kwire.shards.context import ShardContext
    from kwire.sim.invariants import Invariants


Generations = dict["ClassicGroup", tuple[str, int]]
"""State and generation of each group after the last step."""


def check_groups(checker: Invariants, known: Generations, node_id: int, broker: Broker) -> None:
    """Look at all groups of a broker. I50."""
    services = broker.services
    contexts = services.group_coordinator.runtime.contexts
    for key, partition in services.replica_manager.by_key.items():
        if key[0] == GROUP_METADATA_TOPIC and partition.is_leader != (key[1] in contexts):
            checker.violated("I50", f"{partition} at {node_id}: its groups are not kept so")
    for context in contexts.values():
        if not context.is_loading:
            for group in context.shard.classic.groups.values():
                why = _wrong(known, context, group)
                if why is not None:
                    checker.violated(
                        "I50",
                        f"group {group.group_id} at {node_id}, {group.state}, generation"
                        f" {group.generation_id}: {why}",
                    )


def _wrong(
    known: Generations, context: ShardContext[GroupShard], group: ClassicGroup
) -> str | None:
    name, members = group.group_id, group.members
    joined = sum(member.awaiting_join is not None for member in members.values())
    if joined != group.awaiting_join_count:
        return f"{joined} wait for the join, counted are {group.awaiting_join_count}"
    before = known.get(group, (group.state, group.generation_id))
    known[group] = group.state, group.generation_id
    is_over = group.state != before[0] and group.previous_state == states.PREPARING_REBALANCE
    if is_over and group.generation_id == before[1]:
        return "a rebalance has not raised the generation"
    if members and group.leader_id not in members:
        return f"its leader {group.leader_id} is no member"
    if group.state == states.EMPTY and members:
        return f"it is empty with {list(members)}"
    if group.state == states.PREPARING_REBALANCE:
        if not _has_timer(context, ("join", name)):
            return "the join phase has no end"
        if group.has_all_members_joined and group.previous_state != states.EMPTY:
            return "everybody has joined"
    if not set(group.pending_sync_members) <= set(members):
        return f"no members, and expected to sync: {list(group.pending_sync_members)}"
    runs = group.state in (states.COMPLETING_REBALANCE, states.STABLE)
    if runs and group.pending_sync_members and not _has_timer(context, ("sync", name)):
        return "the sync phase has no end"
    for member in members.values():
        if member.awaiting_sync is not None and group.state != states.COMPLETING_REBALANCE:
            return f"{member.member_id} waits for its assignment"
        is_parked = member.awaiting_join is not None or member.awaiting_sync is not None
        session = "heartbeat", name, member.member_id
        if runs and not is_parked and not _has_timer(context, session):
            return f"{member.member_id} has no session"
    return None


def _has_timer(context: ShardContext[GroupShard], key: tuple[str, ...]) -> bool:
    return key in context._timer_keys
