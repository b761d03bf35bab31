"""The table of all kinds of faults: the function of each."""

from __future__ import annotations

from kwire.sim.faults import administration, clocks, disks, links, machines, orders, rot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.sim.faults.nemesis import Nemesis

KINDS: dict[str, Callable[[Nemesis], None]] = {
    "kill": machines.kill,
    "power_cut": machines.power_cut,
    "clean_stop": machines.clean_stop,
    "pause": machines.pause,
    "cut": links.cut,
    "one_way": links.one_way,
    "isolate": links.isolate,
    "slow": links.slow,
    "reset": links.reset,
    "controller": machines.controller,
    "controller_pause": machines.controller_pause,
    "controller_power_cut": machines.controller_power_cut,
    "disk": disks.disk,
    "controller_disk": disks.controller_disk,
    "replay": orders.replay,
    "reassign": administration.reassign,
    "elect": administration.elect,
    "delete_records": administration.delete_records,
    "create_topic": administration.create_topic,
    "delete_topic": administration.delete_topic,
    "configure": administration.configure,
    "create_partitions": administration.create_partitions,
    "unclean_flag": administration.unclean_flag,
    "clock_jump": clocks.clock_jump,
    "log_dir_move": administration.log_dir_move,
    "bit_rot": rot.bit_rot,
    "stranger": orders.stranger,
}
"""The function of each kind of fault in `plan.py`; a test compares both lists."""
