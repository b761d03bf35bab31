"""Routes of the control API: their notation, matching a request, and checking its values.

The items of a path are literal or, in braces, parameters: `{topic}`, `{id:int}`, `{verb:kill|start}`
(one of these words). A field is written with its kind, and a ? if it is optional: `"unclean:bool?"`;
it comes in the body, a JSON object, or as text in the query. `routes.py` has the table.
"""

from __future__ import annotations

from math import isfinite
from reprlib import repr as shortened  # bounded in depth and length, whatever was sent

from kwire.control.errors import ControlError
from kwire.server.link_rules import checked_node_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_MAX_NUMBER_DIGITS = 1000


class Route:
    """A row of the table: a request, and the functions that answer it.

    For a cluster (`kwire up`): `cluster(aio.Cluster, …)`, a coroutine function, `stream(aio.Cluster,
    headers, …)` for clients that accept a stream of events, and `page()` for those that accept HTML. For the nodes in a
    process: `nodes(NodeControl, …)`, or, as one step of the broker or the controller in there,
    `broker(Broker, …)` and `controller(ControllerNode, …)`. … are the values of path and fields."""

    __slots__ = (
        "_items",
        "broker",
        "cluster",
        "controller",
        "fields",
        "method",
        "nodes",
        "page",
        "path",
        "stream",
    )

    def __init__(
        self,
        method: str,
        path: str,
        *fields: str,
        cluster: Callable[..., Any] | None = None,
        stream: Callable[..., Any] | None = None,
        page: Callable[[], Any] | None = None,
        nodes: Callable[..., Any] | None = None,
        broker: Callable[..., Any] | None = None,
        controller: Callable[..., Any] | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self._items = [_pattern(item) for item in path[1:].split("/")]
        self.fields = [_field(text) for text in fields]
        self.cluster = cluster
        self.stream = stream
        self.page = page
        self.nodes = nodes
        self.broker = broker
        self.controller = controller

    def parameters(self) -> list[tuple[str, str]]:
        """The parameters of the path: name and kind ("": any text)."""
        return [(name, kind) for name, kind in self._items if kind is not None]

    def matches(self, items: Sequence[str]) -> bool:
        """Whether a path of these items belongs to this route; numbers are not checked yet."""
        if len(items) != len(self._items):
            return False
        for (name, kind), item in zip(self._items, items, strict=True):
            if kind is None:
                if item != name:
                    return False
            elif "|" in kind and item not in kind.split("|"):
                return False
        return True

    def values(self, items: Sequence[str], body: dict[str, Any], query: str = "") -> list[Any]:
        """The checked values of path and fields; None for omitted fields. ControlError (400)."""
        found: list[Any] = [
            _number(item) if kind == "int" else item
            for (_, kind), item in zip(self._items, items, strict=True)
            if kind is not None
        ]
        if query:
            body = self._with_query(body, query)
        names = [name for name, _, _ in self.fields]
        unknown = sorted(body.keys() - set(names))
        if unknown:
            expected = ", ".join(names) or "no keys"
            raise ControlError(400, f"expected {expected}, not {shortened(unknown[0])}")
        for name, kind, is_optional in self.fields:
            value = body.get(name)
            if name not in body and not is_optional:
                raise ControlError(400, f"{name}: missing")
            if not (value is None and is_optional):
                expected, is_valid = _KINDS[kind]
                if not is_valid(value):
                    raise ControlError(400, f"{name}: expected {expected}, not {shortened(value)}")
                if kind in _NAMES and value is not None:
                    value = _known(name, _NAMES[kind], value)
            found.append(value)
        return found

    def _with_query(self, body: dict[str, Any], query: str) -> dict[str, Any]:
        """The fields of the body and those in the query, in their kinds where they can be."""
        from urllib.parse import parse_qsl

        kinds = {name: kind for name, kind, _ in self.fields}
        found = dict(body)
        for name, text in parse_qsl(query, keep_blank_values=True, errors="surrogateescape"):
            if name in found:
                raise ControlError(400, f"{name}: given twice")
            found[name] = _parsed(text, kinds.get(name, "text"))
        return found


def _parsed(text: str, kind: str) -> Any:
    """The value of a text in the query; the text itself when it is none of that kind."""
    if kind in ("text", "data", "error") or kind in _NAMES:
        return text
    if kind == "bool":
        return {"true": True, "false": False}.get(text, text)
    if kind == "ids" and "," in text:
        return [_parsed(each, kind) for each in text.split(",")]
    try:
        if kind != "number":
            return _number(text)
        found = float(text)
    except (ControlError, ValueError):
        return text
    return found if isfinite(found) else text


def find_route(routes: Sequence[Route], method: str, path: str) -> tuple[Route, list[str]]:
    """The route of a request, and the items of its path. ControlError (404, 405)."""
    items = path.strip("/").split("/")
    if "%" in path:
        from urllib.parse import unquote

        items = [unquote(item) for item in items]
    of_path = [route for route in routes if route.matches(items)]
    for route in of_path:
        if route.method == method:
            return route, items
    request = f"{method} /{'/'.join(items)}"
    if of_path:
        allow = tuple(sorted({route.method for route in of_path}))
        raise ControlError(405, f"there is no {request}, but {', '.join(allow)}", allow=allow)
    raise ControlError(404, f"there is no {request}: GET /v1 lists the requests")


def partition_path(topic: str, index: int) -> str:
    """The path of a partition."""
    return topic_path(topic, f"/partitions/{index}")


def topic_path(topic: str, rest: str) -> str:
    """A path below a topic, which is quoted so that it is a single item."""
    if (
        not topic.isascii()
        or not topic.replace(".", "").replace("-", "").replace("_", "").isalnum()
    ):
        from urllib.parse import quote

        topic = quote(topic, "", errors="replace")
    return f"/v1/topics/{topic}{rest}"


def _pattern(item: str) -> tuple[str, str | None]:
    """Parse an item: name and kind ("": any text) of a parameter, or a literal and None."""
    if not item.startswith("{"):
        return item, None
    name, _, kind = item[1:-1].partition(":")
    return name, kind


def _field(text: str) -> tuple[str, str, bool]:
    """Parse a field: name, kind, and whether it is optional."""
    name, _, kind = text.partition(":")
    return name, kind.removesuffix("?"), kind.endswith("?")


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_NUMBER_DIGITS):
        raise ControlError(400, f"expected a number, not {text[:20]!r}")
    return int(text)


