"""The group coordinator: classic groups and committed offsets on `__consumer_offsets`.

`__all__` names the modules that other rooms may import.
"""

__all__ = [
    "config",
    "events",
    "group_coordinator",
    "member_context",
    "offset_store",
    "offsets",
    "removed_groups",
    "transactional_offsets",
]
