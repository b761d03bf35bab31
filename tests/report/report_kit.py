"""Events and pages for tests of reports."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

from kwire.coordinator.events import GroupEvent
from kwire.replication.core.events import Event, EventType
from kwire.replication.core.outbox import Log
from kwire.report import model
from kwire.server.event_history import event_object
from kwire.server.events import NodeEvent

NODES = [
    {"id": 1000, "kind": "controller", "address": "h:1", "state": "running"},
    *({"id": n, "kind": "broker", "address": f"h:{n}", "state": "running"} for n in (1, 2, 3)),
]


class Story:
    """Events in the order of time, as nodes and the cluster report them."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []

    def add(self, kind: EventType, at: int, by: int | None = None, /, **fields: Any) -> Story:
        """An event at a time in ms, reported by a node; fields that are not given are None."""
        values = {**dict.fromkeys(kind.fields), **fields}
        found = event_object(Log(kind, values, at), by, len(self.objects) + 1)
        self.objects.append(json.loads(json.dumps(found)))
        return self

    def ask(self, name: str, at: int, **fields: Any) -> Story:
        """Something that is asked of the cluster: "KILL" for KILL_REQUESTED."""
        return self.add(getattr(NodeEvent, f"{name}_REQUESTED"), at, None, **fields)

    def change(self, name: str, at: int, **fields: Any) -> Story:
        """A change of orders-0 by the controller."""
        given = {"topic": "orders", "partition": 0, "previous_isr": [1, 2, 3], "isr": [1, 2, 3]}
        return self.add(getattr(Event, name), at, 1000, **{**given, **fields})

    def group(self, name: str, at: int, **fields: Any) -> Story:
        """Something of the group shop, at broker 2."""
        given = {"group": "shop", "generation": 1, "members": 2, **fields}
        return self.add(getattr(GroupEvent, f"GROUP_{name}"), at, 2, **given)

    def draw(self, **options: Any) -> dict[str, Any]:
        given = {"requests": [], "since_ms": 0, "now_ms": 10_000, "test": None, **options}
        return model.draw(self.objects, NODES, **given)


def spans(found: dict[str, Any], lane: str) -> list[tuple[str, int, int | None]]:
    """Kind, begin and end of the bars in a lane."""
    return [(s["kind"], s["from"], s["to"]) for s in found["spans"] if s["lane"] == lane]


class Page(HTMLParser):
    """What stands in a page: elements, attributes, the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self._in_script = True
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_script and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data

    @property
    def data(self) -> Any:
        """The model in the page."""
        return json.loads(self.scripts[0])
