"""Handlers of a cluster's control API about snapshots. They go by names only: no request says where files are written.

A snapshot is a JSON object: `name`, `path`, `created_ms`, `cluster_id`, `first_id`, `brokers`, `controllers`,
`size_bytes`.
"""

from __future__ import annotations

from kwire.control.errors import ControlError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.aio import Cluster
    from kwire.snapshots.saved import Snapshot


async def save(cluster: Cluster, name: str | None) -> dict[str, Any]:
    """Save a snapshot; return it."""
    return (await cluster.snapshot(name)).to_json()


async def listed(cluster: Cluster) -> dict[str, Any]:
    """The snapshots that are kept in the data directory."""
    return {"snapshots": [each.to_json() for each in await cluster.snapshots()]}


async def one(cluster: Cluster, name: str) -> dict[str, Any]:
    """A snapshot that is kept."""
    return (await _find(cluster, name)).to_json()


async def restore(cluster: Cluster, name: str) -> dict[str, Any]:
    """Go back to a snapshot; return it."""
    found = await _find(cluster, name)
    await cluster.restore(found)
    return found.to_json()


async def remove(cluster: Cluster, name: str) -> dict[str, Any]:
    """Delete a snapshot; return what it was."""
    found = await _find(cluster, name)
    await cluster.delete_snapshot(found)
    return found.to_json()


async def _find(cluster: Cluster, name: str) -> Snapshot:
    from kwire.snapshots.saved import checked_name

    checked_name(name)
    for each in await cluster.snapshots():
        if each.name == name:
            return each
    raise ControlError(404, f"there is no snapshot {name}")
