"""What a person gets when `kwire up` is ready: where Kafka is and what to do next, and the page in a browser."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kwire.launch.spec import NodeSpec

_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def welcome(spec: NodeSpec, bootstrap: str, control: str | None) -> list[str]:
    """Short lines, so that they fit into 80 columns. `control`: the URL of the control API, if any."""
    first, *others = bootstrap.split(",")
    more = f" and {len(others)} more" if others else ""
    lines = [f"Kafka at {first}{more} · {_first_command(first)}"]
    if control is not None:
        second = spec.node_id + 1
        example = f"faults: kwire ctl kill {second}" if others else "look inside: kwire topics"
        lines.append(f"{example} · page: {page_of(control)}")
    return [*lines, f"Ctrl-C stops, {fate_of_data(spec)}"]


def page_of(control: str) -> str:
    """The address of the page: that of the control API, without a token, for which the page asks."""
    scheme, _, place = control.rpartition("://")
    return f"{scheme}://{place.rpartition('@')[2]}/"


def open_page(control: str) -> None:
    """Open the page in a browser of this machine; on a thread, as that may take its time."""
    from threading import Thread

    Thread(target=_open, args=(page_of(control),), daemon=True).start()


def _open(url: str) -> None:
    import webbrowser

    # Without a screen Python would take a browser for terminals, which this one is not free for.
    has_screen = sys.platform == "darwin" or any(os.environ.get(name) for name in _SCREENS)
    is_open = False
    with suppress(OSError, webbrowser.Error):
        is_open = has_screen and webbrowser.open(url)
    if not is_open:
        from kwire.server.events import NodeEvent
        from kwire.server.logs import event

        event(logging.getLogger(__name__), NodeEvent.NO_BROWSER, url=url)


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
