"""What a person at a terminal reads when `kwire up` is ready: where Kafka is and what to do next."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.launch.spec import NodeSpec


def welcome(spec: NodeSpec, bootstrap: str, control: str | None) -> list[str]:
    """Short lines, so that they fit into 80 columns. `control`: the URL of the control API, if any."""
    first, *others = bootstrap.split(",")
    more = f" and {len(others)} more" if others else ""
    lines = [f"Kafka at {first}{more} · {_first_command(first)}"]
    if control is not None:
        second = spec.node_id + 1
        example = f"faults: kwire ctl kill {second}" if others else "look inside: kwire topics"
        lines.append(f"{example} · {control}")
    return [*lines, f"Ctrl-C stops, {fate_of_data(spec)}"]


def fate_of_data(spec: NodeSpec) -> str:
    """What becomes of the data when it stops."""
    if spec.temporary:
        return "data is thrown away (--data-dir DIR keeps it)"
    return f"data stays in {spec.data_dir}"


def _first_command(address: str) -> str:
    """A command that shows that it works, with a client that this machine has."""
    if _is_installed("kcat"):
        return f"kcat -b {address} -L"
    return "kwire produce orders hello"


def _is_installed(command: str) -> bool:
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(os.path.join(folder, command), os.X_OK) for folder in folders if folder)
