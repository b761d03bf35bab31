"""The health file of a container: where its brokers listen, for the image's health check and tools.

One line per broker, "HOST PORT"; the first line ends with the id of the process that wrote it. The
file exists while the nodes are ready. docker/bin/kwire-health reads it. The image sets KWIRE_HEALTH_FILE,
so that `kwire up` in a container writes it, too."""

from __future__ import annotations

import os
import sys

from kwire.launch.process import remove

SEEN = ".seen"
"""Appended to the file's name: the health check has seen the nodes ready (docker/bin/kwire-health)."""


def write_health_file(path: str, addresses: str) -> None:
    """Write the file. `addresses`: HOST:PORT of each broker, with commas between. A read-only
    container works without it, with a line on stderr."""
    if _is_anothers(path):
        return
    split = [address.rpartition(":") for address in addresses.split(",")]
    lines = [f"{host.strip('[]')} {port}" for host, _, port in split]
    lines[0] += f" {os.getpid()}"
    remove(path + SEEN)  # of an earlier run in this container
    try:
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write("\n".join([*lines, ""]))
        os.replace(path + ".new", path)
    except OSError as error:
        sys.stderr.write(f"kwire: no health check: {path}: {error.strerror}\n")


def remove_health_file(path: str) -> None:
    """Remove the file unless it belongs to another live process of this container."""
    if not _is_anothers(path):
        remove(path)


def read_health_file(path: str) -> list[str]:
    """HOST:PORT of each broker; none if nothing is ready."""
    try:
        with open(path, encoding="ascii") as file:
            words = [line.split() for line in file]
    except (OSError, UnicodeDecodeError):
        return []
    return [f"[{w[0]}]:{w[1]}" if ":" in w[0] else f"{w[0]}:{w[1]}" for w in words if len(w) > 1]


def _is_anothers(path: str) -> bool:
    try:
        with open(path, encoding="ascii") as file:
            pid = int(file.readline().split()[2])
    except (OSError, ValueError, IndexError):
        return False
    return pid != os.getpid() and os.path.exists(f"/proc/{pid}")
