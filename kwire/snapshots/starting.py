"""`kwire up --snapshot`: how many brokers and controllers it starts, and where."""

from __future__ import annotations

from kwire import errors
from kwire.server.errors import SettingsError
from kwire.snapshots import saved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def with_shape(
    path: str, options: dict[str, Any], first_id: int | None, data_dir: str | None
) -> int:
    """Put a snapshot, and its number of brokers and controllers, into the options of `kwire up`; return the id of its
    first broker. SettingsError: no such snapshot, or other numbers are given."""
    try:
        found = options["snapshot"] = saved.read(path)
    except errors.ClusterStateError as error:
        raise SettingsError(str(error)) from None
    if found.of_containers:
        raise SettingsError(
            f"snapshot {found.name} is of containers, and goes back into those only"
        )
    for name, number in (("brokers", found.brokers), ("controllers", found.controllers or 1)):
        if options[name] not in (1, number):  # 1: not given
            raise SettingsError(f"--{name} {options[name]}: snapshot {found.name} has {number}")
        options[name] = number
    if first_id not in (None, found.first_id):
        raise SettingsError(
            f"--first-id {first_id}: that of snapshot {found.name} is {found.first_id}"
        )
    if found.log_dirs > 1 and data_dir is None:
        raise SettingsError(
            f"snapshot {found.name} has {found.log_dirs} log directories: name as many new ones, --data-dir A,B"
        )
    return found.first_id
