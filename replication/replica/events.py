"""The events of a broker's own replicas: roles taken, fetchers started and ended.

replication/core/events.py explains the notation. Imported with the first role that a broker takes.
"""

from __future__ import annotations

from kwire.replication.core.events import DEBUG, INFO, EventType


class ReplicaEvent:
    """The events of replicas. Names are never reused for something else."""

    # --- Roles and fetchers

    ROLES_CHANGED = EventType(
        INFO, "new roles[: leads {leads}][; follows {follows}]", "controller_epoch"
    )
    """A LeaderAndIsr of the controller: what this broker leads and follows from now on, with leaders and leader epochs.
    One line for all partitions; text shows the first five of each, JSON all of them."""
    ROLES_ASSIGNED = EventType(
        DEBUG, "roles in new partitions[: leads {leads}][; follows {follows}]", "controller_epoch"
    )
    """The same for partitions that have just been created."""
    FETCHER_STARTED = EventType(DEBUG, "fetches from broker {leader} begin (fetcher {fetcher_id})")
    """The first partition that follows a broker: each leader has a fetcher, or `num.replica.fetchers` of them."""
    FETCHER_STOPPED = EventType(DEBUG, "fetches from broker {leader} end (fetcher {fetcher_id})")
    """No partition follows that broker any more, or this one stops."""
    FETCHER_PARTITIONS_ADDED = EventType(
        DEBUG, "fetched from broker {leader} from now on (fetcher {fetcher_id}): {partitions}"
    )
    """Partitions that follow another broker, or the same in a new leader epoch. `partitions`: their names."""
    FETCHER_PARTITIONS_REMOVED = EventType(
        DEBUG, "not fetched from broker {leader} any more (fetcher {fetcher_id}): {partitions}"
    )
    """Partitions that are led here now, stopped or deleted. `partitions`: their names."""
