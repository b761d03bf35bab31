"""States that last, from the events of a cluster: nodes down or paused, cuts, controllers, groups.

A span is {"lane", "kind", "from", "to" (None: it lasts), "label", "text"}, times in Unix milliseconds.
A link is a cut or delay between nodes: {"kind", "nodes", "from", "to", "text"}.
"""

from __future__ import annotations

from kwire.report.marks import NETWORK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Span = dict[str, Any]

_ENDS = {"KILL_REQUESTED": "killed", "STOP_REQUESTED": "stopped", "NODE_DIED": "died"}
_RESIGNED = ("CONTROLLER_RESIGNED", "CONTROLLER_STOPPED")


class Spans:
    """Reads events in the order of time, and has their `spans` and `links`."""

    def __init__(self, nodes: dict[str, str], from_ms: int) -> None:
        """`nodes`: lanes of the nodes that run at `from_ms`, and their kinds."""
        self.spans: list[Span] = []
        self.links: list[Span] = []
        self._nodes: dict[str, Span] = {}  # the open span of each node
        self._groups: dict[str, Span] = {}
        self._controllers: dict[str, int] = {}  # active ones, by lane: epoch
        self._cuts: list[tuple[Span, Span, set[frozenset[int]]]] = []  # with the pairs in force
        self._names = {lane: f"{kind} {lane}" for lane, kind in nodes.items()}
        for lane in nodes:
            self._enter(lane, "up", from_ms, "", "runs")

    def read(self, event: dict[str, Any]) -> None:
        """Take up an event."""
        name, fields, at = event["event"], event["fields"], event["time_ms"]
        node = fields.get("node_id")
        if name in _ENDS and node is not None:
            self._leave_office(str(node))
            self._enter(str(node), "down", at, _ENDS[name], _ENDS[name])
        elif name == "BROKER_HALTED":
            self._enter(str(event["node"]), "down", at, "halted", event["message"])
        elif name == "START_REQUESTED":
            self._enter(str(node), "up", at, "", "runs")
        elif name == "PAUSE_REQUESTED":
            self._enter(str(node), "paused", at, "paused", "paused")
        elif name == "RESUME_REQUESTED":
            self._resume(str(node), at)
        elif name == "CONTROLLER_ELECTED":
            lane = str(fields["controller_id"])
            if lane in self._nodes:
                self._controllers = {lane: fields["controller_epoch"]}
                label = f"active, epoch {fields['controller_epoch']}"
                self._enter(lane, "active", at, label, label)
        elif name in _RESIGNED:
            self._enter(str(event["node"]), "up", at, "resigned", event["message"])
        elif name in ("CUT_REQUESTED", "DELAY_REQUESTED"):
            self._link(name, fields, at)
        elif name == "HEAL_REQUESTED":
            self._heal(fields["nodes"], fields["others"], at, fields.get("rules"))
        elif name == "RESET_REQUESTED":
            self._heal(None, None, at)
        elif "group" in fields:
            self._group(name, fields, at)

    def _enter(self, lane: str, kind: str, at: int, label: str, text: str) -> None:
        before = self._nodes.get(lane)
        if before is not None:
            if before["kind"] == kind == "down":
                return  # killed, then reported as dead
            before["to"] = at
        span = {
            "lane": lane,
            "kind": kind,
            "from": at,
            "to": None,
            "label": label,
            "text": f"{self._names.get(lane, lane)}: {text}",
        }
        self._nodes[lane] = span
        self.spans.append(span)

    def _leave_office(self, lane: str) -> None:
        self._controllers.pop(lane, None)

    def _resume(self, lane: str, at: int) -> None:
        epoch = self._controllers.get(lane)
        if epoch is None:
            self._enter(lane, "up", at, "", "runs")
        else:  # as far as it knows: its lease may have expired
            label = f"active, epoch {epoch}"
            self._enter(lane, "active", at, label, label)

    # --- the network

    def _link(self, name: str, fields: dict[str, Any], at: int) -> None:
        a, b = fields["nodes"], fields["others"]
        pairs = {frozenset((x, y)) for x in a for y in b}
        sides = f"{','.join(map(str, a))} | {','.join(map(str, b))}"
        kind, text = "cut", f"cut {sides}"
        if name == "DELAY_REQUESTED":
            kind, text = "delay", f"delay {sides} by {fields['delay_ms']} ms"
        self._cut_off(pairs, at, kind)
        span = {"lane": NETWORK, "kind": kind, "from": at, "to": None, "label": text, "text": text}
        link = {"kind": kind, "nodes": [str(each) for each in (*a, *b)], "from": at, "to": None}
        link["text"] = text
        self.spans.append(span)
        self.links.append(link)
        self._cuts.append((span, link, pairs))

    def _heal(
        self, nodes: list[int] | None, others: list[int] | None, at: int, rules: str | None = None
    ) -> None:
        """End the links between nodes. `rules`: "cuts" or "delays" only."""
        every = {pair for _, _, pairs in self._cuts for pair in pairs}
        if nodes is None:
            healed = every
        elif others is None:
            healed = {pair for pair in every if pair & set(nodes)}
        else:
            healed = {frozenset((x, y)) for x in nodes for y in others}
        self._cut_off(healed, at, {"cuts": "cut", "delays": "delay"}.get(rules or ""))

    def _cut_off(self, healed: set[frozenset[int]], at: int, kind: str | None = None) -> None:
        """End the links, of this kind if given, of which no pair is left."""
        left = []
        for span, link, pairs in self._cuts:
            if kind in (None, link["kind"]):
                pairs -= healed
            if pairs:
                left.append((span, link, pairs))
            else:
                span["to"] = link["to"] = at
        self._cuts = left

    # --- groups

    def _group(self, name: str, fields: dict[str, Any], at: int) -> None:
        group, generation = fields["group"], fields.get("generation")
        match name:
            case "GROUP_REBALANCE_STARTED":
                kind, label = "rebalance", "rebalance"
                text = f"{group}: rebalance after generation {generation}"
            case "GROUP_STABLE":
                members = fields["members"]
                kind = "stable"
                label = f"generation {generation}, {members} member{'s' * (members != 1)}"
                text = f"{group}: {label}"
            case "GROUP_EMPTY":
                kind, label, text = "empty", "empty", f"{group}: empty"
            case _:
                return
        before = self._groups.get(group)
        if before is not None:
            if before["kind"] == kind == "rebalance":
                return
            before["to"] = at
        span = {
            "lane": f"group:{group}",
            "kind": kind,
            "from": at,
            "to": None,
            "label": label,
            "text": text,
        }
        self._groups[group] = span
        self.spans.append(span)