def _known(field: str, kind: str, name: str) -> str:
    """A name as kwire writes it. ControlError (400)."""
    from kwire.control.known import known_name

    try:
        return known_name(kind, name)
    except ValueError as error:
        raise ControlError(400, f"{field}: {error}") from None


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_int(value) or (isinstance(value, float) and isfinite(value))


def _is_ids(value: Any) -> bool:
    try:
        for each in value if isinstance(value, list) else [value]:
            checked_node_id(each)
    except ValueError:
        return False
    return True


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a text", lambda value: isinstance(value, str)),
    "int": ("a whole number", _is_int),
    "number": ("a number", _is_number),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "ids": ("ids of nodes", _is_ids),
    "object": ("keys and values", lambda value: isinstance(value, dict)),
    "data": ('a text or {"base64": …}', lambda value: isinstance(value, str | dict)),
    "list": ("a list", lambda value: isinstance(value, list)),
    "error": (
        "the name or number of an error",
        lambda value: isinstance(value, str) or _is_int(value),
    ),
    "event": ("the name of an event", lambda value: isinstance(value, str)),
    "api": ("the name of an API", lambda value: isinstance(value, str)),
}
_NAMES = {"event": "event", "api": "API"}
"""Kinds whose values are names that kwire knows (`known.py`)."""
