"""Cuts and delays of the network between the nodes of a cluster, for tests. Clients are unaffected."""

from __future__ import annotations

from kwire import errors
from kwire.backends.options import kwire_errors
from kwire.server.events import NodeEvent
from kwire.server.link_rules import LinkRule, checked_delay_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from types import TracebackType

    from kwire.aio import Cluster

    Nodes = int | Iterable[int]


class Cut:
    """A cut or delay, as `Network.cut` and `delay` return it: `await` applies it; `async with` applies
    it for the duration of the block."""

    def __init__(
        self,
        network: Network,
        a: set[int],
        b: set[int],
        delay_ms: int | None = None,
        *,
        one_way: bool = False,
    ) -> None:
        """`delay_ms`: None for a cut. `one_way`: only of what `a` asks of `b`."""
        self._network = network
        self._a, self._b = a, b
        self._delay_ms = delay_ms
        self._one_way = one_way

    def __await__(self) -> Generator[object, None, None]:
        applied = self._network.apply(self._a, self._b, self._delay_ms, one_way=self._one_way)
        return applied.__await__()

    async def __aenter__(self) -> None:
        await self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_cut = self._delay_ms is None
        await self._network.lift(self._a, self._b, cut=is_cut, one_way=self._one_way)


class Network:
    """Cuts and delays between nodes, which are given as one id or several, controllers included.

    A link may have both: the delay is there again when the cut is over."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # What is in force, by (sender, receiver).
        self._cuts: set[tuple[int, int]] = set()
        self._delays: dict[tuple[int, int], int] = {}

    def cut(self, a: Nodes, b: Nodes, *, one_way: bool = False) -> Cut:
        """Cut the links between `a` and `b`, in both directions; `one_way`: `a` reaches `b` no more, but `b` still
        reaches `a`, and gets its answers."""
        return Cut(self, *self._sides(a, b), one_way=one_way)

    def delay(self, a: Nodes, b: Nodes, milliseconds: float, *, one_way: bool = False) -> Cut:
        """Delay each request and each response between `a` and `b`; `one_way`: only what `a` asks of `b`, and the
        answers to that."""
        try:
            delay_ms = checked_delay_ms(milliseconds)
        except ValueError as error:
            raise errors.ConfigurationError(str(error)) from None
        return Cut(self, *self._sides(a, b), delay_ms, one_way=one_way)

    async def heal(self, a: Nodes | None = None, b: Nodes | None = None) -> None:
        """Remove cuts and delays: all, all of `a` or of `b`, or those between `a` and `b`."""
        if a is None:
            a, b = b, None
        nodes = others = None
        if a is None:
            pairs = self._pairs()
        elif b is None:
            nodes = self._known(a)
            pairs = [pair for pair in self._pairs() if nodes & set(pair)]
        else:
            nodes, others = self._sides(a, b)
            pairs = [pair for pair in _pairs(nodes, others) if pair in self._pairs()]
        self._require_not_paused(pairs)
        self._log_heal(nodes, others)
        await self._undo(pairs)

    async def lift(self, a: set[int], b: set[int], *, cut: bool, one_way: bool = False) -> None:
        """Remove the cuts, or else the delays, between `a` and `b`: at the end of an `async with`."""
        in_force, others = (self._cuts, self._delays) if cut else (self._delays, self._cuts)
        pairs = [pair for pair in _pairs(a, b, one_way=one_way) if pair in in_force]
        self._require_not_paused(pairs)
        rules = "" if not any(pair in others for pair in pairs) else "cuts" if cut else "delays"
        self._log_heal(a, b, rules)
        for pair in pairs:
            if cut:
                self._cuts.remove(pair)
            else:
                del self._delays[pair]
        await self._update_senders(pairs)

    def _log_heal(self, nodes: set[int] | None, others: set[int] | None, rules: str = "") -> None:
        kind = NodeEvent.HEAL_REQUESTED
        fields = {"nodes": _ids(nodes), "others": _ids(others), "rules": rules or None}
        self._cluster.inside.events.log(kind, **fields)

    def _pairs(self) -> list[tuple[int, int]]:
        """The links with a cut or a delay."""
        return list({**dict.fromkeys(self._cuts), **self._delays})

    async def undo(self) -> None:
        """Remove all cuts and delays, without a line in the log. BrokerNotAvailableError as `apply`."""
        pairs = self._pairs()
        self._require_not_paused(pairs)
        await self._undo(pairs)

    async def _undo(self, pairs: list[tuple[int, int]]) -> None:
        for pair in pairs:
            self._cuts.discard(pair)
            self._delays.pop(pair, None)
        await self._update_senders(pairs)

    def cuts(self, *, one_way: bool = False) -> list[tuple[int, int]]:
        """The cuts in force: pairs of node ids, the smaller first; `one_way`: those in one direction only, who does
        not reach whom."""
        return [
            pair
            for pair, is_one_way in _ways(dict.fromkeys(self._cuts, 0))
            if is_one_way == one_way
        ]

    def delays(self, *, one_way: bool = False) -> list[tuple[int, int, int]]:
        """The delays in force: pairs of node ids, the smaller first, and milliseconds; `one_way`: those in one
        direction only, or with other milliseconds in the other: who asks whom."""
        return [
            (*pair, self._delays[pair])
            for pair, is_one_way in _ways(self._delays)
            if is_one_way == one_way
        ]

    def __repr__(self) -> str:
        return f"<Network: {in_words(self) or 'no cuts or delays'}>"

    def rules_of(self, node_id: int) -> list[LinkRule]:
        """The link rules of a node as sender; they also apply after its next start."""
        delays = {to: ms for (sender, to), ms in self._delays.items() if sender == node_id}
        cuts = sorted(to for sender, to in self._cuts if sender == node_id)
        rules = {to: LinkRule(to, delay_ms) for to, delay_ms in delays.items()}
        return list((rules | {to: LinkRule(to) for to in cuts}).values())

    async def apply(
        self, a: set[int], b: set[int], delay_ms: int | None, *, one_way: bool = False
    ) -> None:
        """Cut or delay what `a` and `b` send to each other; `one_way`: what `a` asks of `b`.

        BrokerNotAvailableError when one of them is paused: nothing has changed then."""
        pairs = _pairs(a, b, one_way=one_way)
        self._require_not_paused(pairs)
        fields = {"nodes": _ids(a), "others": _ids(b), "one_way": one_way}
        if delay_ms is None:
            self._cluster.inside.events.log(NodeEvent.CUT_REQUESTED, **fields)
        else:
            kind = NodeEvent.DELAY_REQUESTED
            self._cluster.inside.events.log(kind, **fields, delay_ms=delay_ms)
        if delay_ms is None:
            self._cuts.update(pairs)
        else:
            self._delays.update(dict.fromkeys(pairs, delay_ms))
        await self._update_senders(pairs)

    def _require_not_paused(self, pairs: list[tuple[int, int]]) -> None:
        for sender, _ in pairs:
            if self._cluster.node(sender).paused:
                kind = "broker" if sender in self._cluster.inside.handles else "controller"
                raise errors.BrokerNotAvailableError(f"{kind} {sender} is paused")

    async def _update_senders(self, pairs: list[tuple[int, int]]) -> None:
        for node_id in dict(pairs):
            handle = self._cluster.node(node_id)
            if handle.running:  # a stopped node gets its rules when it starts
                with kwire_errors():
                    await handle.set_link_rules(self.rules_of(node_id))

    def _known(self, nodes: Nodes) -> set[int]:
        """Check node ids. ConfigurationError for invalid ids, ClusterStateError for unknown nodes."""
        given = [nodes] if isinstance(nodes, int) else nodes
        if not isinstance(given, set | frozenset | list | tuple) or not all(
            isinstance(each, int) for each in given
        ):
            raise errors.ConfigurationError(f"expected ids of nodes, not {nodes!r}")
        found = set(given)
        for node_id in found:
            self._cluster.node(node_id)  # ClusterStateError for an unknown id
        return found

    def _sides(self, a: Nodes, b: Nodes) -> tuple[set[int], set[int]]:
        """Check two disjoint sets of nodes. ConfigurationError, ClusterStateError."""
        first, second = self._known(a), self._known(b)
        both = first & second
        if both or not first or not second:
            raise errors.ConfigurationError(
                f"expected two different sets of nodes, not {sorted(first)} and {sorted(second)}"
            )
        return first, second


def in_words(network: Network) -> str:
    """The cuts and delays in force, for people: "1 | 2 cut, 2 | 3 delayed by 20 ms"; "": none."""
    found = [f"{a} | {b} cut" for a, b in network.cuts()]
    found += [f"{a} → {b} cut" for a, b in network.cuts(one_way=True)]
    found += [f"{a} | {b} delayed by {ms:g} ms" for a, b, ms in network.delays()]
    found += [f"{a} → {b} delayed by {ms:g} ms" for a, b, ms in network.delays(one_way=True)]
    return ", ".join(found)


def _pairs(a: set[int], b: set[int], *, one_way: bool = False) -> list[tuple[int, int]]:
    """Each sender with each receiver, in both directions or in one."""
    pairs = [(x, y) for x in sorted(a) for y in sorted(b)]
    return pairs if one_way else pairs + [(y, x) for x, y in pairs]


def _ways(rules: Mapping[tuple[int, int], int]) -> list[tuple[tuple[int, int], bool]]:
    """The pairs, and whether the other direction has another rule or none; if it has the same, only the one with the
    smaller id first."""
    found = []
    for (sender, to), value in sorted(rules.items()):
        is_one_way = rules.get((to, sender)) != value
        if is_one_way or sender < to:
            found.append(((sender, to), is_one_way))
    return found


def _ids(nodes: set[int] | None) -> list[int] | None:
    return None if nodes is None else sorted(nodes)
