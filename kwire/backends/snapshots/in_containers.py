"""Snapshots of a cluster of containers: their data directories come and go as tar archives, through the engine.

A restore puts what `kwire.snapshots.restoring` calls a decided one into each container while it is down; its node
finishes that at its start. The functions that are no coroutines run on a thread.
"""

from __future__ import annotations

import asyncio
import os
import tarfile
from tempfile import TemporaryFile

from kwire.snapshots import restoring, saved, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kwire.backends.container import ContainerHandle
    from kwire.backends.containers import Containers
    from kwire.snapshots.saved import Snapshot

_DATA_DIR = "/var/lib/kafka/data"


def _with_data(inside: Containers) -> list[tuple[str, ContainerHandle]]:
    """The nodes, each with the name of its directory in a snapshot; of controllers, who share one, the first."""
    if not inside.has_network:
        return [("", handle) for handle in inside.handles.values()]
    controllers = list(inside.controllers.values())[:1]
    found = [(restoring.CONTROLLER, handle) for handle in controllers]
    return found + [
        (f"{restoring.BROKER}{each}", handle) for each, handle in inside.handles.items()
    ]


def copy(inside: Containers, data: str) -> dict[int, str]:
    """Copy the data of all nodes; return where that of each is. OSError."""
    top = saved.place(data, 0, standalone=not inside.has_network)
    found = {}
    for name, handle in _with_data(inside):
        found[handle.node_id] = path = os.path.join(top, name)
        os.makedirs(path, 0o700, exist_ok=True)
        _fetch(handle.container, path)
    return found


def _fetch(container: Any, target: str) -> None:
    with TemporaryFile() as file:
        for part in container.get_archive(_DATA_DIR)[0]:
            file.write(part)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            for member in archive:
                _, *parts = member.name.split("/")
                is_wanted = all(tree.is_data(part) and tree.is_kept(part) for part in parts)
                if not parts or not is_wanted or ".." in parts:
                    continue
                path = os.path.join(target, *parts)
                if member.isdir():
                    os.makedirs(path, exist_ok=True)
                elif (content := archive.extractfile(member)) is not None:
                    with open(path, "wb") as copied:
                        copied.write(content.read())
                    os.utime(path, (member.mtime, member.mtime))


async def restart(inside: Containers, snapshot: Snapshot) -> None:
    """Kill all containers, give them the data of a snapshot, and start them again. StartError."""
    nodes = [*inside.controllers.values(), *inside.handles.values()]
    for handle in nodes:
        if handle.answers:
            await inside.keep_failures(handle.node_id)
    for handle in nodes:
        await handle.kill()
    top = saved.place(snapshot.data, 0, standalone=snapshot.is_standalone)
    for name, handle in _with_data(inside):
        source = os.path.join(top, name)
        await inside.call(lambda of=handle.container, path=source: _put(of, path))  # type: ignore[misc]
    for handle in inside.controllers.values():  # one by one: the first finishes what is theirs
        await handle.start()
    await asyncio.gather(*(handle.start() for handle in inside.handles.values()))


def _put(container: Any, source: str) -> None:
    owner = _owner(container)

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid, member.gid = owner
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() else 0o644
        return member

    with TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name in restoring.DECIDED_DIRS:
                made = tarfile.TarInfo(name)
                made.type = tarfile.DIRTYPE
                archive.addfile(owned(made))
            for name in os.listdir(source):
                archive.add(
                    os.path.join(source, name), f"{restoring.DECIDED_DIRS[-1]}/{name}", filter=owned
                )
        file.seek(0)
        container.put_archive(_DATA_DIR, file)


def _owner(container: Any) -> tuple[int, int]:
    """The ids of the user and the group that the data directory belongs to."""
    stream = container.get_archive(_DATA_DIR)[0]
    head = b""
    for part in stream:
        head += part
        if len(head) >= tarfile.BLOCKSIZE:
            break
    stream.close()
    found = tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "replace")
    return found.uid, found.gid
