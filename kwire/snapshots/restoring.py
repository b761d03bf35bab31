"""Put the data of a snapshot in the place of a cluster's, while none of its nodes runs.

The new directories are made beside the old (`.kwire-restore.new`); renaming that to `.kwire-restore` is the decision.
From then on the old ones are moved away, the new ones moved in, and the old deleted. A process that is killed before
the decision has changed nothing; after it, the next start of the cluster goes on (`finish`).
"""

from __future__ import annotations

import os

from kwire.server.errors import NodeError
from kwire.snapshots.tree import copy_tree, delete_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.snapshots.saved import Snapshot

CONTROLLER, BROKER = "controller", "broker-"
_DECIDED = ".kwire-restore"
_STAGED = f"{_DECIDED}.new"
_ENDED = f"{_DECIDED}.old"
_OLD, _NEW, _MOVED = "old", "new", "moved"


def fill(directory: str, snapshot: Snapshot) -> None:
    """Write the data of a snapshot into the empty data directory of a cluster. OSError."""
    for name in os.listdir(snapshot.data):
        copy_tree(os.path.join(snapshot.data, name), os.path.join(directory, name), share=True)


def fill_new(directory: str, snapshot: Snapshot) -> None:
    """Write the data of a snapshot into a data directory before the first start in it. NodeError: it cannot be
    written, or there is data already."""
    try:
        os.makedirs(directory, exist_ok=True)
        there = sorted(name for name in os.listdir(directory) if is_data(name))
        if there:
            raise NodeError(
                f"data directory {directory} holds a cluster already ({', '.join(there)})"
            )
        replace(directory, snapshot)
    except OSError as error:
        raise NodeError(f"snapshot {snapshot.path}: {error}") from None


def replace(directory: str, snapshot: Snapshot) -> None:
    """Replace the data in the data directory of a cluster. OSError before the decision: the old data is whole."""
    staged = os.path.join(directory, _STAGED)
    delete_tree(staged)
    try:
        os.makedirs(os.path.join(staged, _OLD))
        os.mkdir(os.path.join(staged, _NEW))
        fill(os.path.join(staged, _NEW), snapshot)
        os.rename(staged, os.path.join(directory, _DECIDED))
    except BaseException:
        delete_tree(staged)
        raise
    finish(directory)


def is_open(directory: str) -> bool:
    """Whether a replacement has left something for `finish`."""
    return any(
        os.path.exists(os.path.join(directory, name)) for name in (_DECIDED, _STAGED, _ENDED)
    )


def finish(directory: str) -> None:
    """Finish a replacement that was decided; delete what one that was not, or was ended, has left. OSError."""
    decided = os.path.join(directory, _DECIDED)
    if os.path.isdir(decided):
        old, new = os.path.join(decided, _OLD), os.path.join(decided, _NEW)
        moved = os.path.join(decided, _MOVED)
        if not os.path.exists(moved):
            for name in os.listdir(directory):
                if is_data(name):
                    os.rename(os.path.join(directory, name), os.path.join(old, name))
            os.mkdir(moved)
        for name in os.listdir(new):
            os.rename(os.path.join(new, name), os.path.join(directory, name))
        os.rename(decided, os.path.join(directory, _ENDED))
    for name in (_STAGED, _ENDED):
        delete_tree(os.path.join(directory, name))


def is_data(name: str) -> bool:
    """Whether an entry of the data directory of a cluster is a node's."""
    return name == CONTROLLER or name.startswith(BROKER)
