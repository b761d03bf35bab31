"""The control API of one container (KWIRE_CONTROL_PORT): what can be asked of the nodes in it, and of their network.

Paths as those of `cluster_api.py`, for the part of the cluster in this container; `kwire.backends.containers` uses
it. A container that starts again has the cuts and delays that it had: they are kept in a file of the container.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kwire.control.socket import ControlSocket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Protocol

    from kwire.broker import Broker
    from kwire.control.http import Handler, HttpError
    from kwire.server.link_rules import LinkRule
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

        def set_link_rules(self, rules: list[LinkRule]) -> None: ...


NETWORK_FILE = "/tmp/kwire-network"


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

    def set_link_rules(self, rules: list[LinkRule]) -> None:
        """As NodeRunner.set_link_rules; there is nobody to be cut off from."""


async def opened(
    port: int, nodes: Callable[[], Sequence[Answering]], network: list[LinkRule] | None
) -> ControlSocket:
    """The API, on all addresses of the container. NodeError for a port that is taken.

    `nodes()`: what is loaded. `network`: the rules that hold, kept up to date; None where there are no others."""

    def made() -> tuple[Handler, Callable[[Exception], HttpError]]:
        return NodeControl(nodes, network).handle, _judged

    socket = ControlSocket(made)
    await socket.open("0.0.0.0", port)
    return socket


def kept_network() -> list[LinkRule]:
    """The rules that held when the container ended."""
    with suppress(OSError, ValueError), open(NETWORK_FILE) as file:
        from kwire.server.link_rules import rules_from_json

        return rules_from_json(json.load(file))
    return []


def _judged(error: Exception) -> HttpError:
    from kwire.control.http import HttpError

    return HttpError(500, f"internal error; please report it: {type(error).__name__}: {error}")


class NodeControl:
    """The API of what runs in this container."""

    def __init__(
        self, nodes: Callable[[], Sequence[Answering]], network: list[LinkRule] | None
    ) -> None:
        self._nodes = nodes
        self._network = network

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
                from kwire.server.link_rules import rules_from_json

                rules, texts = checked_body(body, optional=("rules", "commands"))
                with _bad_request():
                    self._replace(rules_from_json(texts if rules is None else rules))
                return {}
            case "POST", ["v1", "network", "cuts"]:
                self._add(checked_body(body, "a", "b"), None)
                return {}
            case "POST", ["v1", "network", "delays"]:
                *pair, milliseconds = checked_body(body, "a", "b", "milliseconds")
                from kwire.server.link_rules import checked_delay_ms

                with _bad_request():
                    self._add(pair, checked_delay_ms(milliseconds))
                return {}
            case "DELETE", ["v1", "network", "cuts" | "delays"]:
                a, b = checked_body(body, optional=("a", "b"))
                with _bad_request():
                    others = None if a is None or b is None else self._others(a, b)
                stay = [r for r in self._network or [] if others and r.to not in others]
                self._replace(stay)
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

    def _others(self, a: object, b: object) -> set[int]:
        """Of two sets of nodes, those to be cut off from the nodes in here. ValueError for what are no ids."""
        first, second = _ids(a), _ids(b)
        here = {node.node_id for node in self._nodes()}
        return (second if here & first else set()) | (first if here & second else set())

    def _add(self, pair: list[object], delay_ms: int | None) -> None:
        from kwire.server.link_rules import LinkRule

        with _bad_request():
            rules = {rule.to: rule for rule in self._network or []}
            rules |= {to: LinkRule(to, delay_ms) for to in sorted(self._others(*pair))}
        self._replace(list(rules.values()))

    def _replace(self, rules: list[LinkRule]) -> None:
        """Lets these rules hold for what is sent from here to other nodes, and no others."""
        assert self._network is not None
        self._network[:] = rules
        for node in self._nodes():
            node.set_link_rules(rules)
        with suppress(OSError), open(NETWORK_FILE, "w") as file:
            json.dump([rule.to_json() for rule in rules], file)


@contextmanager
def _bad_request() -> Iterator[None]:
    from kwire.control.http import HttpError

    try:
        yield
    except ValueError as error:
        raise HttpError(400, str(error)) from None


def _asked(node: Answering, *question: object) -> Any:
    from kwire.control.http import HttpError

    answer = json.loads(node.answer(json.dumps(question)))
    if "error" in answer:
        raise HttpError(500, answer["message"], answer["error"])
    return answer["ok"]


def _ids(given: object) -> set[int]:
    from kwire.server.link_rules import checked_node_id

    return set(map(checked_node_id, given if isinstance(given, list) else [given]))
