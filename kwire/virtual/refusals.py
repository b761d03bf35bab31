"""What virtual time does not have: each is refused in one line that says what to do instead."""

from __future__ import annotations

import asyncio

from kwire.virtual.errors import RefusedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_REAL_SOCKET = (
    "in virtual time there are no real sockets: the clock would run away while it waits for one"
    " (asyncio's open_connection, start_server, create_connection and create_server work, in memory)"
)
_PROCESS = (
    "in virtual time there are no subprocesses: the clock would run away while it waits for one"
)


class MemoryPort:
    """What the loop's `create_server` gets in place of a bound socket."""

    def __init__(self, port: int) -> None:
        self.port = port

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def close(self) -> None:
        """No-op: the server gives the port back."""


def port_of(sock: object) -> int:
    """The port of a socket that a node has bound in memory. RefusedError for a real one."""
    if not isinstance(sock, MemoryPort):
        raise RefusedError(f"{_REAL_SOCKET}; a cluster of virtual time is made by world.cluster()")
    return sock.port


def refuse_options(call: str, options: dict[str, Any], kinds: set[str]) -> None:
    """RefusedError for options of the loop that the network in memory does not have."""
    if options.get("ssl"):
        raise RefusedError(f"{call}(ssl=…): in virtual time there is no TLS; use a plain listener")
    if call == "create_connection" and options.get("sock") is not None:
        raise RefusedError(f"{call}(sock=…): {_REAL_SOCKET}")


def _refuse(text: str) -> Any:
    def method(self: object, *arguments: object, **options: object) -> Any:
        raise RefusedError(text)

    return method


def _refuse_coroutine(text: str) -> Any:
    async def method(self: object, *arguments: object, **options: object) -> Any:
        raise RefusedError(text)

    return method


class RefusingLoop(asyncio.BaseEventLoop):
    """An event loop without sockets, processes and signals."""

    def _write_to_self(self) -> None:
        """No-op: nothing sleeps that could be woken."""

    def _process_events(self, events: object) -> None:
        """No-op: there is no selector."""

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        import socket

        number = int(port) if port else 0
        address = host.decode() if isinstance(host, bytes) else host or "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, number))]

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> Any:
        return str(sockaddr[0]), str(sockaddr[1])

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:  # type: ignore[override]
        """No-op: an application that stops at SIGTERM runs, and nobody sends one."""

    def remove_signal_handler(self, sig: int) -> bool:
        return True


for _name in ("add_reader", "remove_reader", "add_writer", "remove_writer"):
    setattr(RefusingLoop, _name, _refuse(_REAL_SOCKET))
for _name in (
    *("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall"),
    *("sock_sendto", "sock_connect", "sock_accept", "sock_sendfile", "sendfile", "start_tls"),
    *("create_datagram_endpoint", "create_unix_connection", "create_unix_server"),
    *("connect_accepted_socket", "connect_read_pipe", "connect_write_pipe"),
):
    setattr(RefusingLoop, _name, _refuse_coroutine(_REAL_SOCKET))
for _name in ("subprocess_exec", "subprocess_shell"):
    setattr(RefusingLoop, _name, _refuse_coroutine(_PROCESS))
