"""Names that requests select by: events and APIs. An unknown one is refused, it would match nothing."""

from __future__ import annotations

from kwire.names import did_you_mean

EVENT, API = "event", "API"


def known_names(kind: str) -> list[str]:
    """All names of a kind, EVENT or API."""
    if kind == API:
        from kwire.protocol.api import ApiKey
        from kwire.recent import CLOSED

        return [*(key.api_name for key in ApiKey), CLOSED]
    from kwire.coordinator.events import GroupEvent
    from kwire.replication.core.events import Event, EventType
    from kwire.replication.replica.events import ReplicaEvent
    from kwire.server.events import NodeEvent

    lists = (vars(events).values() for events in (Event, GroupEvent, NodeEvent, ReplicaEvent))
    return [each.name for events in lists for each in events if isinstance(each, EventType)]


def known_name(kind: str, name: str) -> str:
    """A name as kwire writes it, in whatever case it was given. ValueError names the nearest one.

    An API may have its version behind it: "Fetch v12"."""
    known = known_names(kind)
    given, version = name, ""
    if kind == API:
        given, separator, number = name.rpartition(" v")
        if separator and number.isascii() and number.isdigit():
            version = f" v{number}"
        else:
            given = name
    for each in known:
        if each.lower() == given.lower():
            return each + version
    raise ValueError(f"there is no {kind} {name[:100]}{did_you_mean(given, known)}")
