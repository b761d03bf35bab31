"""The events of a broker's own replicas: roles taken, fetchers started and ended.

replication/core/events.py explains the notation. Imported with the first role that a broker takes.
"""

from __future__ import annotations

from kwire.replication.core.events import DEBUG, INFO, EventType

_ROLES = "[: leads {leads}][; follows {follows}]"
_NAMES_SHOWN = 5


def first_names(names: list[str]) -> str | None:
    """The first names and how many more there are, as text; None without names."""
    more = len(names) - _NAMES_SHOWN
    text = ", ".join(names[:_NAMES_SHOWN])
    return f"{text} and {more} more" if more > 0 else text or None


class ReplicaEvent:
    """The events of replicas. Names are never reused for something else."""

    # --- Roles and fetchers

    ROLES_CHANGED = EventType(INFO, f"new roles{_ROLES}", "led", "followed", "controller_epoch")
    """A LeaderAndIsr of the controller: what this broker leads and follows from now on, with leaders and leader epochs.
    One line for all partitions; `leads` and `follows` have the first five, `led` and `followed` all of them."""
    ROLES_ASSIGNED = EventType(
        DEBUG, f"roles in new partitions{_ROLES}", "led", "followed", "controller_epoch"
    )
    """The same for partitions that have just been created."""
    FETCHER_STARTED = EventType(DEBUG, "fetches from broker {leader} begin (fetcher {fetcher_id})")
    """The first partition that follows a broker: each leader has a fetcher, or `num.replica.fetchers` of them."""
    FETCHER_STOPPED = EventType(DEBUG, "fetches from broker {leader} end (fetcher {fetcher_id})")
    """No partition follows that broker any more, or this one stops."""
    FETCHER_PARTITIONS_ADDED = EventType(
        DEBUG,
        "fetched from broker {leader} from now on (fetcher {fetcher_id}): {partitions}",
        "names",
    )
    """Partitions that follow another broker, or in a new leader epoch. `partitions`: the first five; `names`: all."""
    FETCHER_PARTITIONS_REMOVED = EventType(
        DEBUG,
        "not fetched from broker {leader} any more (fetcher {fetcher_id}): {partitions}",
        "names",
    )
    """Partitions that are led here now, stopped or deleted. `partitions`: the first five; `names`: all."""
