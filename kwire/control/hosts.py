"""The names by which the control API may be addressed: the Host header of a request.

A web page can make its own name lead to 127.0.0.1 (DNS rebinding): its requests are then not
cross-site, carry no Origin when they read, and name that page's host. So a name that anybody could
have registered is refused, unless it is known to be this machine's. Always allowed: addresses, names
without a dot (containers, services), names below top-level domains that nobody can register (RFC 6761,
RFC 6762, and `internal`; `svc` of Kubernetes), the machine's own name and the advertised ones.
"""

from __future__ import annotations

import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ALLOWED = "KWIRE_CONTROL_HOSTS"
"""The variable with further names, commas between; "*": any."""
_RESERVED = {"localhost", "internal", "local", "test", "example", "invalid", "svc"}


def host_name(text: str) -> str:
    """The name or address in a Host header, in lower case, without port and brackets."""
    text = text.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] or text if text.count(":") == 1 else text


class Hosts:
    """The names of this control API."""

    def __init__(self, addresses: Callable[[], str] | None = None) -> None:
        """`addresses()`: HOST:PORT,… that are advertised now."""
        self._addresses = addresses

    def has(self, name: str) -> bool:
        """Whether a request may name this host. `name`: as of `host_name`."""
        name = name.rstrip(".")
        last = name.rpartition(".")[2]
        if "." not in name or last in _RESERVED or last.isdigit():
            return True  # nobody's domain, or an address
        advertised = [] if self._addresses is None else self._addresses().split(",")
        given = os.environ.get(ALLOWED, "").split(",")
        own = [socket.gethostname(), *map(host_name, advertised), *given]
        return "*" in given or name in {each.strip().lower().rstrip(".") for each in own}
