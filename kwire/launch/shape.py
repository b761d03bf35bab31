"""Detects the layout of a data directory, a standalone broker's or a cluster's, and refuses a mismatch.

Kafka has no counterpart. A standalone broker has its logs and its controller's journal in the
directory itself; `kwire up --brokers N` and `kwire.Cluster` have `controller`, `broker-1`, … below
it; a container that is broker and controller of a cluster has its logs in it and `kwire-controller`
below. Partitions that the controller does not know would be set aside as stray, so a start on the
wrong layout fails with one line. Mismatches that the stores detect themselves (another node's
directory, one of several) are refused by replication/log_dirs/manager.py and broker.py.

Invariant: checks only read; the sole change is the lock of a cluster.
"""

from __future__ import annotations

import os

from kwire.server.errors import NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

CONTROLLER, BROKER = "controller", "broker-"
_CONTAINERS_CONTROLLER = "kwire-controller"  # docker/cluster_node.py
_IDENTITY = "meta.properties"
_SINGLE_JOURNAL = "kwire-controller.journal"  # replication/controller/journal.py
_GENERATIONS = "kwire-controller-"  # replication/controller/claim.py


def check_standalone(dirs: list[str]) -> None:
    """Check the directories of a standalone broker. NodeError when one holds, or is a part of, a
    cluster's data."""
    for path in dirs:
        brokers = brokers_in(path)
        if brokers or _has(path, CONTROLLER, _IDENTITY):
            names = [CONTROLLER] if _has(path, CONTROLLER, _IDENTITY) else []
            names += [f"{BROKER}{broker}" for broker in brokers]
            raise NodeError(
                f"data directory {path} holds a cluster ({', '.join(names)}): {_how(brokers)}"
            )
        if _has(path, _CONTAINERS_CONTROLLER, _IDENTITY):
            raise NodeError(
                f"data directory {path} belongs to a node of a cluster, with its controller"
                f" ({_CONTAINERS_CONTROLLER}): start it as that"
            )
        parent, name = os.path.split(path)
        broker = _broker_id(name)
        if broker is None or not _has(path, _IDENTITY) or not _has(parent, CONTROLLER, _IDENTITY):
            continue
        if _cluster_id(path) == _cluster_id(os.path.join(parent, CONTROLLER)):
            raise NodeError(
                f"data directory {path} belongs to broker {broker} of a cluster, whose controller's journal is in"
                f" {os.path.join(parent, CONTROLLER)}: use {parent}, and {_how(brokers_in(parent))}"
            )


def check_cluster(dirs: list[str]) -> None:
    """Check the directories of a cluster. NodeError when they hold another layout or are incomplete."""
    has_controller = _has(dirs[0], CONTROLLER, _IDENTITY)
    for path in dirs:
        if _has(path, _SINGLE_JOURNAL):
            if not has_controller:
                raise NodeError(
                    f"data directory {path} holds the data of a single broker: start that without --brokers,"
                    " or use another directory for a cluster"
                )
        elif _has(path, _IDENTITY) and not has_controller:
            raise NodeError(
                f"data directory {path} belongs to one node, by its {_IDENTITY}: use another directory for a cluster"
            )
        brokers = brokers_in(path)
        if brokers and not has_controller:
            names = ", ".join(f"{BROKER}{broker}" for broker in brokers)
            raise NodeError(
                f"data directory {path} holds {names} of a cluster, but {os.path.join(dirs[0], CONTROLLER)} is not"
                " there: name all its directories, that with the controller first (-c log.dirs=…)"
            )
        for broker in brokers:
            name = f"{BROKER}{broker}"
            remembered = _properties(os.path.join(path, name)).get("kwire.log.dirs", "").split(",")
            if len(remembered) > len(dirs):
                names = ",".join(each.removesuffix(f"/{name}") for each in remembered)
                raise NodeError(
                    f"data directory {path} was one of {len(remembered)} log directories ({names}): give all with"
                    " -c log.dirs=…, a lost one as an empty directory; to go on without, delete the line"
                    f" kwire.log.dirs from each broker's {_IDENTITY}"
                )


def check_node(dirs: list[str], *, is_controller: bool) -> None:
    """Check the directories of one node of a cluster in its own process. NodeError when a standalone
    broker has its data there."""
    for path in dirs:
        if not _has(path, _SINGLE_JOURNAL):
            continue
        names = _names(path)
        if is_controller and (
            any(name.startswith(_GENERATIONS) for name in names)
            or not any(_has(path, name, "partition.metadata") for name in names)
        ):
            continue
        raise NodeError(
            f"data directory {path} holds the data of a single broker: start that as it was (kwire up without"
            " --brokers, a container without other voters), or use another directory"
        )


def brokers_in(path: str) -> list[int]:
    """The sorted ids of the cluster's brokers that have data below a directory."""
    found = {_broker_id(name): name for name in _names(path) if name.startswith(BROKER)}
    return sorted(
        broker
        for broker, name in found.items()
        if broker is not None and _has(path, name, _IDENTITY)
    )


class ClusterLock:
    """Locks on a cluster's directories against standalone brokers and other clusters."""

    def __init__(self, dirs: Iterable[str]) -> None:
        """NodeError when another process holds a lock. Of several directories those that cannot be
        used are skipped: they are offline."""
        from errno import EAGAIN

        from kwire.server.directory_lock import lock_directory
        from kwire.server.log_dirs import load_error

        self._descriptors: list[int] = []
        for number, path in enumerate(dirs):
            try:
                os.makedirs(path, exist_ok=True)
                self._descriptors.append(lock_directory(path)[0])
            except OSError as error:
                if number == 0 or error.errno == EAGAIN:
                    self.release()
                    raise load_error(path, error) from None

    def release(self) -> None:
        """Release all locks."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def _how(brokers: list[int]) -> str:
    if len(brokers) < 2 or brokers[0] < 1:
        return f"it is of kwire.Cluster(brokers={len(brokers) or 1}), or of kwire up --brokers"
    first = "" if brokers[0] == 1 else f" --first-id {brokers[0]}"
    return f"start it with --brokers {brokers[-1] - brokers[0] + 1}{first}"


def _broker_id(name: str) -> int | None:
    number = name.removeprefix(BROKER)
    if number == name or not (number.isascii() and number.isdigit()) or len(number) > 10:
        return None
    return int(number)


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _has(*parts: str) -> bool:
    return os.path.exists(os.path.join(*parts))


def _cluster_id(path: str) -> str | None:
    return _properties(path).get("cluster.id")


def _properties(path: str) -> dict[str, str]:
    try:
        with open(os.path.join(path, _IDENTITY), encoding="utf-8", errors="replace") as file:
            pairs = [line.strip().partition("=") for line in file]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in pairs}
