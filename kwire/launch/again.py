"""Restarts a standalone broker in its process, at its addresses, for the restore of a snapshot.

Its owner (`up.py`) and its control API keep the first `NodeRunner` and go by its `latest`.
"""

from __future__ import annotations

from contextlib import ExitStack

from kwire.launch.aside import Aside
from kwire.launch.node_runner import NodeRunner
from kwire.launch.shape import ClusterLock
from kwire.server.errors import NodeError, SettingsError
from kwire.server.log_dirs import split_dirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


async def restart(first: NodeRunner, between: Callable[[], None]) -> None:
    """Kill the broker, run a function on a thread, start the broker again. What the function raises is raised after the
    start. NodeError, SettingsError: nothing runs, and the owner has been told."""
    old = first.latest
    values = {**old.spec.values, "listeners": old.listeners}
    url = old.node.connection_log.control_url
    new = NodeRunner(old.spec.replace(values=values, again=True, control_url=url))
    new.on_halted = old.on_halted
    old.kill()
    first.latest = new
    try:
        with ExitStack() as held:
            if not old.spec.temporary:  # which its owner has locked
                held.callback(ClusterLock(split_dirs(old.spec.data_dir)).release)
            await Aside().run(between)
    finally:
        try:
            await new.start()
        except (NodeError, SettingsError) as error:
            if new.on_halted is not None:
                new.on_halted(str(error))
            raise
