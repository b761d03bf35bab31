"""The faults that are set at one node, on the way of the requests that they are about.

Only the routes of APIs that a rule names lead through here (`Sessions._make_route`); a node without rules has no table.
What other nodes and kwire's own administration ask is spared, unless a rule names the client or an API that only
nodes use; and so are clients that an earlier test left behind (`leftovers.py`).
"""

from __future__ import annotations

from kwire.apis.parts.results import names_all, parts_of
from kwire.apis.parts.shapes import Part
from kwire.faults import acts
from kwire.faults.rules import Hit, Rule
from kwire.protocol.api import ApiKey
from kwire.recent import api_text, is_internal
from kwire.replication.controller.table import TABLE as OF_CONTROLLERS
from kwire.replication.controller.table import AskedBy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from kwire.apis import Handler
    from kwire.apis.context import RequestContext
    from kwire.session import Sessions, _Route

_AMONG_NODES = frozenset(
    (
        *(row.key for row in OF_CONTROLLERS if row.asked_by is AskedBy.BROKERS),
        *(ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.ENVELOPE),
        *(ApiKey.WRITE_TXN_MARKERS, ApiKey.CONTROLLED_SHUTDOWN),
    )
)
"""APIs that only nodes use: a rule that names one is about nodes."""
_WHOLE_BYTES = 1 << 62
"""Requests of routes with a rule are not cut: each is hit once."""


class FaultTable:
    """The rules of one node, `Sessions.faults` while there are any."""

    __slots__ = ("_last_id", "_sessions", "node_id", "of_disk", "on_hit", "rules")

    def __init__(self, sessions: Sessions, node_id: int) -> None:
        self._sessions = sessions
        self.node_id = node_id
        self.rules: dict[str, Rule] = {}
        self.of_disk: list[Rule] = []  # what waits for a slow disk
        self._last_id = 0
        self.on_hit: Callable[[Rule, Hit], None] | None = None
        """Called with a rule's first hit."""

    def add(self, given: Mapping[str, Any], rule_id: str | None = None) -> Rule:
        """Set a fault. `rule_id`: None for a new one. ValueError."""
        while rule_id is None or (rule_id in self.rules and not rule_id):
            self._last_id += 1
            name = f"fault-{self._last_id}"
            rule_id = None if name in self.rules else name
        rule = Rule(rule_id, given)
        self.rules[rule_id] = rule
        self._changed()
        return rule

    def remove(self, rule_id: str) -> Rule | None:
        """Remove a fault; None: no fault has that id. What it holds back goes on."""
        rule = self.rules.pop(rule_id, None)
        self._changed()
        return rule

    def clear(self) -> list[Rule]:
        """Remove all faults."""
        rules = list(self.rules.values())
        self.rules.clear()
        self._changed()
        return rules

    def set_slow_disk(self, rules: list[Rule]) -> None:
        """Let requests wait for a slow disk (`slow_disk.py`), none from now on if there are no rules."""
        self.of_disk = rules
        self._changed()

    def _changed(self) -> None:
        sessions = self._sessions
        sessions.faults = self if self.rules or self.of_disk else None
        sessions.forget_routes()

    # --- requests

    def guard(self, route: _Route, api_key: int) -> None:
        """Lead an API's requests through the rules about it, the oldest first."""
        every = (*self.rules.values(), *self.of_disk)
        rules = [rule for rule in every if rule.key in (None, api_key)]
        for rule in reversed(rules):
            route.handler = self._guarded(rule, route.handler)
            route.large_bytes = _WHOLE_BYTES

    def _guarded(self, rule: Rule, handler: Handler) -> Handler:
        act = acts.BY_NAME[rule.act]
        is_late = rule.act == "corrupt"  # only an answer with records is hit

        def faulty(ctx: RequestContext, request: Any) -> None:
            if not self._is_about(rule, ctx, request) or not (is_late or rule.happens()):
                handler(ctx, request)
                return

            def note(what: str) -> None:
                hit = Hit(
                    services.clock.now_ms, ctx.client_id or "", ctx.api_key, ctx.api_version, what
                )
                rule.kept.append(hit)
                if rule.hits == 1 and self.on_hit is not None:
                    self.on_hit(rule, hit)

            services = ctx.services
            act(acts.Stroke(rule, _names_of(ctx), note), ctx, request, handler)

        return faulty

    def _is_about(self, rule: Rule, ctx: RequestContext, request: Any) -> bool:
        session, key = ctx.session, ctx.api_key
        if rule.client_id is None:
            is_spared = rule.key is None or key not in _AMONG_NODES
            if rule.spares_nodes and is_spared and is_internal(ctx.client_id or ""):
                return False
        elif rule.client_id != ctx.client_id:
            return False
        if (
            rule.version not in (None, ctx.api_version)
            or rule.broker not in (None, self.node_id)
            or rule.listener not in (None, session.listener_name)
            or rule.user not in (None, session.principal.partition(":")[2])
        ):
            return False
        if not acts.wants_answer(ctx, request) and (
            rule.act == "throttle" or rule.value == "after"
        ):
            return False
        return not rule.selects_parts or any(map(rule.allows, self._parts(ctx, request, rule)))

    def _parts(self, ctx: RequestContext, request: Any, rule: Rule) -> Iterator[Part]:
        """What a request names: of a Fetch also what its session has named before."""
        key, version = ctx.api_key, ctx.api_version
        if key == ApiKey.FETCH and rule.act == "corrupt":
            yield Part(rule.topic, rule.partition)  # the answer will tell
            return
        if names_all(key, version, request):
            yield Part(rule.topic, rule.partition, getattr(request, "group_id", None))
        yield from parts_of(key, version, request, _names_of(ctx))
        if key == ApiKey.FETCH and request.session_id:
            name_of = _names_of(ctx)
            for partition in ctx.services.fetch_sessions.partitions_of(request.session_id):
                name = partition.topic or name_of(partition.topic_id)
                yield Part(name, partition.partition)


def _names_of(ctx: RequestContext) -> acts.NameOf:
    """The names of topic ids at a broker, or at a controller."""
    services: Any = ctx.services
    if hasattr(services, "registered"):  # a controller's
        topics = services.controller.state.topics
        return lambda topic_id: next(
            (name for name, topic in topics.items() if topic.topic_id == topic_id), None
        )
    found: acts.NameOf = services.metadata.topic_name
    return found


def to_json(rule: Rule, node_id: int, now_ms: int) -> dict[str, Any]:
    """A rule with what it has hit at a node, oldest first."""
    return {
        "id": rule.id,
        "rule": rule.given,
        "hits": rule.hits,
        "requests": [
            {
                "broker": node_id,
                "milliseconds_ago": max(0, now_ms - hit.at_ms),
                "client_id": hit.client_id,
                "api": api_text(hit.key, hit.version),
                "outcome": hit.what,
                "count": 1,
            }
            for hit in rule.kept
        ],
    }
