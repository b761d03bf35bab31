"""Clusters that start with the data of a snapshot: copies of one that runs, and new ones."""

from __future__ import annotations

import os

from kwire import errors
from kwire.backends.containers import Containers
from kwire.backends.launched import Launched
from kwire.backends.options import NodeLauncher
from kwire.backends.snapshots import taking
from kwire.snapshots import saved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.aio import Cluster
    from kwire.backends.snapshots.taking import Saveable
    from kwire.snapshots.saved import Snapshot

_OF_ONE = ("log.dir", "log.dirs", "advertised.listeners")


def of_new_cluster(snapshot: Snapshot | str | os.PathLike[str]) -> Snapshot:
    """The snapshot that a new cluster starts with. ClusterStateError: no such snapshot, or it has other broker ids."""
    path = snapshot.path if isinstance(snapshot, saved.Snapshot) else os.fspath(snapshot)
    found = saved.read(path)
    if found.of_containers:
        raise errors.ClusterStateError(
            f"snapshot {found.name} is of containers, and goes back into those only"
        )
    if found.is_standalone:
        raise errors.ClusterStateError(
            f"snapshot {found.name} is of a standalone broker: kwire up --snapshot {found.path} starts one with it"
        )
    if found.first_id != 1:
        raise errors.ClusterStateError(
            f"snapshot {found.name}: its first broker has the id {found.first_id}, not 1;"
            f" kwire up --snapshot {found.path} --first-id {found.first_id} starts a cluster with it"
        )
    return found


def start_with(cluster: Cluster, snapshot: Snapshot) -> None:
    """Let a cluster, not yet started, start with a snapshot. NotSupportedError."""
    inside = taking.launched(cluster.inside)
    if not isinstance(inside, Launched):
        raise errors.NotSupportedError("from_snapshot: not possible with containers")
    inside.launcher.snapshot = snapshot


def launcher_of(launched: Saveable) -> NodeLauncher:
    """A launcher with the options of a cluster, but at other ports and in a temporary directory. NotSupportedError."""
    if isinstance(launched, Containers):
        raise errors.NotSupportedError("fork: not possible with containers")
    given = launched.given if isinstance(launched, Launched) else None
    if given is None:
        raise errors.NotSupportedError(
            "fork: this cluster runs by `kwire up`; kwire up --snapshot starts another one"
        )
    values: dict[str, Any] = {
        key: value for key, value in given.node.values.items() if key not in _OF_ONE
    }
    if "listeners" in values:
        values["listeners"] = ",".join(
            f"{each.rpartition(':')[0]}:0" for each in values["listeners"].split(",")
        )
    return NodeLauncher(given.replace(node=given.node.replace(values=values)), None)


def backend_of(launcher: NodeLauncher) -> Launched:
    """The nodes of a cluster that is to be started."""
    return Launched(launcher, launcher.spec)
