"""The group coordinator: classic groups and committed offsets on `__consumer_offsets`.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "classic_group",
    "config",
    "events",
    "group_coordinator",
    "group_shard",
    "member_context",
    "offset_store",
    "offsets",
    "removed_groups",
    "transactional_offsets",
]
