"""Access to a Docker engine by its SDK: connection, error translation, removal of leftovers.

Everything here blocks.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from importlib import import_module

from kwire import errors
from kwire.server.temporary import is_held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

IMAGE_VARIABLE = "KWIRE_IMAGE"
LABEL_OWNER = "kwire.owner"  # the temporary directory of the process that made the object
LABEL_HOST = "kwire.host"


def this_host() -> str:
    """Identify this machine or container: several may use one engine, each with its own paths."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return f"{socket.gethostname()}-{file.read().strip()}"
    return socket.gethostname()


def connect_engine() -> Any:
    """Make the SDK's client for the engine that DOCKER_HOST names."""
    try:
        docker: Any = import_module("docker")
    except ImportError:
        raise errors.StartError(
            'isolation "docker" needs the Docker SDK: pip install "kwire[docker]"'
        ) from None
    client = docker.from_env()
    client.ping()
    return client


def translate_errors(work: Callable[[], T], image: str) -> T:
    """Call `work` and return its result. StartError, in one line, for errors of the SDK."""
    try:
        return work()
    except errors.KwireError:
        raise
    except Exception as error:  # the SDK's own errors, those of requests below it, and of sockets
        module = type(error).__module__.partition(".")[0]
        if module not in ("docker", "requests", "urllib3") and not isinstance(error, OSError):
            raise
        name = type(error).__name__
        if name == "ImageNotFound":
            text = (
                f"there is no image {image}: docker build -t kwire . in a checkout of kwire,"
                f" or set {IMAGE_VARIABLE}"
            )
        elif name == "DockerException" or module != "docker":
            text = f"no Docker engine answers: {' '.join(str(error).split())}"
        else:
            text = f"Docker: {' '.join(str(getattr(error, 'explanation', None) or error).split())}"
        raise errors.StartError(text) from None


def reachable_from_here(client: Any) -> tuple[str, str]:
    """The host under which published ports are reachable from here, and the address to publish at."""
    scheme, _, rest = client.api.base_url.partition("://")
    if "+" in scheme:  # http+docker: a Unix socket
        return "127.0.0.1", "127.0.0.1"
    host = rest.partition("/")[0].rpartition(":")[0]
    return host, "0.0.0.0"


def remove_quietly(work: Callable[[], object]) -> None:
    """Call `work` and ignore errors: the sweep of the next start tries again."""
    with suppress(Exception):
        work()


def sweep_engine(client: Any) -> None:
    """Remove containers, networks and volumes whose owning process is dead."""
    filters = {"label": f"{LABEL_HOST}={this_host()}"}
    found = [(each, each.labels) for each in client.containers.list(all=True, filters=filters)]
    for container, labels in found:
        if not is_held(labels.get(LABEL_OWNER, "")):
            remove_quietly(lambda c=container: c.remove(force=True, v=True))  # type: ignore[misc]
    for network in client.networks.list(filters=filters):
        if not is_held(network.attrs.get("Labels", {}).get(LABEL_OWNER, "")):
            remove_quietly(network.remove)
    for volume in client.volumes.list(filters=filters):
        if not is_held((volume.attrs.get("Labels") or {}).get(LABEL_OWNER, "")):
            remove_quietly(volume.remove)
