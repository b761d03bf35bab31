"""Docker's engine, by its SDK: how it is reached, what its errors mean, and what is left in it by who was killed.

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
LABEL_OWNER = "kwire.owner"  # its temporary directory
LABEL_HOST = "kwire.host"


def this_host() -> str:
    """Paths of two machines, or containers, that use one engine mean different things."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return f"{socket.gethostname()}-{file.read().strip()}"
    return socket.gethostname()


def connected() -> Any:
    """The SDK's client of the engine that DOCKER_HOST names."""
    try:
        docker: Any = import_module("docker")
    except ImportError:
        raise errors.StartError(
            'isolation "docker" needs the Docker SDK: pip install "kwire[docker]"'
        ) from None
    client = docker.from_env()
    client.ping()
    return client


def explained(work: Callable[[], T], image: str) -> T:
    """The result; errors of the SDK are StartErrors of one line."""
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
    """Where published ports are reached from here, and the address to publish them at."""
    scheme, _, rest = client.api.base_url.partition("://")
    if "+" in scheme:  # http+docker: a socket of this machine
        return "127.0.0.1", "127.0.0.1"
    host = rest.partition("/")[0].rpartition(":")[0]
    return host, "0.0.0.0"


def remove_quietly(work: Callable[[], object]) -> None:
    """Errors leave the rest to be removed; the next start's sweep has another try."""
    with suppress(Exception):
        work()


def sweep_engine(client: Any) -> None:
    """Removes what processes have left that were killed."""
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
