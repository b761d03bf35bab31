"""Take a snapshot of the nodes of a cluster, and put one back.

All nodes are held before the first directory is copied (`kwire.control.node_files`), so the copies are of one point: a
request is either in all of them or was not answered. Held nodes answer nobody, for some milliseconds, and then go on; a
snapshot harms no client. A node that is paused, or whose process stands still, cannot complete its files: they are
copied as they are, and recovered at the restore as after a kill.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from kwire import errors
from kwire.backends.containers import Containers
from kwire.backends.launched import Launched
from kwire.backends.options import kwire_errors
from kwire.backends.standalone import Standalone
from kwire.launch.aside import Aside
from kwire.launch.joining import INCARNATION_FILE
from kwire.protocol.errors import KafkaError
from kwire.replication.log.checkpoints import CLEAN_SHUTDOWN, format_clean_shutdown
from kwire.server.errors import NodeError
from kwire.server.events import NodeEvent
from kwire.server.log_dirs import split_dirs
from kwire.snapshots import restoring, saved, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.aio import Cluster
    from kwire.backends.base import StartedBackend
    from kwire.snapshots.saved import Snapshot

    Saveable = Launched | Standalone | Containers

    Held = dict[int, dict[str, Any]]
    """By the id of a node that was held: its answer, `broker_epoch` and `incarnation`."""

_HOLD_SECONDS = 10.0


def launched(inside: StartedBackend) -> Saveable:
    """The nodes, as what snapshots know of them."""
    assert isinstance(inside, Launched | Standalone | Containers)
    return inside


def _is_standalone(inside: Saveable) -> bool:
    """Whether there is but one node."""
    return isinstance(inside, Standalone) or (
        isinstance(inside, Containers) and not inside.has_network
    )


# --- taking


async def take(inside: Saveable, path: str) -> Snapshot:
    """Save a snapshot in a directory. StartError: it could not be written, an earlier one there is whole."""
    data_dir, spec = inside.data_dir, inside.spec
    standalone = _is_standalone(inside)
    loop = asyncio.get_running_loop()
    held: Held = {}
    started = loop.time()
    try:
        with kwire_errors("snapshot"):
            await _hold(inside.nodes(), held)

        def copy(target: str) -> int:
            size = 0
            if isinstance(inside, Containers):
                return _copy_containers(inside, held, target)
            for number, directory in enumerate(split_dirs(data_dir)):
                place = saved.place(target, number, standalone=standalone)
                os.makedirs(place, 0o700, exist_ok=True)
                size += _copy(inside.nodes(), held, directory, place, standalone=standalone)
            return size

        about = {
            "cluster_id": inside.cluster_id,
            "first_id": spec.node.node_id,
            "brokers": spec.brokers,
            "controllers": 0 if standalone else spec.controllers,
            "log_dirs": len(split_dirs(data_dir)),
            "of_containers": isinstance(inside, Containers),
        }
        found = await Aside().run(lambda: saved.save(path, copy, **about))
    except OSError as error:
        raise errors.StartError(f"snapshot {path}: {error}") from None
    finally:
        await _release(inside.nodes(), held)
    held_ms = round((loop.time() - started) * 1000, 1)
    size_bytes = found.size_bytes
    inside.events.log(
        NodeEvent.SNAPSHOT_SAVED, snapshot=found.name, size_bytes=size_bytes, held_ms=held_ms
    )
    return found


async def _hold(handles: list[Any], held: Held) -> None:
    """Hold the nodes that answer; fill `held` with what they answer. NodeError, KafkaError."""

    async def hold(handle: Any) -> None:
        # Shielded: a late answer must not be read as the answer to the next request.
        asking = asyncio.shield(handle.ask("POST", "/v1/files/hold"))
        held[handle.node_id] = {}
        try:
            held[handle.node_id] = await asyncio.wait_for(asking, _HOLD_SECONDS)
        except TimeoutError:
            raise NodeError(f"node {handle.node_id} does not answer") from None

    answering = [handle for handle in handles if handle.answers]
    results = await asyncio.gather(*map(hold, answering), return_exceptions=True)
    for failure in results:
        if isinstance(failure, BaseException):
            raise failure


async def _release(handles: list[Any], held: Held) -> None:
    """Let the nodes go on: brokers first, whose heartbeats then reach a controller that looks for them."""
    for handle in reversed(handles):
        if handle.node_id in held and handle.running:
            with suppress(NodeError, KafkaError, errors.KwireError, TimeoutError):
                asking = asyncio.shield(
                    handle.ask("POST", "/v1/files/release", {"resume": not handle.paused})
                )
                await asyncio.wait_for(asking, _HOLD_SECONDS)


def _copy(handles: list[Any], held: Held, directory: str, target: str, *, standalone: bool) -> int:
    """Copy what all nodes have in a data directory; return the bytes of the files. OSError."""
    if standalone:
        size = tree.copy_into(directory, target, share=True)
        _complete(target, held[handles[0].node_id])
        return size
    by_path = {path: handle for handle in handles for path in split_dirs(handle.log_dir)}
    size = 0
    for name in filter(restoring.is_data, os.listdir(directory)):
        path = os.path.join(directory, name)
        handle = by_path.get(path)  # None: of a broker that is not started in this run
        to = os.path.join(target, name)
        size += tree.copy_tree(path, to, share=handle is None or not handle.paused)
        of_broker = held.get(handle.node_id, {}) if handle is not None else {}
        if of_broker.get("incarnation"):
            _complete(to, of_broker)
            with open(os.path.join(to, INCARNATION_FILE), "w") as text:
                text.write(of_broker["incarnation"])
        if name == restoring.CONTROLLER:
            _forget_addresses(to)
    return size


def _copy_containers(inside: Containers, held: Held, target: str) -> int:
    from kwire.backends.snapshots import in_containers

    for node_id, path in in_containers.copy(inside, target).items():
        of_broker = held.get(node_id, {})
        if of_broker.get("broker_epoch") is not None:
            _complete(path, of_broker)
            if of_broker["incarnation"]:
                with open(os.path.join(path, INCARNATION_FILE), "w") as text:
                    text.write(of_broker["incarnation"])
    return tree.size_of(target)


def _complete(directory: str, of_broker: dict[str, Any]) -> None:
    """Say in a copy of a broker's directory that it is as after a clean stop."""
    path = os.path.join(directory, CLEAN_SHUTDOWN)
    with suppress(FileNotFoundError):
        os.unlink(path)  # it may be a link
    with open(path, "wb") as file:
        file.write(format_clean_shutdown(of_broker["broker_epoch"]))


