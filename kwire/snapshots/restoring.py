"""The data of a snapshot in the place of a cluster's, while none of its nodes runs.

The new directories are made beside the old (`.kwire-restore.new`); renaming that to `.kwire-restore` is the decision,
of several log directories that in the first one, which is renamed last. From then on the old ones are moved away, the
new ones moved in, and the old deleted. A process that is killed before the decision has changed nothing; after it, the
next start of the cluster goes on (`finish`).

A data directory is that of a cluster or of a standalone broker, or several log directories with commas between.
"""

from __future__ import annotations

import os
from contextlib import suppress

from kwire.server.errors import NodeError
from kwire.server.log_dirs import split_dirs
from kwire.snapshots import saved, tree
from kwire.snapshots.tree import RESTORE, copy_into, copy_tree, delete_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.snapshots.saved import Snapshot

CONTROLLER, BROKER = "controller", "broker-"
_DECIDED = RESTORE
_STAGED = f"{_DECIDED}.new"
_ENDED = f"{_DECIDED}.old-"
_OLD, _NEW, _MOVED, _OF_STANDALONE = "old", "new", "moved", "standalone"
DECIDED_DIRS = tuple(
    os.path.join(_DECIDED, *parts) for parts in ((), (_OLD,), (_OF_STANDALONE,), (_NEW,))
)
"""What a decided replacement consists of in the directory of one node; the data is in the last."""


def fill(directory: str, snapshot: Snapshot, number: int = 0) -> None:
    """Write the data of a snapshot, of the log directory of this number, into an empty directory. OSError."""
    source = saved.place(snapshot.data, number, standalone=snapshot.is_standalone)
    if snapshot.is_standalone:
        copy_into(source, directory, share=True)
        return
    for name in filter(is_data, os.listdir(source)):
        copy_tree(os.path.join(source, name), os.path.join(directory, name), share=True)


def fill_new(data_dir: str, snapshot: Snapshot) -> None:
    """Write the data of a snapshot into a data directory before the first start in it. NodeError: it cannot be
    written, there is data already, or it has another number of log directories."""
    dirs = split_dirs(data_dir)
    if len(dirs) != snapshot.log_dirs:
        raise NodeError(
            f"snapshot {snapshot.name} has {snapshot.log_dirs} log directories, not {len(dirs)}:"
            f" name as many ({data_dir})"
        )
    try:
        for directory in dirs:
            os.makedirs(directory, exist_ok=True)
            is_ours = tree.is_data if snapshot.is_standalone else is_data
            there = sorted(filter(is_ours, os.listdir(directory)))
            if there:
                what = "data" if snapshot.is_standalone else "a cluster"
                shown = ", ".join(there[:3]) + (", …" if len(there) > 3 else "")
                raise NodeError(f"data directory {directory} holds {what} already ({shown})")
        replace(data_dir, snapshot)
        delete_old(data_dir)
    except OSError as error:
        raise NodeError(f"snapshot {snapshot.path}: {error}") from None


def begin_with(data_dir: str, snapshot: Snapshot | None) -> None:
    """Before the start of a standalone broker: finish a restore in which its process was killed, then write the data of
    a snapshot, if there is one. NodeError."""
    try:
        finish(data_dir)
    except OSError as error:
        raise NodeError(
            f"data directory {data_dir}: a restore cannot be finished: {error}"
        ) from None
    if snapshot is not None:
        fill_new(data_dir, snapshot)


def replace(data_dir: str, snapshot: Snapshot) -> None:
    """Replace the data in a data directory; `delete_old` is for the rest. OSError before the decision: it is whole."""
    dirs = split_dirs(data_dir)
    try:
        for number, directory in enumerate(dirs):
            staged = os.path.join(directory, _STAGED)
            delete_tree(staged)
            os.makedirs(os.path.join(staged, _OLD))
            os.mkdir(os.path.join(staged, _NEW))
            if snapshot.is_standalone:
                os.mkdir(os.path.join(staged, _OF_STANDALONE))
            fill(os.path.join(staged, _NEW), snapshot, number)
        for directory in reversed(dirs):
            os.rename(os.path.join(directory, _STAGED), os.path.join(directory, _DECIDED))
    except BaseException:
        _delete_undecided(dirs)
        raise
    _go_on(dirs)


def is_open(data_dir: str) -> bool:
    """Whether a replacement has left something for `finish`."""
    return any(map(tree.has_restore, split_dirs(data_dir)))


def finish(data_dir: str) -> None:
    """Finish a replacement that was decided; delete what one that was not, or was ended, has left. OSError."""
    dirs = split_dirs(data_dir)
    _go_on(dirs)
    _delete_undecided(dirs)
    delete_old(data_dir)


def _go_on(dirs: list[str]) -> None:
    if os.path.isdir(os.path.join(dirs[0], _DECIDED)):
        for directory in reversed(dirs):  # the first one's is the decision until all are done
            _move(directory)


def _move(directory: str) -> None:
    decided = os.path.join(directory, _DECIDED)
    if not os.path.isdir(decided):
        return
    old, new = os.path.join(decided, _OLD), os.path.join(decided, _NEW)
    moved = os.path.join(decided, _MOVED)
    of_standalone = os.path.exists(os.path.join(decided, _OF_STANDALONE))
    if not os.path.exists(moved):
        for name in filter(tree.is_data if of_standalone else is_data, os.listdir(directory)):
            os.rename(os.path.join(directory, name), os.path.join(old, name))
        os.mkdir(moved)
    for name in os.listdir(new):
        os.rename(os.path.join(new, name), os.path.join(directory, name))
    os.rename(decided, os.path.join(directory, f"{_ENDED}{os.urandom(4).hex()}"))


def _delete_undecided(dirs: list[str]) -> None:
    is_decided = os.path.isdir(os.path.join(dirs[0], _DECIDED))
    for directory in dirs:
        for name in (_STAGED,) if is_decided else (_STAGED, _DECIDED):
            delete_tree(os.path.join(directory, name))


def delete_old(data_dir: str) -> None:
    """Delete the data that was replaced. Another replacement may begin meanwhile, and end."""
    for directory in split_dirs(data_dir):
        with suppress(OSError):
            for name in os.listdir(directory):
                if name.startswith(_ENDED):
                    delete_tree(os.path.join(directory, name))


def is_data(name: str) -> bool:
    """Whether an entry of the data directory of a cluster is a node's."""
    return name == CONTROLLER or name.startswith(BROKER)
