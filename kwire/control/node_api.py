"""The control API of one container (KWIRE_CONTROL_PORT): what can be asked of the nodes in it, and of their network.

Paths as those of `cluster_api.py`, for the part of the cluster in this container; `kwire.backends.containers` uses
it. A container that starts again has the cuts and delays that it had: they are kept in a file of the container.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from kwire.control.socket import ControlSocket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from kwire.broker import Broker
    from kwire.control.http import Handler, HttpError
    from kwire.server.node import Node

    class Answering(Protocol):
        """A NodeRunner, or as much of one."""

        @property
        def node_id(self) -> int: ...

        @property
        def is_controller(self) -> bool: ...

        @property
        def advertised(self) -> str: ...

        def answer(self, question: str) -> str: ...


NETWORK_FILE = "/tmp/kwire-network"
_MAX_DELAY_MS = 86_400_000


class BrokerAlone:
    """A broker without others."""

    is_controller = False

    def __init__(self, node: Node, broker: Broker) -> None:
        self._node, self._broker = node, broker
        self.node_id = broker.services.node_id

    @property
    def advertised(self) -> str:
        """Where clients are told to reach it."""
        return self._node.bootstrap_servers

    def answer(self, question: str) -> str:
        """As NodeRunner.answer."""
        from kwire.control import inside

        return inside.answer(self._node, self._broker, question)


async def opened(
    port: int, nodes: Callable[[], Sequence[Answering]], network: list[str] | None
) -> ControlSocket:
    """The API, on all addresses of the container. NodeError for a port that is taken.

    `nodes()`: what is loaded. `network`: the commands that hold, kept up to date; None where there are no others."""

    def made() -> tuple[Handler, Callable[[Exception], HttpError]]:
        return NodeControl(nodes, network).handle, _judged

    socket = ControlSocket(made)
    await socket.open("0.0.0.0", port)
    return socket


def kept_network() -> list[str]:
    """The commands of NodeRunner.network that held when the container ended."""
    with suppress(OSError, ValueError, AttributeError), open(NETWORK_FILE) as file:
        return list(_commands(list(json.load(file).values())).values())
    return []


def _judged(error: Exception) -> HttpError:
    from kwire.control.http import HttpError

    return HttpError(500, f"internal error; please report it: {type(error).__name__}: {error}")


class NodeControl:
    """The API of what runs in this container."""

    def __init__(self, nodes: Callable[[], Sequence[Answering]], network: list[str] | None) -> None:
        self._nodes = nodes
        self._network = network
        self._commands = _commands(network or [])  # by the other node: what holds now

    async def handle(self, method: str, path: list[str], body: dict[str, Any]) -> Any:
        """The answer to a request. HttpError."""
        from kwire.control.http import HttpError, checked_body
        from kwire.recent import as_objects

        match method, path:
            case "GET", ["healthz"]:
                return {"status": "ok"}
            case "GET", ["v1", "cluster"]:
                return self._described()
            case "GET" | "DELETE", ["v1", "requests"]:
                forget = method == "DELETE"
                kept = {
                    node.node_id: _asked(node, "requests", forget)
                    for node in self._nodes()
                    if not node.is_controller
                }
                return {} if forget else as_objects(kept)
            case "POST" | "DELETE" | "PUT", ["v1", "network", *_] if self._network is None:
                raise HttpError(409, "the broker of this container has no others")
            case "PUT", ["v1", "network"]:
                try:
                    wanted = _commands(checked_body(body, "commands")[0])
                except ValueError as error:
                    raise HttpError(400, str(error)) from None
                self._replace(wanted)
                return {}
            case "POST", ["v1", "network", "cuts"]:
                for other in self._others(*checked_body(body, "a", "b")):
                    self._apply(other, f"cut {other}")
                return {}
            case "POST", ["v1", "network", "delays"]:
                *pair, milliseconds = checked_body(body, "a", "b", "milliseconds")
                if not _is_whole(milliseconds) or milliseconds >= _MAX_DELAY_MS:
                    raise HttpError(400, f"milliseconds: expected a number, not {milliseconds!r}")
                for other in self._others(*pair):
                    self._apply(other, f"delay {other} {milliseconds}")
                return {}
            case "DELETE", ["v1", "network", "cuts" | "delays"]:
                a, b = checked_body(body, optional=("a", "b"))
                others = list(self._commands) if a is None or b is None else self._others(a, b)
                for other in others:
                    self._apply(other, None)
                return {}
        raise HttpError(404, f"there is no {method} /{'/'.join(path)} in a container")

    def _described(self) -> dict[str, Any]:
        found: dict[str, Any] = {"brokers": [], "controllers": []}
        for node in self._nodes():
            state = {
                "id": node.node_id,
                "address": node.advertised,
                "running": True,
                "paused": False,
            }
            if node.is_controller:
                state["active"], state["epoch"] = _asked(node, "reign")
            found["controllers" if node.is_controller else "brokers"].append(state)
        return found

    def _others(self, a: object, b: object) -> list[int]:
        """Of two sets of nodes, those to be cut off from the nodes in here."""
        first, second = _ids(a), _ids(b)
        here = {node.node_id for node in self._nodes()}
        return sorted((second if here & first else set()) | (first if here & second else set()))

    def _apply(self, other: int, command: str | None) -> None:
        """Lets a command hold for what is sent from here to another node; None: nothing any more."""
        for node in self._nodes():
            if self._commands.get(other) is not None:
                node.answer(f"heal {other}")
            if command is not None:
                node.answer(command)
        self._commands.pop(other, None)
        if command is not None:
            self._commands[other] = command
        self._keep()

    def _replace(self, wanted: dict[int, str]) -> None:
        for other in self._commands.keys() | wanted.keys():
            if self._commands.get(other) != wanted.get(other):
                self._apply(other, wanted.get(other))

    def _keep(self) -> None:
        assert self._network is not None
        self._network[:] = self._commands.values()
        with suppress(OSError), open(NETWORK_FILE, "w") as file:
            json.dump(self._commands, file)


def _asked(node: Answering, *question: object) -> Any:
    from kwire.control.http import HttpError

    answer = json.loads(node.answer(json.dumps(question)))
    if "error" in answer:
        raise HttpError(500, answer["message"], answer["error"])
    return answer["ok"]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _ids(given: object) -> set[int]:
    from kwire.control.http import HttpError

    found = given if isinstance(given, list) else [given]
    if not all(map(_is_whole, found)):
        raise HttpError(400, f"expected ids of nodes, not {given!r}")
    return set(found)


def _commands(given: object) -> dict[int, str]:
    """Commands of NodeRunner.network, by the other node. ValueError."""
    found = {}
    for command in given if isinstance(given, list) else [given]:
        word, *numbers = str(command).split() or [""]
        known = {"cut": 1, "delay": 2}
        if known.get(word) != len(numbers) or not all(
            number.isascii() and number.isdigit() and len(number) < 11 for number in numbers
        ):
            raise ValueError(f"not understood: {command!r}")
        found[int(numbers[0])] = " ".join((word, *numbers))
    return found