def _forget_addresses(directory: str) -> None:
    """Take the brokers' addresses out of the journal in a copy of the controllers' directory: a controller that starts
    with it must not send orders to the brokers of the cluster that it is a copy of. OSError."""
    from kwire.replication.controller.claim import ClaimedJournal
    from kwire.server.file_log_store import FileLogStore

    store = FileLogStore(directory, fsync=False)
    try:
        journal = ClaimedJournal(store)
        journal.claim()
        found = {key: value for key, value in journal.replay() if key.startswith("broker/")}
        if found:
            journal.append(
                [(key, {**value, "endpoints": []}) for key, value in found.items() if value]
            )
        journal.close()
    finally:
        store.close()


# --- restoring


async def put_back(cluster: Cluster, inside: Saveable, snapshot: Snapshot) -> None:
    """Restart all nodes with the data of a snapshot. ClusterStateError: it is of another shape; StartError."""
    data_dir = inside.data_dir
    _check_shape(inside, snapshot)
    for node in (*cluster.controllers, *cluster.brokers):
        await node.resume()
    await cluster.network.undo()
    await cluster.faults.reset()
    await cluster.clock.restore()
    await cluster.clock.restore()
    inside.events.log(NodeEvent.SNAPSHOT_RESTORED, snapshot=snapshot.name)
    try:
        if isinstance(inside, Containers):
            from kwire.backends.snapshots import in_containers

            await in_containers.restart(inside, snapshot)
            return
        await inside.restart(
            lambda: restoring.replace(data_dir, snapshot), lambda: restoring.delete_old(data_dir)
        )
    except OSError as error:
        raise errors.StartError(f"snapshot {snapshot.path}: {error}") from None


def _check_shape(inside: Saveable, snapshot: Snapshot) -> None:
    spec = inside.spec
    first = spec.node.node_id
    if snapshot.of_containers != isinstance(inside, Containers):
        kinds = ("nodes without containers", "containers")
        is_of, has = kinds[snapshot.of_containers], kinds[not snapshot.of_containers]
        raise errors.ClusterStateError(
            f"snapshot {snapshot.name} is of {is_of}, this cluster of {has}"
        )
    if snapshot.is_standalone != _is_standalone(inside):
        kinds = ("a cluster with controllers beside its brokers", "a standalone broker")
        has, is_of = kinds[not snapshot.is_standalone], kinds[snapshot.is_standalone]
        raise errors.ClusterStateError(f"snapshot {snapshot.name} is of {is_of}, this is {has}")
    count = len(split_dirs(inside.data_dir))
    if snapshot.log_dirs != count:
        raise errors.ClusterStateError(
            f"snapshot {snapshot.name} has {snapshot.log_dirs} log directories, this cluster has {count}"
        )
    if (snapshot.first_id, snapshot.brokers) != (first, spec.brokers):
        has, is_of = _ids(first, spec.brokers), _ids(snapshot.first_id, snapshot.brokers)
        raise errors.ClusterStateError(
            f"snapshot {snapshot.name} is of {is_of}, this cluster has {has}"
        )


def _ids(first: int, count: int) -> str:
    return f"broker {first}" if count == 1 else f"brokers {first} to {first + count - 1}"
