"""The listening socket of the control API, bound when the cluster starts.

h11, json and the routes are imported with the first connection: most clusters never get one. A thread imports
them, which takes 100 ms, while the brokers go on.
"""

from __future__ import annotations

import asyncio
import os
import socket
from importlib import import_module

from kwire.control import TOKEN
from kwire.server.errors import NodeError
from kwire.server.listeners import format_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kwire.control.http import Waiting
    from kwire.control.node_api import NodeControl
    from kwire.control.routes import Handler

    MakeHandler = Callable[[], Handler]
    Addresses = Callable[[], str]

_MODULES = ("kwire.control.hosts", "kwire.control.http", "kwire.control.routes")
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_BUFFER_BYTES = 16 << 10  # unread bytes of a connection; http.py limits the size of a request


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket. OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    return host in ("::1", "localhost") or host.startswith("127.")


class ControlSocket:
    """`await open()`, … `await close()`."""

    def __init__(
        self,
        make_handler: MakeHandler,
        addresses: Addresses | None = None,
        modules: tuple[str, ...] = (),
    ) -> None:
        """`make_handler()` makes the handler of requests; called with the first connection, as is
        `addresses()`: HOST:PORT,… of the brokers, whose names are those of the control API, too.
        `modules`: what `make_handler` imports beside the routes."""
        self._modules = (*_MODULES, *modules)
        self._make_handler = make_handler
        self._addresses = addresses
        self._imported: asyncio.Future[None] | None = None
        self._handler: Handler | None = None
        self._is_own_name: Callable[[str], bool] | None = None
        self._waiting: Waiting | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._token: str | None = None
        self.url = ""
        """What commands and people need; with the token, if that was made up."""
        self.place = ""
        """The URL for logs and for processes: without a token."""

    async def open(self, host: str, port: int, *, is_locked: bool = False) -> None:
        """Listen. `is_locked`: its cluster asks clients who they are, and so it asks for a token. NodeError when the
        port is taken."""
        is_made_up = False
        given = os.environ.get(TOKEN, "").strip()
        if given or is_locked or not is_loopback(host):
            from kwire.control.token import USER, token_of

            self._token, is_made_up = token_of(given)
        try:
            # Not start_server(host, port): that starts uvloop's threads, for getaddrinfo.
            listening = _listen(host, port)
            self._server = await asyncio.start_server(
                self._serve, sock=listening, limit=_BUFFER_BYTES
            )
        except OSError as error:
            at = format_address(host, port)
            raise NodeError(f"control API: cannot listen on {at}: {error.strerror}") from None
        bound = self._server.sockets[0].getsockname()
        own_host = _LOOPBACK.get(bound[0], bound[0])
        at = format_address(own_host, bound[1])
        self.place = self.url = f"http://{at}"
        if is_made_up:
            self.url = f"http://{USER}:{self._token}@{at}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if self._imported is None:
                self._imported = asyncio.get_running_loop().run_in_executor(None, self._import)
            await asyncio.shield(self._imported)
            await self._serve_connection(reader, writer)
        except asyncio.CancelledError:  # by `close`; asyncio would log it as an error of the server
            writer.close()
        finally:
            self._connections.discard(task)

    def _import(self) -> None:
        for name in self._modules:
            import_module(name)

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        from kwire.control.hosts import Hosts
        from kwire.control.http import Waiting, serve_connection

        if self._handler is None:
            self._handler = self._make_handler()
        if self._is_own_name is None:
            self._is_own_name = Hosts(self._addresses).has
        if self._waiting is None:
            self._waiting = Waiting()
        await serve_connection(
            reader, writer, self._handler, self._is_own_name, self._token, self._waiting
        )

    async def close(self) -> None:
        """Close the socket and all connections; pending requests are cancelled."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def serve_nodes(port: int, control: NodeControl) -> ControlSocket:
    """Serve the control API of the nodes of this container, on all addresses.

    NodeError when the port is taken."""

    def make_handler() -> Handler:
        from kwire.control.routes import node_handler

        return node_handler(control)

    def addresses() -> str:
        return ",".join(node.advertised for node in control.nodes())

    socket = ControlSocket(make_handler, addresses)
    await socket.open("0.0.0.0", port)
    return socket
